"""The design "nested": distances of all prefixes, balance, order of the bits, speed."""

from __future__ import annotations

import time

import numpy as np
import pytest

from hadahash.codebooks import (
    codebook,
    codebook_quality,
    distance_bound,
    prefix_lengths,
    prefix_quality,
    varshamov_floor,
)
from hadahash.codebooks.nested import _cut, prefix_distances
from hadahash.codebooks.quality import minimum_distance

SIZES = [(2, 16), (3, 24), (10, 128), (12, 20), (20, 64), (21, 33), (64, 64), (100, 128), (200, 72)]


@pytest.mark.parametrize(("classes", "bits"), SIZES)
def test_every_prefix_reaches_the_varshamov_floor(classes: int, bits: int) -> None:
    for seed in range(2):
        words = codebook(classes, bits, design="nested", seed=seed)
        found = prefix_distances(words)
        assert len(found) == len(prefix_lengths(bits))
        for length, distance in zip(prefix_lengths(bits), found, strict=True):
            slow = min(
                (a != b).sum() for i, a in enumerate(words[:, :length]) for b in words[:i, :length]
            )
            assert distance == slow
            assert varshamov_floor(classes, length) <= distance <= distance_bound(classes, length)


@pytest.mark.parametrize(("classes", "bits"), SIZES)
def test_bits_split_the_classes_evenly_and_none_is_constant(classes: int, bits: int) -> None:
    found = codebook_quality(codebook(classes, bits, design="nested", seed=3))
    assert found.worst_column_sum <= 1 + (classes % 2 == 0)
    assert found.dead_bits == 0 and found.duplicates == 0


@pytest.mark.parametrize(("classes", "bits", "behind"), [(10, 128, 1), (20, 64, 1), (100, 128, 4)])
def test_prefixes_are_hardly_closer_than_codewords_made_for_their_length(
    classes: int, bits: int, behind: int
) -> None:
    parts = prefix_quality(codebook(classes, bits, design="nested"))
    assert [part.bits for part in parts] == prefix_lengths(bits)
    assert all(part.minimum_distance >= part.far_distance - behind for part in parts)
    assert all(part.mean_distance >= part.bits / 2 for part in parts)


def test_prefixes_of_far_are_closer_than_those_of_nested() -> None:
    words = {design: codebook(100, 64, design=design) for design in ("far", "nested")}
    short = {design: minimum_distance(own[:, :16]) for design, own in words.items()}
    assert short == {"far": 4, "nested": 6}


def test_same_seed_same_codewords_and_other_seed_others() -> None:
    first = codebook(20, 32, design="nested", seed=5)
    assert (first == codebook(20, 32, design="nested", seed=5)).all()
    assert (first != codebook(20, 32, design="nested", seed=6)).any()


@pytest.mark.parametrize("bits", range(1, 8))
def test_short_codes_have_distinct_codewords(bits: int) -> None:
    for classes in range(2, 2**bits + 1):
        found = codebook_quality(codebook(classes, bits, design="nested", seed=bits))
        assert found.duplicates == 0 and found.dead_bits == 0


def test_a_thousand_classes_take_seconds() -> None:
    start = time.perf_counter()
    words = codebook(1000, 128, design="nested")
    assert time.perf_counter() - start < 20
    found = dict(zip(prefix_lengths(128), prefix_distances(words), strict=True))
    assert found[16] >= 4 and found[32] >= 10 and found[64] >= 25 and found[128] >= 55


def test_a_cut_is_no_worse_than_any_exchange_of_its_first_class() -> None:
    rng = np.random.default_rng(0)
    weights = rng.random((12, 12))
    weights = weights + weights.T
    np.fill_diagonal(weights, 0)
    signs = _cut(weights, rng)
    assert signs.sum() == 0
    out = int(np.where(signs > 0, weights @ signs, -np.inf).argmax())
    for into in np.flatnonzero(signs < 0):
        other = signs.copy()
        other[[out, into]] = -1, 1
        assert other @ weights @ other >= signs @ weights @ signs - 1e-9
