"""Routes for search and encoding."""

from __future__ import annotations

from fastapi import APIRouter, Depends, Request

from ..core.batcher import admit
from ..core.collection import Neighbor, display_name
from ..core.names import to_json
from ..core.service import Found, SearchQuery, Service
from ..core.timing import StageTimer
from ..problem import Problem
from . import schema
from .auth import require_read_token
from .body import parse_request
from .openapi import BODY_ERRORS, errors, request_body
from .schema import NoParameters, SearchParameters


def search_routes(service: Service) -> APIRouter:
    """Return the routes /v1/search and /v1/encode.

    Args:
        service: Answers them.
    """
    router = APIRouter(
        prefix="/v1",
        dependencies=[Depends(require_read_token)],
        responses=errors(401, 403, 421, 503),
    )

    @router.post(
        "/search",
        responses=BODY_ERRORS | errors(404),
        openapi_extra=request_body(SearchParameters),
    )
    async def search(request: Request) -> schema.SearchAnswer:
        """The nearest items of an uploaded image, of a code, or of an item of the index."""
        service.require_ready()
        parsed = await parse_request(request, SearchParameters, service)
        with admit(service.searches):
            timer, given = StageTimer(service.metrics), parsed.parameters
            query = SearchQuery(given.id, given.code, given.k, given.radius, tuple(given.label))
            return _answer(await service.search(query, parsed.image, timer), timer)

    @router.post("/encode", responses=BODY_ERRORS, openapi_extra=request_body(NoParameters))
    async def encode(request: Request) -> schema.EncodeAnswer:
        """The code of an uploaded image."""
        service.require_ready()
        parsed = await parse_request(request, NoParameters, service)
        if parsed.image is None:
            hint = "Send it as the part 'image' of a form."
            raise Problem(415, "no_image_sent", "The request contains no image.", hint)
        with admit(service.searches):
            timer = StageTimer(service.metrics)
            packed, bits = await service.encode(parsed.image, timer)
            took = schema.Took(**timer.elapsed())
            return schema.EncodeAnswer(code=packed.tobytes().hex(), bits=bits, took_ms=took)

    return router


def _answer(found: Found, timer: StageTimer) -> schema.SearchAnswer:
    item = found.item
    query = schema.Query(
        id=None if item is None else to_json(item.id),
        name=None if item is None else display_name(item),
        labels=[] if item is None else [to_json(label) for label in item.labels],
        code=found.packed.tobytes().hex(),
        bits=found.bits,
    )
    took = schema.Took(**timer.elapsed())
    hits = [_hit(neighbor) for neighbor in found.neighbors]
    return schema.SearchAnswer(query=query, hits=hits, exact=found.exact, took_ms=took)


def _hit(neighbor: Neighbor) -> schema.Hit:
    item = neighbor.item
    return schema.Hit(
        id=to_json(item.id),
        name=display_name(item),
        labels=[to_json(label) for label in item.labels],
        distance=neighbor.distance,
        code=neighbor.code.tobytes().hex(),
        has_image=neighbor.has_image,
    )
