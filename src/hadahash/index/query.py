"""Search requests and search results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..queries import Queries
from ..ranking import Prepared, Ranking, prepare, similarities
from .items import Id, Ids, Item, Label, LabelSet, Mask, id_array, id_type_of, missing_id

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


class Ranked(NamedTuple):
    """How the results of a search are ordered, other than by distance.

    Attributes:
        rank: "class" or "photo".
        queries: The queries, with real values or signs.
        ranking: Codewords and fitted numbers.
        weight: Weight of the content bits; 0 for "class".
    """

    rank: str
    queries: Queries
    ranking: Ranking
    weight: float


class SearchOptions(NamedTuple):
    """The options of `Index.search`, as they were passed."""

    rank: str
    weight: float | None
    radius: int | None
    labels: Any
    ids: ArrayLike | None
    probes: int | None
    threads: int | None


class SearchRequest(NamedTuple):
    """A validated search request, as an engine receives it.

    Attributes:
        packed: Packed query codes, uint8 (q, ceil(bits / 8)).
        k: Number of nearest items per query.
        radius: Maximum distance; the number of bits if any distance is allowed.
        filter: Which items may be returned.
        probes: Number of inverted lists to visit; None for an exact search.
        threads: Maximum number of threads; None for all usable cores.
        content: Packed content bits of the queries, or None.
        ranked: How the results are ordered; None for the order of distances.
    """

    packed: NDArray[np.uint8]
    k: int
    radius: int
    filter: Filter
    probes: int | None
    threads: int | None
    content: NDArray[np.uint8] | None = None
    ranked: Ranked | None = None


def prepare_ranked(request: SearchRequest) -> Prepared:
    """The queries of a request with `ranked`, ready for a ranked search."""
    ranked = request.ranked
    if ranked is None:
        raise ValueError("the request has no ranking")
    weight = ranked.weight if ranked.rank == "photo" else None
    return prepare(ranked.queries, ranked.ranking, ranked.rank, weight)


class Hit(NamedTuple):
    """A result of a search.

    Attributes:
        id: The item's id.
        distance: Its Hamming distance to the query, without content bits.
        score: Its score, the greater the better; None if results are ordered by distance.
    """

    id: Id
    distance: int
    score: float | None = None


class Neighbor(NamedTuple):
    """A result of a search with code, path and labels of the item.

    Attributes:
        id: The item's id.
        distance: Its Hamming distance to the query, without content bits.
        code: Its packed code, uint8 (ceil(bits / 8),), without content bits.
        path: Path of its image, or None.
        labels: Its labels.
        score: Its score, the greater the better; None if results are ordered by distance.
        content_distance: Hamming distance of the content bits; None if the query or the index has
            no content bits.
        similarity: 0 to 1, in the order of the results: the fraction of class bits that are equal
            (rank "hamming"), the probability of sharing a class ("class"), or kind and content
            together ("photo"); see `hadahash.ranking.similarities`.
    """

    id: Id
    distance: int
    code: NDArray[np.uint8]
    path: str | None
    labels: LabelSet
    score: float | None = None
    content_distance: int | None = None
    similarity: float = 0.0


@dataclass(frozen=True, eq=False)
class Hits:
    """Results of a search: one row per query, best first, ties in the order of ids.

    A row with fewer results than columns is padded with the id -1 ("" for string ids), the
    distance -1 and the score -inf. `hits[row]` gives the results of one query without padding.

    Attributes:
        ids: (q, columns), int64, or object (str) for string ids.
        distances: int32 (q, columns).
        exact_rows: bool (q,): the row is guaranteed to equal an exhaustive search.
        scores: float64 (q, columns), descending; None if results are ordered by distance.

    Example:
        >>> hits = Hits(np.array([[7, -1]]), np.array([[3, -1]], np.int32), np.array([True]))
        >>> hits[0]
        [Hit(id=7, distance=3, score=None)]
    """

    ids: Ids
    distances: NDArray[np.int32]
    exact_rows: Mask
    scores: NDArray[np.float64] | None = None

    def __len__(self) -> int:
        """Number of queries."""
        return len(self.distances)

    def __getitem__(self, row: int) -> list[Hit]:
        """The results of one query, without padding."""
        count = int(np.count_nonzero(self.distances[row] >= 0))
        ids, distances = self.ids[row, :count].tolist(), self.distances[row, :count].tolist()
        scores = [None] * count if self.scores is None else self.scores[row, :count].tolist()
        return [Hit(*each) for each in zip(ids, distances, scores, strict=True)]

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
    scores = hits.scores
    if scores is not None:
        scores = np.concatenate([scores, np.full((len(hits), missing), -np.inf)], axis=1)
    return Hits(
        np.concatenate([hits.ids, ids], axis=1),
        np.concatenate([hits.distances, distances], axis=1),
        hits.exact_rows,
        scores,
    )


Known = tuple[Item, NDArray[np.uint8], NDArray[np.uint8] | None]  # with code and content bits


def look_up_neighbors(index: Engine, request: SearchRequest) -> list[list[Neighbor]]:
    """Find neighbors by a search and a lookup of the resulting items."""
    hits = index._search(request) if request.ranked is None else index._ranked(request)
    requested = id_array(sorted(set(hits.ids[hits.distances >= 0].tolist())))
    items, codes = index.lookup(requested)
    contents = [None] * len(codes) if codes.content is None else codes.content
    known = {each[0].id: each for each in zip(items, codes.packed, contents, strict=True)}
    return join_neighbors(hits.ids, hits.distances, hits.scores, known, request, index.bits)


def join_neighbors(
    keys: NDArray[Any],
    distances: NDArray[np.int32],
    scores: NDArray[np.float64] | None,
    known: dict[Any, Known],
    request: SearchRequest,
    bits: int,
) -> list[list[Neighbor]]:
    """For each query its neighbors, without padding; `known` has their items by key."""
    queries = [None] * len(keys) if request.content is None else request.content
    columns = [keys.tolist(), distances.tolist(), _similarities(distances, scores, request, bits)]
    if scores is not None:
        columns.append(scores.tolist())
    return [
        [_neighbor(*known[key], query, *hit) for key, *hit in zip(*row, strict=True) if hit[0] >= 0]
        for query, *row in zip(queries, *columns, strict=True)
    ]


def _similarities(
    distances: NDArray[np.int32],
    scores: NDArray[np.float64] | None,
    request: SearchRequest,
    bits: int,
) -> list[list[float]]:
    """The similarity of each hit; rows may be padded."""
    ranked = request.ranked
    if ranked is None or scores is None:
        return [[round(1 - each / bits, 6) for each in row] for row in distances.tolist()]
    found = similarities(ranked.queries, ranked.ranking, ranked.rank, ranked.weight, scores)
    rows: list[list[float]] = found.tolist()
    return rows


def _neighbor(
    item: Item,
    code: NDArray[np.uint8],
    content: NDArray[np.uint8] | None,
    query: NDArray[np.uint8] | None,
    distance: int,
    similarity: float,
    score: float | None = None,
) -> Neighbor:
    near = None
    if content is not None and query is not None:
        near = int(np.bitwise_count(content ^ query).sum())
    return Neighbor(item.id, distance, code, item.path, item.labels, score, near, similarity)
