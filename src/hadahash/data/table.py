"""A table of images: a CSV, TSV or parquet file with one row an image.

    path            where the image is, from the table's folder on (or from the root of the disk)
    labels          its labels, separated by | (the column may be called label; in parquet it may hold lists)
    split           train, query (or test) or database; not needed

Other columns are not looked at. If every image has one label, the labels are class numbers; if any has several, they are
0 and 1 for each class. With a column `split`, the protocol `table` divides the images as it says, else `holdout` draws
them. "val" is refused: whether such images are queries, or to choose settings by, only the owner knows. Ids are the paths.

All that is wrong with a table is told at once, with the lines. A label that occurs once and is spelt almost like a frequent
one is used as it is, with a warning.
"""

from __future__ import annotations

import csv
import io
import os
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..errors import DataError, MissingExtraError
from .base import DataWarning, FileImages, LabelledImages, name_ids
from .labels import Labels
from .text import decode

SUFFIXES = (".csv", ".tsv", ".parquet")
SPLITS = {"train": "train", "query": "query", "test": "query", "database": "database"}
FREQUENT = 5  # a label that is this often there is no slip

_SHOWN = 5  # problems told in full
_LABELS = ("labels", "label")
_COLUMNS = "A table has the columns path, labels (separated by |) and, if wanted, split (train, query or database)."


class DoubtfulLabelWarning(DataWarning):
    """A label looks like another one misspelt."""


class Row(NamedTuple):
    number: int  # the line in a text file, the row in a parquet file, from 1
    path: str
    labels: tuple[str, ...]
    split: str | None  # None: the table has no such column


@dataclass
class Problems:
    """What is wrong with a table, gathered to be told at once."""

    table: Path
    found: list[tuple[int, str]] = field(default_factory=list)

    def add(self, number: int, text: str) -> None:
        self.found.append((number, text))

    def raise_any(self) -> None:
        if not self.found:
            return
        self.found.sort()
        word = _row_word(self.table)
        told = "; ".join(f"{word} {number}: {text}" for number, text in self.found[:_SHOWN])
        more = len(self.found) - _SHOWN
        rest = f"; and {more} more such problems" if more > 0 else ""
        raise DataError(
            f"{self.table} {told}{rest}. Mend the {word}{'s' if len(self.found) > 1 else ''} and try again."
        )


def is_table(path: str | Path) -> bool:
    """Is this the name of a table, and not of a folder?"""
    return Path(path).suffix.lower() in SUFFIXES and not Path(path).is_dir()


def table_protocol(path: str | Path) -> str:
    """`table` if the table has a column split, else `holdout`; only its columns are read."""
    return "table" if "split" in _columns(Path(path), next(_records(Path(path)))[1]) else "holdout"


def read_table(path: str | Path) -> LabelledImages:
    """The labelled images of a table, in its order; `parts` says which split each has, if the table does."""
    path = Path(path)
    rows = read_rows(path)
    problems = Problems(path)
    paths = [_check(row, path.parent, problems) for row in rows]
    _check_twice(rows, paths, problems)
    _check_splits(rows, problems)
    problems.raise_any()
    classes = tuple(sorted({label for row in rows for label in row.labels}))
    if len(classes) < 2:
        raise DataError(
            f"{path} has one label only ('{classes[0]}'): hashing needs at least 2 classes."
        )
    _warn_of_slips(path, rows)
    parts = None if rows[0].split is None else np.array([SPLITS[row.split or ""] for row in rows])
    ids = name_ids(row.path for row in rows)
    return LabelledImages(FileImages(paths), ids, _labels(rows, classes), classes, path.stem, parts)


def read_paths(path: str | Path) -> tuple[list[str], list[Path]]:
    """Read the image paths of a table alone; it needs no column of labels.

    Args:
        path: The table.

    Returns:
        The paths as they are written, and the files they stand for.

    Raises:
        DataError: The table has no column `path`, or an image does not exist.
    """
    path = Path(path)
    rows = read_rows(path, labelled=False)
    problems = Problems(path)
    paths = [_check_path(row, path.parent, problems) for row in rows]
    _check_twice(rows, paths, problems)
    problems.raise_any()
    return [row.path for row in rows], paths


