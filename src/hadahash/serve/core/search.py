"""Searches, run in batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .collection import Collection, Packed
from .names import Id


class SearchJob(NamedTuple):
    """One query. Jobs that differ only in `packed` and `k` are searched together."""

    collection: Collection
    packed: Packed
    k: int
    radius: int | None
    labels: tuple[Id, ...] | None


class SearchResult(NamedTuple):
    """The nearest ids, nearest first."""

    ids: list[Id]
    distances: list[int]
    exact: bool


def run_jobs(jobs: Sequence[SearchJob]) -> list[SearchResult | Exception]:
    """Search all jobs, each group in one call.

    Args:
        jobs: The queries.

    Returns:
        One result per job, or the exception that its group raised.
    """
    groups: dict[object, list[int]] = {}
    for row, job in enumerate(jobs):
        key = (id(job.collection), job.radius, job.labels)
        groups.setdefault(key, []).append(row)
    results: dict[int, SearchResult | Exception] = {}
    for rows in groups.values():
        try:
            found: Sequence[SearchResult | Exception] = _search_group([jobs[row] for row in rows])
        except Exception as error:  # raised again for each job of the group
            found = [error] * len(rows)
        results.update(zip(rows, found, strict=True))
    return [results[row] for row in range(len(jobs))]


def _search_group(jobs: Sequence[SearchJob]) -> list[SearchResult]:
    """Search once with the largest k and truncate the results of each job."""
    first = jobs[0]
    packed, k = np.stack([job.packed for job in jobs]), max(job.k for job in jobs)
    hits = first.collection.index.search(packed, k, radius=first.radius, labels=first.labels)
    results = []
    for row, job in enumerate(jobs):
        count = min(job.k, int(hits.counts[row]))
        ids, distances = hits.ids[row, :count].tolist(), hits.distances[row, :count].tolist()
        results.append(SearchResult(ids, distances, bool(hits.exact_rows[row])))
    return results
