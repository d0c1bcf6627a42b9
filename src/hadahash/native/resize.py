"""Shrink images to squares, in compiled code (resize.c) or in numpy, with equal results.

The filter is that of Pillow's BILINEAR with antialiasing. Pillow rounds to 8 bits after the first
of two passes; here only the result is rounded, which matters where few pixels are averaged.
"""

from __future__ import annotations

import ctypes
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from . import _library, used_level

_ONE = 1 << 14  # sum of the weights of a pixel

Pixels = NDArray[np.uint8]


class _Filter(NamedTuple):
    """Which pixels of a line are averaged, and how.

    Attributes:
        first: The first pixel of each average, int32 (side,).
        weights: Weights of that pixel and the following ones, uint32 (side, taps).
    """

    first: NDArray[np.int32]
    weights: NDArray[np.uint32]


def shrink(pixels: Pixels, side: int, box: tuple[float, float, float, float]) -> Pixels:
    """Shrink a part of an image to a square.

    Args:
        pixels: uint8 (height, width, 3).
        side: Side of the square in pixels; at most the sides of the box.
        box: Left, top, right and bottom of the part, in pixels.

    Returns:
        uint8 (side, side, 3).

    Example:
        >>> image = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
        >>> shrink(image, 1, (0, 0, 4, 4)).tolist()
        [[[23, 24, 25]]]
    """
    height, width = pixels.shape[:2]
    across = _filter(box[0], box[2], width, side)
    down = _filter(box[1], box[3], height, side)
    begin = int(across.first.min())  # columns outside the box are not averaged
    end = int(across.first.max()) + across.weights.shape[1]
    part = pixels[:, begin:end]
    across = across._replace(first=across.first - np.int32(begin))
    library = _library()
    if library is not None and hasattr(library, "hadahash_average_rows"):
        return _shrink_compiled(library, np.ascontiguousarray(part), down, across)
    return _shrink_in_numpy(part, down, across)


def _filter(start: float, stop: float, count: int, side: int) -> _Filter:
    """A triangle of twice the width of a new pixel around the center of each."""
    scale = (stop - start) / side
    centers = start + (np.arange(side) + 0.5) * scale
    first = np.floor(centers - scale + 0.5).clip(0, count - 1).astype(np.int64)
    last = np.floor(centers + scale + 0.5).clip(1, count).astype(np.int64)
    taps = max(1, int((last - first).max()))
    first = first.clip(max=count - taps)
    distances = np.abs(first[:, None] + np.arange(taps) + 0.5 - centers[:, None])
    weights = np.maximum(0.0, 1.0 - distances / scale)
    rounded = np.rint(weights / weights.sum(1, keepdims=True) * _ONE).astype(np.int64)
    rounded[np.arange(side), rounded.argmax(1)] += _ONE - rounded.sum(1)
    return _Filter(first.astype(np.int32), rounded.astype(np.uint32))


def _shrink_compiled(
    library: ctypes.CDLL, pixels: Pixels, down: _Filter, across: _Filter
) -> Pixels:
    side, width = len(down.first), 3 * pixels.shape[1]
    sums, averages = np.empty(width, np.uint32), np.empty((side, width), np.uint16)
    square = np.empty((side, side, 3), np.uint8)
    number, address = ctypes.c_int64, ctypes.c_void_p
    library.hadahash_average_rows(
        *(address(pixels.ctypes.data), number(width), number(width)),
        *(address(down.first.ctypes.data), address(down.weights.ctypes.data)),
        *(number(down.weights.shape[1]), number(side)),
        *(address(sums.ctypes.data), address(averages.ctypes.data), ctypes.c_int(used_level(-1))),
    )
    library.hadahash_average_columns(
        *(address(averages.ctypes.data), number(width), number(side)),
        *(address(across.first.ctypes.data), address(across.weights.ctypes.data)),
        *(number(across.weights.shape[1]), number(side), address(square.ctypes.data)),
    )
    return square


def _shrink_in_numpy(pixels: Pixels, down: _Filter, across: _Filter) -> Pixels:
    rows = np.full((len(down.first), *pixels.shape[1:]), 32, np.uint32)
    for tap in range(down.weights.shape[1]):
        rows += down.weights[:, tap, None, None] * pixels[down.first + tap]
    rows >>= 6
    square = np.full((len(rows), len(across.first), 3), 1 << 21, np.uint32)
    for tap in range(across.weights.shape[1]):
        square += across.weights[:, tap, None] * rows[:, across.first + tap]
    return np.asarray(square >> 22, np.uint8)
