"""Every registered index engine returns the results of brute force, also after changes."""

from __future__ import annotations

import numpy as np
import pytest
from brute_force import LOCAL_ENGINES, BruteForce, as_lists

from hadahash import native
from hadahash.codes import Codes, pack, unpack
from hadahash.errors import UsageError
from hadahash.index import ENGINES as REGISTRY
from hadahash.index import Hits, Index, list_engines
from hadahash.index._contract import engine_checks
from hadahash.index.engines import routed

BITS = [8, 12, 16, 24, 32, 33, 48, 64, 96, 128, 255, 512]
ENGINES = list_engines()


@pytest.fixture
def rng():
    return np.random.default_rng(3)


@pytest.fixture(autouse=True)
def route_all(monkeypatch):
    """Route also small tables, and those where routing is not faster."""
    for name, value in {
        "_MIN_ROUTED_BYTES": 0,
        "_MAX_COMPARED": np.inf,
        "_MIN_BLOCK_BYTES": 0,
    }.items():
        monkeypatch.setattr(routed, name, value)


def clustered(rng, n, bits, ids=None, flips=0.1, centroids=5):
    """Codes around few centroids, with many ties."""
    words = np.random.default_rng(99).choice([-1, 1], (centroids, bits))
    values = words[rng.integers(0, centroids, n)] * rng.choice(
        [1, -1], (n, bits), p=[1 - flips, flips]
    )
    return Codes(packed=pack(values), bits=bits, ids=ids)


def shuffled_ids(rng, n, id_type):
    numbers = rng.permutation(3 * n)[:n] - n
    return numbers if id_type is int else np.array([f"photo {number}.jpg" for number in numbers])


def both(rng, n, bits, *, engine, id_type=int, codewords=None):
    """An engine and brute force with the same items."""
    codes = clustered(rng, n, bits, shuffled_ids(rng, n, id_type))
    labels = rng.integers(0, 4, n)
    index, brute = Index.build(codes, labels, engine=engine, codewords=codewords), BruteForce(bits)
    brute.put(codes, labels.tolist())
    return index, brute


def assert_same(index, brute, queries, k, **options):
    hits = index.search(queries, k, **options)
    if "labels" in options:
        options["labels"] = (
            [options["labels"]] if np.isscalar(options["labels"]) else options["labels"]
        )
    assert as_lists(hits) == brute.search(queries, k, **options)
    assert (
        hits.ids.shape == hits.distances.shape == (len(queries), min(k, len(index)))
        and hits.distances.dtype == np.int32
    )
    assert hits.exact is True and hits.exact_rows.all()
    assert hits.counts.tolist() == [len(row) for row in as_lists(hits)]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("check", engine_checks().values(), ids=engine_checks().keys())
def test_the_contract_of_an_engine(check, engine):
    check(REGISTRY.get(engine))


class ForgetfulIndex(REGISTRY.get("exact")):
    """An engine that never finds its first item."""

    def _search(self, request):
        hits = super()._search(request)
        return Hits(np.where(hits.ids == 0, -1, hits.ids), hits.distances, hits.exact_rows)


def test_the_checks_find_a_broken_engine():
    broken = []
    for name, check in engine_checks().items():
        try:
            check(ForgetfulIndex)
        except AssertionError as error:
            broken.append(name)
            assert "violates its contract" in str(error)
    assert "search equals an exhaustive search" in broken


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("id_type", [int, str])
def test_all_code_lengths_equal_brute_force(rng, engine, bits, id_type):
    codewords = rng.choice([-1, 1], (7, bits)) if bits % 2 == 0 else None
    index, brute = both(rng, 300, bits, engine=engine, id_type=id_type, codewords=codewords)
    queries = clustered(rng, 6, bits)
    for k in (0, 1, 17, 300, 305):
        assert_same(index, brute, queries, k)
    assert (
        len(index) == 300
        and index.bits == bits
        and index.engine == engine
        and index.id_type is id_type
    )


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("n", [0, 1, 7, 64, 1000])
def test_all_sizes_equal_brute_force(rng, engine, n):
    for bits in (32, 64):
        index, brute = both(rng, n, bits, engine=engine)
        for queries in (0, 1, 40):
            for k in (0, 1, n, n + 5):
                assert_same(index, brute, clustered(rng, queries, bits), k)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("flips", [0.03, 0.5])
