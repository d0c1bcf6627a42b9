"""The walk over balls equals an exhaustive search, and fetches few items where codes are clustered."""

from __future__ import annotations

import numpy as np
import pytest
from test_ranked_kernel import KINDS, make_items, make_queries, make_ranking

import hadahash as hh
from hadahash.codes import hamming
from hadahash.errors import UsageError
from hadahash.native.ranked_bounds import ClassBounds, balls_of, linear_radius
from hadahash.native.ranked_tables import reference_points
from hadahash.native.tables import packed_of
from hadahash.ranking import Ranking, prepare
from hadahash.ranking.walk import Fetched, ranked_walk


def engine(packed, content, ids, log):
    """`within` over arrays; logs the number of items of each call."""

    def within(anchor, radius):
        near = hamming(anchor[None], packed)[0] <= radius
        log.append(int(near.sum()))
        return Fetched(ids[near], packed[near], None if content is None else content[near])

    return within


@pytest.mark.parametrize("strings", [False, True])
@pytest.mark.parametrize("rank", ["hamming", "class", "photo"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_walk_equals_a_sort(rng, kind, rank, strings):
    for bits, content_bits, flips in ((16, 24, 0.1), (33, 8, 0.03), (64, 128, 0.05)):
        ranking = make_ranking(rng, kind, bits)
        rows, content = make_items(rng, 700, bits, content_bits, ranking.codewords, flips)
        ids = rng.permutation(2000)[:700]
        ids = np.array([f"{each}.jpg" for each in ids], object) if strings else ids
        queries = make_queries(rng, 3, bits, content_bits, ranking.codewords, kind)
        prepared = prepare(queries, ranking, rank)
        content = content if rank == "photo" else None
        packed = packed_of(rows, bits)
        stored = None if content is None else packed_of(content, content_bits)
        points = reference_points(prepared.tables, rows, content)
        distances = hamming(queries.codes().packed, packed)
        for row in range(3):
            order = sorted(range(700), key=lambda i, row=row: (-points[row, i], ids[i]))
            for k in (1, 10, 800):
                found = ranked_walk(prepared, row, engine(packed, stored, ids, []), k)
                best = order[:k]
                assert found.ids.tolist() == ids[best].tolist()
                assert found.points.tolist() == points[row, best].tolist()
                assert found.distances.tolist() == distances[row, best].tolist()


def test_few_items_are_fetched_where_codes_are_clustered(rng):
    ranking = Ranking(hh.codebook(40, 64), sharpness=12.0)
    rows, content = make_items(rng, 5000, 64, 64, ranking.codewords, flips=0.02)
    queries = hh.Queries(0.9 * ranking.codewords, content=rng.normal(size=(40, 64)))
    packed, stored = packed_of(rows, 64), packed_of(content, 64)
    for rank, most in (("class", 200), ("photo", 600)):
        prepared = prepare(queries, ranking, rank)
        for row in range(len(queries)):
            log = []
            ranked_walk(prepared, row, engine(packed, stored, np.arange(5000), log), 10)
            assert max(log) < most


@pytest.mark.parametrize("rank", ["class", "photo"])
@pytest.mark.parametrize("kind", KINDS)
def test_no_item_outside_the_balls_is_as_good(rng, kind, rank):
    for bits in (8, 24, 64):
        ranking = make_ranking(rng, kind, bits)
        rows, content = make_items(rng, 600, bits, 16, ranking.codewords, flips=0.2)
        prepared = prepare(make_queries(rng, 4, bits, 16, ranking.codewords, kind), ranking, rank)
        content = content if rank == "photo" else None
        points = reference_points(prepared.tables, rows, content)
        for row, each in enumerate(points):
            term = prepared.tables.classes
            bounds = None if term is None else ClassBounds(term, row)
            for least in np.unique(each)[::25].tolist():
                balls = balls_of(prepared.tables, row, int(least), bounds)
                if balls is None:
                    continue
                apart = hamming(balls.anchors.view(np.uint8), rows.view(np.uint8))
                inside = (apart <= balls.radii[:, None]).any(axis=0)
                assert inside[each >= least].all()


@pytest.mark.parametrize("logarithm", [False, True])
@pytest.mark.parametrize("kind", ["single", "multi"])
def test_caps_are_never_exceeded(rng, kind, logarithm):
    ranking = make_ranking(rng, kind, 32)
    rows, _ = make_items(rng, 2000, 32, 16, ranking.codewords, flips=0.2)
    queries = make_queries(rng, 4, 32, 16, ranking.codewords, kind)
    prepared = prepare(
        queries, ranking, "photo" if logarithm else "class", 0 if logarithm else None
    )
    term = prepared.tables.classes
    content = np.zeros((2000, 1), np.uint32)
    points = reference_points(prepared.tables, rows, content)
    for row in range(4):
        bounds = ClassBounds(term, row)
        anchor = term.codewords[bounds.top : bounds.top + 1]
        apart = hamming(anchor.view(np.uint8), rows.view(np.uint8))[0]
        assert (points[row] <= bounds.caps()[apart]).all()


def test_the_radius_of_a_linear_term():
    weights = np.array([5, 1, 3])
    assert [linear_radius(weights, slack) for slack in (-1, 0, 1, 3, 4, 8, 9, 99)] == [
        *(-1, 0, 1, 1, 2, 2, 3, 3)
    ]


def test_bad_requests_are_refused(rng):
    ranking = make_ranking(rng, "single", 16)
    rows, _ = make_items(rng, 30, 16, 8, ranking.codewords)
    queries = make_queries(rng, 2, 16, 8, ranking.codewords, "single")
    within = engine(packed_of(rows, 16), None, np.arange(30), [])
    with pytest.raises(UsageError, match="k must be >= 1, got 0"):
        ranked_walk(prepare(queries, ranking, "class"), 0, within, 0)
    with pytest.raises(UsageError, match="these items have none"):
        ranked_walk(prepare(queries, ranking, "photo"), 0, within, 3)
