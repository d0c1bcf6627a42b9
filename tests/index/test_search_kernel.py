"""The compiled scan, at every level of CPU, with runs or without, gives the keys of its numpy stand-in and of a sort."""

from __future__ import annotations

import os
import signal
import time

import numpy as np
import pytest

from hadahash import native
from hadahash.codes import Codes, hamming, pack
from hadahash.errors import UsageError
from hadahash.index import Index, routed
from hadahash.index.engines.routed import learn_centroids, routed_table
from hadahash.native import search

WIDTHS = [8, 20, 32, 40, 64, 100, 128, 192, 256, 320, 384, 448, 512, 700]
LEVELS = [0, 1, 2, 3]
compiled = pytest.mark.skipif(
    not native.available(), reason="the numpy stand-in compares with every code"
)


def sorted_keys(table, queries, k, limits, allowed=None):
    """Every key, by sorting."""
    ranks = np.arange(len(table)) if table.ordinals is None else table.ordinals.astype(np.int64)
    keys = (
        hamming(queries.view(np.uint8), table.rows.view(np.uint8)).astype(np.uint64)
        << np.uint64(32)
    ) | ranks.astype(np.uint64)
    if allowed is not None:
        keys[:, ~allowed] = limits[:, None]
    keys = np.sort(np.minimum(keys, limits[:, None]), axis=1)[:, :k]
    return np.concatenate(
        [keys, np.repeat(limits[:, None], max(0, k - keys.shape[1]), axis=1)], axis=1
    )


def limits_of(queries, radius):
    return np.full(len(queries), (radius + 1) << 32, np.uint64)


def tables(rng, n, bits, centres=5):
    """A flat table and two routed ones of the same codes, full of ties: cut by quarters, and into whole rings. And queries."""
    few = rng.choice([-1, 1], (12, bits))
    values = few[rng.integers(0, 12, n)] * rng.choice([1, -1], (n, bits), p=[0.97, 0.03])
    rows, centres = search.rows_of(pack(values)), search.rows_of(pack(few[:centres]))
    fine = routed_table(rows, centres, bits)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(routed, "_MIN_BLOCK_BYTES", np.inf)
        coarse = routed_table(rows, centres, bits)
    assert fine.partition.subdistances is not None and coarse.partition.subdistances is None
    return search.Table(rows), fine, coarse, search.rows_of(pack(values[:5]))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("bits", WIDTHS)
