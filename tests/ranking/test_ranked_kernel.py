"""The compiled ranked search equals a sort of the reference's points, for all kinds of ranking."""

from __future__ import annotations

import numpy as np
import pytest
from instruction_sets import every_instruction_set

import hadahash as hh
from hadahash.codes import hamming, pack
from hadahash.errors import UsageError
from hadahash.index.engines import routed
from hadahash.native import ranked, tables
from hadahash.native.ranked import LOWEST, most_points
from hadahash.native.ranked_tables import reference_points
from hadahash.ranking import Ranking, prepare

CLASSES = 9
LENGTHS = [
    (8, 16),
    (13, 8),
    (20, 40),
    (32, 33),
    (33, 64),
    (64, 128),
    (100, 30),
    (128, 64),
    (512, 7),
]
KINDS = ["single", "classifier", "multi", "none"]


def make_ranking(rng, kind, bits, *, classes=CLASSES):
    if kind == "none":
        return Ranking(class_weight=int(rng.integers(1, 5)))
    codewords = rng.choice([-1, 1], (classes, bits))
    if kind != "multi":
        return Ranking(codewords, sharpness=float(rng.uniform(2, 16)))
    slopes = rng.uniform(-2, 12, (2, classes))
    offsets = rng.uniform(-6, 1, (2, classes))
    fitted = dict(
        zip(("slope", "query_slope", "offset", "query_offset"), [*slopes, *offsets], strict=True)
    )
    return Ranking(codewords, multilabel=True, **fitted)


