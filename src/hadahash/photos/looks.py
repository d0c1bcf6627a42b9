"""The 64 bits of what each photo looks like, stored in the catalog, compared to find duplicates.

They are computed while photos are decoded for the index. Those of other photos, whose features came
from a cache or which an earlier version indexed, are read when duplicates are searched.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..codes import Codes
from ..errors import ImageError, StorageError
from ..index.checks import MAX_BITS
from .catalog import Catalog
from .digests import DigestingImages

if TYPE_CHECKING:
    from ..index import Index

BITS = 64
_PART = 4096  # photos between two writes

Progress = Callable[[int], object]


def unread_photos(index: Index, catalog: Catalog) -> list[Path]:
    """List the local photos whose looks are not known.

    Args:
        index: The index.
        catalog: Its catalog.

    Returns:
        One file of each content.
    """
    if index.id_type is not str:
        return []
    contents = {digest: each for each, digest in catalog.without_looks()}
    ids = list(contents.values())
    known = [each for each, there in zip(ids, index.has(ids), strict=True) if there] if ids else []
    items = index.get(known) if known else []
    return [Path(each.path) for each in items if each.path is not None and "://" not in each.path]


def read_photos(catalog: Catalog, paths: list[Path], progress: Progress | None = None) -> int:
    """Read photos and store what they look like.

    Args:
        catalog: The catalog.
        paths: The files.
        progress: Called with the number of files read since the last call.

    Returns:
        Number of files that could not be read.
    """
    failed = 0
    with ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as pool:
        for start in range(0, len(paths), _PART):
            images = DigestingImages(paths[start : start + _PART])
            for done in pool.map(lambda row: _read(images, row), range(len(images))):  # noqa: B023
                failed += not done
                if progress is not None:
                    progress(1)
            try:
                catalog.write_looks(images.looks)
            except StorageError:  # a read-only folder
                return failed + len(images)
    return failed


def codes_with_looks(index: Index, catalog: Catalog) -> Codes | None:
    """Append the looks to the content bits of photos, or to their codes if they have none.

    Args:
        index: The index.
        catalog: Its catalog.

    Returns:
        The codes of the photos whose looks are known; None if there are none, or if the codes would
        be too long.
    """
    looks = catalog.looks() if index.id_type is str else {}
    own = index.content_bits or index.bits
    if not looks or own % 8 or own + BITS > MAX_BITS:
        return None
    codes = index.codes()
    rows = np.array([row for row, each in enumerate(codes.ids.tolist()) if each in looks], np.int64)
    if not len(rows):
        return None
    part = codes[rows]
    packed = part.packed if part.content is None else part.content
    found = b"".join(looks[each] for each in part.ids.tolist())
    seen = np.frombuffer(found, np.uint8).reshape(len(rows), BITS // 8)
    content = np.concatenate([packed, seen], axis=1)
    return Codes(part.packed, part.bits, part.ids, content=content, content_bits=own + BITS)


def _read(images: DigestingImages, row: int) -> bool:
    """Read a photo; the images keep what it looks like."""
    try:
        images.read_reduced(row, 1)
    except ImageError:
        return False
    return True
