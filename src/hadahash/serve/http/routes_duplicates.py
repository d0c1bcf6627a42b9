"""Routes for groups of the same photo."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import Response

from ..core.collection import display_name
from ..core.duplicates import ListedGroup, Page
from ..core.names import to_json
from ..core.service import Service
from ..problem import Problem
from . import schema
from .auth import require_read_token, require_write_token
from .body import client_of, received
from .openapi import BODY_ERRORS, errors

_BODY = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": schema.DismissParameters.model_json_schema()}},
    }
}
Threshold = Annotated[
    int | None,
    Query(
        ge=0,
        le=1024,
        description="Two photos are linked if at most this number of bits differs: of the content "
        "bits and of 64 bits that tell what a photo looks like. Default: `same_photo` of "
        "/v1/stats. At most a quarter of the bits.",
    ),
]
Skip = Annotated[int, Query(ge=0, le=2**31, description="Number of groups to skip, to page on.")]
Limit = Annotated[int, Query(ge=1, le=100, description="Number of groups to return.")]


def duplicate_routes(service: Service) -> APIRouter:
    """Return the routes /v1/duplicates and /v1/duplicates/dismiss.

    Args:
        service: Answers them.
    """
    router = APIRouter(prefix="/v1", responses=errors(401, 403, 421, 503))

    @router.get(
        "/duplicates",
        response_model=schema.DuplicatesAnswer,
        dependencies=[Depends(require_read_token)],
        responses=errors(422),
    )
    async def duplicates(
        request: Request, threshold: Threshold = None, skip: Skip = 0, limit: Limit = 20
    ) -> Response:
        """Groups of items that show the same photo, the largest first.

        The first request after a change of the index searches all items. While that takes long, the
        answer is 503; ask again.
        """
        service.require_ready()
        with service.listings.admit(client_of(request)):
            collection = await service.handle.fresh()
            content = await service.duplicates.page(
                collection, threshold, skip, limit, render=_answer
            )
        return Response(content, media_type="application/json")

    @router.post(
        "/duplicates/dismiss",
        dependencies=[Depends(require_write_token)],
        responses=BODY_ERRORS | errors(404, 409),
        openapi_extra=_BODY,
    )
    async def dismiss(request: Request) -> schema.Dismissed:
        """Do not list a group again, until another item joins it."""
        service.require_ready()
        async with received(request, schema.DismissParameters, service) as parsed:
            if parsed.image is not None:
                hint = 'Send JSON such as {"key": "0123...", "threshold": 30}.'
                raise Problem(415, "unknown_content_type", "The body must be JSON.", hint)
            given = parsed.parameters
        with service.writes.admit(client_of(request)):
            collection = await service.handle.fresh()
            duplicates = service.duplicates
            if given.key is not None:
                count = await duplicates.dismiss_group(collection, given.key, given.threshold)
            else:
                count = await duplicates.dismiss(collection, given.ids or ())
        return schema.Dismissed(dismissed=count)

    return router


def _answer(page: Page) -> bytes:
    """The JSON of a `schema.DuplicatesAnswer`."""
    found = page.found
    values = {
        "threshold": found.threshold,
        "bits": found.bits,
        "part": found.part,
        "total": len(found),
        "surplus": found.surplus,
        "dismissed": page.dismissed,
        "unread": page.unread,
        "groups": [_group(each) for each in page.groups],
    }
    return schema.PLAIN_VALUES.dump_json(values)


def _group(listed: ListedGroup) -> dict[str, Any]:
    """The values of a `schema.Group`."""
    return {
        "number": listed.number,
        "count": len(listed.group),
        "widest": listed.group.widest,
        "equal": listed.equal,
        "items": [
            {
                "id": to_json(each.item.id),
                "name": display_name(each.item),
                "labels": [to_json(label) for label in each.item.labels],
                "size": each.size,
                "has_image": each.has_image,
            }
            for each in listed.files
        ],
        "key": listed.group.key,
    }
