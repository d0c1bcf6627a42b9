"""Images to batches of equal squares, decoded by threads while the network works on the batch_size before."""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..codes import Skipped
from ..errors import ImageError
from .base import ArrayImages, Images, LabelledImages
from .images import shrink_to_square
from .preprocess import Preprocess


class Decoded(NamedTuple):
    """A batch_size of squares, the numbers of the images they come from, and the images that could not be decoded."""

    rows: NDArray[np.int64]  # (b,)
    pixels: NDArray[np.uint8]  # (b, 3, side, side)
    failed: list[tuple[int, str]]  # number of the image, reason


Square: TypeAlias = "NDArray[np.uint8] | ImageError"


def decode(
    images: Images, preprocess: Preprocess, *, batch_size: int, workers: int | None = None
) -> Iterator[Decoded]:
    """All images in order, in batches of up to `batch_size`. At most two batches are decoded ahead of the reader.

    Whoever stops reading early stops the decoding too.
    """
    if isinstance(images, ArrayImages) and images.pixels.shape[1:3] == (
        preprocess.side,
        preprocess.side,
    ):
        yield from _slices(images, batch_size)
        return
    with ThreadPoolExecutor(workers or min(16, os.cpu_count() or 1)) as pool:
        numbers, waiting = iter(range(len(images))), deque[Future[Square]]()
        for start in range(0, len(images), batch_size):
            wanted = min(start + 3 * batch_size, len(images)) - start
            while len(waiting) < wanted:
                waiting.append(pool.submit(_square, images, next(numbers), preprocess))
            squares = [
                waiting.popleft().result() for _ in range(min(batch_size, len(images) - start))
            ]
            yield _gather(squares, start, preprocess.side)


def in_memory(
    data: LabelledImages, preprocess: Preprocess, *, limit: int = 8 << 30
) -> LabelledImages:
    """The same data set as decoded squares, for whoever goes through it often.

    Left as it is where the squares would take more than `limit` bytes or an image is broken, which is then found on reading.
    """
    shape = (len(data), preprocess.side, preprocess.side, 3)
    if isinstance(data.images, ArrayImages) or math.prod(shape) > limit:
        return data
    squares = np.empty(shape, np.uint8)
    for part in decode(data.images, preprocess, batch_size=1024):
        if part.failed:
            return data
        squares[part.rows] = part.pixels.transpose(0, 2, 3, 1)
    return replace(data, images=ArrayImages(squares))


def _slices(images: ArrayImages, batch_size: int) -> Iterator[Decoded]:
    for start in range(0, len(images), batch_size):
        pixels = np.ascontiguousarray(
            images.pixels[start : start + batch_size].transpose(0, 3, 1, 2)
        )
        yield Decoded(np.arange(start, start + len(pixels)), pixels, [])


def _square(images: Images, index: int, preprocess: Preprocess) -> Square:
    try:
        return shrink_to_square(images[index], preprocess.side, fit=preprocess.fit)
    except ImageError as error:
        return error


def _gather(squares: list[Square], start: int, side: int) -> Decoded:
    good = [number for number, square in enumerate(squares) if not isinstance(square, ImageError)]
    pixels = np.empty((len(good), 3, side, side), np.uint8)
    for place, number in enumerate(good):
        pixels[place] = np.asarray(squares[number]).transpose(2, 0, 1)
    failed = [
        (start + n, square.reason)
        for n, square in enumerate(squares)
        if isinstance(square, ImageError)
    ]
    return Decoded(np.array(good, np.int64) + start, pixels, failed)


def to_skipped(failed: list[tuple[int, str]], ids: NDArray[np.str_]) -> tuple[Skipped, ...]:
    return tuple(Skipped(str(ids[index]), reason) for index, reason in failed)
