"""Checks of the rows of a table: every problem is collected with its line, and reported at once."""

from __future__ import annotations

import os
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from pathlib import Path
from typing import NamedTuple

from ..errors import DataError
from .base import DataWarning

SPLITS = {"train": "train", "query": "query", "test": "query", "database": "database"}
FREQUENT = 5  # a label that occurs this often is not considered a misspelling

_MANY = 64  # rows of a folder from which on it is listed
_SHOWN = 5  # problems and warnings reported in full
_SIMILAR = 0.8  # minimum similarity of a misspelled label to the intended one


class DoubtfulLabelWarning(DataWarning):
    """A label looks like a misspelling of another one."""


class Row(NamedTuple):
    """One row of a table.

    Attributes:
        number: The line of a text file, or the row of a parquet file, from 1.
        path: The path as it is written.
        labels: The labels; one empty string where there is none.
        split: The split in lower case; None if the table has no such column.
    """

    number: int
    path: str
    labels: tuple[str, ...]
    split: str | None


@dataclass
class Problems:
    """Problems of a table, collected to be reported at once.

    Attributes:
        table: The table.
        found: Line (or row) and description of each problem.
    """

    table: Path
    found: list[tuple[int, str]] = field(default_factory=list)

    @property
    def unit(self) -> str:
        """What the rows of the table are called: "line" or "row"."""
        return "row" if self.table.suffix.lower() == ".parquet" else "line"

    def add(self, number: int, text: str) -> None:
        """Note a problem of one row."""
        self.found.append((number, text))

    def raise_any(self) -> None:
        """Report the problems.

        Raises:
            DataError: There is at least one.
        """
        if not self.found:
            return
        self.found.sort()
        shown = "; ".join(f"{self.unit} {number}: {text}" for number, text in self.found[:_SHOWN])
        more = len(self.found) - _SHOWN
        rest = f"; and {more} more problems" if more > 0 else ""
        raise DataError(f"{self.table} {shown}{rest}. Fix the table and try again.")


def check_rows(rows: Sequence[Row], problems: Problems) -> list[Path]:
    """Check paths, labels and splits.

    Args:
        rows: The rows of the table.
        problems: Receives what is wrong.

    Returns:
        The image file of each row.
    """
    paths = check_paths(rows, problems)
    for row in rows:
        if row.labels == ("",):
            problems.add(row.number, "there is no label")
        elif "" in row.labels:
            problems.add(row.number, f"one of the labels '{'|'.join(row.labels)}' is empty")
        if row.split is not None and row.split not in SPLITS:
            known = ", ".join(SPLITS)
            problems.add(row.number, f"the split '{row.split}' must be one of {known}")
    if rows[0].split is not None and not problems.found:
        _check_splits(rows, problems)
    return paths


def check_paths(rows: Sequence[Row], problems: Problems) -> list[Path]:
    """Check that every image exists and occurs once.

    Args:
        rows: The rows of the table.
        problems: Receives what is wrong.

    Returns:
        The image file of each row.
    """
    folders = _listed_folders(rows, problems.table.parent)
    paths, first = [], dict[str, int]()
    for row in rows:
        path, place = _check_path(row, problems, folders)
        paths.append(path)
        if row.path and place in first:
            other = f"{problems.unit} {first[place]}"
            text = f"{row.path} is already in {other}: put all its labels into one row"
            problems.add(row.number, text)
        first.setdefault(place, row.number)
    return paths


def warn_of_misspellings(rows: Sequence[Row], problems: Problems) -> None:
    """Warn of labels that occur once and look like a misspelling of a frequent one.

    Args:
        rows: The rows of the table.
        problems: Names the table and its unit.
    """
    counts = Counter(label for row in rows for label in row.labels)
    frequent = Misspellings(label for label, count in counts.items() if count >= FREQUENT)
    found = 0
    for row in rows:
        for label in row.labels:
            known = frequent.meant_by(label) if counts[label] == 1 else None
            found += known is not None
            if known is not None and found <= _SHOWN:
                place = f"{problems.table} {problems.unit} {row.number}"
                text = f"the label '{label}' occurs once; did you mean '{known}'"
                _warn(f"{place}: {text} ({counts[known]:,} times)? It is used unchanged.")
    if found > _SHOWN:
        _warn(f"{problems.table}: {found - _SHOWN:,} more labels occur once and look misspelled.")


