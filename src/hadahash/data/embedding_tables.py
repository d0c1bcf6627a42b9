"""Tables of embeddings: .parquet, .arrow and .feather files, read batch by batch.

A column holds lists of floats, one per row; or, without such a column, every float column is one
dimension. A missing vector, or one of another length than the first, becomes a row of NaN.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError, MissingExtraError, UsageError
from .base import Ids
from .embeddings import BATCH
from .spool import as_array, spool

SUFFIXES = (".parquet", ".arrow", ".feather")

_ID_COLUMNS = ("id", "ids")


@dataclass(frozen=True, eq=False)
class VectorTable:
    """The vectors of a table, copied to a temporary file, and their ids if it has any."""

    array: NDArray[Any]
    mapped: mmap.mmap | None
    ids: Ids | None


def read_vectors(path: Path, column: str | None = None, ids: str | None = None) -> VectorTable:
    """Copy the vectors of a table to a memory-mapped temporary file.

    Args:
        path: The table.
        column: Its column of vectors; None: the only one, or all float columns.
        ids: Its column of ids; None: `id` or `ids`, if there is one.

    Returns:
        The vectors and ids.

    Raises:
        DataError: The table is damaged or has no vectors.
        UsageError: A column does not exist, or has to be named.
    """
    table = _Table(path)
    columns = _vector_columns(table, column)
    id_column = ids or next((name for name in _ID_COLUMNS if name in table.names), None)
    if id_column is not None:
        table.check(id_column)
    reader = _Reader(columns)
    mapped = spool(reader.read(table, id_column))
    if not reader.width:
        raise DataError(f"{path} contains no vectors.")
    array = as_array(mapped, (reader.rows, reader.width), reader.dtype)
    return VectorTable(array, mapped, np.concatenate(reader.ids) if reader.ids else None)


def read_values(path: Path, column: str) -> NDArray[Any]:
    """Read one column with a value per row.

    Args:
        path: The table.
        column: Its column.

    Returns:
        The values (n,).

    Raises:
        DataError: The table is damaged.
        UsageError: The column does not exist.
    """
    table = _Table(path)
    table.check(column)
    parts = [_to_numpy(batch[column]) for batch in table.batches([column])]
    return np.concatenate([np.empty(0, object), *parts]) if not parts else np.concatenate(parts)


def has_column(path: Path, column: str) -> bool:
    """Return whether a table has a column of this name; True for a file that cannot be read.

    Args:
        path: The table.
        column: Name of the column, in lower case.

    Returns:
        Whether it has the column.
    """
    try:
        names = _Table(path).names
    except (DataError, MissingExtraError):
        return True
    return any(name.strip().lower() == column for name in names)


class _Table:
    """A file of record batches."""

    def __init__(self, path: Path) -> None:
        self.path, self.pa = path, _pyarrow()
        try:
            self.file = self._open()
        except (self.pa.ArrowException, OSError) as error:
            raise self._damaged(error) from error
        self.schema = self.file.schema_arrow if self._is_parquet else self.file.schema
        self.names: list[str] = self.schema.names

    @property
    def _is_parquet(self) -> bool:
        return self.path.suffix.lower() == ".parquet"

    def _open(self) -> Any:
        if self._is_parquet:
            return self.pa.parquet.ParquetFile(self.path, pre_buffer=False, buffer_size=1 << 22)
        source = self.pa.OSFile(str(self.path))  # mapped, all of the file would count as memory
        try:
            return self.pa.ipc.open_file(source)
        except self.pa.ArrowInvalid:
            source.seek(0)
            return self.pa.ipc.open_stream(source)

    def batches(self, columns: list[str]) -> Iterator[Any]:
        """The record batches; only these columns are read where the format allows it."""
        try:
            if self._is_parquet:
                yield from self.file.iter_batches(BATCH, columns=columns)
                return
            batches: Iterable[Any] = self.file
            if hasattr(self.file, "num_record_batches"):
                batches = map(self.file.get_batch, range(self.file.num_record_batches))
            for batch in batches:
                batch.validate(full=True)  # damaged offsets would end the process
                yield batch
        except (self.pa.ArrowException, OSError) as error:
            raise self._damaged(error) from error

    def check(self, column: str) -> None:
        """Refuse a column that does not exist."""
        if column not in self.names:
            known = ", ".join(self.names[:8])
            raise UsageError(f"{self.path} has no column '{column}'. Its columns: {known}.")

    def _damaged(self, error: Exception) -> DataError:
        reason = " ".join(str(error).split())
        return DataError(f"{self.path} cannot be read as a table ({reason}). Write it again.")


@dataclass
class _Reader:
    """Reads the vectors of a table as bytes; knows their number and width afterwards."""

    columns: list[str]
    width: int = 0
    rows: int = 0
    dtype: np.dtype[Any] = field(default_factory=lambda: np.dtype(np.float32))
    ids: list[Ids] = field(default_factory=list)

    def read(self, table: _Table, id_column: str | None) -> Iterator[bytes]:
        wanted = self.columns + ([id_column] if id_column else [])
        for batch in table.batches(wanted):
            if id_column:
                self.ids.append(_to_numpy(batch[id_column]))
            vectors = self._vectors(batch)
            missing = self.rows if not self.width else 0  # the first rows may have no vector
            self.rows += len(batch)
            if vectors is not None:
                if missing:
                    yield np.full((missing, vectors.shape[1]), np.nan, vectors.dtype).tobytes()
                self.width, self.dtype = vectors.shape[1], vectors.dtype
                yield vectors.tobytes()

    def _vectors(self, batch: Any) -> NDArray[Any] | None:
        if len(self.columns) > 1:
            columns = [_to_numpy(batch[name]) for name in self.columns]
            with np.errstate(over="ignore"):
                return np.stack(columns, axis=1).astype(np.float32)
        return self._from_lists(batch[self.columns[0]])

    def _from_lists(self, column: Any) -> NDArray[Any] | None:
        """Lists as rows; None if no vector has been found yet."""
        lengths = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
        filled = lengths[lengths > 0]
        width = self.width or (int(filled[0]) if len(filled) else 0)
        if not width:
            return None
        flat = _to_numpy(column.flatten())
        half = flat.dtype == np.float16 if not self.width else self.dtype == np.float16
        vectors = np.full((len(column), width), np.nan, np.float16 if half else np.float32)
        usable = lengths == width
        with np.errstate(over="ignore"):
            vectors[usable] = flat[np.repeat(usable, lengths)].reshape(-1, width)
        return vectors


def _vector_columns(table: _Table, wanted: str | None) -> list[str]:
    """The column of vectors, or all float columns."""
    types, schema = table.pa.types, table.schema
    lists = [each.name for each in schema if _is_list_of_floats(types, each.type)]
    floats = [each.name for each in schema if types.is_floating(each.type)]
    if wanted is not None:
        table.check(wanted)
        if wanted not in lists:
            raise DataError(f"The column '{wanted}' of {table.path} does not hold lists of floats.")
        return [wanted]
    if len(lists) > 1:
        raise UsageError(
            f"{table.path} has several columns of vectors: {', '.join(lists)}. "
            f"Name one: --array {lists[0]}"
        )
    if not lists and len(floats) < 2:
        known = ", ".join(table.names[:8]) or "none"
        raise DataError(f"{table.path} has no column of float vectors. Its columns: {known}.")
    return lists or floats


def _is_list_of_floats(types: Any, kind: Any) -> bool:
    nested = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    return bool(nested and types.is_floating(kind.value_type))


def _to_numpy(column: Any) -> NDArray[Any]:
    array: NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return array


def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.ipc
        import pyarrow.parquet
    except ImportError:
        raise MissingExtraError("pyarrow", "parquet") from None
    return pyarrow
