"""Evaluate code files, with labels from their ids or from a table."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..codes import Codes
from ..data.base import DataWarning
from ..data.table import read_rows
from ..errors import DataError, UsageError
from ..evaluation import Report, evaluate
from .evaluation import Depth, check_depth
from .rankings import check_content_weight


def evaluate_files(
    queries: str | Path,
    database: str | Path,
    *,
    labels: str | Path | None = None,
    depth: Depth = None,
    ranks: Sequence[str] = (),
    weight: float | None = None,
) -> Report:
    """Evaluate two code files.

    Args:
        queries: Code file of the queries.
        database: Code file of the database.
        labels: Table with the columns path (the ids) and labels (separated by |); None: ids are
            CLASS/NAME, and the class is the label.
        depth: Rank cut-off R of mAP@R; None or "all": all results.
        ranks: Rankings beside "hamming": "photo" if both files have content bits.
        weight: Weight of a content bit in "photo", where a class bit has the weight 2; 1 by
            default.

    Returns:
        The report of the ranking by Hamming distance, with the others in `rankings`.

    Raises:
        DataError: An id has no label.
        UsageError: The files do not allow a ranking.
    """
    depth = check_depth(depth)
    parts = {Path(path): Codes.load(path) for path in (database, queries)}
    query, base = parts[Path(queries)], parts[Path(database)]
    _check_ranks(ranks, weight, query, base)
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
    sides = (query, targets[Path(queries)], base, targets[Path(database)])
    others = {rank: evaluate(*sides, depth=depth, rank=rank, weight=weight) for rank in ranks}
    return replace(evaluate(*sides, depth=depth), rankings=others)


def _check_ranks(
    ranks: Sequence[str], weight: float | None, queries: Codes, database: Codes
) -> None:
    for rank in ranks:
        if rank != "photo":
            raise UsageError(f"Code files are ranked by hamming or photo, got {rank}.")
        lengths = queries.content_bits, database.content_bits
        if 0 in lengths:
            raise UsageError(
                "rank='photo' needs content bits in both code files, got "
                f"{' and '.join(str(bits or 'none') for bits in lengths)}. "
                "Encode with a model that has them."
            )
    check_content_weight(weight, ranks)


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
