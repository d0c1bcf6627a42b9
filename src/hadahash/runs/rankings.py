"""Measure the codes of a run under several rankings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from ..errors import UsageError
from ..evaluation import Report, evaluate
from ..evaluation.known_item import agreement
from ..queries import Queries
from ..ranking import Ranking
from ..ranking.model import check_weight
from .encoded import EncodedImages


def measure_rankings(
    ranking: Ranking,
    queries: Queries,
    encoded: Mapping[str, EncodedImages],
    labels: Mapping[str, NDArray[Any]],
    *,
    ranks: Sequence[str],
    depth: int | None,
    weight: float | None = None,
) -> Report:
    """Measure retrieval under several rankings.

    Args:
        ranking: Codewords and fitted numbers of the model.
        queries: The queries.
        encoded: The parts "query" and "database".
        labels: Their labels.
        ranks: Rankings beside "hamming".
        depth: Rank cut-off R of mAP@R; None: all results.
        weight: Weight of the content in "photo"; None: that of the ranking.

    Returns:
        The report of the ranking by Hamming distance, with the others in `rankings`.
    """
    found: dict[str, Report] = {}
    for rank in ("hamming", *ranks):
        options: dict[str, Any] = {"rank": rank, "ranking": ranking}
        options["weight"] = weight if rank == "photo" else None
        report = evaluate(
            queries,
            labels["query"],
            encoded["database"].codes,
            labels["database"],
            depth=depth,
            **options,
        )
        own = _agreement(queries, encoded, options)
        found[rank] = replace(report, agreement=own)
    first = found.pop("hamming")
    return replace(first, rankings=found)


def check_content_weight(weight: float | None, ranks: Sequence[str]) -> None:
    """Refuse a weight of the content where the ranking "photo" is not measured.

    Args:
        weight: The weight, or None.
        ranks: The rankings.

    Raises:
        UsageError: No ranking uses it, or it is out of range.
    """
    if weight is None:
        return
    check_weight(weight)
    if "photo" not in ranks:
        measured = ", ".join(ranks) or "hamming"
        raise UsageError(f"weight is for the ranking photo, got {measured}. Leave it out.")


def _agreement(
    queries: Queries, encoded: Mapping[str, EncodedImages], options: Mapping[str, Any]
) -> float:
    """Agreement with the features, among the sampled images."""
    query, database = encoded["query"].sampled, encoded["database"].sampled
    if query is None or database is None or not len(query.rows) or not len(database.rows):
        return float("nan")
    return agreement(
        queries[query.rows],
        query.features,
        encoded["database"].codes[database.rows],
        database.features,
        **options,
    )
