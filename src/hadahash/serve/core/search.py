"""Searches, run in batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ...codes import Codes
from ...errors import UsageError
from ...index import Item, Neighbor
from ...queries import Queries
from .collection import Collection
from .names import Id
from .query import stored_queries, stored_query
from .results import Shown, show

_ATTEMPTS = 5
_SMALL_K = 32  # searches for up to this many results are searched together
_MOST_HITS = 8000  # of one call; segments load all their ids to merge very many hits


class SearchJob(NamedTuple):
    """One query. Jobs that differ only in the query, and little in `k`, are searched together."""

    collection: Collection
    query: Queries | Codes  # one row
    k: int
    radius: int | None
    labels: tuple[Id, ...] | None
    rank: str
    weight: float | None
    looks: bytes | None = None  # what the query looks like

    def group(self) -> object:
        """Return a key that is equal for jobs that can be searched in one call."""
        query, kind = self.query, None
        if isinstance(query, Queries):
            binary = bool((np.abs(query.values) == 1).all())  # such queries are ranked differently
            kind = binary, 0 if query.probabilities is None else query.probabilities.shape[1]
        size = max(self.k, _SMALL_K) - 1  # the largest k of a group is at most twice the others
        parts = (kind, query.content is None, size.bit_length())
        return (id(self.collection), self.radius, self.labels, self.rank, self.weight, *parts)


class Options(NamedTuple):
    """The options of a search, as `SearchJob` has them."""

    k: int
    radius: int | None
    labels: tuple[Id, ...] | None
    rank: str
    weight: float | None


class IdJob(NamedTuple):
    """A search from an item of the index. Its code is looked up in the thread of the search."""

    collection: Collection
    given: Id  # as the client sent it
    options: Options


class Result(NamedTuple):
    """The result of a search.

    Attributes:
        item: The item that was searched from, if the client sent an id.
        query: The query.
        hits: What was found, best first.
        looks: What the query looks like, as far as it is known.
    """

    item: Item | None
    query: Queries | Codes
    hits: list[Shown]
    looks: bytes | None


def run_searches(jobs: Sequence[SearchJob | IdJob]) -> list[Result | Exception]:
    """Look up the items that are searched from, and run all searches.

    Args:
        jobs: The searches.

    Returns:
        The result of each, or its exception.
    """
    resolved = _resolve_all(jobs)
    ready = [each for each in resolved if not isinstance(each, Exception)]
    found = iter(run_jobs([job for _, job in ready]))
    return [
        each if isinstance(each, Exception) else _result(*each, next(found)) for each in resolved
    ]


def _resolve_all(
    jobs: Sequence[SearchJob | IdJob],
) -> list[tuple[Item | None, SearchJob] | Exception]:
    """The query of each job; the items of all ids are looked up together."""
    wanted: dict[int, list[IdJob]] = {}
    for job in jobs:
        if isinstance(job, IdJob):
            wanted.setdefault(id(job.collection), []).append(job)
    known: dict[int, dict[Id, tuple[Item, Codes]]] = {}
    for key, group in wanted.items():
        known[key] = stored_queries(group[0].collection, [job.given for job in group])
    return [_resolve(job, known.get(id(job.collection), {})) for job in jobs]


def _resolve(
    job: SearchJob | IdJob, known: dict[Id, tuple[Item, Codes]]
) -> tuple[Item | None, SearchJob] | Exception:
    if isinstance(job, SearchJob):
        return None, job
    try:
        found = known.get(job.given)
        item, query = stored_query(job.collection, job.given) if found is None else found
        return item, SearchJob(job.collection, query, *job.options)
    except Exception as error:  # raised again for this job
        return error


def _result(
    item: Item | None, job: SearchJob, found: list[Neighbor] | Exception
) -> Result | Exception:
    if isinstance(found, Exception):
        return found
    try:
        looks, hits = show(job.collection, item, found, job.looks)
    except Exception as error:  # raised again for this job
        return error
    return Result(item, job.query, hits, looks)


def run_jobs(jobs: Sequence[SearchJob]) -> list[list[Neighbor] | Exception]:
    """Search all jobs, each group in one call, or in several if it has very many results.

    Args:
        jobs: The queries.

    Returns:
        The neighbors of each job, best first, or the exception that its group raised.
    """
    groups: dict[object, list[int]] = {}
    for row, job in enumerate(jobs):
        groups.setdefault(job.group(), []).append(row)
    results: dict[int, list[Neighbor] | Exception] = {}
    for rows in (part for group in groups.values() for part in _parts(group, jobs)):
        try:
            found: Sequence[list[Neighbor] | Exception] = _search_group([jobs[row] for row in rows])
        except Exception as error:  # raised again for each job of the group
            found = [error] * len(rows)
        results.update(zip(rows, found, strict=True))
    return [results[row] for row in range(len(jobs))]


def _parts(group: list[int], jobs: Sequence[SearchJob]) -> list[list[int]]:
    """The rows of a group, in parts with at most `_MOST_HITS` results."""
    size = max(1, _MOST_HITS // max(jobs[row].k for row in group))
    return [group[start : start + size] for start in range(0, len(group), size)]


def _search_group(jobs: Sequence[SearchJob]) -> list[list[Neighbor]]:
    """Search once with the largest k and truncate the results of each job."""
    first, k = jobs[0], max(job.k for job in jobs)
    queries = _stacked([job.query for job in jobs])
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            found = first.collection.index.neighbors(
                queries,
                k,
                radius=first.radius,
                labels=first.labels,
                rank=first.rank,
                weight=first.weight,
            )
            break
        except UsageError:  # an engine that looks items up afterwards may miss a removed one
            if attempt == _ATTEMPTS:
                raise
    return [neighbors[: job.k] for neighbors, job in zip(found, jobs, strict=True)]


def _stacked(queries: Sequence[Queries | Codes]) -> Queries | Codes:
    """The queries of one group in one object."""
    first = queries[0]
    if len(queries) == 1:
        return first
    if isinstance(first, Codes):
        packed, content = (
            _joined([getattr(each, name) for each in queries]) for name in ("packed", "content")
        )
        return replace(first, packed=packed, content=content, ids=np.arange(len(packed)))
    names = ("values", "content", "probabilities")
    joined = {name: _joined([getattr(each, name) for each in queries]) for name in names}
    return Queries(**joined, content_fingerprint=first.content_fingerprint)


def _joined(parts: Sequence[Any]) -> Any:
    """The rows of all parts; None if they are None."""
    return None if parts[0] is None else np.concatenate(parts)