@pytest.mark.parametrize("bits", [16, 64, 128])
def test_100_000_codes_equal_a_sort(rng, engine, bits, flips):
    count = (
        100_000 if engine in LOCAL_ENGINES else 10_000
    )  # a server takes seconds per 100,000 items
    codes = clustered(rng, count, bits, rng.permutation(count), flips=flips, centroids=100)
    index = Index.build(
        codes, engine=engine, codewords=clustered(rng, 100, bits, flips=0, centroids=100)
    )
    queries = clustered(rng, 5, bits, flips=flips, centroids=100)
    signs, database = queries.signs().astype(np.float32), codes.signs().astype(np.float32)
    distances = ((bits - signs @ database.T) / 2).astype(int)
    for threads in (1, 2):
        hits = index.search(queries, 50, threads=threads)
        for row in range(5):
            best = np.lexsort((codes.ids, distances[row]))[:50]
            assert hits.ids[row].tolist() == codes.ids[best].tolist()
            assert hits.distances[row].tolist() == distances[row, best].tolist()
    assert hits.exact


@pytest.mark.parametrize("engine", ENGINES)
def test_filters_by_radius_labels_and_ids(rng, engine):
    index, brute = both(rng, 500, 64, engine=engine, codewords=rng.choice([-1, 1], (5, 64)))
    queries = clustered(rng, 4, 64)
    some = rng.choice(index.ids, 60, replace=False).tolist()
    for k in (1, 20, 600):
        for radius in (0, 3, 8, 64, 1000):
            assert_same(index, brute, queries, k, radius=radius)
        assert_same(index, brute, queries, k, labels=2)
        assert_same(index, brute, queries, k, labels=[0, 3], radius=9)
        assert_same(index, brute, queries, k, labels=[77])
        assert_same(index, brute, queries, k, ids=[*some, 10**9])
        assert_same(index, brute, queries, k, ids=some, labels=1)
        assert_same(index, brute, queries, k, ids=[])


@pytest.mark.parametrize("engine", ENGINES)
def test_within_returns_all_items_in_the_radius(rng, engine):
    index, brute = both(rng, 900, 32, engine=engine)
    queries = clustered(rng, 5, 32)
    for radius in (0, 2, 7, 32):
        hits = index.within(queries, radius)
        expected = brute.search(queries, 900, radius=radius)
        assert as_lists(hits) == expected
        assert hits.ids.shape[1] == max(map(len, expected))
    assert as_lists(index.within(queries, 7, labels=1)) == brute.search(
        queries, 900, radius=7, labels=[1]
    )


@pytest.mark.parametrize("engine", ENGINES)
def test_adding_removing_and_updating(rng, engine, tmp_path):
    codewords = rng.choice([-1, 1], (5, 48))
    index, brute = both(rng, 400, 48, engine=engine, id_type=str, codewords=codewords)
    queries = clustered(rng, 5, 48)
    for turn in range(12):
        new = clustered(rng, 30, 48, np.array([f"new {turn} {number}" for number in range(30)]))
        index.add(new)
        brute.put(new)
        removed = rng.choice(sorted(brute.items), 25, replace=False)
        index.remove(removed)
        for each in removed.tolist():
            del brute.items[each]
        ids = np.array([*rng.choice(sorted(brute.items), 9, replace=False), f"other {turn}"])
        changed = clustered(rng, 10, 48, ids)
        labels = [["a", turn]] * 10
        for _ in range(2):  # an update is idempotent
            index.update(changed, labels)
        brute.put(changed, labels)
        assert len(index) == len(brute.items)
        assert_same(index, brute, queries, 40)
        assert_same(index, brute, queries, 40, labels=["a", 2])
        if turn % 4 == 3:
            index.save(tmp_path / "x.index")
            index = Index.open(tmp_path / "x.index")
    assert index.ids.tolist() == sorted(brute.items)
    codes = index.codes()
    assert codes.ids.tolist() == index.ids.tolist()
    assert all(
        (row == brute.items[each][0]).all()
        for row, each in zip(codes.signs(), codes.ids.tolist(), strict=True)
    )


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("id_type", [int, str])
def test_codes_of_some_items(rng, engine, id_type, tmp_path):
    index, brute = both(
        rng, 200, 40, engine=engine, id_type=id_type, codewords=rng.choice([-1, 1], (5, 40))
    )
    new = clustered(
        rng,
        20,
        40,
        np.array([10**6 + each if id_type is int else f"z {each}" for each in range(20)]),
    )
    index.add(new)
    brute.put(new)
    removed = index.ids[50]
    index.remove([removed])
    for turn in range(2):
        some = rng.permutation(index.ids)[:60]
        codes = index.codes(some)
        assert codes.bits == 40 and codes.ids.tolist() == some.tolist()
        assert all(
            (row == brute.items[each][0]).all()
            for row, each in zip(codes.signs(), some.tolist(), strict=True)
        )
        assert (
            len(index.codes([])) == 0
            and index.codes(some[[3, 3]]).ids.tolist() == some[[3, 3]].tolist()
        )
        with pytest.raises(UsageError, match="does not have"):
            index.codes([some[0], removed])
        if turn == 0:
            index.save(tmp_path / "i")
            index = Index.open(tmp_path / "i")


