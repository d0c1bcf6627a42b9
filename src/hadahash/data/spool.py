"""Temporary files that are memory-mapped, for arrays that may not fit into memory."""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Iterable

import numpy as np
from numpy.typing import DTypeLike, NDArray

from .. import files


def spool(parts: Iterable[bytes]) -> mmap.mmap | None:
    """Write to a temporary file without a name, which vanishes with the map.

    Args:
        parts: The content, in order.

    Returns:
        The map of the file; None if it is empty.

    Raises:
        StorageError: The file cannot be written.
    """
    try:
        with tempfile.TemporaryFile(prefix="hadahash-") as file:
            for part in parts:
                file.write(part)
            file.flush()
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if file.tell() else None
    except OSError as error:
        raise files.storage_error("write", tempfile.gettempdir(), error) from error


def as_array(
    mapped: mmap.mmap | None, shape: tuple[int, ...], dtype: DTypeLike, *, fortran: bool = False
) -> NDArray[np.generic]:
    """View the content of a spooled file as an array.

    Args:
        mapped: What `spool` returned.
        shape: Shape of the array.
        dtype: Type of its numbers.
        fortran: Whether the columns, not the rows, are contiguous.

    Returns:
        The array, read-only; empty if there is no content.

    Raises:
        ValueError: The content is too short.
    """
    if mapped is None:
        return np.zeros(shape, dtype)
    return np.ndarray(shape, dtype, buffer=mapped, order="F" if fortran else "C")
