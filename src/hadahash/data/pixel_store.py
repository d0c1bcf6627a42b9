"""Training images as one array of small squares, decoded once.

The squares are kept in memory, or in a file when they would take more than half of the available
memory. Images that cannot be decoded are skipped and listed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..codes import Skipped
from .base import LabelledImages
from .datasets.locations import cache_folder
from .decode import decode, to_skipped
from .memory import available_memory
from .preprocess import Preprocess
from .spool import allocate_file, size_text

_STATED = 256 << 20  # no message for smaller stores in memory


@dataclass(frozen=True, eq=False)
class PixelStore:
    """Decoded training images.

    Attributes:
        pixels: uint8 (n, 3, side, side), in memory or mapped from a file.
        kept: Indices of the given images that could be decoded, int64 (n,).
        skipped: The other images, with reasons.
        in_memory: Whether the pixels are in memory.
    """

    pixels: Tensor
    kept: NDArray[np.int64]
    skipped: tuple[Skipped, ...]
    in_memory: bool = True

    @staticmethod
    def build(
        data: LabelledImages,
        preprocess: Preprocess,
        *,
        folder: str | Path | None = None,
        info: Callable[[str], object] = lambda text: None,
        memory_limit: int | None = None,
    ) -> PixelStore:
        """Decode all images.

        Args:
            data: The images.
            preprocess: Size and fit of the squares.
            folder: Folder of the file if memory does not suffice; by default the cache folder. The
                file is unlinked while in use, so it disappears with the process.
            info: Receives one line that states the size of a large store before it is filled.
            memory_limit: Largest store in memory in bytes; by default half of what is available.

        Returns:
            The store.

        Raises:
            StorageError: The disk does not have enough space for the file.
        """
        shape = (len(data), 3, preprocess.side, preprocess.side)
        limit = available_memory() // 2 if memory_limit is None else memory_limit
        in_memory = _nbytes(shape) <= limit
        location = cache_folder() if folder is None else Path(folder)
        if not in_memory or _nbytes(shape) >= _STATED:
            where = "memory" if in_memory else str(location)
            size = size_text(_nbytes(shape))
            info(f"Storing {len(data):,} images of {preprocess.side} px: {size} in {where}.")
        if in_memory:
            array = np.empty(shape, np.uint8)
        else:
            array = allocate_file(location, shape, np.uint8, "decoded images")
        filled, rows, failed = 0, [np.empty(0, np.int64)], list[tuple[int, str]]()
        for part in decode(data.images, preprocess, batch_size=256):
            array[filled : filled + len(part.rows)] = part.pixels
            filled += len(part.rows)
            rows.append(part.rows)
            failed += part.failed
        skipped = to_skipped(failed, data.ids)
        pixels = torch.from_numpy(array[:filled])
        return PixelStore(pixels, np.concatenate(rows), skipped, in_memory)


def _nbytes(shape: tuple[int, ...]) -> int:
    return int(np.prod(shape, dtype=np.int64))