@pytest.mark.parametrize("engine", ENGINES)
def test_items_carry_path_and_labels(rng, engine, tmp_path):
    codes = clustered(rng, 3, 16, ["b", "a", "c"])
    index = Index.build(codes, [["x", 7], [], ["y"]], ["/p/b.jpg", None, "/p/c.jpg"], engine=engine)
    expected = [("c", "/p/c.jpg", ("y",)), ("b", "/p/b.jpg", (7, "x")), ("a", None, ())]
    assert index.get(["c", "b", "a"]) == expected
    index.save(tmp_path / "i")
    assert Index.open(tmp_path / "i").get(["c", "b", "a"]) == expected
    assert index.has(np.array(["a", "z"])).tolist() == [True, False]
    with pytest.raises(UsageError, match="does not have 'z'"):
        index.get(["z"])


@pytest.mark.parametrize("engine", ENGINES)
def test_label_matrices_and_names(rng, engine):
    codes = clustered(rng, 3, 16)
    matrix = Index.build(codes, np.array([[0, 1, 1], [0, 0, 0], [1, 0, 0]]), engine=engine)
    assert [item.labels for item in matrix.get([0, 1, 2])] == [(1, 2), (), (0,)]
    names = Index.build(codes, np.array(["cat", "dog", "cat"]), engine=engine)
    assert sorted(names.search(codes[[0]], 3, labels="cat").ids[0].tolist()) == [-1, 0, 2]


@pytest.mark.parametrize("engine", ENGINES)
def test_approximate_results_are_marked(rng, engine):
    codes = clustered(rng, 3000, 64, flips=0.5)
    index = Index.build(codes, engine=engine, codewords=rng.choice([-1, 1], (30, 64)))
    queries = clustered(rng, 20, 64, flips=0.5)
    true, fast = index.search(queries, 10), index.search(queries, 10, probes=1)
    right = (true.ids == fast.ids).all(axis=1)
    assert right[fast.exact_rows].all()  # rows marked exact are exact
    assert fast.exact == fast.exact_rows.all()
    assert index.search(queries, 10, probes=30).exact
    if engine == "routed" and native.available():  # the numpy implementation compares every code
        assert not fast.exact and not right.all()


@pytest.mark.parametrize("engine", ENGINES)
def test_invalid_arguments_are_refused(rng, engine):
    codes = clustered(rng, 5, 16)
    index = Index.build(codes, engine=engine)
    before = index.ids.tolist()
    calls = [
        (lambda: index.add(codes), "already has 0, 1, 2 and 2 more"),
        (lambda: index.remove([3, 77]), "does not have 77"),
        (lambda: index.remove(["a"]), "ids of this index are int"),
        (lambda: index.add(clustered(rng, 2, 16, ["a", "b"])), "ids of this index are int"),
        (lambda: index.add(clustered(rng, 2, 16, [8, 8])), "unique, got 8 twice"),
        (lambda: index.add(clustered(rng, 2, 24, [8, 9])), "16 bits, got codes of 24"),
        (
            lambda: index.add(clustered(rng, 2, 16, [8, 9]), labels=[1]),
            "2 items need 2 labels, got 1",
        ),
        (
            lambda: index.add(clustered(rng, 2, 16, [8, 9]), paths=["a"]),
            "2 items need 2 paths, got 1",
        ),
        (
            lambda: index.add(clustered(rng, 2, 16, [8, 9]), labels=[1.5, 2]),
            "label must be a string or an integer",
        ),
        (
            lambda: index.add(clustered(rng, 2, 16, [8, 9]), labels=np.full((2, 2), 3)),
            "only 0 and 1",
        ),
        (lambda: index.search(clustered(rng, 2, 24)), "16 bits, got codes of 24"),
        (lambda: index.search(codes, -1), "k must be an integer >= 0, got -1"),
        (lambda: index.search(codes, 2.7), "k must be an integer >= 0, got 2.7"),
        (lambda: index.search(codes, True), "k must be an integer >= 0, got True"),
        (lambda: index.search(codes, np.float64(3)), "k must be an integer"),
        (lambda: index.search(codes, radius=1.5), "radius must be an integer"),
        (lambda: index.search(codes, radius=-1), "radius must be an integer >= 0, got -1"),
        (lambda: index.search(codes, probes=0), "probes must be an integer >= 1, got 0"),
        (lambda: index.search(codes.packed[:, :1]), r"must be uint8 \(n, 2\), got"),
        (lambda: Index.build(clustered(rng, 2, 7)), "bits must be between 8 and 512, got 7"),
        (lambda: Index.build(clustered(rng, 2, 513)), "bits must be between 8 and 512, got 513"),
        (lambda: Index.build(codes, engine=engine[:-1]), f"Did you mean '{engine}'"),
        (lambda: Index.build(codes, engine=engine, codeword=1), "option"),
        (
            lambda: Index.build(codes, engine=engine, codewords=np.ones((3, 17))),
            "codewords must have the shape",
        ),
    ]
    for call, message in calls:
        with pytest.raises(UsageError, match=message):
            call()
    assert index.ids.tolist() == before


