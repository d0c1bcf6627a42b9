"""Uploaded images to queries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .batcher import Batcher
from .decode_pool import DecodePool
from .query import to_halves
from .timing import StageTimer

if TYPE_CHECKING:
    from ...model import HashModel
    from ...queries import Queries


_CPU_BATCH = 2  # larger batches leave the caches of the processor: slower, and more memory


class _EncodeJob(NamedTuple):
    model: HashModel
    pixels: NDArray[np.uint8]  # (side, side, 3)


class EncodedQuery(NamedTuple):
    """The query of an uploaded image: one row, and what the image looks like, 8 bytes."""

    query: Queries
    looks: bytes


class Encoder:
    """Decodes images in other processes and encodes them in batches.

    Args:
        pool: Decoder processes.
        max_batch: Largest number of images per batch.
        on_batch: Called with the size of every batch.
    """

    def __init__(
        self, pool: DecodePool, *, max_batch: int, on_batch: Callable[[int], object]
    ) -> None:
        self._pool, self._max_batch = pool, max_batch
        self._batcher: Batcher[_EncodeJob, Queries] = Batcher(
            _encode_jobs, max_batch=max_batch, on_batch=on_batch
        )

    async def encode(
        self, image: bytes, model: HashModel, timer: StageTimer, client: str = ""
    ) -> EncodedQuery:
        """Return the query of an image file.

        Args:
            image: The file.
            model: The model.
            timer: Records the stages "decode" and "encode".
            client: Who sent it; clients take turns.

        Returns:
            The query, rounded to numbers of 16 bits.

        Raises:
            Problem: If the image cannot be decoded.
        """
        timer.skip()
        decoded = await self._pool.decode_for_model(image, model.preprocess, client)
        timer.stage("decode")
        on_cpu = str(model.runtime.device).startswith("cpu")
        self._batcher.max_batch = min(self._max_batch, _CPU_BATCH) if on_cpu else self._max_batch
        query = await self._batcher.submit(_EncodeJob(model, decoded.pixels))
        timer.stage("encode")
        return EncodedQuery(query, decoded.looks)

    def close(self) -> None:
        """Drop the images that have not been encoded."""
        self._batcher.close()


def _encode_jobs(jobs: Sequence[_EncodeJob]) -> list[Queries | Exception]:
    found: dict[int, Queries | Exception] = {}
    for model in {id(job.model): job.model for job in jobs}.values():
        rows = [row for row, job in enumerate(jobs) if job.model is model]
        queries = model.queries(np.stack([jobs[row].pixels for row in rows]))
        found.update((row, to_halves(queries[place])) for place, row in enumerate(rows))
    return [found[row] for row in range(len(jobs))]