def read_rows(path: Path, *, labelled: bool = True) -> list[Row]:
    """The rows of a table, not yet checked beyond its columns."""
    records = _records(path)
    names = _columns(path, next(records)[1], labelled=labelled)
    at = names.index("path")
    labels_at = names.index("labels") if labelled else at
    split_at = names.index("split") if labelled and "split" in names else None
    rows, problems = [], Problems(path)
    for number, record in records:
        if len(record) != len(names):
            hint = (
                " (a comma inside a field needs quotation marks around it)"
                if len(record) > len(names)
                else ""
            )
            problems.add(number, f"{len(record)} fields where the header has {len(names)}{hint}")
            continue
        split = None if split_at is None else str(record[split_at] or "").strip().lower()
        rows.append(
            Row(number, str(record[at] or "").strip(), _split_labels(record[labels_at]), split)
        )
    problems.raise_any()
    if not rows:
        raise DataError(f"{path} has a header and no rows. {_COLUMNS}")
    return rows


def _columns(path: Path, header: Sequence[str], *, labelled: bool = True) -> list[str]:
    """The names of the columns in lower case, `label` called labels; a table that lacks one or has one twice is refused."""
    names = [str(name).strip().lower() for name in header]
    names = ["labels" if name in _LABELS else name for name in names]
    for name in ("path", "labels", "split"):
        if names.count(name) > 1:
            raise DataError(f"{path} has the column {name} twice. {_COLUMNS}")
    needed = ("path", "labels") if labelled else ("path",)
    missing = [name for name in needed if name not in names]
    shown = ", ".join(repr(name) for name in header[:8])
    if missing:
        raise DataError(
            f"{path} has no column {' and no column '.join(missing)}; its first line has {shown}. {_COLUMNS}"
        )
    close = (
        []
        if "split" in names or not labelled
        else get_close_matches("split", names, n=1, cutoff=0.8)
    )
    if close:
        raise DataError(
            f"{path} has a column '{close[0]}': did you mean 'split'? Rename it. {_COLUMNS}"
        )
    return names


def _records(path: Path) -> Iterator[tuple[int, Sequence[Any]]]:
    """The header (as number 0 or 1) and the rows with their numbers."""
    try:
        if path.suffix.lower() == ".parquet":
            yield from _parquet_records(path)
        else:
            yield from _text_records(path)
    except OSError as error:
        raise DataError(
            f"Cannot read the table {path}: {error.strerror or error}. Check the path."
        ) from error


def _text_records(path: Path) -> Iterator[tuple[int, Sequence[str]]]:
    text = decode(path.read_bytes(), path, remedy="Save the table as CSV in UTF-8.")
    header = text.partition("\n")[0]
    separator = "\t" if path.suffix.lower() == ".tsv" else max(",;\t", key=header.count)
    reader = csv.reader(io.StringIO(text), delimiter=separator, strict=True)
    before = 0
    empty = True
    try:
        for record in reader:
            if any(cell.strip() for cell in record):
                yield before + 1, record
                empty = False
            before = reader.line_num
    except csv.Error as error:
        raise DataError(
            f"{path} line {before + 1}: {error}. Check the quotation marks there."
        ) from error
    if empty:
        raise DataError(f"{path} is empty. {_COLUMNS}")


def _parquet_records(path: Path) -> Iterator[tuple[int, Sequence[Any]]]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingExtraError("pyarrow", "parquet") from None
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            yield 0, file.schema_arrow.names
            number = 0
            for batch in file.iter_batches():
                for record in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                    number += 1
                    yield number, record
    except pyarrow.ArrowException as error:
        raise DataError(
            f"{path} is not a parquet file, or is damaged ({' '.join(str(error).split())})."
        ) from error


def _split_labels(cell: Any) -> tuple[str, ...]:
    """The labels of a cell: text with | between them, a list of them, or one number."""
    if cell is None or cell != cell:  # not a number: pandas' way to say nothing
        return ("",)
    words = [str(word) for word in cell] if isinstance(cell, list) else str(cell).split("|")
    return tuple(word.strip() for word in words) or ("",)