@pytest.mark.parametrize("engine", ENGINES)
def test_an_empty_index_takes_ids_of_either_type(rng, engine, tmp_path):
    for id_type in (int, str):
        index = Index.build(clustered(rng, 0, 16), engine=engine)
        index.save(tmp_path / id_type.__name__)
        index = Index.open(tmp_path / id_type.__name__)
        assert (
            len(index) == 0
            and index.id_type is None
            and len(index.ids) == 0
            and len(index.codes()) == 0
        )
        index.add(clustered(rng, 3, 16, shuffled_ids(rng, 3, id_type)))
        assert index.id_type is id_type
        index.remove(index.ids)
        assert len(index) == 0 and index.search(clustered(rng, 2, 16), 3).counts.tolist() == [0, 0]


@pytest.mark.parametrize("engine", ENGINES)
def test_the_index_copies_its_codes(rng, engine):
    codes = clustered(rng, 50, 64)
    index = Index.build(codes, engine=engine)
    before = index.codes().packed.copy()
    codes.packed[:] = 0
    assert np.array_equal(index.codes().packed, before)


@pytest.mark.parametrize("engine", ENGINES)
def test_packed_arrays_as_queries(rng, engine):
    codes = clustered(rng, 50, 20)
    index = Index.build(codes, engine=engine)
    assert np.array_equal(index.search(codes.packed[:3], 5).ids, index.search(codes[:3], 5).ids)
    assert np.array_equal(unpack(index.codes().packed, 20), codes.signs())


@pytest.mark.parametrize("engine", ENGINES)
def test_a_huge_k_needs_no_memory(rng, engine):
    codes = clustered(rng, 50, 64)
    hits = Index.build(codes, engine=engine).search(codes[:2], 10**15)
    assert hits.ids.shape == (2, 50) and hits.counts.tolist() == [50, 50]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("bits", [32, 64, 128])
def test_queries_at_any_address(rng, engine, bits):
    """A foreign buffer may start at an address that is not a multiple of 8."""
    codes = clustered(rng, 300, bits)
    index = Index.build(codes, engine=engine, codewords=rng.choice([-1, 1], (5, bits)))
    data = b"x" + codes.packed[:9].tobytes()
    queries = np.frombuffer(data, np.uint8, offset=1).reshape(9, -1)
    assert np.array_equal(index.search(queries, 5).ids, index.search(codes[:9], 5).ids)


@pytest.mark.parametrize("engine", ENGINES)
def test_signs_and_bits_as_codes(rng, engine):
    """`build` and `search` take everything that `as_codes` takes."""
    signs = rng.choice([-1, 1], (20, 24))
    index = Index.build(signs, engine=engine)
    expected = index.search(pack(signs[:3]), 5)
    for queries in (signs[:3], signs[:3].tolist(), signs[:3] > 0, signs[:3].astype(np.float32)):
        assert np.array_equal(index.search(queries, 5).ids, expected.ids)
    assert expected.ids[:, 0].tolist() == [0, 1, 2] and index.bits == 24
