"""Binary codes: THE definition of a bit, packing, Hamming distance, and the container that holds a collection's codes.

A bit is 1 (+1) where the value is >= 0 and 0 (-1) elsewhere; so 0.0 and -0.0 are both 1, and NaN is refused.
Packed codes are uint8 (n, ceil(bits / 8)), most significant bit first, as `numpy.packbits` writes them; the padding
bits of the last byte are 0.
"""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import files
from .errors import MissingExtraError, NewerFileError, StorageError, UsageError

_FORMAT = 1
_UNREADABLE = (
    OSError,
    KeyError,
    TypeError,
    ValueError,
    EOFError,
    RuntimeError,
    MemoryError,
    zipfile.BadZipFile,
)


class Skipped(NamedTuple):
    """An image that has no code, and why."""

    path: str
    reason: str


def binarize(values: ArrayLike) -> NDArray[np.bool_]:
    """True where the value is >= 0.

    >>> binarize([-0.5, -0.0, 0.0, 2.0]).tolist()
    [False, True, True, True]
    """
    values = np.asarray(values)
    if np.issubdtype(values.dtype, np.floating) and np.isnan(values).any():
        raise UsageError(
            "The values hold NaN, which has no bit. Find out where the network's output breaks."
        )
    return np.asarray(values >= 0)


def pack(values: ArrayLike) -> NDArray[np.uint8]:
    """Real values (n, bits), or +-1, to packed codes.

    >>> pack([[1, -1, -1, 1, 0.5, -2, 3, -1, 1]]).tolist()
    [[154, 128]]
    """
    bits = binarize(values)
    if bits.ndim != 2:
        raise UsageError(f"Values to pack must have the shape (n, bits), got {bits.shape}.")
    return np.packbits(bits, axis=1)


def unpack(packed: NDArray[np.uint8], bits: int) -> NDArray[np.int8]:
    """Packed codes to int8 (n, bits) of +1 and -1.

    >>> unpack(pack([[1, -1, 1]]), 3).tolist()
    [[1, -1, 1]]
    """
    return np.unpackbits(packed, axis=1, count=bits).view(np.int8) * np.int8(2) - np.int8(1)


