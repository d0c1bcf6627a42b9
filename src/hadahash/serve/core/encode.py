"""Uploaded images to codes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .batcher import Batcher
from .collection import Packed
from .decode_pool import DecodePool
from .timing import StageTimer

if TYPE_CHECKING:
    from ...model import HashModel


class _EncodeJob(NamedTuple):
    model: HashModel
    pixels: NDArray[np.uint8]  # (side, side, 3)


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
        self._pool = pool
        self._batcher: Batcher[_EncodeJob, Packed] = Batcher(
            _encode_jobs, max_batch=max_batch, on_batch=on_batch
        )

    async def encode(self, image: bytes, model: HashModel, timer: StageTimer) -> Packed:
        """Return the code of an image file.

        Args:
            image: The file.
            model: The model.
            timer: Records the stages "decode" and "encode".

        Returns:
            The packed code.

        Raises:
            Problem: If the image cannot be decoded.
        """
        timer.skip()
        pixels = await self._pool.decode_for_model(image, model.preprocess)
        timer.stage("decode")
        packed = await self._batcher.submit(_EncodeJob(model, pixels))
        timer.stage("encode")
        return packed

    def close(self) -> None:
        """Drop the images that have not been encoded."""
        self._batcher.close()


def _encode_jobs(jobs: Sequence[_EncodeJob]) -> list[Packed | Exception]:
    codes: dict[int, Packed | Exception] = {}
    for model in {id(job.model): job.model for job in jobs}.values():
        rows = [row for row, job in enumerate(jobs) if job.model is model]
        packed = model.encode(np.stack([jobs[row].pixels for row in rows])).packed
        codes.update(zip(rows, packed, strict=True))
    return [codes[row] for row in range(len(jobs))]
