"""Temporary files that are memory-mapped, for arrays that may not fit into memory."""

from __future__ import annotations

import errno
import math
import mmap
import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from .. import files
from .memory import available_memory


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


def allocate(shape: tuple[int, ...], dtype: DTypeLike, name: str) -> NDArray[Any]:
    """Allocate an array in memory, or in a file if it takes more than half of what is available.

    Args:
        shape: Shape of the array.
        dtype: Type of its numbers.
        name: What it holds, for messages.

    Returns:
        The array; its content is arbitrary.

    Raises:
        StorageError: The disk does not have enough space for the file.
    """
    from .datasets.locations import cache_folder  # imported here: the data sets import this module

    if math.prod(shape) * np.dtype(dtype).itemsize <= available_memory() // 2:
        return np.empty(shape, dtype)
    return allocate_file(cache_folder(), shape, dtype, name)


def allocate_file(
    folder: Path, shape: tuple[int, ...], dtype: DTypeLike, name: str
) -> NDArray[Any]:
    """Map an unnamed file whose space is reserved: a full disk is an error here, not later.

    Args:
        folder: Folder of the file, which is unlinked at once and disappears with the process.
        shape: Shape of the array.
        dtype: Type of its numbers.
        name: What it holds, for messages.

    Returns:
        The array.

    Raises:
        StorageError: The disk does not have enough space, or the folder cannot be written.
    """
    size = math.prod(shape) * np.dtype(dtype).itemsize
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(prefix=".hadahash-", dir=folder) as file:
            _reserve(file.fileno(), size, folder)
            return np.memmap(file.name, dtype, "r+", shape=shape)
    except OSError as error:
        action = f"store {size_text(size)} of {name} in"
        raise files.storage_error(action, folder, error) from error


def size_text(size: int) -> str:
    """Describe a number of bytes.

    Args:
        size: Number of bytes.

    Returns:
        The text.

    Example:
        >>> size_text(1_500_000), size_text(2_000_000_000)
        ('1.5 MB', '2.0 GB')
    """
    return f"{size / 1e9:,.1f} GB" if size >= 1e9 else f"{size / 1e6:,.1f} MB"


def _reserve(handle: int, size: int, folder: Path) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(handle, 0, size)
    elif shutil.disk_usage(folder).free < size:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    else:
        os.truncate(handle, size)
