"""Features of images, taken from the cache on disk where it has them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .data.base import Images
from .data.contents import content_digest
from .data.remote import Place
from .feature_cache import FeatureStore, Vector
from .files import stamp
from .native import usable_cores
from .outputs import Floats, Outputs, join_outputs

_CHUNK = 512  # images looked up at once
_BATCH = 64  # images computed at once where some others are known

Compute = Callable[[Images], Iterator[Outputs]]


class _File(NamedTuple):
    """Digest of an image, and the state of its file at that time."""

    digest: bytes
    state: object


def cached_outputs(
    images: Images,
    store: FeatureStore,
    groups: Sequence[bytes],
    compute: Compute,
    nothing: Outputs,
) -> Iterator[Outputs]:
    """Read features from the cache; compute and store those that it does not have.

    Args:
        images: Images with digests.
        store: The cache.
        groups: Keys of the network and the preprocessing: entries of each are read, those of the
            first are written.
        compute: Computes the features of images, batch by batch.
        nothing: Features of no image, with the right widths.

    Yields:
        The features, in the order of the images.
    """
    width = vector_width(nothing)
    threads = getattr(images, "threads", 0) or min(8, usable_cores())
    with ThreadPoolExecutor(threads) as pool:

        def examine(start: int) -> list[Future[_File]]:
            rows = range(start, min(start + _CHUNK, len(images)))
            return [pool.submit(_examine, images, row) for row in rows]

        waiting = examine(0)
        for start in range(0, len(images), _CHUNK):
            found = [each.result() for each in waiting]
            waiting = examine(start + _CHUNK)  # read while the network is busy
            digests = [each.digest for each in found if each.digest]
            known = known_vectors(store, groups, digests, width)
            new: dict[bytes, Vector] = {}
            for part in _chunk(images, start, found, known, compute, nothing):
                new |= _to_store(images, part, start, found, known)
                yield part
            store.put(groups[0], new)


def known_vectors(
    store: FeatureStore, groups: Sequence[bytes], digests: Sequence[bytes], width: int
) -> dict[bytes, Vector]:
    """Read vectors from the cache.

    Args:
        store: The cache.
        groups: Keys of the network; the first that has an image is used.
        digests: Digests of the images.
        width: Length of a vector; others are ignored.

    Returns:
        The vectors that are stored, by digest.
    """
    known: dict[bytes, Vector] = {}
    for group in groups:
        absent = [digest for digest in digests if digest not in known]
        found = store.get(group, absent) if absent else {}
        known |= {digest: each for digest, each in found.items() if len(each) == width}
    return known


def _chunk(
    images: Images,
    start: int,
    found: list[_File],
    known: dict[bytes, Vector],
    compute: Compute,
    nothing: Outputs,
) -> Iterator[Outputs]:
    """The features of the images from `start` on."""
    rows = np.arange(start, start + len(found))
    absent = np.array([each.digest not in known for each in found], bool)
    size = len(rows) if absent.all() or not absent.any() else _BATCH
    for first in range(0, len(rows), size):
        here = slice(first, first + size)
        present = rows[here][~absent[here]]
        parts = _computed(images, rows[here][absent[here]], compute)
        if not len(present):
            yield from parts
            continue
        vectors = np.stack([known[found[row - start].digest] for row in present])
        read = _to_outputs(vectors, present, nothing)
        yield _sorted(join_outputs([read, *parts], nothing))


def _computed(images: Images, rows: NDArray[np.int64], compute: Compute) -> Iterator[Outputs]:
    """The features of some images, with their own row numbers."""
    if not len(rows):
        return
    for part in compute(images.take(rows)):
        failed = [(int(rows[row]), reason) for row, reason in part.failed]
        yield part._replace(rows=rows[part.rows], failed=failed)


def _sorted(outputs: Outputs) -> Outputs:
    order = np.argsort(outputs.rows)
    content = outputs.content
    return outputs._replace(
        values=outputs.values[order],
        rows=outputs.rows[order],
        content=None if content is None else content[order],
    )


def _to_store(
    images: Images, part: Outputs, start: int, found: list[_File], known: dict[bytes, Vector]
) -> dict[bytes, Vector]:
    """The new vectors, without those of files that changed while they were read."""
    new = {}
    for row, vector in zip(part.rows.tolist(), _to_vectors(part), strict=True):
        digest, state = found[row - start]
        if digest and digest not in known and _is_same(images, row, digest, state):
            new[digest] = vector
    return new


def _examine(images: Images, row: int) -> _File:
    state = _state(images, row)  # before reading
    return _File(content_digest(images, row), state)


def _is_same(images: Images, row: int, digest: bytes, state: object) -> bool:
    """Whether the content that went through the network has this digest."""
    item = _item(images, row)
    return item.seen == digest if isinstance(item, Place) else _state(images, row) == state


def _state(images: Images, row: int) -> object:
    path = _item(images, row)
    if path is None or isinstance(path, Place):
        return None
    return stamp(path)


def _item(images: Images, row: int) -> Path | Place | None:
    """Where an image is; None for images in memory."""
    items: Sequence[Path | Place] | None
    items = getattr(images, "paths", None) or getattr(images, "places", None)
    return items[row] if items else None


def vector_width(nothing: Outputs) -> int:
    """The length of a vector in the cache.

    Args:
        nothing: Features of no image, with the right widths.

    Returns:
        Number of floats.
    """
    return int(_to_vectors(nothing).shape[1])


def _to_vectors(outputs: Outputs) -> Floats:
    """Features, followed by those of the original backbone where it is another one."""
    parts = [outputs.values, *([] if outputs.content is None else [outputs.content])]
    return np.concatenate(parts, 1)


def _to_outputs(vectors: Floats, rows: NDArray[np.int64], nothing: Outputs) -> Outputs:
    width = nothing.values.shape[1]
    content = None if nothing.content is None else vectors[:, width:]
    return Outputs(vectors[:, :width], rows, [], content)
