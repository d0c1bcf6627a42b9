"""The similarity of results: a number from 0 to 1 that agrees with their order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hadahash as hh
from hadahash.ranking import Ranking, similarities


def rankings(rng, bits, classes):
    words = rng.choice([-1, 1], (classes, bits))
    fitted = {"slope": rng.uniform(1, 5, classes), "offset": rng.normal(size=classes)}
    return [Ranking(words), Ranking(words, multilabel=True, **fitted), Ranking(class_weight=3)]


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1),
    bits=st.integers(8, 70),
    rank=st.sampled_from(["hamming", "class", "photo"]),
    weight=st.sampled_from([0.0, 0.05, 1.0, 2.0, 80.0, 1e4]),
    kind=st.integers(0, 2),
    real=st.booleans(),
)
def test_similarities_fall_with_the_rank(seed, bits, rank, weight, kind, real):
    rng = np.random.default_rng(seed)
    codes = hh.Codes(
        np.packbits(rng.integers(0, 2, (40, bits)), axis=1),
        bits,
        content=rng.integers(0, 256, (40, 3), np.uint8),
        content_bits=24,
    )
    ranking = rankings(rng, bits, 4)[kind]
    index = hh.Index.build(codes, ranking=ranking)
    query = hh.Queries.from_codes(codes[:2])
    if real:
        query = hh.Queries(rng.uniform(-1, 1, (2, bits)), content=rng.normal(size=(2, 24)))
    options = {"weight": weight} if rank == "photo" else {}
    for found in index.neighbors(query, 40, rank=rank, **options):
        near = [each.similarity for each in found]
        assert near == sorted(near, reverse=True) and 0 <= near[-1] <= near[0] <= 1
        if rank == "hamming":
            assert near == [round(1 - each.distance / bits, 6) for each in found]
        if rank == "class" and ranking.codewords is not None:
            assert near == pytest.approx([each.score for each in found], abs=1e-6)


def test_the_same_code_is_as_similar_as_can_be(rng):
    codes = hh.Codes(rng.integers(0, 256, (9, 8), np.uint8), 64)
    (found,) = hh.Index.build(codes, ranking=Ranking()).neighbors(codes[:1], 9, rank="class")
    assert found[0].similarity == 1.0
    half = [each for each in found if each.distance >= 32]
    assert half and all(each.similarity == 0 for each in half), "half of the bits: a right angle"
    expected = [np.cos(np.pi * each.distance / 64) for each in found]
    assert [each.similarity for each in found] == pytest.approx(np.maximum(expected, 0), abs=1e-6)


def test_weights_lead_from_the_kind_to_the_photo(rng):
    """At weight 0 it is P(same class) by the best possible one; unrelated content gives e^-3."""
    ranking = Ranking(np.stack([np.ones(64), -np.ones(64)]), sharpness=8.0)
    query = hh.Queries(np.full((1, 64), 0.9), content=rng.normal(size=(1, 128)))
    p = ranking.class_probabilities(query.values).max()
    found = similarities(query, ranking, "photo", 0.0, np.log([[p, p / 2]]))
    assert found.tolist() == [[1.0, 0.5]]
    unrelated = similarities(query, ranking, "photo", 1e4, np.array([[np.log(p)]]))
    assert unrelated[0, 0] == pytest.approx(np.exp(-3), abs=1e-3)
