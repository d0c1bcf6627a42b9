"""Routes for statistics, map, health and metrics."""

from __future__ import annotations

import asyncio
import time

from fastapi import APIRouter, Depends
from fastapi.responses import Response

from ... import __version__
from ...photos import available_ranks, content_weight, default_rank, same_photo_threshold
from ..core.overview import Overview
from ..core.service import Service
from . import schema
from .auth import require_read_token
from .openapi import Responses, errors

_METRICS: Responses = {
    200: {"content": {"text/plain": {}}, "description": "Prometheus text format"},
    **errors(401, 403),
}


def overview_routes(service: Service) -> APIRouter:
    """Return the routes /v1/map and /v1/stats.

    Args:
        service: Answers them.
    """
    router = APIRouter(
        prefix="/v1",
        dependencies=[Depends(require_read_token)],
        responses=errors(401, 403, 421, 503),
    )

    @router.get("/map")
    async def collection_map() -> schema.MapAnswer:
        """A sample of the collection as points in the plane: the principal components of codes."""
        service.require_ready()
        overview = await service.overview.get()
        return schema.MapAnswer(
            ids=overview.ids,
            x=overview.x,
            y=overview.y,
            label=overview.label,
            labels=overview.map_labels,
            total=overview.total,
        )

    @router.get("/stats")
    async def stats() -> schema.Stats:
        """The index, the model and the limits."""
        service.require_ready()
        return _stats(service, await service.overview.get())

    return router


def _stats(service: Service, overview: Overview) -> schema.Stats:
    collection, settings = service.handle.current, service.settings
    model, index = collection.model, collection.index
    return schema.Stats(
        version=__version__,
        items=service.handle.count,
        bits=collection.bits,
        content_bits=index.content_bits,
        ranks=available_ranks(index),
        rank=default_rank(index),
        weight=content_weight(index),
        same_photo=same_photo_threshold(index),
        engine=index.engine,
        model={
            "method": model.config.method,
            "backbone": model.config.backbone,
            "classes": len(model.classes),
        },
        labels=[schema.LabelCount(label=label, count=count) for label, count in overview.labels],
        label_count=overview.label_count,
        images_found=overview.images_found > 0 or not overview.images_checked,
        limits=schema.Limits(
            max_bytes=settings.max_bytes,
            max_pixels=settings.max_pixels,
            max_side=settings.max_side,
            max_k=settings.max_k,
        ),
        waiting=service.searches.in_use,
        receiving=service.uploads.in_use,
        writable=settings.write_token is not None,
        uptime_seconds=round(time.monotonic() - service.started, 1),
    )


def health_routes(service: Service) -> APIRouter:
    """Return the routes /healthz, /readyz and /metrics.

    Args:
        service: Answers them.
    """
    router = APIRouter(responses=errors(403, 421))

    @router.head("/healthz", include_in_schema=False)
    @router.get("/healthz")
    async def healthz() -> schema.Health:
        """Whether the process runs."""
        return schema.Health(status="ok", problem=None)

    @router.head("/readyz", include_in_schema=False)
    @router.get("/readyz", responses=errors(503))
    async def readyz() -> schema.Health:
        """Whether the service can answer searches."""
        service.require_ready()
        return schema.Health(status="ready", problem=service.problem)

    @router.get(
        "/metrics",
        dependencies=[Depends(require_read_token)],
        response_class=Response,
        responses=_METRICS,
    )
    async def metrics() -> Response:
        """Metrics for Prometheus."""
        text = await asyncio.to_thread(service.metrics.text)  # it may read files
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    return router
