"""The ASGI application."""

from __future__ import annotations

import asyncio
import gc
import logging
import mimetypes
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from importlib import resources
from typing import Any

from fastapi import FastAPI
from fastapi.responses import Response

from ... import __version__
from ...errors import HadaHashError
from ..core.service import Service
from . import errors
from .middleware import SecurityMiddleware
from .routes_duplicates import duplicate_routes
from .routes_items import item_routes
from .routes_media import media_routes
from .routes_ops import health_routes, overview_routes
from .routes_search import search_routes

LOG = logging.getLogger(__name__)
_ROUTES = (
    search_routes,
    duplicate_routes,
    item_routes,
    media_routes,
    overview_routes,
    health_routes,
)
_PAGES = {"/": "index.html", "/docs": "docs.html"}
_FAILED = "The service cannot continue, because a task in the background failed"
_PALETTE = "palette.css"  # one file for the page and for reports


def create_app(
    service: Service,
    *,
    on_failure: Callable[[HadaHashError], object] | None = None,
    load_first: bool = False,
) -> FastAPI:
    """Create the application.

    It accepts requests immediately. /readyz returns 200 when the model and the index are loaded.

    Args:
        service: Answers the requests.
        on_failure: Called if the service cannot start, or cannot continue.
        load_first: Accept requests when the model and the index are loaded, not before.

    Returns:
        The ASGI application.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        tasks = [
            _start(_run_service(service, on_failure), on_failure),
            _start(service.overview.run(), on_failure),
        ]
        while load_first and not (service.ready or service.problem):
            await asyncio.sleep(0.02)
        yield
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await service.close()
        gc.unfreeze()

    app = FastAPI(
        title="HadaHash",
        version=__version__,
        description="Search a collection of images by compact binary codes.",
        lifespan=lifespan,
        docs_url=None,  # these pages would load scripts from other sites
        redoc_url=None,
    )
    app.state.service = service
    for routes in _ROUTES:
        app.router.routes.extend(routes(service).routes)
    _add_page(app)
    errors.install(app)
    app.add_middleware(
        SecurityMiddleware, settings=service.settings, metrics=service.metrics, pages=_PAGES
    )
    return app


async def _run_service(
    service: Service, on_failure: Callable[[HadaHashError], object] | None
) -> None:
    try:
        await service.load()
    except HadaHashError as error:
        if on_failure is None:
            LOG.error("%s", error)
        else:
            on_failure(error)
        return
    gc.freeze()  # else a collection looks at all that was loaded, and stops requests meanwhile
    await service.watch()


def _start(
    work: Coroutine[None, None, None], on_failure: Callable[[HadaHashError], object] | None
) -> asyncio.Task[None]:
    """Run work for as long as the service runs. An error of it is logged and ends the server."""

    def check(task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            LOG.error("%s", _FAILED, exc_info=error)
            if on_failure is not None:
                on_failure(HadaHashError(f"{_FAILED}: {error!r}. See the log."))

    task = asyncio.create_task(work)
    task.add_done_callback(check)
    return task


def _add_page(app: FastAPI) -> None:
    """Serve the static files. They are read once; no path is built from a request."""
    folder = resources.files("hadahash.serve") / "static"
    files = {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}
    palette = resources.files("hadahash.visuals") / "templates" / _PALETTE
    files[_PALETTE] = palette.read_bytes()
    for route, name in _PAGES.items():
        app.add_api_route(route, _send_file(files[name], name), include_in_schema=False)
    for name, content in files.items():
        if name not in _PAGES.values():
            route = f"/static/{name}"
            app.add_api_route(route, _send_file(content, name), include_in_schema=False)


def _send_file(content: bytes, name: str) -> Callable[[], Any]:
    media_type = mimetypes.guess_type(name)[0] or "application/octet-stream"

    async def send() -> Response:
        return Response(content, media_type=media_type, headers={"Cache-Control": "no-cache"})

    return send
