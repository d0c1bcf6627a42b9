"""Rankings: the formulas, fitting, and storage."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

import hadahash as hh
from hadahash.errors import UsageError
from hadahash.native.ranked_tables import logarithm
from hadahash.ranking import Ranking, fit_ranking, score
from hadahash.ranking.fitting import logistic

BITS, CONTENT, CLASSES = 12, 16, 5


def signs(rng, *shape):
    return rng.choice([-1, 1], shape)


@pytest.fixture
def codes(rng):
    return hh.Codes(
        np.packbits(signs(rng, 9, BITS) > 0, axis=1),
        BITS,
        content=np.packbits(signs(rng, 9, CONTENT) > 0, axis=1),
        content_bits=CONTENT,
    )


@pytest.fixture
def queries(rng):
    return hh.Queries(rng.uniform(-1, 1, (4, BITS)), content=rng.normal(size=(4, CONTENT)))


def single(rng, **attributes):
    return Ranking(signs(rng, CLASSES, BITS), sharpness=6.0, **attributes)


def multi(rng):
    fitted = {name: rng.normal(size=CLASSES) for name in ("offset", "query_offset")}
    fitted |= {name: rng.uniform(1, 5, CLASSES) for name in ("slope", "query_slope")}
    return Ranking(signs(rng, CLASSES, BITS), multilabel=True, **fitted)


def softmax(scores):
    total = sum(math.exp(score) for score in scores)
    return [math.exp(score) / total for score in scores]


def expected_class(ranking, v, s):
    """P(same class) of one query and one item, term by term."""
    words = ranking.codewords.astype(float)
    if not ranking.multilabel:
        q, i = (softmax(ranking.sharpness / BITS * (words @ x)) for x in (v, s))
        return sum(a * b for a, b in zip(q, i, strict=True))
    product = 1.0
    for c, word in enumerate(words):
        q = ranking.query_slope[c] * (word @ v) / BITS + ranking.query_offset[c]
        i = ranking.slope[c] * (word @ s) / BITS + ranking.offset[c]
        product *= 1 - 1 / (1 + math.exp(-q)) / (1 + math.exp(-i))
    return 1 - product


@pytest.mark.parametrize("make", [single, multi])
def test_scores_follow_the_formulas(rng, codes, queries, make):
    ranking = make(rng)
    by_class = score(queries, codes, ranking, "class")
    photo = score(queries, codes, ranking, "photo", 1.5)
    s, t = codes.signs().astype(float), codes.content_codes().signs().astype(float)
    for i, (v, z) in enumerate(zip(queries.values, queries.content, strict=True)):
        for j in range(len(codes)):
            p = expected_class(ranking, v.astype(float), s[j])
            assert by_class[i, j] == pytest.approx(p, abs=2e-6)  # values have a grid of 2^-20
            assert photo[i, j] == pytest.approx(math.log(p) + 1.5 * (z @ t[j]) / CONTENT, abs=1e-4)


def test_methods_without_codewords_rank_by_the_real_valued_query(codes, queries):
    s, t = codes.signs().astype(float), codes.content_codes().signs().astype(float)
    real = queries.values @ s.T
    assert score(queries, codes, None, "class") == pytest.approx(real, abs=1e-5)
    photo = score(queries, codes, Ranking(class_weight=3), "photo", 0.5)
    content = queries.content @ t.T
    assert photo == pytest.approx((3 * real + 0.5 * content) / CONTENT, abs=1e-5)


def test_binary_queries_without_codewords_rank_by_the_weighted_distance(codes):
    found = score(hh.Queries.from_codes(codes), codes, Ranking(class_weight=2), "photo")
    weighted = (codes.repeated(2).signs()[:, None] != codes.repeated(2).signs()).sum(-1)
    assert np.array_equal(found, (2 * BITS + CONTENT - 2 * weighted) / CONTENT)


def test_hamming_scores_are_negative_distances(codes, queries):
    distances = (queries.codes().signs()[:, None] != codes.signs()).sum(-1)
    assert np.array_equal(score(queries, codes, None, "hamming"), -distances)


def test_the_classifier_of_a_query_replaces_its_values(rng, codes, queries):
    ranking, p = single(rng), rng.dirichlet(np.ones(CLASSES), 4)
    known = hh.Queries(queries.values, probabilities=p)
    expected = p @ ranking.class_probabilities(codes.signs()).T
    assert score(known, codes, ranking, "class") == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("make", [single, multi])
def test_a_query_scores_the_same_in_any_batch(rng, codes, queries, make):
    ranking = make(rng)
    mixed = hh.Queries(
        np.concatenate([queries.values, codes.signs()]),
        content=np.concatenate([queries.content, codes.content_codes().signs()]),
    )
    together = score(mixed, codes, ranking, "photo")
    alone = [score(mixed[row], codes, ranking, "photo")[0] for row in range(len(mixed))]
    assert np.array_equal(together, alone)


@pytest.mark.parametrize("make", [single, multi, lambda rng: Ranking()])
def test_a_ranking_is_stored_as_json(rng, make):
    ranking = make(rng)
    again = Ranking.from_dict(json.loads(json.dumps(ranking.to_dict())))
    for name in ("codewords", "slope", "offset", "query_slope", "query_offset"):
        first, second = getattr(ranking, name), getattr(again, name)
        assert (first is None) == (second is None)
        assert first is None or np.array_equal(first, second)
    assert again.to_dict() == ranking.to_dict()


def test_damaged_rankings_are_refused(rng):
    stored = single(rng).to_dict()
    for bad in ({"codewords": ["zz"]}, {"sharpness": "x"}, {"unknown": 1}, {"sharpness": -1.0}):
        with pytest.raises(UsageError):
            Ranking.from_dict(stored | bad)
    del stored["bits"]
    with pytest.raises(UsageError, match="not a stored ranking: lacks bits"):
        Ranking.from_dict(stored)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ({"bits": 8}, "a codeword of 8 bits has 1 bytes, got 2"),
        ({"bits": 0}, "bits must be an integer >= 1, got 0"),
        ({"bits": True}, "bits must be an integer >= 1, got True"),
        ({"bits": 12.0}, "bits must be an integer >= 1, got 12.0"),
        ({"bits": None}, "bits must be an integer >= 1, got None"),
        ({"bits": 9}, "the bits of a codeword after the first 9 must be 0"),
        ({"codewords": None}, "bits must be null without codewords, got 12"),
        ({"codewords": []}, "codewords must be a list of hexadecimal digits"),
        ({"codewords": "0000"}, "codewords must be a list of hexadecimal digits"),
        ({"codewords": [5]}, "codewords must be a list of hexadecimal digits"),
        ({"multilabel": "no"}, "multilabel must be true or false, got 'no'"),
        ({"classes": "cat"}, "classes must be a list of names"),
        ({"classes": ["a", "b"]}, "classes must be 5 names, or none, got 2"),
        ({"sharpness": True}, "sharpness must be a number, got True"),
        ({"sharpness": float("nan")}, "sharpness must be above 0 and <= 100, got nan"),
        ({"class_weight": "2"}, "class_weight must be a number, got '2'"),
        ({"content_weight": None}, "content_weight must be a number, got None"),
        ({"content_fingerprint": 7}, "content_fingerprint must be a text, got 7"),
        ({"slope": [1.0]}, r"slope must be 5 finite numbers, got \(1,\)"),
        ({"further": 1}, "unknown further"),
    ],
)
def test_stored_values_that_are_not_valid_are_named_in_one_line(rng, bad, reason):
    stored = Ranking(signs(rng, CLASSES, BITS)).to_dict() | bad
    stored["codewords"] = ["fff0"] * CLASSES if "codewords" not in bad else bad["codewords"]
    with pytest.raises(UsageError, match=reason) as error:
        Ranking.from_dict(stored)
    assert "\n" not in str(error.value) and str(error.value).startswith("This is not a stored")


@pytest.mark.parametrize("stored", [None, 5, [1], "ranking"])
def test_what_is_no_object_is_no_ranking(stored):
    with pytest.raises(UsageError, match="This is not a stored ranking"):
        Ranking.from_dict(stored)


def test_sharpness_maximizes_the_likelihood(rng):
    codewords, labels = signs(rng, CLASSES, BITS), rng.integers(0, CLASSES, 400)
    noisy = codewords[labels] * rng.choice([1, -1], (400, BITS), p=[0.7, 0.3])
    fitted = fit_ranking(noisy * 0.5, labels, codewords).sharpness

    def likelihood(sharpness):
        p = Ranking(codewords, sharpness=sharpness).class_probabilities(noisy)
        return np.log(p[np.arange(400), labels]).mean()

    assert 4 < fitted < 16
    assert likelihood(fitted) >= max(likelihood(fitted * f) for f in (0.9, 0.99, 1.01, 1.1))
    exact = fit_ranking(codewords[labels] * 1.0, labels, codewords)
    assert exact.sharpness == pytest.approx(16)  # codes without any error
    random = fit_ranking(signs(rng, 400, BITS) * 1.0, labels, codewords)
    assert random.sharpness == pytest.approx(4)


def test_multi_label_probabilities_are_calibrated(rng):
    targets = rng.random((3000, CLASSES)) < 0.3
    codewords = signs(rng, CLASSES, BITS)
    values = np.tanh(targets @ codewords * 0.4 + rng.normal(size=(3000, BITS)) * 0.5)
    ranking = fit_ranking(values, targets, codewords, multilabel=True)
    for each in (values, np.where(values >= 0, 1, -1)):
        assert ranking.class_probabilities(each).mean(0) == pytest.approx(targets.mean(0), abs=5e-3)


def test_newton_finds_the_optimum(rng):
    x = rng.normal(size=(2000, 2))
    y = (rng.random((2000, 2)) < 1 / (1 + np.exp(-(x * [2.0, -1.0] + [0.5, 1.0])))).astype(float)
    slope, offset = logistic(x, y)
    assert slope == pytest.approx([2, -1], abs=0.25) and offset == pytest.approx([0.5, 1], abs=0.25)
    p = 1 / (1 + np.exp(-(x * slope + offset)))
    assert np.abs((p - y).sum(0)).max() < 0.01 and np.abs(((p - y) * x).sum(0)).max() < 0.01


def test_without_codewords_nothing_is_fitted(rng):
    ranking = fit_ranking(signs(rng, 5, BITS), np.zeros(5), None, classes=("a", "b"))
    assert ranking.codewords is None and ranking.classes == ("a", "b")
    assert ranking.content_weight == 1 and single(rng).content_weight == 2


def test_prefixes_shorten_the_codewords(rng):
    ranking = single(rng)
    assert np.array_equal(ranking.prefix(5).codewords, ranking.codewords[:, :5])
    assert ranking.prefix(5).sharpness == 6.0 and Ranking().prefix(3).codewords is None


def test_the_logarithm_is_that_of_numpy(rng):
    x = np.concatenate([10.0 ** rng.uniform(-18, 0, 20_000), [1.0, 0.5, 2.0**-60]])
    assert np.abs(logarithm(x) - np.log(x)).max() < 8e-15
    assert logarithm(np.array([1.0]))[0] == pytest.approx(0, abs=1e-15)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rank": "best"}, "Unknown ranking 'best'"),
        ({"rank": "class", "weight": 1.0}, "weight applies to rank='photo' only"),
        ({"rank": "photo", "weight": -1.0}, "weight must be 0 to 10000, got -1.0"),
    ],
)
def test_bad_requests_are_refused(codes, queries, arguments, message):
    with pytest.raises(UsageError, match=message):
        score(queries, codes, None, **arguments)


def test_lengths_must_match(rng, codes, queries):
    with pytest.raises(UsageError, match="Queries of 12 bits do not fit codewords of 8"):
        score(queries, codes, Ranking(signs(rng, 3, 8)), "class")
    with pytest.raises(UsageError, match="do not fit codes of 8 bits"):
        score(queries, codes.prefix(8), None, "class")
    with pytest.raises(UsageError, match="these queries have none"):
        score(hh.Queries(queries.values), codes, None, "photo")
    with pytest.raises(UsageError, match="16 content bits do not fit codes of 0"):
        score(queries, codes.class_codes(), None, "photo")
    with pytest.raises(UsageError, match="probabilities of 2 classes, and the ranking has 5"):
        known = hh.Queries(queries.values, probabilities=np.full((4, 2), 0.5))
        score(known, codes, single(rng), "class")