def make_items(rng, n, bits, content_bits, codewords, flips=0.1):
    """Codes around a few centers, with many equal ones, and content with ties."""
    centers = rng.choice([-1, 1], (6, bits)) if codewords is None else codewords
    signs = centers[rng.integers(0, len(centers), n)]
    signs = signs * rng.choice([1, -1], (n, bits), p=[1 - flips, flips])
    content = rng.choice([-1, 1], (max(1, n // 3), content_bits))[
        rng.integers(0, max(1, n // 3), n)
    ]
    return tables.rows_of(pack(signs)), tables.rows_of(pack(content))


def make_queries(rng, count, bits, content_bits, codewords, kind):
    centers = rng.choice([-1, 1], (6, bits)) if codewords is None else codewords
    values = centers[rng.integers(0, len(centers), count)] * rng.uniform(-0.3, 1, (count, bits))
    values[0] = np.where(values[0] >= 0, 1, -1)
    values[1] = rng.uniform(-1, 1, bits)
    content = rng.normal(size=(count, content_bits))
    content[0] = np.where(content[0] >= 0, 1, -1)
    p = rng.dirichlet(np.full(CLASSES, 0.3), count) if kind == "classifier" else None
    return hh.Queries(values, content=content, probabilities=p)


def expected(prepared, table, content, k, floors=None, radius=None, allowed=None):
    """The k best by sorting all points of the reference."""
    ordinals = np.arange(len(table)) if table.ordinals is None else table.ordinals.astype(np.int64)
    content = None if content is None else content[ordinals]
    points = reference_points(prepared.tables, table.rows, content)
    distances = hamming(prepared.tables.codes.view(np.uint8), table.rows.view(np.uint8))
    rows = []
    for row, (each, near) in enumerate(zip(points.tolist(), distances.tolist(), strict=True)):
        found = sorted(
            (-value, ordinal, distance)
            for i, (value, ordinal, distance) in enumerate(
                zip(each, ordinals.tolist(), near, strict=True)
            )
            if (floors is None or value >= floors[row])
            and (radius is None or distance <= radius)
            and (allowed is None or allowed[i])
        )[:k]
        rows.append(found + [(-LOWEST, -1, -1)] * (k - len(found)))
    return rows


def as_rows(found):
    columns = (-found.points, found.ordinals, found.distances)
    return [
        list(zip(*row, strict=True)) for row in zip(*(c.tolist() for c in columns), strict=True)
    ]


@pytest.fixture
def small_phases(monkeypatch):
    """Small tables go through all phases, in several threads."""
    for name, value in {"_SAMPLE": 128, "_PIECE": 64, "_ITEMS_PER_THREAD": 300}.items():
        monkeypatch.setattr(ranked, name, value)


@every_instruction_set
@pytest.mark.parametrize("rank", ["hamming", "class", "photo"])
@pytest.mark.parametrize("kind", KINDS)
def test_all_rankings_and_lengths_equal_a_sort(rng, small_phases, kind, rank, level):
    for bits, content_bits in LENGTHS:
        ranking = make_ranking(rng, kind, bits)
        rows, content = make_items(rng, 1111, bits, content_bits, ranking.codewords)
        queries = make_queries(rng, 4, bits, content_bits, ranking.codewords, kind)
        weight = float(rng.choice([0, 0.3, 2.0, 30.0])) if rank == "photo" else None
        prepared = prepare(queries, ranking, rank, weight)
        content = content if rank == "photo" else None
        for k in (1, 12, 1200):
            found = most_points(
                prepared.tables, tables.Table(rows), content, k=k, bits=bits, level=level
            )
            assert as_rows(found) == expected(prepared, tables.Table(rows), content, k)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rank", ["class", "photo"])
def test_random_codes_where_bounds_exclude_little(rng, small_phases, kind, rank):
    """No code is near a codeword, and no query is sure of a class; many items tie."""
    for bits, content_bits, classes in ((16, 8, 3), (32, 24, 40), (64, 128, 100), (72, 64, 17)):
        ranking = make_ranking(
            rng, kind if kind != "classifier" else "single", bits, classes=classes
        )
        rows, content = make_items(rng, 2222, bits, content_bits, ranking.codewords, flips=0.5)
        values = rng.uniform(-0.2, 0.2, (3, bits))
        values[0] = np.sign(values[0])
        p = rng.dirichlet(np.full(classes, 50.0), 3) if kind == "classifier" else None
        z = rng.normal(size=(3, content_bits)).round(int(rng.integers(0, 2)))
        queries = hh.Queries(values, content=z, probabilities=p)
        weight = float(rng.choice([0, 0.3, 2.0, 30.0])) if rank == "photo" else None
        prepared = prepare(queries, ranking, rank, weight)
        content = content if rank == "photo" else None
        for k in (1, 10, 500):
            found = most_points(prepared.tables, tables.Table(rows), content, k=k, bits=bits)
            assert as_rows(found) == expected(prepared, tables.Table(rows), content, k)


@pytest.mark.parametrize("rank", ["class", "photo"])
@pytest.mark.parametrize("kind", KINDS)
def test_filters_floors_and_radius(rng, small_phases, kind, rank):
    ranking = make_ranking(rng, kind, 24)
    rows, content = make_items(rng, 900, 24, 32, ranking.codewords)
    table = tables.Table(rows)
    prepared = prepare(make_queries(rng, 3, 24, 32, ranking.codewords, kind), ranking, rank)
    content = content if rank == "photo" else None
    points = np.sort(reference_points(prepared.tables, rows, content), axis=1)
    mask = rng.random(900) < 0.4
    mask[200:500] = False
    for floors in (None, points[:, -5], points[:, 300], points[:, -1] + 1):
        for radius in (None, 0, 4):
            for allowed in (None, mask, np.zeros(900, bool)):
                limits = {"floors": floors, "radius": radius}
                bits = None if allowed is None else tables.bitmap(allowed)
                found = most_points(
                    prepared.tables, table, content, k=20, bits=24, allowed=bits, **limits
                )
                wanted = expected(prepared, table, content, 20, allowed=allowed, **limits)
                assert as_rows(found) == wanted


@pytest.mark.parametrize("rank", ["hamming", "class", "photo"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("own", [True, False])
def test_routed_tables(rng, small_phases, monkeypatch, kind, rank, own):
    monkeypatch.setattr(routed, "_MIN_BLOCK_BYTES", 0)
    ranking = make_ranking(rng, kind, 40)
    centroids = ranking.codewords if own else None
    centroids = rng.choice([-1, 1], (5, 40)) if centroids is None else centroids
    rows, content = make_items(rng, 3000, 40, 16, ranking.codewords, flips=0.05)
    table = routed.routed_table(rows, tables.rows_of(pack(centroids)), 40)
    prepared = prepare(make_queries(rng, 5, 40, 16, ranking.codewords, kind), ranking, rank)
    content = content if rank == "photo" else None
    mask = rng.random(3000) < 0.5
    for k, allowed in ((1, None), (30, None), (30, mask), (3100, None)):
        bits = None if allowed is None else tables.bitmap(allowed)
        found = most_points(prepared.tables, table, content, k=k, bits=40, allowed=bits)
        assert as_rows(found) == expected(prepared, table, content, k, allowed=allowed)


@pytest.mark.parametrize("n", [1, 63, 64, 65, 257, 5000])
@pytest.mark.parametrize("count", [1, 40])
def test_sizes_and_threads(rng, small_phases, n, count):
    ranking = make_ranking(rng, "single", 64)
    rows, content = make_items(rng, n, 64, 128, ranking.codewords, flips=0.03)
    queries = make_queries(rng, max(2, count), 64, 128, ranking.codewords, "single")[:count]
    prepared = prepare(queries, ranking, "photo", 0.5)
    wanted = expected(prepared, tables.Table(rows), content, 10)
    for threads in (1, 2, 3):
        found = most_points(
            prepared.tables, tables.Table(rows), content, k=10, bits=64, threads=threads
        )
        assert as_rows(found) == wanted


@pytest.mark.parametrize("rank", ["hamming", "class", "photo"])
@pytest.mark.parametrize("kind", KINDS)
def test_numpy_gives_the_same(rng, kind, rank, monkeypatch):
    ranking = make_ranking(rng, kind, 30)
    rows, content = make_items(rng, 500, 30, 20, ranking.codewords)
    prepared = prepare(make_queries(rng, 3, 30, 20, ranking.codewords, kind), ranking, rank)
    content = content if rank == "photo" else None
    options = {"k": 25, "bits": 30, "radius": 20, "allowed": tables.bitmap(rng.random(500) < 0.8)}
    found = most_points(prepared.tables, tables.Table(rows), content, **options)
    scores = ranked.all_points(prepared.tables, rows, content, 30)
    monkeypatch.setenv("HADAHASH_NATIVE", "0")
    monkeypatch.setattr(ranked, "_SAMPLE", 100)
    plain = most_points(prepared.tables, tables.Table(rows), content, **options)
    assert as_rows(found) == as_rows(plain)
    assert np.array_equal(scores, reference_points(prepared.tables, rows, content))


def test_nothing_to_find(rng):
    ranking = make_ranking(rng, "single", 16)
    prepared = prepare(make_queries(rng, 2, 16, 8, ranking.codewords, "single"), ranking, "class")
    none = most_points(
        prepared.tables, tables.Table(np.zeros((0, 1), np.uint32)), None, k=3, bits=16
    )
    assert none.ordinals.tolist() == [[-1] * 3] * 2 and none.distances.tolist() == [[-1] * 3] * 2
    rows, _ = make_items(rng, 10, 16, 8, ranking.codewords)
    assert most_points(prepared.tables, tables.Table(rows), None, k=0, bits=16).points.shape == (
        2,
        0,
    )
    nobody = prepare(hh.Queries(np.zeros((0, 16))), ranking, "class")
    assert most_points(nobody.tables, tables.Table(rows), None, k=3, bits=16).points.shape == (0, 3)


def test_content_that_does_not_fit_is_refused(rng):
    """C code reads words: a misaligned address is undefined behavior, a short array worse."""
    rows, content = make_items(rng, 40, 64, 64, None)
    prepared = prepare(
        make_queries(rng, 2, 64, 64, None, "none"), make_ranking(rng, "none", 64), "photo", 1.0
    )
    shifted = np.frombuffer(b"x" + content.tobytes(), np.uint8, offset=1).view(np.uint64)
    for wrong, message in ((shifted.reshape(40, 1), "aligned"), (content[:39], "39 rows")):
        with pytest.raises(UsageError, match=message):
            most_points(prepared.tables, tables.Table(rows), wrong, k=3, bits=64)
        with pytest.raises(UsageError, match=message):
            ranked.all_points(prepared.tables, rows, wrong, 64)
