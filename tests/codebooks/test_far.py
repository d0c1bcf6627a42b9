"""The design "far": distances, balance, speed."""

from __future__ import annotations

import time

import numpy as np
import pytest

from hadahash.codebooks import codebook, codebook_quality, distance_bound, orders, varshamov_floor
from hadahash.codebooks.bounds import max_codewords
from hadahash.codebooks.far import _replace_constant_bits, antipodal
from hadahash.codebooks.levenshtein import (
    balance_columns,
    balanced_codebook,
    levenshtein_code,
    max_column_sum,
    random_balanced_columns,
    tabu_search,
)
from hadahash.codebooks.linear import (
    LinearCode,
    _balanced_choice,
    _cover,
    bch,
    linear_codebook,
    whole_cosets,
)
from hadahash.codebooks.quality import minimum_distance

# classes, bits, the minimum distance that must be reached, whether every bit must split the classes evenly
TABLE = [
    (10, 16, 8, True),
    (10, 32, 17, True),
    (10, 64, 35, True),
    (10, 128, 70, True),
    (21, 16, 8, True),
    (21, 32, 16, True),
    (21, 64, 33, False),
    (21, 128, 66, True),
    (100, 16, 6, True),
    (100, 32, 14, True),
    (100, 64, 32, True),
    (100, 128, 64, True),
    (80, 48, 24, True),
    (200, 32, 13, True),
    (1000, 32, 12, True),
    (1000, 64, 28, True),
]


@pytest.mark.parametrize(("classes", "bits", "distance", "balanced"), TABLE)
def test_table(classes: int, bits: int, distance: int, balanced: bool) -> None:
    for seed in range(2):
        start = time.perf_counter()
        found = codebook_quality(codebook(classes, bits, seed=seed))
        assert time.perf_counter() - start < 30
        assert found.minimum_distance >= distance
        assert found.worst_column_sum <= (classes % 2 if balanced else 3)
        assert found.dead_bits == 0 and found.duplicates == 0


@pytest.mark.parametrize("classes", [2, 3, 4, 5, 7, 10, 12, 20, 50, 100, 200])
def test_no_size_fails(classes: int) -> None:
    for bits in (8, 12, 15, 16, 17, 24, 33, 48, 64, 96) if classes < 50 else (12, 17, 33, 48):
        found = codebook_quality(codebook(classes, bits))
        assert varshamov_floor(classes, bits) <= found.minimum_distance <= found.distance_bound
        assert found.dead_bits == 0 and found.duplicates == 0
        assert found.worst_column_sum <= max(4, 0.35 * classes)


@pytest.mark.parametrize("bits", range(1, 7))
def test_every_number_of_classes_of_short_codes(bits: int) -> None:
    for classes in range(2, 2**bits + 1):
        found = codebook_quality(codebook(classes, bits, seed=bits))
        assert found.duplicates == 0 and found.dead_bits == 0
        assert found.minimum_distance >= varshamov_floor(classes, bits)


