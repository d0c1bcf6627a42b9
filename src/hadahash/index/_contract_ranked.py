"""Checks of ranked searches that every index engine must pass; part of `engine_checks`."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..codes import Codes, hamming, pack
from ..errors import UsageError
from ..native.ranked_tables import reference_points
from ..native.tables import rows_of
from ..queries import Queries
from ..ranking import Ranking, prepare
from .api import Index
from .items import Id, Label
from .storage.folder import IndexFolder

_Engine = type[Index]
_BITS, _CONTENT_BITS, _CLASSES = 40, 24, 4
_Row = list[tuple[float, int, Id]]  # (score, distance, id) of one query


def ranked_checks() -> dict[str, Callable[[_Engine], None]]:
    """Return the checks by name.

    Returns:
        Functions that take the class of an engine.
    """
    return {
        "class ranking equals an exhaustive search": _check_class,
        "photo ranking equals an exhaustive search": _check_photo,
        "ranked searches can be filtered": _check_filters,
        "ranked searches see every change": _check_changes,
        "neighbors carry scores and content distances": _check_neighbors,
        "invalid ranked searches are refused": _check_refusals,
        "content bits are read back": _check_content,
    }


def check_ranked(
    index: Index,
    database: Codes,
    query: Any,
    k: int,
    *,
    labels: Sequence[Sequence[Label]] | None = None,
    **options: Any,
) -> None:
    """Compare a ranked search with the scores of all items.

    Args:
        index: The index, with its ranking.
        database: The codes it must hold.
        query: `Codes` or `Queries`.
        k: Number of results.
        labels: Labels of the database, needed for a filter by labels.
        **options: `rank`, `weight`, `radius`, `label_filter` (a list) and `ids` of the search.

    Raises:
        AssertionError: The results differ, or are not marked as exact.
    """
    label_filter = options.pop("label_filter", None)
    expected = _exhaustive(index.ranking, database, query, options, labels, label_filter)
    hits = index.search(query, k, labels=label_filter, **options)
    shape = len(query), min(k, len(database))
    _expect(hits.ids.shape == hits.distances.shape == shape, "shape of the hits")
    scores = hits.scores
    _expect(scores is not None and scores.shape == shape, "shape of the scores")
    _expect(hits.exact and bool(hits.exact_rows.all()), "the hits are marked exact")
    if scores is not None:
        _expect(bool(np.isneginf(scores[hits.distances < 0]).all()), "scores of the padding")
    for row, true in enumerate(expected):
        found = [(hit.score, hit.distance, hit.id) for hit in hits[row]]
        _expect(found == true[:k], f"row {row}: {found[:3]} ... is not {true[:3]} ...")


# ---- the checks ----------------------------------------------------------------------------------


def _check_class(engine: _Engine) -> None:
    codes = _codes(engine, 120, 1)
    for ranking in _rankings():
        index = _build(engine, codes, ranking)
        for query in _queries(engine, 3, 2):
            for k in (0, 1, 11, 10**9):
                check_ranked(index, codes, query, k, rank="class")


def _check_photo(engine: _Engine) -> None:
    if not engine.stores_content:
        return
    names = _codes(engine, 120, 3, [f"photo {number:03}" for number in range(120)])
    for ranking in _rankings():
        index = _build(engine, names, ranking)
        for query in _queries(engine, 3, 4):
            for k, weight in ((1, None), (13, 0), (13, 0.05), (13, 50.0), (500, 2)):
                check_ranked(index, names, query, k, rank="photo", weight=weight)


def _check_filters(engine: _Engine) -> None:
    codes, query = _codes(engine, 90, 5), next(_queries(engine, 3, 6))
    kinds: list[list[Label]] = [["cat", 7], ["dog"], []]
    labels = [kinds[number % 3] for number in range(90)]
    for ranking in _rankings():
        index = _build(engine, codes, ranking, labels)
        for rank in _ranks(engine):
            check = _checker(index, codes, query, labels=labels, rank=rank)
            for radius in (0, 5, 12, 1000):
                check(15, radius=radius)
            for label_filter in (["cat"], ["dog", 7], ["unknown"], []):
                check(15, label_filter=label_filter)
            check(15, ids=[3, 5, 60, 10**9])
            check(15, ids=[3, 4, 5, 6], label_filter=["cat"], radius=20)
            check(15, ids=[])


def _check_changes(engine: _Engine) -> None:
    codes, more = _codes(engine, 80, 7), _codes(engine, 40, 8, np.arange(60, 100))
    query, ranking = next(_queries(engine, 2, 9)), next(_rankings())
    index = _build(engine, codes, ranking)
    index.remove(np.arange(0, 30))
    index.update(more)
    rest = Codes.concatenate([codes[30:60], more])
    with tempfile.TemporaryDirectory() as folder:
        index.save(Path(folder) / "x.index")
        opened = engine._load(IndexFolder(Path(folder) / "x.index").open())
        _expect(opened.ranking is not None, "the ranking is saved")
        _expect(opened.content_bits == rest.content_bits, "the number of content bits is saved")
        for each in (index, opened):
            for rank in _ranks(engine):
                check_ranked(each, rest, query, 25, rank=rank)


def _check_neighbors(engine: _Engine) -> None:
    codes, query, ranking = _codes(engine, 50, 10), _codes(engine, 3, 11), next(_rankings())
    index = _build(engine, codes, ranking)
    for rank in ("hamming", *_ranks(engine)):
        hits, rows = index.search(query, 6, rank=rank), index.neighbors(query, 6, rank=rank)
        for row, found in enumerate(rows):
            listed = [(each.id, each.distance, each.score) for each in found]
            _expect(listed == hits[row], "neighbors equal hits")
            near = None
            if query.content is not None and codes.content is not None:
                near = hamming(query.content[[row]], codes.content)[0]
            for each in found:
                expected = None if near is None else int(near[int(each.id)])
                _expect(each.content_distance == expected, "content distance of a neighbor")


def _check_refusals(engine: _Engine) -> None:
    codes = _codes(engine, 5, 12)
    index, plain = _build(engine, codes, None), _build(engine, codes.class_codes(), None)
    calls: dict[str, Callable[[], object]] = {
        "an unknown ranking": lambda: index.search(codes, rank="best"),
        "a weight of another ranking": lambda: index.search(codes, rank="class", weight=1),
        "photo without content bits": lambda: plain.search(codes, rank="photo"),
    }
    if engine.stores_content:
        calls |= {
            "a negative weight": lambda: index.search(codes, rank="photo", weight=-1),
            "a weight that is not a number": lambda: index.search(
                codes,
                rank="photo",
                weight="x",  # type: ignore[arg-type]
            ),
            "a query without content": lambda: index.search(codes.class_codes(), rank="photo"),
            "items without content": lambda: index.update(codes.class_codes()),
            "items with content": lambda: plain.update(codes),
        }
    for name, call in calls.items():
        try:
            call()
        except UsageError as error:
            _expect("\n" not in str(error), f"one line: {name}")
        else:
            raise AssertionError(f"The engine violates its contract: not refused: {name}.")


def _check_content(engine: _Engine) -> None:
    codes = _codes(engine, 30, 13)
    index = _build(engine, codes, None)
    for stored in (index.codes(), index.codes(codes.ids[::-1])[::-1]):
        _expect(stored.content_bits == index.content_bits == codes.content_bits, "content bits")
        same = np.array_equal(stored.content, codes.content)  # type: ignore[arg-type]
        _expect(codes.content is None or same, "content is read back")


# ---- helpers -------------------------------------------------------------------------------------


def _expect(condition: bool, message: str) -> None:
    if not condition:
        raise AssertionError(f"The engine violates its contract: {message}.")


def _ranks(engine: _Engine) -> tuple[str, ...]:
    return ("class", "photo") if engine.stores_content else ("class",)


def _checker(index: Index, codes: Codes, query: Any, **fixed: Any) -> Callable[..., None]:
    def check(k: int, **options: Any) -> None:
        check_ranked(index, codes, query, k, **fixed, **options)

    return check


def _build(
    engine: _Engine,
    codes: Codes,
    ranking: Ranking | None,
    labels: Any = None,
) -> Index:
    index = engine._create(codes.bits, _codewords())
    index.content_bits, index.ranking = codes.content_bits, ranking
    index.add(codes, labels)
    return index


def _codewords() -> Any:
    return np.random.default_rng(98).choice([-1, 1], (_CLASSES, _BITS))


def _rankings() -> Iterator[Ranking]:
    """Rankings with codewords, single-label and multi-label, and without."""
    words = _codewords()
    yield Ranking(words, sharpness=9.0)
    slope, offset = np.linspace(3, 9, _CLASSES), np.linspace(-3, -1, _CLASSES)
    yield Ranking(
        words,
        multilabel=True,
        slope=slope,
        offset=offset,
        query_slope=slope + 1,
        query_offset=offset,
    )
    yield Ranking(class_weight=2)


def _values(count: int, seed: int) -> tuple[Any, Any]:
    """Class values around the codewords, with many ties of their signs, and content values."""
    rng = np.random.default_rng(seed)
    signs = rng.choice([1, -1], (count, _BITS), p=[0.92, 0.08])
    values = _codewords()[rng.integers(0, _CLASSES, count)] * signs
    few = rng.standard_normal((max(1, count // 3), _CONTENT_BITS))  # equal content bits occur
    return values, few[rng.integers(0, len(few), count)]


def _codes(engine: _Engine, count: int, seed: int, ids: Any = None) -> Codes:
    values, content = _values(count, seed)
    if not engine.stores_content:
        return Codes(pack(values), _BITS, ids)
    return Codes(pack(values), _BITS, ids, (), pack(content), _CONTENT_BITS)


def _queries(engine: _Engine, count: int, seed: int) -> Iterator[Codes | Queries]:
    """Real-valued queries, and codes."""
    values, content = _values(count, seed)
    certain = np.random.default_rng(seed).uniform(0.05, 1, values.shape)
    yield Queries(values * certain, content=content if engine.stores_content else None)
    yield _codes(engine, count, seed)


def _exhaustive(
    ranking: Ranking | None,
    database: Codes,
    query: Any,
    options: dict[str, Any],
    labels: Sequence[Sequence[Label]] | None,
    label_filter: Sequence[Label] | None,
) -> list[_Row]:
    """All (score, distance, id) that qualify, in order, for each query."""
    queries = query if isinstance(query, Queries) else Queries.from_codes(query)
    prepared = prepare(queries, ranking, options["rank"], options.get("weight"))
    content = None if database.content is None else rows_of(database.content)
    points = reference_points(prepared.tables, rows_of(database.packed), content)
    scores, distances = prepared.scores(points), hamming(queries.codes().packed, database.packed)
    radius, ids = options.get("radius"), options.get("ids")
    carried = [()] * len(database) if labels is None else labels
    rows = []
    for row in range(len(queries)):
        found = [
            (int(-points[row, item]), each, float(scores[row, item]), int(distances[row, item]))
            for item, each in enumerate(database.ids.tolist())
            if (radius is None or distances[row, item] <= radius)
            and (ids is None or each in ids)
            and (label_filter is None or not set(label_filter).isdisjoint(carried[item]))
        ]
        rows.append([(score, near, each) for _, each, score, near in sorted(found)])
    return rows
