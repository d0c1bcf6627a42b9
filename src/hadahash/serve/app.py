"""The routes: thin. What they do is in service.py, who may use them in guard.py."""

from __future__ import annotations

import asyncio
import mimetypes
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from importlib import resources
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Path, Request
from fastapi.responses import Response

from .. import __version__
from ..errors import HadaHashError
from . import problems, schema
from .guard import Guard, may_read, may_write
from .schema import ItemParameters, NoParameters, SearchParameters
from .service import Service, Stopwatch
from .uploads import read_asked

IdInPath = Annotated[str, Path(description="An item's id; it may hold slashes.")]
_PAGES = {"/": "index.html", "/docs": "docs.html"}


def create_app(
    service: Service, *, failed: Callable[[HadaHashError], object] | None = None
) -> FastAPI:
    """The application. It answers at once and is ready when the model and the index are open; `failed` is told if not."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        living = asyncio.create_task(_live(service, failed))
        yield
        living.cancel()
        with suppress(asyncio.CancelledError):
            await living
        await service.close()

    app = FastAPI(
        title="HadaHash",
        version=__version__,
        description="Search a collection of images by compact binary codes.",
        lifespan=lifespan,
        docs_url=None,  # FastAPI's own pages fetch scripts from elsewhere
        redoc_url=None,
    )
    app.state.service = service
    for router in (_reading(service), _writing(service), _open_to_all(service)):
        app.include_router(router)
    _add_page(app)
    problems.install(app)
    app.add_middleware(Guard, settings=service.settings, metrics=service.metrics)
    return app


async def _live(service: Service, failed: Callable[[HadaHashError], object] | None) -> None:
    try:
        await service.load()
    except HadaHashError as error:
        problems.LOG.error("%s", error)
        if failed is not None:
            failed(error)
        return
    await service.watch()


def _errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {status: {"model": schema.ErrorAnswer} for status in statuses}


_ASKING = _errors(400, 401, 408, 413, 415, 421, 422, 503)


def _reading(service: Service) -> APIRouter:
    router = APIRouter(
        prefix="/v1", dependencies=[Depends(may_read)], responses=_errors(401, 421, 503)
    )

    @router.post("/search", responses=_ASKING | _errors(404), openapi_extra=_body(SearchParameters))
    async def search(request: Request) -> schema.SearchAnswer:
        """The nearest items of an uploaded image, of a code, or of an item of the index."""
        service.require_ready()
        with service.searches:
            asked = await read_asked(request, SearchParameters, service.settings)
            watch = Stopwatch(service.metrics)
            query, hits, exact = await service.search(asked.parameters, asked.image, watch)
            return schema.SearchAnswer(query=query, hits=hits, exact=exact, took_ms=watch.took())

    @router.post("/encode", responses=_ASKING, openapi_extra=_body(NoParameters))
    async def encode(request: Request) -> schema.EncodeAnswer:
        """The code of an uploaded image."""
        service.require_ready()
        with service.searches:
            asked = await read_asked(request, NoParameters, service.settings)
            if asked.image is None:
                raise problems.Problem(
                    415,
                    "no_image_sent",
                    "There is no image.",
                    "Send it as the part 'image' of a form.",
                )
            watch = Stopwatch(service.metrics)
            packed = await service.encode(asked.image, watch)
            return schema.EncodeAnswer(
                code=packed.tobytes().hex(), bits=service.hasher.bits, took_ms=watch.took()
            )

    @router.get("/images/{id:path}", response_class=Response, responses=_PICTURE)
    async def image(id: IdInPath) -> Response:  # noqa: A002
        """An item's picture, made anew from its pixels: what else the file holds stays here."""
        return await _picture(service, id, thumbnail=False)

    @router.get("/thumbnails/{id:path}", response_class=Response, responses=_PICTURE)
    async def thumbnail(id: IdInPath) -> Response:  # noqa: A002
        """The same, small."""
        return await _picture(service, id, thumbnail=True)

    @router.get("/map", responses=_errors(401, 503))
    async def collection_map() -> schema.MapAnswer:
        """The collection as points of the plane: a projection of the codes, computed once."""
        service.require_ready()
        return schema.MapAnswer(**await asyncio.to_thread(lambda: service.snapshot.map))

    @router.get("/stats", responses=_errors(401, 503))
    async def stats() -> schema.Stats:
        """What is served, and what its limits are."""
        service.require_ready()
        return await asyncio.to_thread(_stats, service)

    return router


