"""Code files: .npz and .parquet."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import files
from .codes import Codes, check_bits
from .errors import MissingExtraError, NewerFileError, StorageError, UsageError

_FORMAT = 2  # 2: string ids as UTF-8 without a fixed width


def save_codes(codes: Codes, path: Path) -> None:
    """Write codes as .npz or .parquet, by the extension of `path`; see `Codes.save`."""
    if path.suffix == ".parquet":
        return _save_parquet(codes, path)
    if path.suffix != ".npz":
        raise UsageError(f"Codes are saved as .npz or .parquet, got '{path.name}'.")
    buffer = io.BytesIO()
    arrays: dict[str, Any] = _ids_to_arrays(codes.ids)
    np.savez(buffer, packed=codes.packed, header=np.array(json.dumps(_header(codes))), **arrays)
    files.write_bytes(path, buffer.getvalue())
    return None


def load_codes(path: Path) -> Codes:
    """Read a code file; see `Codes.load`."""
    if path.suffix == ".parquet":
        return _load_parquet(path)
    files.require_regular(path)
    try:
        with np.load(path, allow_pickle=False) as archive:
            header = json.loads(str(archive["header"]))
            _refuse_newer(path, header)
            ids = _ids_from_arrays(archive)
            return Codes(archive["packed"], header["bits"], ids, header["skipped"])
    except files.ARCHIVE_ERRORS as error:
        raise _unreadable(path, error) from error


def _header(codes: Codes) -> dict[str, Any]:
    skipped = [list(row) for row in codes.skipped]
    return {"format": _FORMAT, "bits": codes.bits, "skipped": skipped}


def _ids_to_arrays(ids: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Integer ids as they are; strings as one block of UTF-8 with the end of each."""
    if ids.dtype != object:
        return {"ids": ids}
    encoded = [name.encode("utf-8", "surrogateescape") for name in ids]
    ends = np.cumsum([len(name) for name in encoded], dtype=np.int64)
    return {"id_bytes": np.frombuffer(b"".join(encoded), np.uint8), "id_ends": ends}


def _ids_from_arrays(archive: Any) -> Any:
    if "ids" in archive:
        return archive["ids"]
    data, ends = archive["id_bytes"].tobytes(), archive["id_ends"].tolist()
    starts = [0, *ends][:-1]
    if [0, *ends] != sorted([0, *ends]) or [0, *ends][-1] != len(data):
        raise ValueError("the ends of the ids do not match their bytes")
    return [
        data[start:end].decode("utf-8", "surrogateescape")
        for start, end in zip(starts, ends, strict=True)
    ]


def _save_parquet(codes: Codes, path: Path) -> None:
    pa, parquet = _pyarrow()
    width = codes.packed.shape[1]
    buffers = [None, pa.py_buffer(codes.packed.tobytes())]
    packed = pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), len(codes), buffers)
    kind = pa.string() if codes.ids.dtype == object else pa.int64()
    try:
        table = pa.table({"id": pa.array(codes.ids, kind), "code": packed})
    except UnicodeError:
        raise UsageError(
            "Parquet ids must be valid Unicode, and one is not. Save as .npz."
        ) from None
    with files.replacing(path) as temporary:
        table = table.replace_schema_metadata({"hadahash": json.dumps(_header(codes))})
        parquet.write_table(table, temporary, write_page_checksum=True)


def _load_parquet(path: Path) -> Codes:
    pa, parquet = _pyarrow()
    files.require_regular(path)
    try:
        with path.open("rb") as file:
            table = parquet.read_table(file, page_checksum_verification=True)
        header = json.loads((table.schema.metadata or {})[b"hadahash"])
        _refuse_newer(path, header)
        width = -(-check_bits(header["bits"]) // 8)
        joined = b"".join(table["code"].combine_chunks().to_pylist())
        packed = np.frombuffer(joined, np.uint8).reshape(-1, width)
        ids = table["id"].to_pylist()
        if pa.types.is_integer(table.schema.field("id").type):
            ids = np.array(ids, np.int64)
        return Codes(packed, header["bits"], ids, header["skipped"])
    except (*files.ARCHIVE_ERRORS, pa.ArrowException) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> StorageError:
    if isinstance(error, OSError) and error.errno:
        return files.storage_error("read", path, error)
    reason = " ".join(str(error).split())
    return StorageError(f"{path} is not a code file, or is damaged ({reason}). Encode again.")


def _refuse_newer(path: Path, header: dict[str, Any]) -> None:
    if header["format"] > _FORMAT:
        raise NewerFileError(
            f"{path} was written by a later version of hadahash. "
            "Update with: pip install -U hadahash"
        )


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingExtraError("pyarrow", "parquet") from None
    return pyarrow, pyarrow.parquet
