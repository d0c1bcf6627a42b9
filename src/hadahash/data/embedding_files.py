"""Files of embeddings: .npy, .npz, .parquet, .arrow and .feather.

A .npy file is memory-mapped. The other formats are copied once, batch by batch, to a temporary file
that is memory-mapped, so memory does not grow with the number of rows.
"""

from __future__ import annotations

import mmap
import os
import zipfile
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .. import files
from ..errors import DataError, HadaHashError, UsageError
from . import embedding_tables
from .base import Ids, ImageSource, name_ids
from .embeddings import Embeddings
from .remote.address import is_stored
from .spool import as_array, spool
from .text import decode

SUFFIXES = (".npy", ".npz", *embedding_tables.SUFFIXES)


def is_embedding_file(path: Any) -> bool:
    """Return whether a path names a file of embeddings.

    Args:
        path: Anything; only paths of existing files can be files of embeddings.

    Returns:
        Whether the file has the extension of embeddings. A .parquet file with a column `path`, or
        with a column of images, is a table of images.
    """
    if not isinstance(path, (str, os.PathLike)):
        return False
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES or not os.path.isfile(path):  # noqa: PTH113 (a NUL in the name)
        return False
    if suffix != ".parquet":
        return True
    return not (is_stored(path) or embedding_tables.has_column(path, "path"))


def open_embeddings(
    path: str | Path, *, array: str | None = None, ids: str | Path | None = None
) -> ImageSource:
    """Open a file of embeddings without reading it into memory.

    Args:
        path: .npy (n, d), or (d,) for one vector; .npz; or .parquet, .arrow or .feather with one
            row per vector.
        array: Name of the array of a .npz file, or of the column of a table; not needed if only
            one can be meant.
        ids: A text file with one id per line, or a .npy file; or the name of a column of the table
            or of an array of the .npz file. By default the column `id`, or else 0 to n - 1.

    Returns:
        The embeddings, with their ids.

    Raises:
        DataError: The file does not contain embeddings, or the ids do not match.
        StorageError: The file cannot be read.
        UsageError: The array or column does not exist, or has to be named.
    """
    path = Path(path)
    files.require_regular(path)
    embeddings, found = _read(path, array, None if ids is None else str(ids))
    if ids is not None and found is None:
        found = read_values(path, ids)
    if found is None:
        found = np.arange(len(embeddings))
    if found.shape != (len(embeddings),):
        raise DataError(f"{path} has {len(embeddings):,} rows, but there are {len(found):,} ids.")
    whole = found.dtype.kind in "iu"
    return ImageSource(embeddings, found.astype(np.int64) if whole else name_ids(found))


def read_values(path: str | Path, values: str | Path) -> NDArray[Any]:
    """Read one value per embedding, such as ids or labels.

    Args:
        path: The file of embeddings.
        values: A text file with one value per line, or a .npy file; or the name of a column of the
            table or of an array of the .npz file.

    Returns:
        The values (n,); a .npy or .npz file may also hold labels (n, C).

    Raises:
        DataError: A file is damaged.
        StorageError: A file cannot be read.
        UsageError: There is no such column.
    """
    path, file, name = Path(path), Path(values), str(values)
    if path.suffix.lower() in embedding_tables.SUFFIXES and not file.is_file():
        return embedding_tables.read_values(path, name)
    if path.suffix.lower() == ".npz" and name in _npz_headers(path):
        return np.asarray(_load(path)[name])
    if file.suffix.lower() == ".npy":
        return np.asarray(_load(file))
    files.require_regular(file)
    text = decode(file.read_bytes(), file, remedy="Save it as text in UTF-8.")
    return name_ids(text.splitlines())


def _read(path: Path, array: str | None, ids: str | None) -> tuple[Embeddings, Ids | None]:
    """The embeddings, and the ids where the same table has them."""
    suffix = path.suffix.lower()
    if suffix == ".npy":
        mapped = _load(path, mmap_mode="r")
        mapped = mapped[None] if mapped.ndim == 1 else mapped  # one vector
        return _embeddings(mapped, path, getattr(mapped, "_mmap", None)), None
    if suffix == ".npz":
        return _read_npz(path, array), None
    if suffix in embedding_tables.SUFFIXES:
        own = None if ids is None or Path(ids).is_file() else ids
        table = embedding_tables.read_vectors(path, array, own)
        return _embeddings(table.array, path, table.mapped, array), table.ids
    raise UsageError(f"Embeddings are read from {', '.join(SUFFIXES)}, got '{path.name}'.")


def _embeddings(
    array: NDArray[Any], path: Path, mapped: mmap.mmap | None, name: str | None = None
) -> Embeddings:
    status = path.stat()
    stamp = f"{path.resolve()} {name} {status.st_size} {status.st_mtime_ns}"
    try:
        return Embeddings(array, stamp, mapped)
    except UsageError as error:
        raise DataError(f"{path}: {error}") from None


def _load(path: Path, mmap_mode: Any = None) -> Any:
    files.require_regular(path)
    try:
        return np.load(path, mmap_mode=mmap_mode, allow_pickle=False)
    except files.ARCHIVE_ERRORS as error:
        raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> HadaHashError:
    if isinstance(error, OSError) and error.errno:
        return files.storage_error("read", path, error)
    reason = " ".join(str(error).split())
    return DataError(f"{path} cannot be read as arrays ({reason}). Write it again.")


class _Header(NamedTuple):
    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[Any]


def _npz_headers(path: Path) -> dict[str, _Header]:
    """Shape and type of every array of a .npz file."""
    try:
        with zipfile.ZipFile(path) as archive:
            found = {}
            for name in archive.namelist():
                with archive.open(name) as member:
                    found[name.removesuffix(".npy")] = _header(member)
            return found
    except files.ARCHIVE_ERRORS as error:
        raise _damaged(path, error) from error


def _header(member: IO[bytes]) -> _Header:
    first = np.lib.format.read_magic(member) == (1, 0)
    read = np.lib.format.read_array_header_1_0 if first else np.lib.format.read_array_header_2_0
    return _Header(*read(member))


def _read_npz(path: Path, array: str | None) -> Embeddings:
    headers = _npz_headers(path)
    name = _choose(path, headers, array)
    shape, fortran, dtype = headers[name]
    if dtype.hasobject:
        raise DataError(f"The array '{name}' of {path} holds objects, not floats.")
    try:
        with zipfile.ZipFile(path) as archive, archive.open(f"{name}.npy") as member:
            _header(member)
            mapped = spool(iter(lambda: member.read(1 << 22), b""))
            vectors = as_array(mapped, shape, dtype, fortran=fortran)
    except files.ARCHIVE_ERRORS as error:
        raise _damaged(path, error) from error
    return _embeddings(vectors, path, mapped, name)


def _choose(path: Path, headers: dict[str, _Header], wanted: str | None) -> str:
    """The array to read: the named one, the only one, or the only matrix of floats."""
    known = ", ".join(list(headers)[:8]) or "none"
    if wanted is not None:
        if wanted not in headers:
            raise UsageError(f"{path} has no array '{wanted}'. Its arrays: {known}.")
        return wanted
    matrices = [
        name for name, each in headers.items() if len(each.shape) == 2 and each.dtype.kind == "f"
    ]
    if len(matrices) == 1 or len(headers) == 1:
        return (matrices or list(headers))[0]
    text = "several float arrays" if matrices else "no float array"
    raise UsageError(f"{path} has {text} (n, d). Its arrays: {known}. Name one: --array NAME")
