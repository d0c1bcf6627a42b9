"""Ranked searches equal the scores of all items, over lengths, weights, ties and changes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from brute_force import LOCAL_ENGINES
from hypothesis import given, settings
from hypothesis import strategies as st

from hadahash.codes import Codes, pack
from hadahash.errors import UsageError
from hadahash.index import ENGINES, Hits, Index
from hadahash.index._contract import engine_checks
from hadahash.index._contract_ranked import check_ranked
from hadahash.index.engine import Engine
from hadahash.queries import Queries
from hadahash.ranking import Ranking


def make_ranking(rng, bits, kind):
    if kind == "none":
        return Ranking(class_weight=int(rng.integers(1, 4)))
    words = rng.choice([-1, 1], (int(rng.integers(2, 9)), bits))
    if kind == "single":
        return Ranking(words, sharpness=float(rng.uniform(4, 16)))
    slope, offset = rng.uniform(2, 10, len(words)), rng.uniform(-4, 0, len(words))
    return Ranking(words, multilabel=True, slope=slope, offset=offset)


def draw(rng, n, ranking, bits, content_bits):
    """Signs of class bits, around codewords if there are any, and content values; both repeat."""
    words = rng.choice([-1, 1], (3, bits)) if ranking.codewords is None else ranking.codewords
    near = words[rng.integers(0, len(words), n)] * rng.choice([1, -1], (n, bits), p=[0.93, 0.07])
    some = rng.standard_normal((max(1, n // 2), content_bits))
    return near, some[rng.integers(0, len(some), n)]


def make_codes(rng, n, ranking, bits, content_bits, ids=None):
    signs, content = draw(rng, n, ranking, bits, content_bits)
    return Codes(pack(signs), bits, ids, (), pack(content), content_bits)


def make_queries(rng, n, ranking, bits, content_bits, real):
    if not real:
        return make_codes(rng, n, ranking, bits, content_bits)
    signs, content = draw(rng, n, ranking, bits, content_bits)
    return Queries(signs * rng.uniform(0, 1, signs.shape), content=content)


@settings(max_examples=120, deadline=None, derandomize=True, database=None)
@given(
    engine=st.sampled_from(LOCAL_ENGINES),
    lengths=st.tuples(
        st.sampled_from([8, 12, 16, 32, 33, 64, 96, 255, 512]), st.sampled_from([1, 8, 32, 40, 128])
    ),
    kind=st.sampled_from(["none", "single", "multi"]),
    rank=st.sampled_from(["class", "photo"]),
    weight=st.none() | st.sampled_from([0, 0.01, 1.0, 7.5, 100]),
    real=st.booleans(),
    k=st.sampled_from([1, 3, 40, 1000]),
    radius=st.none() | st.integers(0, 30),
    seed=st.integers(0, 2**20),
)
def test_random_searches(engine, lengths, kind, rank, weight, real, k, radius, seed):
    rng = np.random.default_rng(seed)
    ranking = make_ranking(rng, lengths[0], kind)
    known = make_codes(rng, 90, ranking, *lengths, rng.permutation(200)[:90])
    index = Index.build(known, engine=engine, ranking=ranking)
    more = make_codes(rng, 20, ranking, *lengths, 300 + np.arange(20))
    index.add(more)
    gone = rng.choice(known.ids, 15, replace=False)
    index.remove(gone)
    items = Codes.concatenate([known[~np.isin(known.ids, gone)], more])
    query = make_queries(rng, 3, ranking, *lengths, real)
    options = {"weight": weight} if rank == "photo" else {}
    check_ranked(index, items, query, k, rank=rank, radius=radius, **options)


@pytest.mark.parametrize("engine", LOCAL_ENGINES)
@pytest.mark.parametrize("threads", [1, 2])
def test_20_000_items_in_three_segments(rng, engine, threads):
    ranking = make_ranking(rng, 64, "single")
    parts = [
        make_codes(rng, n, ranking, 64, 128, start + np.arange(n))
        for n, start in ((14_000, 0), (5000, 20_000), (1000, 30_000))
    ]
    index = Index.build(parts[0], engine=engine, ranking=ranking)
    for part in parts[1:]:
        index.add(part)
    items = Codes.concatenate(parts)
    for real in (True, False):
        query = make_queries(rng, 4, ranking, 64, 128, real)
        for rank in ("class", "photo"):
            check_ranked(index, items, query, 30, rank=rank, threads=threads)


@pytest.mark.parametrize("engine", LOCAL_ENGINES)
def test_an_index_without_ranking_uses_its_codewords(rng, engine):
    ranking = make_ranking(rng, 64, "single")
    codes = make_codes(rng, 100, ranking, 64, 40)
    default = Ranking(ranking.codewords)
    index = Index.build(codes, engine=engine, codewords=ranking.codewords)
    fitted = Index.build(codes, engine=engine, ranking=default)
    for rank in ("class", "photo"):
        found, expected = (each.search(codes[:4], 9, rank=rank) for each in (index, fitted))
        assert np.array_equal(found.ids, expected.ids)
        assert np.array_equal(found.scores, expected.scores)


@pytest.mark.parametrize("engine", LOCAL_ENGINES)
def test_an_empty_index(rng, engine):
    ranking = make_ranking(rng, 64, "single")
    codes = make_codes(rng, 3, ranking, 64, 40)
    index = Index.build(codes[:0], engine=engine, ranking=ranking)
    for rank in ("class", "photo"):
        hits = index.search(codes, 5, rank=rank)
        assert hits.ids.shape == hits.scores.shape == (3, 0) and hits.exact
        assert index.neighbors(codes, 5, rank=rank) == [[], [], []]


def test_hamming_needs_no_scores(rng):
    ranking = make_ranking(rng, 64, "single")
    codes = make_codes(rng, 50, ranking, 64, 40)
    index = Index.build(codes, ranking=ranking)
    query = make_queries(rng, 3, ranking, 64, 40, real=True)
    hits = index.search(query, 5)
    assert hits.scores is None and hits[0][0].score is None
    assert np.array_equal(hits.ids, index.search(query.codes(), 5).ids)


def test_the_scores_of_hits_follow_them():
    hits = Hits(np.array([[7, 9]]), np.array([[3, 1]], np.int32), np.array([True]), np.ones((1, 2)))
    assert [tuple(hit) for hit in hits[0]] == [(7, 3, 1.0), (9, 1, 1.0)]


def test_refusals_name_the_remedy(rng):
    ranking = make_ranking(rng, 64, "single")
    codes = make_codes(rng, 20, ranking, 64, 40)
    plain = Index.build(codes.class_codes(), ranking=ranking)
    index = Index.build(codes, ranking=ranking)
    calls = [
        (lambda: plain.search(codes, rank="photo"), 'Use rank="class", or encode with a model'),
        (lambda: index.search(codes.packed, rank="photo"), "with 40 content bits, got none"),
        (lambda: index.search(codes, rank="clas"), "Did you mean 'class'"),
        (lambda: index.search(codes, rank="photo", weight=-0.5), "weight must be"),
        (lambda: index.search(codes, rank="photo", weight=float("nan")), "weight must be"),
        (lambda: index.search(codes, rank="photo", weight=True), "weight must be a number >= 0"),
        (lambda: index.search(codes, weight=2), 'weight is for rank="photo" only'),
        (lambda: index.search(codes.prefix(32), rank="class"), "64 bits, got codes of 32 bits"),
        (
            lambda: index.search(Queries(np.ones((1, 32), np.float32)), rank="class"),
            "64 bits, got codes of 32 bits",
        ),
    ]
    for call, message in calls:
        with pytest.raises(UsageError, match=message) as caught:
            call()
        assert "\n" not in str(caught.value)


class WalkedIndex(ENGINES.get("exact")):
    """An engine that only knows distances, as one of a user may be."""

    _ranked = Engine._ranked
    _neighbors = Engine._neighbors


class PlainIndex(WalkedIndex):
    """It does not store content bits either."""

    stores_content = False

    def _put(self, packed, items):
        super()._put(packed, items)


@pytest.mark.parametrize("engine", [WalkedIndex, PlainIndex])
@pytest.mark.parametrize("check", engine_checks().values(), ids=engine_checks().keys())
def test_engines_that_only_know_distances(check, engine):
    check(engine)


def test_an_engine_without_content_refuses_it(rng, monkeypatch):
    monkeypatch.setattr(ENGINES.get("exact"), "stores_content", False)
    codes = make_codes(rng, 5, Ranking(), 64, 40)
    with pytest.raises(UsageError, match="'exact' does not store content bits") as caught:
        Index.build(codes)
    assert "\n" not in str(caught.value)


@settings(max_examples=40, deadline=None, derandomize=True, database=None)
@given(
    kind=st.sampled_from(["none", "single", "multi"]),
    rank=st.sampled_from(["class", "photo"]),
    real=st.booleans(),
    k=st.sampled_from([1, 7, 300, 1000]),
    radius=st.none() | st.integers(0, 30),
    seed=st.integers(0, 2**20),
)
def test_random_walks(kind, rank, real, k, radius, seed):
    rng = np.random.default_rng(seed)
    ranking = make_ranking(rng, 33, kind)
    codes = make_codes(rng, 400, ranking, 33, 24, rng.permutation(400))
    index = WalkedIndex._create(33, None)
    index.content_bits, index.ranking = 24, ranking
    index.add(codes)
    query = make_queries(rng, 2, ranking, 33, 24, real)
    check_ranked(index, codes, query, k, rank=rank, radius=radius)


@pytest.mark.parametrize("kind", ["none", "single", "multi"])
@pytest.mark.parametrize("rank", ["hamming", "class", "photo"])
@pytest.mark.parametrize("engine", LOCAL_ENGINES)
def test_the_order_and_the_meaning_of_bits_do_not_matter(rng, engine, rank, kind):
    """Bits are permuted and inverted in items, queries and codewords alike."""
    ranking = make_ranking(rng, 64, kind)
    codes, query = (make(rng, n, ranking, 64, 40) for make, n in ((make_codes, 200), (real, 4)))
    order, inverted = rng.permutation(64), rng.choice([-1, 1], 64)
    content_order, content_inverted = rng.permutation(40), rng.choice([-1, 1], 40)

    def change(signs):
        return signs[:, order] * inverted

    def change_content(signs):
        return signs[:, content_order] * content_inverted

    other_codes = Codes(
        pack(change(codes.signs())),
        64,
        content=pack(change_content(codes.content_codes().signs())),
        content_bits=40,
    )
    other_query = Queries(change(query.values), content=change_content(query.content))
    other_ranking = ranking
    if ranking.codewords is not None:
        other_ranking = replace(ranking, codewords=change(ranking.codewords))
    first = Index.build(codes, engine=engine, ranking=ranking)
    second = Index.build(other_codes, engine=engine, ranking=other_ranking)
    hits, others = first.search(query, 30, rank=rank), second.search(other_query, 30, rank=rank)
    assert np.array_equal(hits.ids, others.ids)
    assert np.array_equal(hits.distances, others.distances)
    assert rank == "hamming" or np.array_equal(hits.scores, others.scores)


def real(rng, n, ranking, bits, content_bits):
    return make_queries(rng, n, ranking, bits, content_bits, real=True)


@pytest.mark.parametrize("engine", LOCAL_ENGINES)
def test_probes_do_not_make_rankings_approximate(rng, engine):
    ranking = make_ranking(rng, 64, "single")
    codes = make_codes(rng, 500, ranking, 64, 40)
    index = Index.build(codes, engine=engine, ranking=ranking)
    for rank in ("class", "photo"):
        check_ranked(index, codes, codes[:3], 20, rank=rank, probes=1)
