"""Labels and map of the collection, computed in the background."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from ...codes import Codes
from ..problem import busy
from .collection import Collection
from .names import Id, to_json
from .projection import project

LOG = logging.getLogger(__name__)
_CHECKED_IMAGES = 100
_PAUSE = 10  # an overview that took t seconds is computed again after 10 t at the earliest
_RETRY_SECONDS = 5.0


@dataclass(frozen=True)
class Overview:
    """Summary of the collection for the page. Ids and labels are JSON values.

    Attributes:
        labels: The most frequent labels with their counts.
        label_count: Number of distinct labels.
        ids: Items on the map, a sample of all items.
        x: Horizontal position of each, -1 to 1.
        y: Vertical position of each, -1 to 1.
        label: First label of each, as a position in `map_labels`; -1: none.
        map_labels: Labels on the map.
        total: Number of items in the collection.
        images_checked: Number of items on the map whose image file was looked up.
        images_found: Number of those whose image file exists.
    """

    labels: list[tuple[str, int]]
    label_count: int
    ids: list[Id]
    x: list[float]
    y: list[float]
    label: list[int]
    map_labels: list[str]
    total: int
    images_checked: int
    images_found: int


def build_overview(collection: Collection, *, points: int, max_labels: int) -> Overview:
    """Compute the overview of a collection.

    Args:
        collection: The collection.
        points: Largest number of items on the map.
        max_labels: Largest number of labels listed.

    Returns:
        The overview.
    """
    counts = {str(to_json(label)): n for label, n in collection.label_counts().items()}
    sample = list(collection.lookup(collection.index.sample_ids(points)).values())
    packed = np.array([code for _, code in sample], np.uint8).reshape(
        len(sample), -(-collection.bits // 8)
    )
    xy = project(Codes(packed=packed, bits=collection.bits)).round(4)
    first = [str(to_json(item.labels[0])) if item.labels else None for item, _ in sample]
    map_labels = sorted({label for label in first if label is not None})
    number = {label: place for place, label in enumerate(map_labels)} | {None: -1}
    checked = [item for item, _ in sample if item.path is not None][:_CHECKED_IMAGES]
    return Overview(
        labels=sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:max_labels],
        label_count=len(counts),
        ids=[to_json(item.id) for item, _ in sample],
        x=xy[:, 0].tolist(),
        y=xy[:, 1].tolist(),
        label=[number[label] for label in first],
        map_labels=map_labels,
        total=len(collection.index),
        images_checked=len(checked),
        images_found=sum(
            collection.far.has(item.path) or collection.image_path(item) is not None
            for item in checked
        ),
    )


class OverviewCache:
    """Caches the overview and recomputes it in the background after the collection changed.

    Args:
        build: Computes an overview; called in a thread.
    """

    def __init__(self, build: Callable[[], Overview]) -> None:
        self._build = build
        self._thread = ThreadPoolExecutor(1)
        self._overview: Overview | None = None
        self._stale, self._tried = asyncio.Event(), asyncio.Event()

    def invalidate(self) -> None:
        """Schedule a recomputation."""
        self._stale.set()

    async def get(self) -> Overview:
        """Return the latest overview, once there is one.

        Raises:
            Problem: 503, if it could not be computed yet.
        """
        await self._tried.wait()
        if self._overview is None:
            raise busy("The overview of the collection is not available yet.")
        return self._overview

    async def run(self) -> None:
        """Compute the overview whenever it is out of date. Never returns."""
        loop = asyncio.get_running_loop()
        while True:
            await self._stale.wait()
            self._stale.clear()
            started = time.monotonic()
            try:
                self._overview = await loop.run_in_executor(self._thread, self._build)
                pause = _PAUSE * (time.monotonic() - started)
            except Exception:
                LOG.exception("The overview of the collection cannot be computed.")
                self._stale.set()
                pause = _RETRY_SECONDS
            self._tried.set()
            await asyncio.sleep(pause)

    def close(self) -> None:
        """Cancel a pending computation."""
        self._thread.shutdown(wait=False, cancel_futures=True)
