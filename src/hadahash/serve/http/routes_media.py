"""Routes for images of the collection."""

from __future__ import annotations

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from ..core.service import Service
from .auth import require_read_token
from .body import client_of
from .openapi import IdInPath, Responses, errors

_IMAGE_ANSWER: Responses = {
    200: {"content": {"image/jpeg": {}, "image/png": {}}, "description": "The image"},
    304: {"description": "Not modified"},
    **errors(404, 413, 415, 422),
}


def media_routes(service: Service) -> APIRouter:
    """Return the routes /v1/images and /v1/thumbnails.

    Args:
        service: Answers them.
    """
    router = APIRouter(
        prefix="/v1",
        dependencies=[Depends(require_read_token)],
        responses=errors(401, 403, 421, 503),
    )

    @router.get("/images/{id:path}", response_class=Response, responses=_IMAGE_ANSWER)
    async def image(id: IdInPath, request: Request) -> Response:  # noqa: A002
        """The image of an item, encoded again: metadata of the file is not included."""
        return await _respond(service, id, request, thumbnail=False)

    @router.get("/thumbnails/{id:path}", response_class=Response, responses=_IMAGE_ANSWER)
    async def thumbnail(id: IdInPath, request: Request) -> Response:  # noqa: A002
        """The image of an item, small."""
        return await _respond(service, id, request, thumbnail=True)

    return router


async def _respond(service: Service, given: str, request: Request, *, thumbnail: bool) -> Response:
    service.require_ready()
    client = client_of(request)
    with service.images.admit(client):
        collection = await service.handle.fresh()
        file = await service.media.locate(collection, given, thumbnail=thumbnail)
        headers = {"Cache-Control": "private, max-age=300", "ETag": f'"{file.tag}"'}
        if headers["ETag"] in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        image = await service.media.render(file, thumbnail=thumbnail, client=client)
    return Response(image.content, media_type=image.type, headers=headers)
