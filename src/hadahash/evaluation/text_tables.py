"""Tables of plain text for the terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .result import Report

_TOP = (1, 10)  # precisions in the table of rankings


def ranking_table(report: Report) -> str:
    """See `Report.table`."""
    depth = "all" if report.depth is None else f"{report.depth:,}"
    reports = [report, *report.rankings.values()]
    columns = [
        ["ranking", *(own.rank for own in reports)],
        [f"mAP@{depth}", *(f"{own.map:.4f}" for own in reports)],
        *([f"P@{k}", *(_number(own.precision_at.get(k), ".4f") for own in reports)] for k in _TOP),
        ["first ten tie", *(f"{own.first_ten_tie:.1%}" for own in reports)],
        ["distinct codes", *(_number(own.distinct_codes, ",") for own in reports)],
        ["agreement", *(_number(own.agreement, ".3f") for own in reports)],
    ]
    for title, measure in (
        ("copy first", "recall_1"),
        ("copy in ten", "recall_10"),
        ("micro AP", "micro_ap"),
    ):
        found = (report.known_item_mean(own.rank, measure) for own in reports)
        columns.append([title, *(_number(value, ".3f") for value in found)])
    return aligned([column for column in columns if any(column[1:])])


def alteration_table(report: Report) -> str:
    """See `Report.copies_table`."""
    found = report.known_item
    names = list(dict.fromkeys(name for own in found.values() for name in own))
    columns = [["copy", *names]]
    for rank, own in found.items():
        items = [own.get(name) for name in names]
        texts = (f"{i.recall_1:.3f} / {i.recall_10:.3f}" if i is not None else "" for i in items)
        columns.append([rank, *texts])
    return aligned(columns) if found else ""


def aligned(columns: Sequence[Sequence[str]]) -> str:
    """Lines of a table whose columns have one width each.

    Args:
        columns: The texts of each column, the title first.

    Returns:
        The lines.

    Example:
        >>> print(aligned([["rank", "class"], ["mAP", "0.5"]]))
        rank   mAP
        class  0.5
    """
    padded = [[text.ljust(max(map(len, column))) for text in column] for column in columns]
    return "\n".join("  ".join(row).rstrip() for row in zip(*padded, strict=True))


def _number(value: float | None, form: str) -> str:
    """A number; nothing if it was not measured."""
    return "" if value is None or math.isnan(value) else format(value, form)
