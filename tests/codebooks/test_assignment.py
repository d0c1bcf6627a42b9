"""Assignment of codewords to classes: the cost falls, and no exchange improves the result."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest

from hadahash.codebooks import codebook
from hadahash.codebooks.assignment import assign_codewords, assignment_cost, class_similarity


def _similarity(classes: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((classes, 8)).astype(np.float32)
    return class_similarity(features, np.eye(classes, dtype=np.float32))


def _slow_cost(similarity: np.ndarray, words: np.ndarray) -> float:
    pairs = list(itertools.combinations(range(len(words)), 2))
    shares = [(words[a] != words[b]).mean() * similarity[a, b] for a, b in pairs]
    return float(np.mean(shares))


@pytest.mark.parametrize(("classes", "bits"), [(3, 4), (10, 16), (21, 16), (16, 8)])
def test_no_exchange_of_two_classes_improves_the_assignment(classes: int, bits: int) -> None:
    similarity, words = _similarity(classes), codebook(classes, bits, design="random")
    order = assign_codewords(similarity, words)
    assert sorted(order) == list(range(classes))
    best = _slow_cost(similarity, words[order])
    assert best == pytest.approx(assignment_cost(similarity, words[order]))
    assert best <= _slow_cost(similarity, words)
    for a, b in itertools.combinations(range(classes), 2):
        other = order.copy()
        other[[a, b]] = other[[b, a]]
        assert _slow_cost(similarity, words[other]) >= best - 1e-9


def test_the_best_of_all_assignments_of_five_classes_is_found() -> None:
    similarity, words = _similarity(5, seed=3), codebook(5, 6, design="random", seed=3)
    every = [_slow_cost(similarity, words[list(own)]) for own in itertools.permutations(range(5))]
    found = _slow_cost(similarity, words[assign_codewords(similarity, words)])
    assert found == pytest.approx(min(every))


def test_similarity_is_the_cosine_of_centered_class_means() -> None:
    features = np.array([[1, 0], [3, 0], [0, 2], [2, 2]], np.float32)
    targets = np.array([[1, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 0]], np.float32)
    means = np.array([[2, 2 / 3], [1, 2]])
    centered = means - means.mean(0)
    cosine = centered[0] @ centered[1] / np.prod(np.linalg.norm(centered, axis=1))
    expected = np.zeros((3, 3))
    expected[0, 1] = expected[1, 0] = cosine
    np.testing.assert_allclose(class_similarity(features, targets), expected, atol=1e-12)


def test_a_hundred_classes_take_about_a_second() -> None:
    start = time.perf_counter()
    assign_codewords(_similarity(100), codebook(100, 16))
    assert time.perf_counter() - start < 10
