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

# 2: string ids as UTF-8 without a fixed width. 3: content bits; without them, 2 is written, so
# that earlier versions can read the file.
_FORMAT = 3


def save_codes(codes: Codes, path: Path) -> None:
    """Write codes as .npz or .parquet, by the extension of `path`; see `Codes.save`."""
    if path.suffix == ".parquet":
        return _save_parquet(codes, path)
    if path.suffix != ".npz":
        raise UsageError(f"Codes are saved as .npz or .parquet, got '{path.name}'.")
    buffer = io.BytesIO()
    arrays: dict[str, Any] = _ids_to_arrays(codes.ids)
    if codes.content is not None:
        arrays["content"] = codes.content
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
            content = archive["content"] if header.get("content_bits") else None
            return _codes(header, archive["packed"], ids, content)
    except files.ARCHIVE_ERRORS as error:
        raise _unreadable(path, error) from error


def _header(codes: Codes) -> dict[str, Any]:
    skipped = [list(row) for row in codes.skipped]
    header: dict[str, Any] = {"format": 2, "bits": codes.bits, "skipped": skipped}
    if codes.content is not None:
        header |= {"format": _FORMAT, "content_bits": codes.content_bits}
    if codes.content_fingerprint is not None:
        header["content_fingerprint"] = codes.content_fingerprint
    return header


def _codes(header: dict[str, Any], packed: Any, ids: Any, content: Any) -> Codes:
    bits, made_by = header.get("content_bits", 0), header.get("content_fingerprint")
    if not isinstance(made_by, str | None):
        raise ValueError(f"content_fingerprint must be a text, got {made_by!r}")
    return Codes(packed, header["bits"], ids, header["skipped"], content, bits, made_by)


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
    kind = pa.string() if codes.ids.dtype == object else pa.int64()
    columns = {"code": _binary_column(pa, codes.packed)}
    if codes.content is not None:
        columns["content"] = _binary_column(pa, codes.content)
    try:
        table = pa.table({"id": pa.array(codes.ids, kind), **columns})
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
        # From memory, Arrow starts no threads; with them, one in ten short processes aborted.
        whole = pa.BufferReader(path.read_bytes())
        file = parquet.ParquetFile(whole, page_checksum_verification=True)
        table = file.read(use_threads=False)
        header = json.loads((table.schema.metadata or {})[b"hadahash"])
        _refuse_newer(path, header)
        packed = _from_binary_column(table["code"], header["bits"])
        bits = header.get("content_bits")
        content = _from_binary_column(table["content"], bits) if bits else None
        ids = table["id"].to_pylist()
        if pa.types.is_integer(table.schema.field("id").type):
            ids = np.array(ids, np.int64)
        return _codes(header, packed, ids, content)
    except (*files.ARCHIVE_ERRORS, pa.ArrowException) as error:
        raise _unreadable(path, error) from error


def _binary_column(pa: Any, packed: NDArray[np.uint8]) -> Any:
    buffers = [None, pa.py_buffer(packed.tobytes())]
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(packed.shape[1]), len(packed), buffers)


def _from_binary_column(column: Any, bits: Any) -> NDArray[np.uint8]:
    joined = b"".join(column.combine_chunks().to_pylist())
    return np.frombuffer(joined, np.uint8).reshape(-1, -(-check_bits(bits) // 8))


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
