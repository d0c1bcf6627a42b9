"""Evaluate code files, with labels from their ids or from a table."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..codes import Codes
from ..data.base import DataWarning
from ..data.table import read_rows
from ..errors import DataError
from ..evaluation import Report, evaluate
from .evaluation import Depth, check_depth


def evaluate_files(
    queries: str | Path,
    database: str | Path,
    *,
    labels: str | Path | None = None,
    depth: Depth = None,
) -> Report:
    """Evaluate two code files.

    Args:
        queries: Code file of the queries.
        database: Code file of the database.
        labels: Table with the columns path (the ids) and labels (separated by |); None: ids are
            CLASS/NAME, and the class is the label.
        depth: Rank cut-off R of mAP@R; None or "all": all results.

    Returns:
        The report.

    Raises:
        DataError: An id has no label.
    """
    depth = check_depth(depth)
    parts = {Path(path): Codes.load(path) for path in (database, queries)}
    query, base = parts[Path(queries)], parts[Path(database)]
    _warn_of_overlap(query, base)
    known = None if labels is None else {r.path: r.labels for r in read_rows(Path(labels))}
    found = {
        path: [_labels_of(str(name), path, known, labels) for name in codes.ids]
        for path, codes in parts.items()
    }
    names = sorted({name for part in found.values() for row in part for name in row})
    numbers = {name: number for number, name in enumerate(names)}
    many = any(len(row) != 1 for part in found.values() for row in part)
    targets = {path: _targets(rows, numbers, many) for path, rows in found.items()}
    return evaluate(query, targets[Path(queries)], base, targets[Path(database)], depth=depth)


def _targets(rows: list[tuple[str, ...]], numbers: dict[str, int], many: bool) -> NDArray[Any]:
    """Class numbers (n,), or 0 and 1 (n, C) if some image has several labels."""
    if not many:
        return np.array([numbers[row[0]] for row in rows], np.int64)
    matrix = np.zeros((len(rows), len(numbers)), np.uint8)
    for place, row in enumerate(rows):
        matrix[place, [numbers[name] for name in row]] = 1
    return matrix


def _labels_of(
    name: str, path: Path, known: dict[str, tuple[str, ...]] | None, table: str | Path | None
) -> tuple[str, ...]:
    if known is not None:
        row = tuple(filter(None, known.get(name, ())))
        if not row:
            raise DataError(f"{path}: the id '{name}' has no label in {table}. Add a row for it.")
        return tuple(dict.fromkeys(row))
    if "/" not in name:
        raise DataError(
            f"{path}: the id '{name}' has no class; ids must be CLASS/NAME. "
            "Encode a folder of class folders, or give --labels TABLE."
        )
    return (name.split("/", 1)[0],)


def _warn_of_overlap(queries: Codes, database: Codes) -> None:
    shared = len(set(queries.ids.tolist()) & set(database.ids.tolist()))
    if shared:
        warnings.warn(
            f"{shared:,} of {len(queries):,} queries are in the database and find themselves. "
            "Leave them out of one of the files.",
            DataWarning,
            stacklevel=3,
        )