class Misspellings:
    """Finds the intended label of one with a wrong letter or swapped letters.

    The time does not depend on the number of known labels.

    Args:
        known: The correctly spelled labels.

    Example:
        >>> known = Misspellings(["dog", "Goldfish"])
        >>> [known.meant_by(label) for label in ("goldfsh", "dgo", "fly")]
        ['Goldfish', 'dog', None]
    """

    def __init__(self, known: Iterable[str]) -> None:
        self._anagrams: dict[str, str] = {}
        self._near: defaultdict[str, list[str]] = defaultdict(list)
        for label in known:
            small = label.casefold()
            self._anagrams.setdefault("".join(sorted(small)), label)
            for key in _shortened(small):
                self._near[key].append(label)

    def meant_by(self, label: str) -> str | None:
        """Return the intended label, or None."""
        small = label.casefold()
        anagram = self._anagrams.get("".join(sorted(small)))
        if anagram is not None:
            return anagram
        near = dict.fromkeys(
            known for key in _shortened(small) for known in self._near.get(key, ())
        )
        rated = [(SequenceMatcher(None, small, known.casefold()).ratio(), known) for known in near]
        ratio, best = max(rated, default=(0.0, None))
        return best if ratio >= _SIMILAR else None


def _shortened(text: str) -> set[str]:
    """The text, and the text without any one of its letters."""
    return {text, *(text[:place] + text[place + 1 :] for place in range(len(text)))}


def _warn(text: str) -> None:
    warnings.warn(text, DoubtfulLabelWarning, stacklevel=4)


class _Folder(NamedTuple):
    """A folder of many rows: listing it is faster than asking for each of its files."""

    path: Path
    place: str  # the absolute path, with a separator at the end
    names: set[str]  # of its files


def _listed_folders(rows: Sequence[Row], parent: Path) -> dict[str, _Folder]:
    """The folders of many rows, as they are written in the table."""
    counts = Counter(row.path[: row.path.rfind("/") + 1] for row in rows)
    folders = {}
    for written in (written for written, count in counts.items() if count >= _MANY):
        path = parent / written
        with suppress(OSError, ValueError), os.scandir(path) as entries:
            names = {entry.name for entry in entries if entry.is_file()}
            folders[written] = _Folder(path, os.path.join(_absolute(path), ""), names)  # noqa: PTH118
    return folders


def _check_path(row: Row, problems: Problems, folders: dict[str, _Folder]) -> tuple[Path, str]:
    """The file of a row, and its absolute path."""
    start = row.path.rfind("/") + 1
    folder, name = folders.get(row.path[:start]), row.path[start:]
    if folder is not None and name in folder.names:
        return folder.path / name, folder.place + name
    path = problems.table.parent / row.path
    if not _is_file(path) and "\\" in row.path:
        path = problems.table.parent / row.path.replace("\\", "/")  # as Windows writes it
    if not row.path:
        problems.add(row.number, "the path is empty")
    elif os.path.isdir(path):  # noqa: PTH112 (see below)
        problems.add(row.number, f"{row.path} is a folder, not an image")
    elif not _is_file(path):
        problems.add(row.number, f"image {row.path} does not exist (looked for {path})")
    return path, _absolute(path)


def _absolute(path: Path) -> str:
    """The absolute path. Path.resolve would read the disk."""
    return os.path.abspath(path)  # noqa: PTH100


def _is_file(path: Path) -> bool:
    return os.path.isfile(path)  # noqa: PTH113 (Path.is_file raises for names that are too long)


def _check_splits(rows: Sequence[Row], problems: Problems) -> None:
    """With a column split there must be queries, and training images of every class."""
    used = {SPLITS[row.split or ""] for row in rows}
    for required in ("train", "query"):
        if required not in used:
            problems.add(rows[0].number, f"the table has no row with split={required}")
    if "train" not in used:
        return
    known = {label for row in rows if row.split == "train" for label in row.labels}
    for row in rows:
        for label in (label for label in row.labels if label not in known):
            problems.add(row.number, f"the class '{label}' has no row with split=train")
            known.add(label)
