"""Checks that every index engine must pass, for built-in and user-defined engines.

A check takes the class of an engine, and raises AssertionError if it violates the contract.
`hadahash.testing.check_engine` runs all of them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..codes import Codes, pack
from ..errors import HadaHashError, UsageError
from ._contract_ranked import ranked_checks
from .api import Index
from .items import Id, Label
from .query import Hits
from .storage.folder import IndexFolder

Engine = type[Index]
Check = Callable[[Engine], None]

_BITS = 48
_Row = list[tuple[int, Id]]  # (distance, id) of one query


def engine_checks() -> dict[str, Check]:
    """Return the checks by name.

    Returns:
        Functions that take the class of an engine. They create empty indexes with default options.

    Example:
        >>> from hadahash.index import ENGINES
        >>> for check in engine_checks().values():
        ...     check(ENGINES.get("exact"))
    """
    return {
        "search equals an exhaustive search": _check_search,
        "filters restrict a search": _check_filters,
        "rows are marked exact only if they are": _check_exact_rows,
        "items can be added, updated and removed": _check_changes,
        "neighbors carry code, path and labels": _check_neighbors,
        "codes and items can be read back": _check_items,
        "an index can be saved and opened": _check_storage,
        "invalid arguments are refused and change nothing": _check_refusals,
        "an empty index takes ids of either type": _check_empty,
        "the index owns its codes": _check_ownership,
        **ranked_checks(),
    }


def check_search(
    index: Index,
    database: Codes,
    queries: Codes,
    k: int,
    *,
    labels: Sequence[Sequence[Label]] | None = None,
    **options: Any,
) -> None:
    """Compare a search with an exhaustive one.

    Args:
        index: The index.
        database: The codes it must hold.
        queries: Query codes.
        k: Number of neighbors.
        labels: Labels of the database, needed for a filter by labels.
        **options: `radius`, `label_filter` (a list) and `ids` of the search.

    Raises:
        AssertionError: The results differ, or are not marked as exact.
    """
    label_filter, ids = options.pop("label_filter", None), options.get("ids")
    expected = _exhaustive(database, queries, labels, label_filter, ids, options.get("radius"))
    hits = index.search(queries, k, labels=label_filter, **options)
    columns = min(k, len(database))
    _expect(hits.ids.shape == hits.distances.shape == (len(queries), columns), "shape of the hits")
    _expect(hits.distances.dtype == np.int32, "distances are int32")
    _expect(hits.exact and bool(hits.exact_rows.all()), "the hits are marked exact")
    for row, (found, true) in enumerate(zip(_rows(hits), expected, strict=True)):
        _expect(found == true[:k], f"row {row}: {found[:5]} ... is not {true[:5]} ...")


# ---- the checks ----------------------------------------------------------------------------------


def _check_search(engine: Engine) -> None:
    for ids in (None, [f"photo {number}" for number in range(200)]):
        codes, queries = _codes(200, 1, ids), _codes(4, 2)
        index = _build(engine, codes)
        _expect(len(index) == 200 and index.bits == _BITS, "size and bits")
        _expect(index.id_type is (int if ids is None else str), "type of the ids")
        for k in (0, 1, 17, 200, 10**12):
            check_search(index, codes, queries, k)
        check_search(index, codes, queries[:0], 3)


def _check_filters(engine: Engine) -> None:
    codes, queries, labels = _codes(150, 3), _codes(3, 4), _labels(150)
    index = _build(engine, codes, labels)
    for radius in (0, 4, 12, _BITS, 1000):
        check_search(index, codes, queries, 20, radius=radius)
    for label_filter in (["cat"], [7], ["cat", 7], ["unknown"], []):
        check_search(index, codes, queries, 20, labels=labels, label_filter=label_filter)
    for some in ([3, 5, 60, 10**9], []):
        check_search(index, codes, queries, 20, ids=some)
        check_search(index, codes, queries, 20, ids=some, labels=labels, label_filter=["cat"])
    expected = {label: sum(label in each for each in labels) for label in ("cat", "dog", 7)}
    _expect(index.label_counts() == expected, "label counts")
    asked: list[list[Label]] = [["cat"], [7], ["unknown", 7], ["unknown"], ["7"], []]
    for each in asked:
        _expect(index.has_label(each) == any(label in expected for label in each), "has_label()")
    found = _rows(index.within(queries, 9))
    true = _exhaustive(codes, queries, radius=9)
    _expect(found == true, "within() returns all items in the radius")


def _check_exact_rows(engine: Engine) -> None:
    codes, queries = _codes(300, 5), _codes(10, 6)
    index = _build(engine, codes)
    true, fast = index.search(queries, 5), index.search(queries, 5, probes=1)
    same = (true.ids == fast.ids).all(axis=1)
    _expect(bool(same[fast.exact_rows].all()), "rows marked exact are exact")


def _check_changes(engine: Engine) -> None:
    codes, more, queries = _codes(120, 7), _codes(60, 8, np.arange(100, 160)), _codes(3, 9)
    index = _build(engine, codes)
    index.remove(np.arange(0, 50))
    for _ in range(2):  # an update is idempotent
        index.update(more, [["new"]] * 60)
    rest = Codes.concatenate([codes[50:100], more])
    _expect(len(index) == len(rest) == 110, "number of items")
    _expect(index.ids.tolist() == sorted(rest.ids.tolist()), "ids are ascending")
    check_search(index, rest, queries, 30)
    index.add(_codes(1, 10, [5]))
    _expect(index.has([5, 6, 120]).tolist() == [True, False, True], "has()")
    _expect(index.label_counts() == {"new": 60}, "label counts after changes")
    index.remove(more.ids)
    _expect(not index.has_label(["new"]) and index.label_counts() == {}, "labels of no items")


def _check_neighbors(engine: Engine) -> None:
    codes, queries, labels = _codes(80, 11), _codes(4, 12), _labels(80)
    paths = [None if number % 3 else f"{number}.jpg" for number in range(80)]
    index = _build(engine, codes, labels, paths)
    hits, rows = index.search(queries, 7), index.neighbors(queries, 7)
    for row, found in enumerate(rows):
        _expect([(each.distance, each.id) for each in found] == _rows(hits)[row], "same hits")
        for each in found:
            number = int(each.id)
            _expect(bytes(each.code) == codes.packed[number].tobytes(), "code of a neighbor")
            _expect(each.path == paths[number], "path of a neighbor")
            _expect(set(each.labels) == set(labels[number]), "labels of a neighbor")
    _expect(index.neighbors(queries, 3, labels=["unknown"]) == [[]] * 4, "no neighbors")


def _check_items(engine: Engine) -> None:
    codes = _codes(3, 13, ["b", "a", "c"])
    index = _build(engine, codes, [["x", 7], [], ["y"]], ["/p/b.jpg", None, "/p/c.jpg"])
    expected = [("c", "/p/c.jpg", ("y",)), ("b", "/p/b.jpg", (7, "x")), ("a", None, ())]
    _expect(index.get(["c", "b", "a"]) == expected, "items in the requested order")
    stored = index.codes(["c", "c", "b"])
    _expect(stored.ids.tolist() == ["c", "c", "b"], "ids of codes")
    _expect(np.array_equal(stored.packed, codes.packed[[2, 2, 0]]), "codes")
    _expect(index.codes().ids.tolist() == ["a", "b", "c"], "all codes in the order of ids")
    items, stored = index.lookup(["b", "c", "b"])
    _expect(items == [expected[1], expected[0], expected[1]], "items with codes")
    _expect(np.array_equal(stored.packed, codes.packed[[0, 2, 0]]), "codes with items")


def _check_storage(engine: Engine) -> None:
    codes, queries, labels = _codes(90, 14), _codes(3, 15), _labels(90)
    index = _build(engine, codes, labels)
    index.meta["owner"] = {"name": "check"}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.index"
        index.save(path)
        opened = _open(engine, path)
        opened.verify()
        _expect(type(opened) is type(index) and opened.engine == index.engine, "engine")
        _expect(opened.meta == {"owner": {"name": "check"}}, "meta")
        check_search(opened, codes, queries, 12, labels=labels, label_filter=["dog"])
        opened.remove([0, 1])
        opened.save(path)
        check_search(_open(engine, path), codes[2:], queries, 100)


def _check_refusals(engine: Engine) -> None:
    codes = _codes(5, 16)
    index = _build(engine, codes)
    short = Codes(packed=np.zeros((1, 2), np.uint8), bits=16, ids=np.array([9]))
    calls: dict[str, Callable[[], object]] = {
        "a known id is added": lambda: index.add(codes),
        "an unknown id is removed": lambda: index.remove([3, 77]),
        "an unknown id is read": lambda: index.get([77]),
        "an unknown id is looked up": lambda: index.lookup([3, 77]),
        "a string id for integer ids": lambda: index.update(_codes(1, 17, ["a"])),
        "an id twice": lambda: index.add(_codes(2, 18, [8, 8])),
        "codes of a different length": lambda: index.add(short),
        "queries of a different length": lambda: index.search(short),
        "k < 0": lambda: index.search(codes, -1),
        "k is a float": lambda: index.search(codes, 2.7),  # type: ignore[arg-type]
        "k is a bool": lambda: index.search(codes, True),
        "radius < 0": lambda: index.search(codes, radius=-1),
        "probes < 1": lambda: index.search(codes, probes=0),
    }
    for name, call in calls.items():
        try:
            call()
        except UsageError as error:
            _expect("\n" not in str(error), f"one line: {name}")
        except HadaHashError as error:
            raise AssertionError(f"expected a UsageError: {name}") from error
        else:
            raise AssertionError(f"not refused: {name}")
    _expect(index.ids.tolist() == [0, 1, 2, 3, 4], "nothing was changed")


def _check_empty(engine: Engine) -> None:
    for ids in ([4, 2], ["b", "a"]):
        index = _build(engine, _codes(0, 19))
        _expect(len(index) == 0 and index.id_type is None, "an empty index")
        _expect(len(index.ids) == len(index.codes()) == 0, "no ids and codes")
        _expect(index.search(_codes(2, 20), 3).ids.shape == (2, 0), "no hits")
        index.add(_codes(2, 21, ids))
        _expect(index.ids.tolist() == sorted(ids), "the first ids decide the type")
        index.remove(ids)
        _expect(len(index) == 0 and index.search(_codes(1, 22), 3).counts.tolist() == [0], "empty")


def _check_ownership(engine: Engine) -> None:
    codes = _codes(50, 23)
    index = _build(engine, codes)
    before = index.codes().packed.copy()
    codes.packed[:] = 0
    _expect(np.array_equal(index.codes().packed, before), "the index copies its codes")


# ---- helpers -------------------------------------------------------------------------------------


def _expect(condition: bool, message: str) -> None:
    if not condition:
        raise AssertionError(f"The engine violates its contract: {message}.")


def _build(engine: Engine, codes: Codes, labels: Any = None, paths: Any = None) -> Index:
    index = engine._create(codes.bits, _centroids())
    index.add(codes, labels, paths)
    return index


def _open(engine: Engine, path: Path) -> Index:
    """Open an index of an engine that may not be registered."""
    return engine._load(IndexFolder(path).open())


def _centroids() -> NDArray[np.int64]:
    return np.random.default_rng(99).choice([-1, 1], (5, _BITS))


def _codes(count: int, seed: int, ids: Any = None) -> Codes:
    """Codes around 5 centroids, so that there are many ties."""
    rng = np.random.default_rng(seed)
    flips = rng.choice([1, -1], (count, _BITS), p=[0.9, 0.1])
    packed = pack(_centroids()[rng.integers(0, 5, count)] * flips)
    return Codes(packed=packed, bits=_BITS, ids=ids)


def _labels(count: int) -> list[list[Label]]:
    kinds: list[list[Label]] = [["cat", 7], ["dog"], []]
    return [kinds[number % 3] for number in range(count)]


def _rows(hits: Hits) -> list[_Row]:
    return [[(hit.distance, hit.id) for hit in hits[row]] for row in range(len(hits))]


def _exhaustive(
    database: Codes,
    queries: Codes,
    labels: Sequence[Sequence[Label]] | None = None,
    label_filter: Sequence[Label] | None = None,
    ids: Sequence[Id] | None = None,
    radius: int | None = None,
) -> list[_Row]:
    """All (distance, id) that qualify, in order, for each query; bit by bit."""
    signs: NDArray[np.int8] = database.signs()
    known = database.ids.tolist()
    allowed = [
        (
            label_filter is None
            or (labels is not None and not set(label_filter).isdisjoint(labels[row]))
        )
        and (ids is None or each in ids)
        for row, each in enumerate(known)
    ]
    limit = _BITS if radius is None else radius
    rows = []
    for query in queries.signs():
        distances = (signs != query).sum(axis=1).tolist()
        pairs = zip(distances, known, allowed, strict=True)
        rows.append(sorted((d, each) for d, each, may in pairs if may and d <= limit))
    return rows
