"""The compiled search equals numpy and a sort, for every instruction set and kind of table."""

from __future__ import annotations

import os
import signal
import time

import numpy as np
import pytest
from instruction_sets import every_instruction_set

from hadahash import native
from hadahash.codes import Codes, hamming, pack
from hadahash.errors import UsageError
from hadahash.index import Index
from hadahash.index.engines import routed
from hadahash.index.engines.routed import learn_centroids, routed_table
from hadahash.native import search, tables

WIDTHS = [8, 20, 32, 40, 64, 100, 128, 192, 256, 320, 384, 448, 512, 700]
compiled = pytest.mark.skipif(
    not native.available(), reason="the numpy implementation compares every code"
)


def sorted_keys(table, queries, k, limits, allowed=None):
    """The expected keys, by sorting all of them."""
    ordinals = np.arange(len(table)) if table.ordinals is None else table.ordinals.astype(np.int64)
    keys = (
        hamming(queries.view(np.uint8), table.rows.view(np.uint8)).astype(np.uint64)
        << np.uint64(32)
    ) | ordinals.astype(np.uint64)
    if allowed is not None:
        keys[:, ~allowed] = limits[:, None]
    keys = np.sort(np.minimum(keys, limits[:, None]), axis=1)[:, :k]
    return np.concatenate(
        [keys, np.repeat(limits[:, None], max(0, k - keys.shape[1]), axis=1)], axis=1
    )


def limits_of(queries, radius):
    return np.full(len(queries), (radius + 1) << 32, np.uint64)


def make_tables(rng, n, bits, centroids=5):
    """A flat table, routed tables with fine blocks and with whole shells, and queries; many ties."""
    few = rng.choice([-1, 1], (12, bits))
    values = few[rng.integers(0, 12, n)] * rng.choice([1, -1], (n, bits), p=[0.97, 0.03])
    rows, centroids = tables.rows_of(pack(values)), tables.rows_of(pack(few[:centroids]))
    fine = routed_table(rows, centroids, bits)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(routed, "_MIN_BLOCK_BYTES", np.inf)
        coarse = routed_table(rows, centroids, bits)
    assert fine.partition.subdistances is not None and coarse.partition.subdistances is None
    return tables.Table(rows), fine, coarse, tables.rows_of(pack(values[:5]))


