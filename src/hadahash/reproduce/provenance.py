"""What identifies a result: source revision, and digests of the data."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from .. import environment
from ..data import LabelledImages
from ..data.base import ArrayImages

_PACKAGE = Path(__file__).parents[1]
_SOURCES = (".py", ".c", ".h", ".toml")


def source_revision(revision: str | None = None) -> dict[str, Any]:
    """Return the revision of the running source code.

    Args:
        revision: Commit of the source, for machines without git, with "+changes" appended if there
            were uncommitted changes. If None, it is read from git.

    Returns:
        `commit` and `clean` (both None if unknown), and `source_sha256`, the digest of all source
        files of the package.
    """
    known = revision or environment.source_revision()
    clean = None if known is None else not known.endswith("+changes")
    commit = None if known is None else known.removesuffix("+changes")
    return {"commit": commit, "clean": clean, "source_sha256": source_digest()}


@cache
def source_digest() -> str:
    """sha256 over the names and contents of all source files of the package."""
    digest = hashlib.sha256()
    for path in sorted(_PACKAGE.rglob("*")):
        if path.suffix in _SOURCES:
            digest.update(f"{path.relative_to(_PACKAGE).as_posix()}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def data_digests(data: LabelledImages) -> dict[str, str | None]:
    """Compute digests of a data set.

    Args:
        data: The data set, decoded.

    Returns:
        Digests of the pixels (None if the images are not in memory), the labels, the class names
        and the ids.
    """
    pixels = data.images.pixels if isinstance(data.images, ArrayImages) else None
    return {
        "pixels_sha256": None if pixels is None else _digest(np.ascontiguousarray(pixels)),
        "labels_sha256": _digest(np.ascontiguousarray(data.labels.array, dtype="<i8")),
        "classes_sha256": hashlib.sha256("\n".join(data.classes).encode()).hexdigest(),
        "ids_sha256": hashlib.sha256("\n".join(map(str, data.ids)).encode()).hexdigest(),
    }


def _digest(array: np.ndarray[Any, Any]) -> str:
    return hashlib.sha256(array.data).hexdigest()
