"""The training images as one array of small squares, decoded once; what cannot be decoded is left out and named."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..codes import Skipped
from .base import LabelledImages
from .decode import decode, to_skipped
from .preprocess import Preprocess


@dataclass(frozen=True, eq=False)
class PixelStore:
    """Decoded squares: uint8 (n, 3, side, side), in memory or, when too large for it, in a temporary file."""

    pixels: Tensor
    kept: NDArray[np.int64]  # which of the given images these are
    skipped: tuple[Skipped, ...]
    on_disk: bool = False

    @staticmethod
    def build(
        data: LabelledImages,
        preprocess: Preprocess,
        *,
        memory_limit: int = 8 << 30,
        folder: object = None,
        info: object = None,
    ) -> PixelStore:
        store = _room((len(data), 3, preprocess.side, preprocess.side), memory_limit)
        rows: list[NDArray[np.int64]] = []
        failed: list[tuple[int, str]] = []
        filled = 0
        for part in decode(data.images, preprocess, batch_size=256):
            store[filled : filled + len(part.rows)] = part.pixels
            filled += len(part.rows)
            rows.append(part.rows)
            failed += part.failed
        return PixelStore(
            torch.from_numpy(store[:filled]), np.concatenate(rows), to_skipped(failed, data.ids)
        )


def _room(shape: tuple[int, ...], memory_limit: int) -> NDArray[np.uint8]:
    if np.prod(shape) <= memory_limit:
        return np.empty(shape, np.uint8)
    with tempfile.NamedTemporaryFile(suffix=".pixels") as file:
        return np.memmap(
            file.name, np.uint8, "w+", shape=shape
        )  # unlinked at once; the space is freed with the array
