"""Routes that change the index."""

from __future__ import annotations

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from ..core.names import from_json, to_json
from ..core.query import NewItem
from ..core.service import Service
from ..core.timing import StageTimer
from . import schema
from .auth import require_write_token
from .body import client_of, received
from .openapi import BODY_ERRORS, IdInPath, errors, request_body
from .schema import ItemParameters


def item_routes(service: Service) -> APIRouter:
    """Return the routes that change the index.

    Args:
        service: Answers them.
    """
    router = APIRouter(
        prefix="/v1",
        dependencies=[Depends(require_write_token)],
        responses=errors(401, 403, 421, 503),
    )

    @router.post(
        "/items",
        status_code=201,
        responses=BODY_ERRORS | errors(409),
        openapi_extra=request_body(ItemParameters),
    )
    async def add(request: Request) -> schema.ItemAnswer:
        """Add an item by its image, of which only the code is stored, or by its code."""
        service.require_ready()
        client = client_of(request)
        async with received(request, ItemParameters, service) as parsed:
            with service.writes.admit(client):
                timer, given = StageTimer(service.metrics), parsed.parameters
                new = NewItem(given.id, given.label, given.code, given.content, given.model)
                stored, codes = await service.add(new, parsed.image, timer, client)
        return schema.ItemAnswer(
            id=to_json(stored),
            labels=[to_json(from_json(label)) for label in given.label],
            code=codes.packed.tobytes().hex(),
            content=None if codes.content is None else codes.content.tobytes().hex(),
            took_ms=schema.Took(**timer.elapsed()),
        )

    @router.delete("/items/{id:path}", status_code=204, responses=errors(404))
    async def remove(id: IdInPath, request: Request) -> Response:  # noqa: A002
        """Remove an item. Its image file is not deleted."""
        service.require_ready()
        with service.writes.admit(client_of(request)):
            await service.remove(id)
        return Response(status_code=204)

    @router.post("/reload")
    async def reload(request: Request) -> schema.Reloaded:
        """Open the index again. Happens automatically when the index on disk changes."""
        service.require_ready()
        with service.writes.admit(client_of(request)):
            return schema.Reloaded(items=await service.reload())

    return router
