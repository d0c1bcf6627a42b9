"""Export an index to other engines: parquet, faiss and pgvector.

In all of them bit k of a code is 1 where sign k is +1. Packed bytes hold bit 0 in the most
significant bit of the first byte, as `numpy.packbits` writes it; the last byte is padded with 0.
Content bits are a column of their own, except for faiss, which has one code per item: there the
class bits are repeated `class_weight` times and followed by the content bits, so that the Hamming
distance is class_weight * (distance of class bits) + (distance of content bits).
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

import numpy as np
from numpy.typing import NDArray

from . import files
from .codes import Codes
from .errors import MissingExtraError, UsageError, unknown

if TYPE_CHECKING:
    from .index import Index, Item

_PART = 65_536  # items held in memory at a time
_IDENTIFIER = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_COPY_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


class Exported(NamedTuple):
    """What an export wrote.

    Attributes:
        files: The files.
        items: Number of items.
        bits: Bits of each code, as stored.
    """

    files: tuple[Path, ...]
    items: int
    bits: int


def export_index(
    index: Index,
    to: str,
    out: str | Path,
    *,
    table: str = "photos",
    class_weight: int | None = None,
) -> Exported:
    """Write an index for another engine.

    Args:
        index: The index.
        to: "parquet", "faiss" or "pgvector".
        out: The file to write.
        table: Name of the table, for pgvector.
        class_weight: How often the class bits are repeated before the content bits, for faiss;
            None: as the model of the index was fitted, or 1.

    Returns:
        What was written.

    Raises:
        UsageError: The target is unknown, a value is out of range, or a name is not valid Unicode.
        MissingExtraError: pyarrow or faiss is not installed.
        StorageError: The file cannot be written.
    """
    if to not in EXPORTS:
        raise unknown("export", to, EXPORTS)
    try:
        return EXPORTS[to](index, Path(out), table=table, class_weight=class_weight)
    except UnicodeEncodeError:
        raise UsageError(
            f"A name in the index is not valid Unicode, which {to} requires. Rename the file."
        ) from None


def export_parquet(index: Index, out: Path, **_: Any) -> Exported:
    """Write one row per item: id, code, content, labels and path.

    `Codes.load` reads the file too.

    Args:
        index: The index.
        out: The file, which ends in .parquet.

    Returns:
        What was written.
    """
    pa, parquet = _pyarrow()
    content = index.content_bits
    header: dict[str, Any] = {"format": 3 if content else 2, "bits": index.bits, "skipped": []}
    header |= {"content_bits": content} if content else {}
    fields = [("id", pa.int64() if index.id_type is int else pa.string())]
    fields += [("code", pa.binary(-(-index.bits // 8)))]
    fields += [("content", pa.binary(-(-content // 8)))] if content else []
    fields += [("labels", pa.list_(pa.string())), ("path", pa.string())]
    about = {"hadahash": json.dumps(header), "hadahash.index": json.dumps(_facts(index))}
    schema = pa.schema(fields, metadata=about)
    with files.replacing(out) as temporary, parquet.ParquetWriter(temporary, schema) as writer:
        for codes, items in _parts(index):
            columns = [codes.ids.tolist(), [row.tobytes() for row in codes.packed]]
            columns += (
                [[row.tobytes() for row in codes.content]] if codes.content is not None else []
            )
            columns += [[list(map(str, item.labels)) for item in items]]
            columns += [[item.path for item in items]]
            writer.write_table(pa.table(columns, schema=schema))
    return Exported((out,), len(index), index.bits)


def export_faiss(index: Index, out: Path, *, class_weight: int | None = None, **_: Any) -> Exported:
    """Write an IndexBinaryFlat, and beside it a table of the items in its order.

    Args:
        index: The index.
        out: The file; `faiss.read_index_binary` reads it. OUT.csv has one row per item.
        class_weight: See `export_index`.

    Returns:
        What was written.
    """
    try:
        import faiss
    except ImportError:
        raise MissingExtraError("faiss", "bench") from None
    weight = _class_weight(index, class_weight)
    bits = weight * index.bits + index.content_bits if index.content_bits else index.bits
    flat = faiss.IndexBinaryFlat(-(-bits // 8) * 8)
    listing = out.with_name(f"{out.name}.csv")
    with (
        files.replacing(listing) as temporary,
        temporary.open("w", newline="", encoding="utf-8") as file,
    ):
        rows = csv.writer(file)
        rows.writerow(("row", "id", "labels", "path"))
        for codes, items in _parts(index):
            one = codes.repeated(weight) if index.content_bits else codes
            for number, item in enumerate(items, flat.ntotal):
                labels = "|".join(map(str, item.labels))
                rows.writerow((number, item.id, labels, item.path or ""))
            flat.add(one.packed)
    files.write_bytes(out, faiss.serialize_index_binary(flat).tobytes())
    return Exported((out, listing), len(index), bits)


def export_pgvector(index: Index, out: Path, *, table: str = "photos", **_: Any) -> Exported:
    """Write a script for psql that creates a table with the codes as `bit(n)` and fills it.

    Args:
        index: The index.
        out: The script; `psql -f OUT` runs it.
        table: Name of the table, which must not exist.

    Returns:
        What was written.

    Raises:
        UsageError: The name of the table is not a plain identifier.
    """
    if not _IDENTIFIER.fullmatch(table):
        raise UsageError(
            f"--table must consist of a-z, 0-9 and _, and not begin with a digit, got '{table}'."
        )
    with files.replacing(out) as temporary, temporary.open("w", encoding="utf-8") as file:
        _write_schema(index, table, file)
        for codes, items in _parts(index):
            texts = [_bit_strings(codes.packed, codes.bits)]
            if codes.content is not None:
                texts.append(_bit_strings(codes.content, codes.content_bits))
            for item, *bits in zip(items, *texts, strict=True):
                path = r"\N" if item.path is None else item.path.translate(_COPY_ESCAPES)
                labels = _array_literal(list(map(str, item.labels))).translate(_COPY_ESCAPES)
                name = str(item.id).translate(_COPY_ESCAPES)
                file.write("\t".join((name, *bits, labels, path)) + "\n")
        file.write("\\.\nCOMMIT;\n")
    return Exported((out,), len(index), index.bits)


EXPORTS: dict[str, Callable[..., Exported]] = {
    "parquet": export_parquet,
    "faiss": export_faiss,
    "pgvector": export_pgvector,
}


def _write_schema(index: Index, table: str, file: TextIO) -> None:
    content = f" content bit({index.content_bits}) NOT NULL," if index.content_bits else ""
    second = ", content" if index.content_bits else ""
    kind = "bigint" if index.id_type is int else "text"
    file.write(  # the name of the table has been checked
        f"-- {len(index):,} codes of {index.bits} bits, by hadahash index export.\n"  # noqa: S608
        f"-- The ten nearest items: SELECT id FROM {table} ORDER BY code <~> B'0101...' LIMIT 10;\n"
        "\\set ON_ERROR_STOP on\n"
        "SET client_min_messages = warning;\n"
        "CREATE EXTENSION IF NOT EXISTS vector;\n"
        "BEGIN;\n"
        f"CREATE TABLE {table} (id {kind} PRIMARY KEY, code bit({index.bits}) NOT NULL,{content}"
        " labels text[] NOT NULL, path text);\n"
        f"COPY {table} (id, code{second}, labels, path) FROM stdin;\n"
    )


def _parts(index: Index) -> Iterator[tuple[Codes, list[Item]]]:
    """All codes and items in the order of ids, a part at a time."""
    ids = index.codes().ids
    for start in range(0, len(ids), _PART):
        part = ids[start : start + _PART]
        yield index.codes(part), index.get(part)


def _facts(index: Index) -> dict[str, Any]:
    names = ("model", "method", "backbone")
    facts = {name: index.meta[name] for name in names if name in index.meta}
    return facts | {"bit_order": "bit 0 is the most significant bit of byte 0; 1 is +1"}


def _class_weight(index: Index, given: int | None) -> int:
    if given is not None and given < 1:
        raise UsageError(f"--class-weight must be >= 1, got {given}.")
    ranking = index.ranking
    return given or (1 if ranking is None else ranking.class_weight)


def _bit_strings(packed: NDArray[np.uint8], bits: int) -> list[str]:
    """The codes as text of 0 and 1."""
    characters = np.unpackbits(packed, axis=1, count=bits) + ord("0")
    return [row.tobytes().decode("ascii") for row in characters]


def _array_literal(texts: list[str]) -> str:
    r"""An array of text in PostgreSQL's notation.

    >>> print(_array_literal(["cat", 'a "b"']))
    {"cat","a \"b\""}
    """
    quoted = (text.replace("\\", "\\\\").replace('"', '\\"') for text in texts)
    return "{" + ",".join(f'"{text}"' for text in quoted) + "}"


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingExtraError("pyarrow", "parquet") from None
    return pyarrow, pyarrow.parquet