def _check(row: Row, folder: Path, problems: Problems) -> Path:
    """The image's file; what is wrong with the row goes to `problems`."""
    path = _check_path(row, folder, problems)
    if row.labels == ("",):
        problems.add(row.number, "there is no label")
    elif "" in row.labels:
        problems.add(row.number, f"one of the labels '{'|'.join(row.labels)}' is empty")
    if row.split is not None and row.split not in SPLITS:
        problems.add(row.number, f"the split '{row.split}' must be one of {', '.join(SPLITS)}")
    return path


def _check_path(row: Row, folder: Path, problems: Problems) -> Path:
    path = folder / row.path
    if not _is_file(path) and "\\" in row.path:
        path = folder / row.path.replace("\\", "/")  # as Windows writes it
    if not row.path:
        problems.add(row.number, "the path is empty")
    elif os.path.isdir(path):  # noqa: PTH112 (see below)
        problems.add(row.number, f"{row.path} is a folder, not an image")
    elif not _is_file(path):
        problems.add(row.number, f"image {row.path} does not exist (looked for {path})")
    return path


def _is_file(path: Path) -> bool:
    return os.path.isfile(path)  # noqa: PTH113 (Path.is_file raises for names too long and folders that are closed)


def _check_twice(rows: list[Row], paths: list[Path], problems: Problems) -> None:
    first: dict[str, int] = {}
    for row, path in zip(rows, paths, strict=True):
        place = os.path.abspath(path)  # noqa: PTH100 (Path.absolute keeps ..; Path.resolve asks the disk for every part)
        if row.path and place in first:
            word = _row_word(problems.table)
            problems.add(
                row.number,
                f"{row.path} is already in {word} {first[place]}: put all its labels into one row",
            )
        first.setdefault(place, row.number)


def _check_splits(rows: list[Row], problems: Problems) -> None:
    """With a column split there must be queries, and training images of every class."""
    if rows[0].split is None or problems.found:
        return
    for wanted in ("train", "query"):
        if wanted not in {SPLITS[row.split or ""] for row in rows}:
            problems.add(rows[0].number, f"neither here nor below is a row of the split {wanted}")
    trained = {label for row in rows if row.split == "train" for label in row.labels}
    seen: set[str] = set()
    for row in rows:
        for label in (label for label in row.labels if label not in trained | seen):
            problems.add(row.number, f"the class '{label}' has no image of the split train")
            seen.add(label)


def _labels(rows: list[Row], classes: tuple[str, ...]) -> Labels:
    """Single-label if every image has one label, else multi-label."""
    number = {label: place for place, label in enumerate(classes)}
    if all(len(set(row.labels)) == 1 for row in rows):
        return Labels.from_array([number[row.labels[0]] for row in rows], len(classes))
    return Labels.from_lists(
        ([number[label] for label in row.labels] for row in rows), len(classes)
    )


def _warn_of_slips(path: Path, rows: list[Row]) -> None:
    """Warn of labels that occur once and are spelt almost like one that is frequent."""
    counts = Counter(label for row in rows for label in row.labels)
    frequent = {label.casefold(): label for label, count in counts.items() if count >= FREQUENT}
    for row in rows:
        for label in row.labels:
            known = _spelt_almost(label, frequent) if counts[label] == 1 else None
            if known:
                text = (
                    f"{path} {_row_word(path)} {row.number}: the label '{label}' occurs once; did you mean '{known}' "
                    f"({counts[known]:,} times)? It is used as it is."
                )
                warnings.warn(text, DoubtfulLabelWarning, stacklevel=3)


def _spelt_almost(label: str, known: dict[str, str]) -> str | None:
    """The label of `known` (by its small letters) that is meant if this one is a slip.

    >>> [_spelt_almost(label, {"dog": "dog", "goldfish": "Goldfish"}) for label in ("goldfsh", "dgo", "fly")]
    ['Goldfish', 'dog', None]
    """
    small = label.casefold()
    turned = [
        other for other in known if sorted(other) == sorted(small)
    ]  # in short words too far apart for the measure
    near = turned or get_close_matches(small, known, n=1, cutoff=0.8)
    return known[near[0]] if near else None


def _row_word(path: Path) -> str:
    return "row" if path.suffix.lower() == ".parquet" else "line"
