"""Search requests and search results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .items import Id, Ids, Label, LabelSet, Mask, id_array, id_type_of, missing_id

if TYPE_CHECKING:
    from .engine import Engine


class Filter(NamedTuple):
    """Restricts a search.

    Attributes:
        labels: Items must carry at least one of these labels; None for no restriction.
        ids: Items must have one of these ids (ascending); None for no restriction.
    """

    labels: frozenset[Label] | None = None
    ids: Ids | None = None


class SearchRequest(NamedTuple):
    """A validated search request, as an engine receives it.

    Attributes:
        packed: Packed query codes, uint8 (q, ceil(bits / 8)).
        k: Number of nearest items per query.
        radius: Maximum distance; the number of bits if any distance is allowed.
        filter: Which items may be returned.
        probes: Number of inverted lists to visit; None for an exact search.
        threads: Maximum number of threads; None for all usable cores.
    """

    packed: NDArray[np.uint8]
    k: int
    radius: int
    filter: Filter
    probes: int | None
    threads: int | None


class Hit(NamedTuple):
    """A result of a search.

    Attributes:
        id: The item's id.
        distance: Its Hamming distance to the query.
    """

    id: Id
    distance: int


class Neighbor(NamedTuple):
    """A result of a search with code, path and labels of the item.

    Attributes:
        id: The item's id.
        distance: Its Hamming distance to the query.
        code: Its packed code, uint8 (ceil(bits / 8),).
        path: Path of its image, or None.
        labels: Its labels.
    """

    id: Id
    distance: int
    code: NDArray[np.uint8]
    path: str | None
    labels: LabelSet


@dataclass(frozen=True, eq=False)
class Hits:
    """Results of a search: one row per query, nearest first, ties in the order of ids.

    A row with fewer results than columns is padded with the id -1 ("" for string ids) and the
    distance -1. `hits[row]` gives the results of one query without padding.

    Attributes:
        ids: (q, columns), int64, or object (str) for string ids.
        distances: int32 (q, columns).
        exact_rows: bool (q,): the row is guaranteed to equal an exhaustive search.

    Example:
        >>> hits = Hits(np.array([[7, -1]]), np.array([[3, -1]], np.int32), np.array([True]))
        >>> hits[0]
        [Hit(id=7, distance=3)]
    """

    ids: Ids
    distances: NDArray[np.int32]
    exact_rows: Mask

    def __len__(self) -> int:
        """Number of queries."""
        return len(self.distances)

    def __getitem__(self, row: int) -> list[Hit]:
        """The results of one query, without padding."""
        count = int(np.count_nonzero(self.distances[row] >= 0))
        ids, distances = self.ids[row, :count].tolist(), self.distances[row, :count].tolist()
        return [Hit(*pair) for pair in zip(ids, distances, strict=True)]

    @property
    def exact(self) -> bool:
        """Whether every row is guaranteed to equal an exhaustive search."""
        return bool(self.exact_rows.all())

    @property
    def counts(self) -> NDArray[np.int64]:
        """Number of results per query, without padding, int64 (q,)."""
        return np.asarray(np.count_nonzero(self.distances >= 0, axis=1))


def pad_hits(hits: Hits, columns: int) -> Hits:
    """Pad hits to this number of columns."""
    missing = columns - hits.distances.shape[1]
    if missing <= 0:
        return hits
    ids = np.full((len(hits), missing), missing_id(id_type_of(hits.ids)), hits.ids.dtype)
    distances = np.full((len(hits), missing), -1, np.int32)
    return Hits(
        np.concatenate([hits.ids, ids], axis=1),
        np.concatenate([hits.distances, distances], axis=1),
        hits.exact_rows,
    )


def look_up_neighbors(index: Engine, request: SearchRequest) -> list[list[Neighbor]]:
    """Find neighbors by a search and a lookup of the resulting items."""
    hits = index._search(request)
    rows = [hits[row] for row in range(len(hits))]
    requested = id_array(sorted({hit.id for row in rows for hit in row}))
    codes = index.codes(requested).packed
    known = {
        item.id: (code, *item[1:]) for item, code in zip(index.get(requested), codes, strict=True)
    }
    return [[Neighbor(hit.id, hit.distance, *known[hit.id]) for hit in row] for row in rows]