def test_every_level_equals_a_sort(rng, bits, level):
    *tables_of_codes, near = tables(rng, 1500, bits)
    queries = np.concatenate([near[:2], search.rows_of(pack(rng.choice([-1, 1], (3, bits))))])
    for table in tables_of_codes:
        mask = rng.random(1500) < 0.3
        mask[300:900] = False
        for allowed in (None, mask):
            for k, radius in ((1, bits), (9, bits), (700, bits), (1600, bits), (50, bits // 2)):
                limits = limits_of(queries, radius)
                bits_of = None if allowed is None else search.bitmap(allowed)
                found = search.nearest(
                    table, queries, k=k, limits=limits, allowed=bits_of, level=level
                )
                assert np.array_equal(found.keys, sorted_keys(table, queries, k, limits, allowed))
                assert (
                    found.unvisited_lower_bound is None
                    or (found.unvisited_lower_bound >= found.keys[:, -1]).all()
                )


@pytest.mark.parametrize("bits", [16, 64, 130])
def test_numpy_gives_the_same(rng, bits, monkeypatch):
    *tables_of_codes, queries = tables(rng, 900, bits)
    mask = search.bitmap(rng.random(900) < 0.5)
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
def test_threads_and_odd_sizes(rng, n, queries, monkeypatch):
    monkeypatch.setattr(search, "_BYTES_PER_THREAD", 1)
    for table in tables(rng, n, 64)[:3]:
        asked = search.rows_of(pack(rng.choice([-1, 1], (queries, 64))))
        expected = sorted_keys(table, asked, 20, limits_of(asked, 64))
        for threads in (1, 2, 3):
            found = search.nearest(table, asked, k=20, limits=limits_of(asked, 64), threads=threads)
            assert np.array_equal(found.keys, expected)


def test_all_codes_equal(rng):
    table = search.Table(np.zeros((30_000, 1), np.uint64))
    found = search.nearest(table, np.array([[7]], np.uint64), k=1000, limits=limits_of([0], 64))
    assert found.keys[0].tolist() == [(3 << 32) | rank for rank in range(1000)]
    cut = routed_table(table.rows, np.zeros((1, 1), np.uint64), 64)
    found = search.nearest(cut, np.array([[7]], np.uint64), k=1000, limits=limits_of([0], 64))
    assert found.keys[0].tolist() == [(3 << 32) | rank for rank in range(1000)]
    assert (
        len(cut.partition.starts) > 2 and len(cut.partition.shell_distances) > 1
    )  # cut into pieces that fit the cache


@pytest.mark.parametrize("bits", WIDTHS)
def test_runs_have_equal_quarters_and_ascending_ranks(rng, bits):
    flat, fine, coarse, _ = tables(rng, 2000, bits)
    quarter = (
        np.arange(fine.rows.view(np.uint8).shape[1] * 8)
        * 4
        // (fine.rows.view(np.uint8).shape[1] * 8)
    )
    for table in (fine, coarse):
        assert np.array_equal(table.rows, flat.rows[table.ordinals])
        for (bucket, span, start), end in zip(
            table.partition.blocks(), table.partition.starts[1:], strict=True
        ):
            differ = np.unpackbits(
                (table.rows[start:end] ^ table.partition.centroids[bucket]).view(np.uint8), axis=1
            )
            assert (differ.sum(axis=1) == span).all() and (
                np.diff(table.ordinals[start:end].astype(int)) > 0
            ).all()
            if table is fine:
                run = np.searchsorted(table.partition.starts, start)
                counts = np.stack(
                    [differ[:, quarter == each].sum(axis=1) for each in range(4)], axis=1
                )
                assert (counts == table.partition.subdistances[run]).all()
    again = search.runs_of(
        fine.partition.centroids, fine.partition.blocks(), fine.rows, by_subdistances=True
    )
    assert all(
        np.array_equal(ours, theirs) for ours, theirs in zip(again, fine.partition, strict=True)
    )


@compiled
def test_probes_leave_something_unseen(rng):
    _, table, *_ = tables(rng, 3000, 64)
    queries = search.rows_of(pack(rng.choice([-1, 1], (8, 64))))
    options = {"k": 20, "limits": limits_of(queries, 64)}
    true = search.nearest(table, queries, **options).keys
    sizes = []
    for probes in (1, 2, 5):
        found = search.nearest(table, queries, probes=probes, **options)
        proven = found.unvisited_lower_bound >= found.keys[:, -1]
        assert np.array_equal(found.keys[proven], true[proven])
        sizes.append(int((found.keys == true).all(axis=1).sum()))
    assert (
        sizes == sorted(sizes)
        and sizes[-1] == 8
        and sizes[0] < 8
        and (found.unvisited_lower_bound == search.NO_BOUND).all()
    )


@compiled
def test_routing_looks_at_few_codes(rng):
    """In clusters, the certificate holds after the home bucket: almost nothing is left to sweep."""
    few = rng.choice([-1, 1], (50, 64))
    values = few[rng.integers(0, 50, 20_000)] * rng.choice([1, -1], (20_000, 64), p=[0.95, 0.05])
    table = routed_table(search.rows_of(pack(values)), search.rows_of(pack(few)), 64)
    queries = search.rows_of(pack(values[:40]))
    found = search.nearest(table, queries, k=10, limits=limits_of(queries, 64), probes=1)
    assert (found.unvisited_lower_bound >= found.keys[:, -1]).mean() > 0.9


@compiled
@pytest.mark.parametrize("flips, routes", [(0.05, True), (0.5, False)])
def test_a_table_is_routed_only_where_that_pays(rng, flips, routes, monkeypatch):
    monkeypatch.undo()
    few = rng.choice([-1, 1], (20, 64))
    values = few[rng.integers(0, 20, 70_000)] * rng.choice(
        [1, -1], (70_000, 64), p=[1 - flips, flips]
    )
    for count, expected in ((70_000, routes), (60_000, False)):  # few codes are scanned in any case
        index = Index.build(
            Codes(packed=pack(values[:count]), bits=64), engine="routed", codewords=few
        )
        table = index._segments[0].codes.load()
        assert (table.partition is not None) is expected
    centres = search.rows_of(pack(few))
    assert (
        routed.routing_is_worthwhile(routed_table(search.rows_of(pack(values)), centres, 64), 64)
        is routes
    )


def test_queries_unlike_any_code(rng):
    """Nothing can be left out, and the answer is still right."""
    _, fine, coarse, _ = tables(rng, 20_000, 64)
    queries = search.rows_of(pack(rng.choice([-1, 1], (70, 64))))
    for table in (fine, coarse):
        for count in (1, 70):
            asked = queries[:count]
            found = search.nearest(table, asked, k=40, limits=limits_of(asked, 64))
            assert np.array_equal(found.keys, sorted_keys(table, asked, 40, limits_of(asked, 64)))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_threads_after_a_fork(rng, monkeypatch):
    """The threads that wait for work stay behind in the parent; the child has its own."""
    monkeypatch.setattr(search, "_BYTES_PER_THREAD", 1)
    table, *_, queries = tables(rng, 5000, 64)
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


def test_learn_centroids_find_the_clusters(rng):
    few = rng.choice([-1, 1], (8, 64))
    values = few[rng.integers(0, 8, 20_000)] * rng.choice([1, -1], (20_000, 64), p=[0.95, 0.05])
    centres = learn_centroids(pack(values), 64)
    assert np.array_equal(centres, learn_centroids(pack(values), 64))
    assert hamming(pack(few), centres).min(axis=1).max() <= 2
    assert len(learn_centroids(np.zeros((5000, 8), np.uint8), 64)) == 1


@pytest.mark.parametrize("flips", [0.03, 0.5])
def test_routing_by_learn_centroids_is_exact(make, flips, monkeypatch):
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
    flat, cut, _, queries = tables(rng, 100, 64)
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
            search.runs_of(
                cut.partition.centroids,
                np.array(listed, np.int64).reshape(-1, 3),
                flat.rows,
                by_subdistances=False,
            )


def test_rows_and_back(rng):
    for bits in WIDTHS:
        packed = pack(rng.choice([-1, 1], (7, bits)))
        rows = search.rows_of(packed)
        assert rows.dtype == (np.uint32 if bits <= 32 else np.uint64)
        assert np.array_equal(search.packed_of(rows, bits), packed)
    assert native.available() or native.describe() == "numpy"
