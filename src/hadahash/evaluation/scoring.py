"""The one front door: codes and labels in, a Report out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..codes import Codes
from ..errors import UsageError, unknown
from . import metrics
from .counting import Labels, checked_labels, count
from .metrics import Counts, Denominator, Reals
from .result import Empty, Report

_ROWS = 1024  # queries in one step of the arithmetic, to bound its memory
_CODES = 1 << 16  # codes unpacked at once


def evaluate(
    query_codes: Codes,
    query_labels: ArrayLike,
    database_codes: Codes,
    database_labels: ArrayLike,
    *,
    depth: int | None = None,
    denominator: Denominator = "found",
    empty: Empty = "zero",
    precision_at: Iterable[int] = (1, 10, 100, 1000),
    threads: int | None = None,
) -> Report:
    """Rank the database by Hamming distance for each query, and measure the rankings. Ties count by expectation.

    Labels are (n,) class numbers, or (n, C) of 0 and 1 for several classes an item; an item is relevant when it shares
    a class with the query. `depth` cuts the rankings of the mean average precision; `denominator` is "found" or
    "possible" (see metrics.average_precision); queries whose denominator is 0 count as 0 (`empty="zero"`) or not at
    all ("skip"). `threads` defaults to the cores this process may use. Memory: 32 bytes a query and distance, and a
    copy of the codes; there is no table of queries by database.

    >>> from ..codes import pack
    >>> database = Codes(packed=pack([[1, 1, 1, 1], [1, 1, 1, -1], [1, 1, -1, 1], [-1, -1, -1, -1]]), bits=4)
    >>> report = evaluate(database[[0]], [7], database, [7, 7, 3, 7])
    >>> round(report.map, 4)  # the tie in the middle is relevant first or last: (1 + (2/2 + 2/3) / 2 + 3/4) / 3
    0.8611
    """
    _check_codes(query_codes, database_codes)
    query_labels = checked_labels(query_labels, len(query_codes), "query")
    database_labels = checked_labels(database_labels, len(database_codes), "database")
    _check_kinds(query_labels, database_labels)
    _check_policies(denominator, empty)
    depth, threads = _positive("depth", depth), _positive("threads", threads)
    cuts = [cut for cut in (_positive("precision_at", cut) for cut in precision_at) if cut]
    total, relevant = count(
        query_codes, query_labels, database_codes, database_labels, threads=threads
    )
    ap = _average_precision(total, relevant, depth, denominator, empty)
    return Report(
        map=float(np.nanmean(ap)),
        depth=depth,
        denominator=denominator,
        empty=empty,
        queries=len(query_codes),
        database=len(database_codes),
        bits=query_codes.bits,
        queries_without_relevant=int((relevant.sum(axis=1) == 0).sum()),
        ap=ap,
        per_class=_per_class(ap, query_labels),
        precision_recall=metrics.precision_recall(total, relevant),
        precision_at={k: metrics.precision_at(total, relevant, k) for k in cuts},
        bit_balance=_bit_balance(database_codes),
    )


def _average_precision(
    total: Counts, relevant: Counts, depth: int | None, denominator: Denominator, empty: Empty
) -> Reals:
    parts = (slice(start, start + _ROWS) for start in range(0, len(total), _ROWS))
    options: Any = {"depth": depth, "denominator": denominator}
    ap = np.concatenate(
        [metrics.average_precision(total[rows], relevant[rows], **options) for rows in parts]
    )
    if empty == "zero":
        return np.where(np.isnan(ap), 0.0, ap)
    if np.isnan(ap).all():
        raise UsageError(
            "No query has a relevant item, so empty='skip' leaves none. Check the labels of both sides."
        )
    return ap


def _per_class(ap: Reals, labels: Labels) -> dict[int, float]:
    """The mean AP of the queries of each class that has one which was not left out."""
    counted = ~np.isnan(ap)
    if labels.ndim == 1:
        classes, member = np.unique(labels[counted], return_inverse=True)
        means = np.bincount(member, ap[counted]) / np.bincount(member)
        return dict(zip(classes.tolist(), means.tolist(), strict=True))
    sizes = labels[counted].sum(axis=0)
    return {
        int(c): float(ap[counted] @ labels[counted, c] / sizes[c]) for c in np.flatnonzero(sizes)
    }


def _bit_balance(codes: Codes) -> Reals:
    ones = np.zeros(codes.bits, np.int64)
    for start in range(0, len(codes), _CODES):
        ones += np.unpackbits(codes.packed[start : start + _CODES], axis=1, count=codes.bits).sum(
            axis=0, dtype=np.int64
        )
    return ones / len(codes)


def _check_codes(queries: Codes, database: Codes) -> None:
    for side, codes in (("query", queries), ("database", database)):
        if not isinstance(codes, Codes):
            raise UsageError(
                f"The {side} codes must be hadahash.Codes, got {type(codes).__name__}. Wrap them: Codes(packed, bits)."
            )
        if len(codes) == 0:
            raise UsageError(f"There are no {side} codes. Encode at least one image.")
    if queries.bits != database.bits:
        raise UsageError(
            f"Query codes have {queries.bits} bits and database codes {database.bits}. Encode both with one hasher."
        )


def _check_kinds(query_labels: Labels, database_labels: Labels) -> None:
    if query_labels.shape[1:] != database_labels.shape[1:]:
        raise UsageError(
            f"Query labels have the shape {query_labels.shape} and database labels {database_labels.shape}. "
            "Give both as (n,) class numbers, or both as (n, C) with the same C."
        )


def _check_policies(denominator: str, empty: str) -> None:
    if denominator not in ("found", "possible"):
        raise unknown("denominator", str(denominator), ("found", "possible"))
    if empty not in ("zero", "skip"):
        raise unknown("policy for empty queries", str(empty), ("zero", "skip"))


def _positive(name: str, value: int | None) -> int | None:
    if value is None:
        return None
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < 1:
        raise UsageError(f"{name} must be a whole number from 1 on, got {value}.")
    return int(value)