_PICTURE: dict[int | str, dict[str, Any]] = {
    200: {"content": {"image/jpeg": {}, "image/png": {}}, "description": "The picture"},
    **_errors(401, 404, 413, 415, 422, 503),
}


async def _picture(service: Service, given: str, *, thumbnail: bool) -> Response:
    service.require_ready()
    with service.pictures:
        picture = await service.picture(given, thumbnail=thumbnail)
    return Response(
        picture.content, media_type=picture.type, headers={"Cache-Control": "private, max-age=300"}
    )


def _stats(service: Service) -> schema.Stats:
    hasher, snapshot, settings = service.hasher, service.snapshot, service.settings
    return schema.Stats(
        version=__version__,
        items=len(snapshot.index),
        bits=hasher.bits,
        engine=snapshot.index.engine,
        model={
            "method": hasher.method,
            "backbone": hasher.backbone,
            "classes": len(hasher.classes),
        },
        labels=[schema.LabelCount(label=label, count=count) for label, count in snapshot.labels],
        limits=schema.Limits(
            max_bytes=settings.max_bytes, max_pixels=settings.max_pixels, max_k=settings.max_k
        ),
        waiting=service.searches.taken,
        writable=settings.write_token is not None,
        uptime_seconds=round(time.monotonic() - service.started, 1),
    )


def _writing(service: Service) -> APIRouter:
    router = APIRouter(
        prefix="/v1", dependencies=[Depends(may_write)], responses=_errors(401, 403, 421, 503)
    )

    @router.post(
        "/items",
        status_code=201,
        responses=_ASKING | _errors(409),
        openapi_extra=_body(ItemParameters),
    )
    async def add(request: Request) -> schema.ItemAnswer:
        """Add an item by its image, of which only the code is kept, or by its code."""
        service.require_ready()
        with service.searches:
            asked = await read_asked(request, ItemParameters, service.settings)
            watch = Stopwatch(service.metrics)
            packed = await service.add(asked.parameters, asked.image, watch)
            given = asked.parameters
            return schema.ItemAnswer(
                id=given.id,
                labels=[*given.label],
                code=packed.tobytes().hex(),
                took_ms=watch.took(),
            )

    @router.delete("/items/{id:path}", status_code=204, responses=_errors(401, 404, 503))
    async def remove(id: IdInPath) -> Response:  # noqa: A002
        """Remove an item. Its image file, if there is one, stays."""
        service.require_ready()
        await service.remove(id)
        return Response(status_code=204)

    @router.post("/reload", responses=_errors(401, 503))
    async def reload() -> schema.Reloaded:
        """Open the index again. It also happens by itself when the index on disk has changed."""
        service.require_ready()
        return schema.Reloaded(items=await service.reload())

    return router


def _open_to_all(service: Service) -> APIRouter:
    router = APIRouter(responses=_errors(421))

    @router.get("/healthz")
    async def healthz() -> schema.Health:
        """Does the service live?"""
        return schema.Health(status="ok")

    @router.get("/readyz", responses=_errors(503))
    async def readyz() -> schema.Health:
        """Can it answer searches?"""
        service.require_ready()
        return schema.Health(status="ready")

    @router.get(
        "/metrics", dependencies=[Depends(may_read)], response_class=Response, responses=_METRICS
    )
    async def metrics() -> Response:
        """Figures for Prometheus."""
        service.metrics.waiting.set(service.searches.taken)
        service.metrics.replaced.set(service.pool.replaced)
        service.metrics.items.set(len(service.snapshot.index) if service.ready else 0)
        return Response(
            service.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8"
        )

    return router


_METRICS: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/plain": {}}, "description": "Prometheus text"},
    **_errors(401),
}


def _body(parameters: type[Any]) -> dict[str, Any]:
    return schema.body_of(parameters) | {"parameters": schema.query_of(parameters)}


def _add_page(app: FastAPI) -> None:
    """The page's files, read once: what a client asks for is looked up by name, and no path is made of it."""
    folder = resources.files(__package__) / "static"
    files = {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}
    for route, name in _PAGES.items():
        app.add_api_route(route, _file(files[name], name), include_in_schema=False)
    for name, content in files.items():
        if name not in _PAGES.values():
            app.add_api_route(f"/static/{name}", _file(content, name), include_in_schema=False)


def _file(content: bytes, name: str) -> Callable[[], Any]:
    kind = mimetypes.guess_type(name)[0] or "application/octet-stream"

    async def send() -> Response:
        return Response(content, media_type=kind, headers={"Cache-Control": "no-cache"})

    return send
