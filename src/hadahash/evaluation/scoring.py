"""`evaluate`: codes and labels in, a `Report` out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ..codes import Codes, as_codes, words
from ..errors import UsageError, unknown
from . import metrics
from .counting import count
from .labels import LabelPair, LabelsLike, encode_labels
from .metrics import Counts, Denominator, Reals
from .result import EmptyQueries, Report

_ROWS = 1024  # queries per step of the arithmetic, to bound its memory
_CODES = 1 << 16  # codes unpacked at once
_POLICIES = ("zero", "skip", "error")
_DENOMINATORS: tuple[Denominator, ...] = ("found", "possible")


def evaluate(
    query_codes: Any,
    query_labels: LabelsLike,
    database_codes: Any,
    database_labels: LabelsLike,
    *,
    depth: int | None = None,
    denominator: Denominator = "found",
    empty_queries: EmptyQueries = "zero",
    precision_at: Iterable[int] = (1, 10, 100, 1000),
    exclude_self: bool = False,
    threads: int | None = None,
) -> Report:
    """Rank the database by Hamming distance for each query and measure the rankings.

    All metrics are exact expectations over the order of items at equal distance, so the result
    does not depend on how ties happen to be sorted. Memory: 32 bytes per query and distance, and a
    copy of the codes; no table of queries by database items is made.

    Args:
        query_codes: Whatever `codes.as_codes` takes: `Codes`, an array (n, bits) of +-1, 0/1 or
            booleans, or packed bytes.
        query_labels: (n,) integers, strings or other hashable labels, or (n, C) of 0 and 1 for
            several classes per item, or `hadahash.data.Labels`. An item is relevant to a query if
            they share a class.
        database_codes: Codes of the database, of the same length.
        database_labels: Labels of the database, of the same kind.
        depth: Rank cut-off R of mAP@R. None: the whole ranking.
        denominator: "found" divides by the relevant items found within `depth`, "possible" by
            min(depth, all relevant items). See `metrics.average_precision`.
        empty_queries: What to do with a query whose denominator is 0: count it as 0 ("zero"),
            leave it out ("skip"), or raise ("error").
        precision_at: Values of k for precision at k. A k above the size of the database is left
            out.
        exclude_self: Set if the queries are the database itself: no item then finds itself.
        threads: Number of threads. None: one per usable core.

    Returns:
        The report.

    Raises:
        UsageError: If codes, labels or options do not fit together, or if a query is empty and
            `empty_queries` is "error".

    Example:
        The tie in the middle is relevant first or second: (1 + (2/2 + 2/3) / 2 + 3/4) / 3.

        >>> from hadahash.codes import pack
        >>> signs = [[1, 1, 1, 1], [1, 1, 1, -1], [1, 1, -1, 1], [-1, -1, -1, -1]]
        >>> database = Codes(packed=pack(signs), bits=4)
        >>> report = evaluate(database[[0]], ["cat"], database, ["cat", "cat", "dog", "cat"])
        >>> round(report.map, 4)
        0.8611
    """
    query_codes, database_codes = _check_codes(query_codes, database_codes)
    labels = encode_labels(query_labels, len(query_codes), database_labels, len(database_codes))
    _check_policies(denominator, empty_queries)
    depth, threads = _positive("depth", depth), _positive("threads", threads)
    total, relevant = count(
        query_codes, labels.query, database_codes, labels.database, threads=threads
    )
    size = len(database_codes)
    if exclude_self:
        _exclude_self(query_codes, database_codes, labels, total, relevant)
        size -= 1
    cuts = [k for k in (_positive("precision_at", k) for k in precision_at) if k and k <= size]
    ap = _apply_policy(_average_precision(total, relevant, depth, denominator), empty_queries)
    mean = float(np.nanmean(ap))
    return Report(
        map=mean,
        depth=depth,
        denominator=denominator,
        empty_queries=empty_queries,
        queries=len(query_codes),
        database=size,
        bits=query_codes.bits,
        queries_without_relevant=int((relevant.sum(axis=1) == 0).sum()),
        average_precision=ap,
        per_class=_per_class(ap, labels),
        precision_recall=metrics.precision_recall(total, relevant),
        precision_at={k: metrics.precision_at(total, relevant, k) for k in cuts},
        bit_balance=_bit_balance(database_codes),
        chance=_chance(relevant, size, depth, denominator, ap),
        prevalence=float(np.mean(relevant.sum(axis=1) / size)),
        map_by_denominator={denominator: mean}
        | _other_map(total, relevant, depth, denominator, empty_queries, mean),
        precision_radius_2=metrics.precision_within(total, relevant, 2),
        nonempty_radius_2=metrics.nonempty_within(total, 2),
        distinct_codes=count_distinct(database_codes),
    )


def count_distinct(codes: Codes) -> int:
    """Number of distinct codes.

    Args:
        codes: The codes.

    Returns:
        How many different codes there are.

    Example:
        >>> count_distinct(Codes(packed=np.array([[7], [8], [7]], np.uint8), bits=8))
        2
    """
    rows = words(codes.packed)
    ordered = rows[np.lexsort(rows.T)]
    return int(len(ordered) > 0) + int((ordered[1:] != ordered[:-1]).any(axis=1).sum())


def _average_precision(
    total: Counts, relevant: Counts, depth: int | None, denominator: Denominator
) -> Reals:
    parts = (slice(start, start + _ROWS) for start in range(0, len(total), _ROWS))
    options: Any = {"depth": depth, "denominator": denominator}
    return np.concatenate(
        [metrics.average_precision(total[rows], relevant[rows], **options) for rows in parts]
    )


def _apply_policy(ap: Reals, empty_queries: EmptyQueries) -> Reals:
    empty = np.isnan(ap)
    if empty_queries == "zero":
        return np.where(empty, 0.0, ap)
    if empty_queries == "error" and empty.any():
        raise UsageError(
            f"{int(empty.sum())} of {len(ap)} queries find no relevant item, the first is query "
            f"{int(empty.argmax())}. Check the labels, or use empty_queries='zero' or 'skip'."
        )
    if empty.all():
        raise UsageError(
            "No query has a relevant item, so empty_queries='skip' leaves none. "
            "Check the labels of both sides."
        )
    return ap


def _other_map(
    total: Counts,
    relevant: Counts,
    depth: int | None,
    denominator: Denominator,
    empty_queries: EmptyQueries,
    mean: float,
) -> dict[str, float]:
    """The mAP for the other denominator; without a cut-off both are the same."""
    other: Denominator = "possible" if denominator == "found" else "found"
    if depth is None:
        return {other: mean}
    ap = _average_precision(total, relevant, depth, other)
    if empty_queries != "skip" or np.isnan(ap).all():
        ap = np.nan_to_num(ap)
    return {other: float(np.nanmean(ap))}


def _chance(
    relevant: Counts, size: int, depth: int | None, denominator: Denominator, ap: Reals
) -> float:
    """Expected mAP of a random ranking: all items are one tie."""
    found, inverse = np.unique(relevant.sum(axis=1), return_inverse=True)
    tie = np.full((len(found), 1), size)
    expected = metrics.average_precision(tie, found[:, None], depth=depth, denominator=denominator)
    return float(np.nan_to_num(expected)[inverse][~np.isnan(ap)].mean())


def _per_class(ap: Reals, labels: LabelPair) -> dict[Any, float]:
    """Mean AP of the queries of each class; classes without an evaluated query are left out."""
    evaluated = ~np.isnan(ap)
    query_labels = labels.query[evaluated]
    if query_labels.ndim == 1:
        classes, member = np.unique(query_labels, return_inverse=True)
        means = np.bincount(member, ap[evaluated]) / np.bincount(member)
        names = classes.tolist() if labels.names is None else [labels.names[c] for c in classes]
        return dict(zip(names, means.tolist(), strict=True))
    sizes = query_labels.sum(axis=0)
    return {
        int(c): float(ap[evaluated] @ query_labels[:, c] / sizes[c]) for c in np.flatnonzero(sizes)
    }


def _bit_balance(codes: Codes) -> Reals:
    ones = np.zeros(codes.bits, np.int64)
    for start in range(0, len(codes), _CODES):
        block = np.unpackbits(codes.packed[start : start + _CODES], axis=1, count=codes.bits)
        ones += block.sum(axis=0, dtype=np.int64)
    return ones / len(codes)


def _exclude_self(
    queries: Codes, database: Codes, labels: LabelPair, total: Counts, relevant: Counts
) -> None:
    """Take each query out of its own counts, in place."""
    if len(database) < 2 or not np.array_equal(queries.packed, database.packed):
        raise UsageError(
            "exclude_self needs the same codes, at least 2, as queries and as database."
        )
    if not np.array_equal(labels.query, labels.database):
        raise UsageError("exclude_self needs the same labels for queries and database.")
    total[:, 0] -= 1
    relevant[:, 0] -= labels.query.any(axis=1) if labels.query.ndim == 2 else 1


def _check_codes(query_codes: Any, database_codes: Any) -> tuple[Codes, Codes]:
    queries, database = _as_codes(query_codes, "query"), _as_codes(database_codes, "database")
    if queries.bits != database.bits:
        raise UsageError(
            f"Query codes have {queries.bits} bits and database codes {database.bits}. "
            "Encode both with the same model."
        )
    return queries, database


def _as_codes(values: Any, side: str) -> Codes:
    try:
        codes = as_codes(values)
    except UsageError as error:
        raise UsageError(f"Invalid {side} codes. {error}") from None
    if len(codes) == 0:
        raise UsageError(f"There are no {side} codes. Encode at least one image.")
    return codes


def _check_policies(denominator: str, empty_queries: str) -> None:
    if denominator not in _DENOMINATORS:
        raise unknown("denominator", str(denominator), _DENOMINATORS)
    if empty_queries not in _POLICIES:
        raise unknown("value of empty_queries", str(empty_queries), _POLICIES)


def _positive(name: str, value: int | None) -> int | None:
    if value is None:
        return None
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < 1:
        raise UsageError(f"{name} must be an integer >= 1, got {value}.")
    return int(value)