@every_instruction_set
@pytest.mark.parametrize("bits", WIDTHS)
def test_every_instruction_set_equals_a_sort(rng, bits, level):
    *tables_of_codes, near = make_tables(rng, 1500, bits)
    queries = np.concatenate([near[:2], tables.rows_of(pack(rng.choice([-1, 1], (3, bits))))])
    for table in tables_of_codes:
        mask = rng.random(1500) < 0.3
        mask[300:900] = False
        for allowed in (None, mask):
            for k, radius in ((1, bits), (9, bits), (700, bits), (1600, bits), (50, bits // 2)):
                limits = limits_of(queries, radius)
                bits_of = None if allowed is None else tables.bitmap(allowed)
                found = search.nearest(
                    table, queries, k=k, limits=limits, allowed=bits_of, level=level
                )
                assert np.array_equal(found.keys, sorted_keys(table, queries, k, limits, allowed))
                assert (
                    found.unvisited_lower_bound is None
                    or (found.unvisited_lower_bound >= found.keys[:, -1]).all()
                )


@pytest.mark.parametrize("bits", [16, 64, 130])
def test_numpy_gives_the_same_keys(rng, bits, monkeypatch):
    *tables_of_codes, queries = make_tables(rng, 900, bits)
    mask = tables.bitmap(rng.random(900) < 0.5)
    for table in tables_of_codes:
        for allowed in (None, mask):
            options = {"k": 30, "limits": limits_of(queries, bits), "allowed": allowed}
            found = search.nearest(table, queries, **options)
            with monkeypatch.context() as patch:
                patch.setenv("HADAHASH_NATIVE", "0")
                plain = search.nearest(table, queries, **options)
            assert np.array_equal(found.keys, plain.keys)


@pytest.mark.parametrize("queries", [1, 3, 70])
@pytest.mark.parametrize("n", [63, 64, 511, 512, 513, 4097, 50_000])
def test_threads_and_table_sizes(rng, n, queries, monkeypatch):
    monkeypatch.setattr(search, "_BYTES_PER_THREAD", 1)
    for table in make_tables(rng, n, 64)[:3]:
        query_rows = tables.rows_of(pack(rng.choice([-1, 1], (queries, 64))))
        expected = sorted_keys(table, query_rows, 20, limits_of(query_rows, 64))
        for threads in (1, 2, 3):
            found = search.nearest(
                table, query_rows, k=20, limits=limits_of(query_rows, 64), threads=threads
            )
            assert np.array_equal(found.keys, expected)


def test_all_codes_equal(rng):
    table = tables.Table(np.zeros((30_000, 1), np.uint64))
    found = search.nearest(table, np.array([[7]], np.uint64), k=1000, limits=limits_of([0], 64))
    assert found.keys[0].tolist() == [(3 << 32) | ordinal for ordinal in range(1000)]
    routed = routed_table(table.rows, np.zeros((1, 1), np.uint64), 64)
    found = search.nearest(routed, np.array([[7]], np.uint64), k=1000, limits=limits_of([0], 64))
    assert found.keys[0].tolist() == [(3 << 32) | ordinal for ordinal in range(1000)]
    assert (
        len(routed.partition.starts) > 2 and len(routed.partition.shell_distances) > 1
    )  # split into pieces that fit into the cache


@pytest.mark.parametrize("bits", WIDTHS)
def test_blocks_have_equal_subdistances_and_ascending_ordinals(rng, bits):
    flat, fine, coarse, _ = make_tables(rng, 2000, bits)
    quarter = (
        np.arange(fine.rows.view(np.uint8).shape[1] * 8)
        * 4
        // (fine.rows.view(np.uint8).shape[1] * 8)
    )
    for table in (fine, coarse):
        assert np.array_equal(table.rows, flat.rows[table.ordinals])
        for (number, distance, start), end in zip(
            table.partition.blocks(), table.partition.starts[1:], strict=True
        ):
            differ = np.unpackbits(
                (table.rows[start:end] ^ table.partition.centroids[number]).view(np.uint8), axis=1
            )
            assert (differ.sum(axis=1) == distance).all() and (
                np.diff(table.ordinals[start:end].astype(int)) > 0
            ).all()
            if table is fine:
                block = np.searchsorted(table.partition.starts, start)
                counts = np.stack(
                    [differ[:, quarter == each].sum(axis=1) for each in range(4)], axis=1
                )
                assert (counts == table.partition.subdistances[block]).all()
    again = tables.partition(
        fine.partition.centroids, fine.partition.blocks(), fine.rows, by_subdistances=True
    )
    assert all(
        np.array_equal(ours, theirs) for ours, theirs in zip(again, fine.partition, strict=True)
    )


@compiled
def test_few_probes_leave_lists_unvisited(rng):
    _, table, *_ = make_tables(rng, 3000, 64)
    queries = tables.rows_of(pack(rng.choice([-1, 1], (8, 64))))
    options = {"k": 20, "limits": limits_of(queries, 64)}
    true = search.nearest(table, queries, **options).keys
    sizes = []
    for probes in (1, 2, 5):
        found = search.nearest(table, queries, probes=probes, **options)
        exact = found.unvisited_lower_bound >= found.keys[:, -1]
        assert np.array_equal(found.keys[exact], true[exact])
        sizes.append(int((found.keys == true).all(axis=1).sum()))
    assert (
        sizes == sorted(sizes)
        and sizes[-1] == 8
        and sizes[0] < 8
        and (found.unvisited_lower_bound == search.NO_BOUND).all()
    )


@compiled
def test_routing_compares_few_codes(rng):
    """In clusters, the nearest list alone gives exact results for almost all queries."""
    few = rng.choice([-1, 1], (50, 64))
    values = few[rng.integers(0, 50, 20_000)] * rng.choice([1, -1], (20_000, 64), p=[0.95, 0.05])
    table = routed_table(tables.rows_of(pack(values)), tables.rows_of(pack(few)), 64)
    queries = tables.rows_of(pack(values[:40]))
    found = search.nearest(table, queries, k=10, limits=limits_of(queries, 64), probes=1)
    assert (found.unvisited_lower_bound >= found.keys[:, -1]).mean() > 0.9


@compiled
@pytest.mark.parametrize("flips, routes", [(0.05, True), (0.5, False)])
def test_a_table_is_routed_only_if_that_is_faster(rng, flips, routes, monkeypatch):
    monkeypatch.undo()
    few = rng.choice([-1, 1], (20, 64))
    values = few[rng.integers(0, 20, 70_000)] * rng.choice(
        [1, -1], (70_000, 64), p=[1 - flips, flips]
    )
    for count, expected in ((70_000, routes), (60_000, False)):  # few codes are always scanned
        index = Index.build(
            Codes(packed=pack(values[:count]), bits=64), engine="routed", codewords=few
        )
        table = index._segments[0].codes.load()
        assert (table.partition is not None) is expected
    centroids = tables.rows_of(pack(few))
    assert (
        routed.routing_is_worthwhile(routed_table(tables.rows_of(pack(values)), centroids, 64), 64)
        is routes
    )


def test_queries_far_from_all_codes(rng):
    """Almost nothing can be skipped, and the result is still exact."""
    _, fine, coarse, _ = make_tables(rng, 20_000, 64)
    queries = tables.rows_of(pack(rng.choice([-1, 1], (70, 64))))
    for table in (fine, coarse):
        for count in (1, 70):
            query_rows = queries[:count]
            found = search.nearest(table, query_rows, k=40, limits=limits_of(query_rows, 64))
            assert np.array_equal(
                found.keys, sorted_keys(table, query_rows, 40, limits_of(query_rows, 64))
            )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_threads_after_a_fork(rng, monkeypatch):
    """A child process starts its own threads, as those of the parent do not survive the fork."""
    monkeypatch.setattr(search, "_BYTES_PER_THREAD", 1)
    table, *_, queries = make_tables(rng, 5000, 64)
    options = {"k": 3, "limits": limits_of(queries, 64), "threads": 2}
    before = search.nearest(table, queries, **options).keys
    child = os.fork()
    if child == 0:
        os._exit(0 if np.array_equal(search.nearest(table, queries, **options).keys, before) else 1)
    for _ in range(100):
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        time.sleep(0.1)
    else:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert done and os.waitstatus_to_exitcode(status) == 0


def test_learned_centroids_find_the_clusters(rng):
    few = rng.choice([-1, 1], (8, 64))
    values = few[rng.integers(0, 8, 20_000)] * rng.choice([1, -1], (20_000, 64), p=[0.95, 0.05])
    centroids = learn_centroids(pack(values), 64)
    assert np.array_equal(centroids, learn_centroids(pack(values), 64))
    assert hamming(pack(few), centroids).min(axis=1).max() <= 2
    assert len(learn_centroids(np.zeros((5000, 8), np.uint8), 64)) == 1


@pytest.mark.parametrize("flips", [0.03, 0.5])
def test_routing_by_learned_centroids_is_exact(make, flips, monkeypatch):
    monkeypatch.setattr(routed, "_MIN_LEARNED_BYTES", 1000)
    codes, queries = make(8000, 64, flips=flips), make(30, 64, flips=flips)
    index = Index.build(codes, engine="routed")
    assert index._segments[0].codes.load().partition is not None
    hits, true = index.search(queries, 15), Index.build(codes).search(queries, 15)
    assert (
        hits.exact
        and np.array_equal(hits.ids, true.ids)
        and np.array_equal(hits.distances, true.distances)
    )


def test_arrays_that_do_not_fit_are_refused(rng):
    flat, routed, _, queries = make_tables(rng, 100, 64)
    for wrong in (
        queries.view(np.uint32),
        queries.astype(np.int64),
        queries[:, [0, 0]],
        queries[0],
    ):
        with pytest.raises(UsageError):
            search.nearest(flat, wrong, k=1, limits=limits_of(queries, 64))
    wrong = [
        [(0, 0, 0), (1, 0, 200)],
        [(0, 0, 5), (1, 0, 50)],
        [(0, 0, 0), (1, 1 << 20, 50)],
        [(0, 0, 50), (1, 0, 0)],
    ]
    wrong += [
        [(0, 0, 0), (9, 0, 50)],
        [(1, 0, 0), (0, 0, 50)],
        [(0, 5, 0), (0, 4, 50)],
        [(0, -1, 0)],
        [],
    ]
    for listed in wrong:
        with pytest.raises(UsageError, match="blocks"):
            tables.partition(
                routed.partition.centroids,
                np.array(listed, np.int64).reshape(-1, 3),
                flat.rows,
                by_subdistances=False,
            )


def test_rows_and_back(rng):
    for bits in WIDTHS:
        packed = pack(rng.choice([-1, 1], (7, bits)))
        rows = tables.rows_of(packed)
        assert rows.dtype == (np.uint32 if bits <= 32 else np.uint64)
        assert np.array_equal(tables.packed_of(rows, bits), packed)
    assert native.available() or native.describe() == "numpy"


def test_bits_are_cleared_in_a_copy(rng):
    mask = rng.random(1000) < 0.7
    positions = rng.integers(0, 1000, 50)
    expected = mask.copy()
    expected[positions] = False
    before = tables.bitmap(mask)
    for kind in (np.int64, np.uint32):
        found = tables.cleared(before, positions.astype(kind))
        assert np.array_equal(found, tables.bitmap(expected))
    assert np.array_equal(before, tables.bitmap(mask))


@pytest.mark.parametrize("engine", ["exact", "routed"])
def test_the_bitmap_of_the_items_left_is_that_of_all_removals(rng, make, engine, monkeypatch):
    monkeypatch.setattr(routed, "_MIN_LEARNED_BYTES", 1000)
    index = Index.build(make(3000, 64), engine=engine)
    assert (index._segments[0].codes.load().partition is None) is (engine == "exact")
    left, queries = np.ones(3000, bool), make(5, 64)
    for _ in range(4):
        gone = rng.choice(np.flatnonzero(left), 100, replace=False)
        left[gone] = False
        index.remove(gone)
        segment = index._segments[0]
        hits = index.search(queries, 20)
        assert left[hits.ids].all()
        assert np.array_equal(segment._live_bitmap, segment._bitmap(left))


def test_misaligned_rows_are_copied_or_refused(rng):
    """C code reads words: an address that is not a multiple of 8 is undefined behavior."""
    packed = pack(rng.choice([-1, 1], (50, 64)))
    shifted = np.frombuffer(b"x" + packed.tobytes(), np.uint8, offset=1).reshape(50, 8)
    rows = tables.rows_of(shifted)
    assert rows.flags.aligned and np.array_equal(rows, tables.rows_of(packed))
    with pytest.raises(UsageError, match="aligned"):
        tables.Table(shifted.view(np.uint64))
    with pytest.raises(UsageError, match="aligned"):
        limits = limits_of(packed, 64)
        search.nearest(tables.Table(rows), shifted.view(np.uint64), k=1, limits=limits)