def words(packed: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Packed codes as uint64 (n, ceil(bytes / 8)), zero-padded: the form in which distances are counted."""
    packed = np.ascontiguousarray(packed)
    width = -(-packed.shape[1] // 8) * 8
    if packed.shape[1] != width:
        packed = np.pad(packed, ((0, 0), (0, width - packed.shape[1])))
    return packed.view(np.uint64)


def hamming(a: NDArray[np.uint8], b: NDArray[np.uint8]) -> NDArray[np.int32]:
    """Distances between all packed codes of `a` and all of `b`: int32 (len(a), len(b)).

    >>> hamming(pack([[1, 1, 1]]), pack([[1, -1, -1], [1, 1, 1]])).tolist()
    [[2, 0]]
    """
    if a.shape[1] != b.shape[1]:
        raise UsageError(
            f"Codes of {a.shape[1]} and {b.shape[1]} bytes cannot be compared: use one code length for both."
        )
    left, right = words(a), words(b)
    distances = np.zeros((len(left), len(right)), np.int32)
    for word in range(left.shape[1]):
        distances += np.bitwise_count(left[:, None, word] ^ right[None, :, word])
    return distances


@dataclass(frozen=True, eq=False)
class Codes:
    """The codes of a collection: one row and one id for each image, and what was skipped on the way.

    >>> codes = Codes(packed=pack([[1, -1], [-1, -1]]), bits=2, ids=["a.jpg", "b.jpg"])
    >>> len(codes), codes[[1]].ids.tolist()
    (2, ['b.jpg'])
    """

    packed: NDArray[np.uint8]  # (n, ceil(bits / 8)), as numpy.packbits
    bits: int
    ids: NDArray[Any] = None  # type: ignore[assignment]  # (n,) of str or int64; 0..n-1 when not given
    skipped: tuple[Skipped, ...] = ()

    def __post_init__(self) -> None:
        packed = np.ascontiguousarray(self.packed)
        width = -(-self.bits // 8)
        if self.bits < 1:
            raise UsageError(f"A code needs at least 1 bit, got bits={self.bits}.")
        if packed.dtype != np.uint8 or packed.ndim != 2 or packed.shape[1] != width:
            raise UsageError(
                f"{self.bits}-bit codes are packed as uint8 (n, {width}), got {packed.dtype} {packed.shape}. "
                "hadahash.codes.pack makes them from real values."
            )
        padding = width * 8 - self.bits
        if padding and (packed[:, -1] & ((1 << padding) - 1)).any():
            raise UsageError(f"The last {padding} padding bits of {self.bits}-bit codes must be 0.")
        object.__setattr__(self, "packed", packed)
        object.__setattr__(self, "ids", _ids(self.ids, len(packed)))
        object.__setattr__(self, "skipped", tuple(Skipped(*row) for row in self.skipped))

    def __len__(self) -> int:
        return len(self.packed)

    def __getitem__(self, rows: Any) -> Codes:
        """The codes a slice, mask or list of positions selects. What was skipped stays with the whole."""
        if isinstance(rows, (int, np.integer)):
            rows = [rows]
        return Codes(packed=self.packed[rows], bits=self.bits, ids=self.ids[rows])

    def signs(self) -> NDArray[np.int8]:
        """int8 (n, bits) of +1 and -1"""
        return unpack(self.packed, self.bits)

    @staticmethod
    def concatenate(parts: Sequence[Codes]) -> Codes:
        """All parts in one, in order; they must agree on the number of bits."""
        if len({part.bits for part in parts}) != 1:
            raise UsageError(
                f"Codes of {sorted({part.bits for part in parts})} bits cannot be joined."
            )
        return Codes(
            packed=np.concatenate([part.packed for part in parts]),
            bits=parts[0].bits,
            ids=np.concatenate([part.ids for part in parts]),
            skipped=tuple(row for part in parts for row in part.skipped),
        )

    def save(self, path: str | Path) -> None:
        """Write `x.npz`, or `x.parquet` (one row an image; needs pyarrow). The file is replaced whole or not at all."""
        path = Path(path)
        header = {
            "format": _FORMAT,
            "bits": self.bits,
            "skipped": [list(row) for row in self.skipped],
        }
        if path.suffix == ".parquet":
            return self._save_parquet(path, header)
        if path.suffix != ".npz":
            raise UsageError(f"Codes are saved as .npz or .parquet, not '{path.name}'.")
        buffer = io.BytesIO()
        np.savez(buffer, packed=self.packed, ids=self.ids, header=np.array(json.dumps(header)))
        files.write_bytes(path, buffer.getvalue())
        return None

    @staticmethod
    def load(path: str | Path) -> Codes:
        path = Path(path)
        if path.suffix == ".parquet":
            return Codes._load_parquet(path)
        try:
            with np.load(path, allow_pickle=False) as archive:
                header = json.loads(str(archive["header"]))
                _refuse_newer(path, header)
                return Codes(archive["packed"], header["bits"], archive["ids"], header["skipped"])
        except _UNREADABLE as error:
            raise _unreadable(path, error) from error

    def save_skipped(self, path: str | Path) -> None:
        """Write `skipped.csv`: path and reason of each image that has no code."""
        text = io.StringIO()
        writer = csv.writer(text)
        writer.writerow(Skipped._fields)
        writer.writerows(self.skipped)
        files.write_bytes(path, text.getvalue().encode("utf-8", "surrogateescape"))

    def _save_parquet(self, path: Path, header: dict[str, object]) -> None:
        pa, parquet = _pyarrow()
        width = self.packed.shape[1]
        code = pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(width), len(self), [None, pa.py_buffer(self.packed.tobytes())]
        )
        try:
            table = pa.table({"id": pa.array(self.ids), "code": code})
        except UnicodeError:
            raise UsageError(
                "Parquet holds only ids that are valid Unicode, and one is not. Save as .npz."
            ) from None
        with files.replacing(path) as temporary:
            table = table.replace_schema_metadata({"hadahash": json.dumps(header)})
            parquet.write_table(table, temporary, write_page_checksum=True)

    @staticmethod
    def _load_parquet(path: Path) -> Codes:
        pa, parquet = _pyarrow()
        try:
            with path.open("rb") as file:
                table = parquet.read_table(file, page_checksum_verification=True)
            header = json.loads((table.schema.metadata or {})[b"hadahash"])
            _refuse_newer(path, header)
            column = table["code"].combine_chunks()
            width = -(-header["bits"] // 8)
            packed = np.frombuffer(b"".join(column.to_pylist()), np.uint8).reshape(-1, width)
            ids = table["id"].to_numpy()
            ids = ids if ids.dtype.kind in "iu" else ids.astype(str)
            return Codes(packed, header["bits"], ids, header["skipped"])
        except (*_UNREADABLE, pa.ArrowException) as error:
            raise _unreadable(path, error) from error


def _ids(ids: Any, count: int) -> NDArray[Any]:
    array = np.arange(count) if ids is None else np.asarray(ids)
    if array.dtype == object and all(isinstance(name, str) for name in array.flat):
        array = array.astype(str)
    if count == 0 and array.size == 0:
        return array.astype(str) if array.dtype.kind not in "iu" else array
    if array.shape != (count,) or array.dtype.kind not in "iuU":
        raise UsageError(
            f"{count} codes need {count} ids, strings or whole numbers, got {array.dtype} {array.shape}."
        )
    return array


def _unreadable(path: Path, error: Exception) -> StorageError:
    """The one-line error for a file that the operating system does not give, or that does not hold what it should."""
    if isinstance(error, OSError) and error.errno:
        return files.storage_error("read", path, error)
    reason = " ".join(str(error).split())
    return StorageError(
        f"{path} does not hold codes, or is damaged ({reason}). Encode the images again."
    )


def _refuse_newer(path: Path, header: dict[str, Any]) -> None:
    if header["format"] > _FORMAT:
        raise NewerFileError(
            f"{path} was written by a later version of hadahash. Update with: pip install -U hadahash"
        )


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingExtraError("pyarrow", "parquet") from None
    return pyarrow, pyarrow.parquet