@pytest.mark.parametrize("bits", [n for n in orders(128) if n >= 8])
def test_minimum_distance_is_half_of_the_bits_up_to_twice_the_order(bits: int) -> None:
    for classes in {bits // 2, bits - 1, bits, 2 * bits - 1, 2 * bits}:
        found = codebook_quality(codebook(classes, bits))
        assert 2 * found.minimum_distance >= bits


@pytest.mark.parametrize(
    ("classes", "bits"), [(10, 12), (10, 48), (21, 16), (50, 24), (100, 16), (100, 32), (200, 64)]
)
def test_minimum_distance_is_never_below_the_papers(classes: int, bits: int) -> None:
    paper = [
        minimum_distance(codebook(classes, bits, design="paper", seed=seed)) for seed in range(10)
    ]
    assert minimum_distance(codebook(classes, bits)) >= np.mean(paper) + 1


def test_ten_thousand_classes() -> None:
    start = time.perf_counter()
    codewords = codebook(10_000, 64)
    assert time.perf_counter() - start < 60
    found = codebook_quality(codewords)
    assert time.perf_counter() - start < 90
    assert found.minimum_distance >= 24 and found.worst_column_sum == 0
    assert found.duplicates == 0 and found.dead_bits == 0


@pytest.mark.parametrize(
    ("m", "k", "distance"),
    [(4, 5, 8), (4, 7, 6), (5, 11, 12), (5, 16, 8), (6, 10, 28), (6, 16, 24), (7, 15, 56)],
)
def test_extended_bch_codes(m: int, k: int, distance: int) -> None:
    code = LinearCode.from_columns(k, bch(m, k))
    assert len(code.columns) == 2**m and code.distance == distance
    words = code.codewords(np.arange(min(2**k, 256)))
    assert (code.weights[1 : len(words)] == (words[1:] == -1).sum(1)).all()


def test_levenshtein_code_of_twelve_classes() -> None:
    """Levenshtein's code with exactly as many codewords as classes is balanced."""
    rng = np.random.default_rng(0)
    codewords = levenshtein_code(12, 32, 17, rng)
    assert (
        codewords is not None
        and minimum_distance(codewords) == 17
        and max_column_sum(codewords) == 0
    )
    assert levenshtein_code(13, 32, 17, rng) is None  # too few codewords
    assert levenshtein_code(80, 256, 129, rng) is None  # order 172 cannot be built


@pytest.mark.parametrize("classes", range(2, 23))  # 23 to 25 would need the order 92
def test_levenshtein_codes_reach_plotkins_bound(classes: int) -> None:
    for bits in range(classes, 4 * classes):
        distance = distance_bound(classes, bits)
        codewords = (
            levenshtein_code(classes, bits, distance, np.random.default_rng(bits))
            if 2 * distance >= bits
            else None
        )
        if codewords is not None:
            assert codewords.shape == (classes, bits) and minimum_distance(codewords) >= distance
        elif 2 * distance > bits:
            pytest.fail(f"{classes} classes, {bits} bits: distance {distance} not reached")


def test_a_search_that_fails_returns_none() -> None:
    rng = np.random.default_rng(0)
    assert tabu_search(random_balanced_columns(6, 16, rng), 10, rng) is None  # above the bound of 9
    assert (
        tabu_search(random_balanced_columns(2000, 4, rng), 1, rng) is None
    )  # its table of moves would be too large
    assert balanced_codebook(7, 16, 10, rng) is None


def test_columns_are_balanced() -> None:
    rng = np.random.default_rng(0)
    for classes in (8, 9):
        codewords = rng.choice(np.array([-1, 1], np.int8), (classes, 30), p=[0.2, 0.8])
        assert max_column_sum(balance_columns(codewords, rng)) == classes % 2
        assert max_column_sum(random_balanced_columns(classes, 30, rng)) == classes % 2


def test_antipodal_codebooks_have_the_length() -> None:
    rng = np.random.default_rng(0)
    for bits in (1, 2, 3, 5, 12, 13, 18, 92):
        for codewords in antipodal(2 * bits, bits, rng):
            assert codewords.shape == (2 * bits, bits) and max_column_sum(codewords) == 0
    assert antipodal(100, 16, rng) == []


def test_constant_bits_are_replaced_without_loss_of_distance() -> None:
    codewords = codebook(9, 12).copy()
    codewords[:, [2, 5]] = 1
    replaced = _replace_constant_bits(codewords)
    assert codebook_quality(replaced).dead_bits == 0 and minimum_distance(
        replaced
    ) >= minimum_distance(codewords)
    assert (replaced[:, [0, 1, 3, 4]] == codewords[:, [0, 1, 3, 4]]).all()


def test_codewords_of_a_code_without_complements_are_nearly_balanced() -> None:
    rng = np.random.default_rng(0)
    code = LinearCode.from_columns(6, rng.integers(1, 64, 20).tolist())
    chosen = _balanced_choice(code, 41, rng)
    assert chosen.shape == (41, 20) and max_column_sum(chosen) <= 3
    assert max_column_sum(linear_codebook(64, 11, rng)) == 0  # the whole code


def test_a_cover_makes_balanced_cosets() -> None:
    rng = np.random.default_rng(0)
    code = LinearCode.from_columns(7, rng.integers(1, 128, 16).tolist())
    basis = _cover(code, 3, rng)
    assert basis is not None and len(basis) == 3
    codewords = whole_cosets(code, 24, basis, rng)
    assert (
        max_column_sum(codewords) == 0
        and codebook_quality(codewords).duplicates == 24 - len(np.unique(codewords, axis=0)) == 0
    )
    assert (
        _cover(LinearCode.from_columns(7, list(range(1, 128))), 2, rng) is None
    )  # some column misses any two codewords


@pytest.mark.parametrize(
    ("bits", "distance", "most"),
    [
        (16, 8, 32),
        (12, 6, 24),
        (16, 7, 64),
        (9, 6, 4),
        (8, 5, 4),
        (7, 3, 16),
        (23, 7, 4096),
        (5, 1, 32),
        (5, 2, 16),
    ],
)
def test_max_codewords(bits: int, distance: int, most: int) -> None:
    assert max_codewords(bits, distance) == most


def test_bounds() -> None:
    assert [
        distance_bound(c, k) for c, k in [(2, 9), (3, 9), (4, 9), (100, 16), (512, 9), (513, 9)]
    ] == [
        9,
        6,
        6,
        6,
        1,
        0,
    ]
    assert varshamov_floor(2**9, 9) == 1 and varshamov_floor(2, 9) == 9
