"""Decode images into batches of squares, in threads that run ahead of the network."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..codes import Skipped
from ..errors import ImageError
from ..native import usable_cores
from .base import ArrayImages, Files, Ids, Images, LabelledImages
from .memory import available_memory
from .preprocess import Preprocess
from .squares import Reduced


class Decoded(NamedTuple):
    """A batch of decoded images.

    Attributes:
        rows: Indices of the images that could be decoded, int64 (b,).
        pixels: Their squares, uint8 (b, 3, side, side). In memory the channels come last; squares
            of arrays share it.
        failed: Index and reason of each image that could not be decoded.
    """

    rows: NDArray[np.int64]
    pixels: NDArray[np.uint8]
    failed: list[tuple[int, str]]


Square: TypeAlias = "NDArray[np.uint8] | ImageError"


def decode(
    images: Images, preprocess: Preprocess, *, batch_size: int, workers: int | None = None
) -> Iterator[Decoded]:
    """Decode all images, in order and in batches.

    At most two batches are decoded ahead. Closing the generator early cancels pending decodes.

    Args:
        images: The images.
        preprocess: Size and fit of the squares.
        batch_size: Largest batch.
        workers: Number of threads; by default one per usable core, at most 16, or more for
            images that come over a network.

    Yields:
        The batches; an image that cannot be decoded is in `failed` of its batch.
    """
    side = preprocess.side
    if isinstance(images, ArrayImages) and images.pixels.shape[1:3] == (side, side):
        yield from _slices(images, batch_size)
        return
    threads = workers or getattr(images, "threads", 0) or min(16, usable_cores())
    pool = ThreadPoolExecutor(threads)
    try:
        indices, waiting = iter(range(len(images))), deque[Future[Square]]()
        for start in range(0, len(images), batch_size):
            target = min(start + 3 * batch_size, len(images)) - start
            while len(waiting) < target:
                waiting.append(pool.submit(_square, images, next(indices), preprocess))
            count = min(batch_size, len(images) - start)
            yield _gather([waiting.popleft().result() for _ in range(count)], start, side)
    finally:
        pool.shutdown(cancel_futures=True)


def in_memory(
    data: LabelledImages, preprocess: Preprocess, *, limit: int | None = None
) -> LabelledImages:
    """Decode a data set once, for repeated passes over it.

    Args:
        data: The data set.
        preprocess: Size and fit of the squares.
        limit: Largest size of the squares in bytes; by default half of the available memory.

    Returns:
        The same data set as squares in memory; or `data` itself where the squares would exceed
        `limit` or an image cannot be decoded.
    """
    shape = (len(data), preprocess.side, preprocess.side, 3)
    limit = available_memory() // 2 if limit is None else limit
    if isinstance(data.images, ArrayImages) or math.prod(shape) > limit:
        return data
    squares = np.empty(shape, np.uint8)
    for part in decode(data.images, preprocess, batch_size=1024):
        if part.failed:
            return data
        squares[part.rows] = part.pixels.transpose(0, 2, 3, 1)
    return replace(data, images=ArrayImages(squares))


def read_reduced(images: Images, index: int, side: int) -> Reduced:
    """Read one image, a large JPEG file no larger than a result of `side` pixels needs.

    Args:
        images: The images.
        index: Which one.
        side: Side of the square or of the thumbnail in pixels.

    Returns:
        The image.

    Raises:
        ImageError: It cannot be decoded.
    """
    if isinstance(images, Files):
        return images.read_reduced(index, side)
    pixels = images[index]
    return Reduced(pixels, (pixels.shape[0], pixels.shape[1]))


def to_skipped(failed: list[tuple[int, str]], ids: Ids) -> tuple[Skipped, ...]:
    """List the images that could not be decoded.

    Args:
        failed: Index and reason of each.
        ids: Ids of all images.

    Returns:
        Id and reason of each.
    """
    return tuple(Skipped(str(ids[index]), reason) for index, reason in failed)


def _slices(images: ArrayImages, batch_size: int) -> Iterator[Decoded]:
    for start in range(0, len(images), batch_size):
        part = images.pixels[start : start + batch_size]
        pixels = part.transpose(0, 3, 1, 2)
        yield Decoded(np.arange(start, start + len(pixels)), pixels, [])


def _square(images: Images, index: int, preprocess: Preprocess) -> Square:
    try:
        image = read_reduced(images, index, preprocess.side)
        return image.square(preprocess.side, fit=preprocess.fit)
    except ImageError as error:
        return error


def _gather(squares: list[Square], start: int, side: int) -> Decoded:
    good = [place for place, square in enumerate(squares) if not isinstance(square, ImageError)]
    pixels = np.empty((len(good), side, side, 3), np.uint8)
    for row, place in enumerate(good):
        pixels[row] = np.asarray(squares[place])
    failed = [
        (start + place, square.reason)
        for place, square in enumerate(squares)
        if isinstance(square, ImageError)
    ]
    rows = np.array(good, np.int64) + start
    return Decoded(rows, pixels.transpose(0, 3, 1, 2), failed)
