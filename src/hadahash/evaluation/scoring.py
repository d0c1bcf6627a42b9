"""`evaluate`: codes and labels in, a `Report` out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ..codes import Codes, as_codes, words
from ..errors import UsageError, unknown
from ..queries import Queries
from ..ranking import Ranking
from ..ranking.model import check_rank
from . import metrics
from .counting import count
from .labels import LabelPair, LabelsLike, encode_labels
from .metrics import Counts, Denominator, Reals
from .ranked import Ties, score_database
from .result import EmptyQueries, Report
from .sums import Sums

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
    rank: str = "hamming",
    ranking: Ranking | None = None,
    weight: float | None = None,
) -> Report:
    """Rank the database for each query and measure the rankings.

    All metrics are exact expectations over the order of items at equal distance or equal score, so
    the result does not depend on how ties happen to be sorted. Memory: 32 bytes per query and
    distance, or about 200 MB for rankings by score, and a copy of the codes; no table of queries
    by database items is made.

    Args:
        query_codes: `Queries`, or whatever `codes.as_codes` takes: `Codes`, an array (n, bits) of
            +-1, 0/1 or booleans, or packed bytes.
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
        rank: "hamming": by Hamming distance of the class bits. "class": by the probability of
            sharing a class. "photo": by this and the content bits. See `hadahash.ranking`.
        ranking: Codewords and fitted numbers of the model, `HashModel.ranking`. None: as for a
            method without codewords.
        weight: Weight of the content in "photo". None: `ranking.content_weight`.

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
    queries, database = _check_codes(query_codes, database_codes)
    labels = encode_labels(query_labels, len(queries), database_labels, len(database))
    _check_policies(denominator, empty_queries)
    depth, threads = _positive("depth", depth), _positive("threads", threads)
    size = len(database) - exclude_self
    cuts = [k for k in (_positive("precision_at", k) for k in precision_at) if k and k <= size]
    if exclude_self:
        _check_same(queries, database, labels)
    sums = Sums(depth, denominator, cuts, size)
    if check_rank(rank) == "hamming":
        if weight is not None:
            raise UsageError(f"weight applies to rank='photo' only, got rank='{rank}'.")
        more = _by_distance(sums, queries, database, labels, exclude_self, threads)
    else:
        scored = score_database(queries, database, rank=rank, ranking=ranking, weight=weight)
        for total, relevant in Ties(scored, labels, exclude_self).blocks():
            sums.add(total, relevant)
        more = {"distinct_codes": len(scored.sizes), "precision_recall": sums.curve()}
    more |= {"rank": rank, "weight": _weight(rank, ranking, weight)}
    more["bit_balance"] = _bit_balance(database)
    return _report(sums, labels, empty_queries, **more)


def _report(sums: Sums, labels: LabelPair, empty_queries: EmptyQueries, **more: Any) -> Report:
    ap = _apply_policy(sums.average_precision(), empty_queries)
    mean, relevant = float(np.nanmean(ap)), sums.relevant()
    return Report(
        map=mean,
        depth=sums.depth,
        denominator=sums.denominator,
        empty_queries=empty_queries,
        queries=len(ap),
        database=sums.size,
        bits=len(more["bit_balance"]),
        queries_without_relevant=int((relevant == 0).sum()),
        average_precision=ap,
        per_class=_per_class(ap, labels),
        precision_at=sums.precision_at(),
        precision_at_most=sums.precision_at_most(),
        chance=_chance(relevant, sums.size, sums.depth, sums.denominator, ap),
        prevalence=float(np.mean(relevant / sums.size)),
        map_by_denominator={
            sums.denominator: mean,
            sums.other_denominator: sums.other_map(mean, skip=empty_queries == "skip"),
        },
        first_ten_tie=sums.first_tie(),
        **more,
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


def _by_distance(
    sums: Sums,
    queries: Codes | Queries,
    database: Codes,
    labels: LabelPair,
    exclude_self: bool,
    threads: int | None,
) -> dict[str, Any]:
    """Add the counts per Hamming distance; returns what only this ranking has."""
    codes = queries.codes() if isinstance(queries, Queries) else queries
    total, relevant = count(codes, labels.query, database, labels.database, threads=threads)
    if exclude_self:
        total[:, 0] -= 1
        relevant[:, 0] -= labels.query.any(axis=1) if labels.query.ndim == 2 else 1
    sums.add_all(total, relevant)
    return {
        "precision_recall": metrics.precision_recall(total, relevant),
        "precision_radius_2": metrics.precision_within(total, relevant, 2),
        "nonempty_radius_2": metrics.nonempty_within(total, 2),
        "distinct_codes": count_distinct(database.class_codes()),
    }


def _weight(rank: str, ranking: Ranking | None, weight: float | None) -> float | None:
    """The weight of the content that was used."""
    if rank != "photo" or weight is not None:
        return weight
    return (ranking or Ranking()).content_weight


def _chance(
    relevant: Counts, size: int, depth: int | None, denominator: Denominator, ap: Reals
) -> float:
    """Expected mAP of a random ranking: all items are one tie."""
    found, inverse = np.unique(relevant, return_inverse=True)
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


def _check_same(queries: Codes | Queries, database: Codes, labels: LabelPair) -> None:
    """Raise an error unless the queries are the database."""
    codes = queries.codes() if isinstance(queries, Queries) else queries
    if len(database) < 2 or not np.array_equal(codes.packed, database.packed):
        raise UsageError(
            "exclude_self needs the same codes, at least 2, as queries and as database."
        )
    if not np.array_equal(labels.query, labels.database):
        raise UsageError("exclude_self needs the same labels for queries and database.")


def _check_codes(query_codes: Any, database_codes: Any) -> tuple[Codes | Queries, Codes]:
    queries = query_codes
    if not isinstance(queries, Queries):
        queries = _as_codes(query_codes, "query")
    elif len(queries) == 0:
        raise UsageError("There are no query codes. Encode at least one image.")
    database = _as_codes(database_codes, "database")
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
