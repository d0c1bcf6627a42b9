"""A table of images: a CSV, TSV or parquet file with one row per image.

    path      the image file, relative to the folder of the table, or absolute
    labels    its labels, separated by | (the column may be called label; in parquet it may hold
              lists)
    split     train, query (or test) or database; optional

Other columns are ignored. If every image has one label, the data are single-label; if any image has
several, they are multi-label. With a column `split` the protocol `table` uses it, else `holdout`
draws the queries. "val" is refused because it is ambiguous: queries, or images to choose settings
on. Ids are the paths.

All problems of a table are reported at once, with their lines. A label that occurs once and looks
like a misspelling of a frequent one is used unchanged, with a warning.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np

from .. import files
from ..errors import DataError, MissingExtraError
from .base import FileImages, LabelledImages, name_ids
from .labels import Labels
from .table_checks import (
    SPLITS,
    DoubtfulLabelWarning,
    Problems,
    Row,
    check_paths,
    check_rows,
    warn_of_misspellings,
)
from .text import decode

SUFFIXES = (".csv", ".tsv", ".parquet")

_LABELS = ("labels", "label")
_COLUMNS = (
    "A table has the columns path, labels (separated by |) and, optionally, split (train, query or"
    " database)."
)


def is_table(path: str | Path) -> bool:
    """Return whether a path has the extension of a table and is not a folder."""
    return Path(path).suffix.lower() in SUFFIXES and not os.path.isdir(path)  # noqa: PTH112


def table_protocol(path: str | Path) -> str:
    """Choose the protocol of a table by its columns.

    Args:
        path: The table.

    Returns:
        "table" if there is a column `split`, else "holdout".

    Raises:
        DataError: A column is missing.
        StorageError: The file cannot be read.
    """
    return "table" if "split" in _columns(Path(path), next(_records(Path(path)))[1]) else "holdout"


def read_table(path: str | Path) -> LabelledImages:
    """Read the labelled images of a table.

    Args:
        path: The table.

    Returns:
        The images in the order of the table, with `parts` if it has a column `split`.

    Raises:
        DataError: The table or a row is not as described above.
        StorageError: The file cannot be read.
    """
    path = Path(path)
    rows = read_rows(path)
    problems = Problems(path)
    paths = check_rows(rows, problems)
    problems.raise_any()
    classes = tuple(sorted({label for row in rows for label in row.labels}))
    if len(classes) < 2:
        raise DataError(f"{path} has only the label '{classes[0]}'. At least 2 are needed.")
    warn_of_misspellings(rows, problems)
    parts = None if rows[0].split is None else np.array([SPLITS[row.split or ""] for row in rows])
    ids = name_ids(row.path for row in rows)
    return LabelledImages(FileImages(paths), ids, _labels(rows, classes), classes, path.stem, parts)


def read_paths(path: str | Path) -> tuple[list[str], list[Path]]:
    """Read the image paths of a table alone; it needs no column of labels.

    Args:
        path: The table.

    Returns:
        The paths as written, and the files they refer to.

    Raises:
        DataError: The table has no column `path`, or an image does not exist.
        StorageError: The file cannot be read.
    """
    path = Path(path)
    rows = read_rows(path, labelled=False)
    problems = Problems(path)
    paths = check_paths(rows, problems)
    problems.raise_any()
    return [row.path for row in rows], paths


def read_photos(path: str | Path) -> list[tuple[Row, Path]]:
    """Read the rows of a table whose labels are optional.

    Args:
        path: The table.

    Returns:
        Each row, without empty labels, and the file it refers to.

    Raises:
        DataError: The table has no column `path`, or an image does not exist.
        StorageError: The file cannot be read.
    """
    path = Path(path)
    names = [str(name).strip().lower() for name in next(_records(path))[1]]
    rows = read_rows(path, labelled=any(name in names for name in _LABELS))
    if not any(name in names for name in _LABELS):
        rows = [row._replace(labels=()) for row in rows]
    problems = Problems(path)
    paths = check_paths(rows, problems)
    problems.raise_any()
    labels = [tuple(dict.fromkeys(filter(None, row.labels))) for row in rows]
    rows = [row._replace(labels=found) for row, found in zip(rows, labels, strict=True)]
    return list(zip(rows, paths, strict=True))


def read_rows(path: Path, *, labelled: bool = True) -> list[Row]:
    """Read the rows of a table; only the columns are checked.

    Args:
        path: The table.
        labelled: Whether the columns of labels and splits are read.

    Returns:
        The rows.

    Raises:
        DataError: The table has no rows, a row has too many or too few fields, or a column is
            missing.
        StorageError: The file cannot be read.
    """
    records = _records(path)
    names = _columns(path, next(records)[1], labelled=labelled)
    path_at = names.index("path")
    labels_at = names.index("labels") if labelled else path_at
    split_at = names.index("split") if labelled and "split" in names else None
    rows, problems = [], Problems(path)
    for number, record in records:
        if len(record) != len(names):
            hint = " (quote a field that contains a comma)" if len(record) > len(names) else ""
            problems.add(number, f"{len(record)} fields where the header has {len(names)}{hint}")
            continue
        split = None if split_at is None else _text(record[split_at]).lower()
        rows.append(Row(number, _text(record[path_at]), _split_labels(record[labels_at]), split))
    problems.raise_any()
    if not rows:
        raise DataError(f"{path} has a header and no rows. {_COLUMNS}")
    return rows


def _columns(path: Path, header: Sequence[str], *, labelled: bool = True) -> list[str]:
    """The names of the columns in lower case, `label` as labels; missing ones are refused."""
    names = [str(name).strip().lower() for name in header]
    names = ["labels" if name in _LABELS else name for name in names]
    for name in ("path", "labels", "split"):
        if names.count(name) > 1:
            raise DataError(f"{path} has the column {name} twice. {_COLUMNS}")
    needed = ("path", "labels") if labelled else ("path",)
    missing = [name for name in needed if name not in names]
    if missing:
        shown = ", ".join(repr(name) for name in header[:8])
        text = f"{path} has no column {' and no column '.join(missing)}; its first line has {shown}"
        raise DataError(f"{text}. {_COLUMNS}")
    close = [] if "split" in names else get_close_matches("split", names, n=1, cutoff=0.8)
    if labelled and close:
        raise DataError(f"{path} has a column '{close[0]}'. Did you mean 'split'? {_COLUMNS}")
    return names


def _records(path: Path) -> Iterator[tuple[int, Sequence[Any]]]:
    """The header (as number 0 or 1) and the rows with their numbers."""
    files.require_regular(path)
    try:
        if path.suffix.lower() == ".parquet":
            yield from _parquet_records(path)
        else:
            yield from _text_records(path)
    except OSError as error:
        raise files.storage_error("read", path, error) from error


def _text_records(path: Path) -> Iterator[tuple[int, Sequence[str]]]:
    text = decode(path.read_bytes(), path, remedy="Save the table as CSV in UTF-8.")
    header = text.partition("\n")[0]
    separator = "\t" if path.suffix.lower() == ".tsv" else max(",;\t", key=header.count)
    reader = csv.reader(io.StringIO(text), delimiter=separator, strict=True)
    before, empty = 0, True
    try:
        for record in reader:
            if any(map(str.strip, record)):
                yield before + 1, record
                empty = False
            before = reader.line_num
    except csv.Error as error:
        text = f"{path} line {before + 1}: {error}. Check the quotation marks there."
        raise DataError(text) from error
    if empty:
        raise DataError(f"{path} is empty. {_COLUMNS}")


def _parquet_records(path: Path) -> Iterator[tuple[int, Sequence[Any]]]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingExtraError("pyarrow", "parquet") from None
    try:
        # From memory, Arrow starts no threads; see `code_files`.
        with pyarrow.parquet.ParquetFile(pyarrow.BufferReader(path.read_bytes())) as file:
            yield 0, file.schema_arrow.names
            number = 0
            for batch in file.iter_batches(use_threads=False):
                for record in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                    number += 1
                    yield number, record
    except (pyarrow.ArrowException, UnicodeError, OverflowError, OSError) as error:
        if isinstance(error, OSError) and error.errno:  # without a number it is pyarrow's
            raise
        reason = " ".join(str(error).split())
        raise DataError(f"{path} is not a parquet file, or is damaged ({reason}).") from error


def _text(cell: Any) -> str:
    if isinstance(cell, str):
        return cell.strip()
    if isinstance(cell, bytes):
        return cell.decode("utf-8", "surrogateescape").strip()
    return "" if cell is None else str(cell).strip()


def _split_labels(cell: Any) -> tuple[str, ...]:
    """The labels of a cell: text separated by |, a list, or a number."""
    if cell is None or cell != cell:  # NaN, which pandas writes for an empty cell
        return ("",)
    words = cell if isinstance(cell, list) else _text(cell).split("|")
    return tuple(_text(word) for word in words) or ("",)


def _labels(rows: list[Row], classes: tuple[str, ...]) -> Labels:
    """Single-label if every image has one label, else multi-label."""
    number = {label: place for place, label in enumerate(classes)}
    if all(len(set(row.labels)) == 1 for row in rows):
        return Labels.from_array([number[row.labels[0]] for row in rows], len(classes))
    numbers = ([number[label] for label in row.labels] for row in rows)
    return Labels.from_lists(numbers, len(classes))


__all__ = [
    "DoubtfulLabelWarning",
    "is_table",
    "read_paths",
    "read_photos",
    "read_rows",
    "read_table",
    "table_protocol",
]
