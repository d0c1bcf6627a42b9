"""Pairs that share a key: compiled code with every instruction set, and numpy, equal plain loops."""

from __future__ import annotations

import numpy as np
import pytest

from hadahash import native
from hadahash.errors import UsageError
from hadahash.native import pairs


def example(words, count=700):
    """Codes near a few random ones, in components, with keys that some of them share."""
    rng = np.random.default_rng(words)
    codes = rng.integers(0, 1 << 63, (5, words), np.uint64)[rng.integers(0, 5, count)]
    codes ^= np.uint64(1) << rng.integers(0, 64, (count, words), np.uint64)
    components = np.sort(rng.integers(0, count // 2, count)).astype(np.uint32)
    positions = np.arange(count, dtype=np.uint64)
    keys = np.sort(rng.integers(0, 20, count, np.uint64) << np.uint64(32) | positions)
    return keys, codes, components


def all_pairs(keys, codes, components, radius):
    """Pairs within the radius, by loops, and how many share a key."""
    found, compared = set(), 0
    for first in range(len(keys)):
        for second in range(first + 1, len(keys)):
            a, b = int(keys[first]) & 0xFFFFFFFF, int(keys[second]) & 0xFFFFFFFF
            if keys[first] >> 32 != keys[second] >> 32:
                break
            if components[a] != components[b]:
                compared += 1
                distance = int(np.bitwise_count(codes[a] ^ codes[b]).sum())
                found |= {(a, b, distance)} if distance <= radius else set()
    return found, compared


@pytest.mark.parametrize("words", [1, 2, 3, 4, 5])
def test_all_implementations_find_the_same_pairs(words, monkeypatch):
    given = example(words)
    monkeypatch.setattr(pairs, "_PAIRS_PER_STEP", 100)
    for radius in (0, 4, 64):
        expected, compared = all_pairs(*given, radius)
        for level in range(-1, len(native.levels())):
            found = list(pairs.near_pairs(*given, radius, level=level))
            links = [tuple(link) for part, _ in found for link in part.tolist()]
            assert len(links) == len(expected) and set(links) == expected
            assert sum(count for _, count in found) == compared
        with monkeypatch.context() as patch:
            patch.setenv("HADAHASH_NATIVE", "0")
            found = list(pairs.near_pairs(*given, radius))
        assert {tuple(link) for part, _ in found for link in part.tolist()} == expected
        assert sum(count for _, count in found) == compared and len(found) > 1


def test_more_pairs_than_fit_are_returned_in_parts(monkeypatch):
    monkeypatch.setattr(pairs, "_LINKS_PER_STEP", 1)
    _, codes, components = example(2, 300)
    keys = np.arange(300, dtype=np.uint64)  # all share one key
    expected, _ = all_pairs(keys, codes, components, 128)
    found = list(pairs.near_pairs(keys, codes, components, 128))
    assert {tuple(link) for part, _ in found for link in part.tolist()} == expected
    assert len(found) > 1 or not native.available()


def test_no_codes_have_no_pairs(monkeypatch):
    none = np.zeros(0, np.uint64), np.zeros((0, 3), np.uint64), np.zeros(0, np.uint32)
    assert list(pairs.near_pairs(*none, 3)) == []
    monkeypatch.setenv("HADAHASH_NATIVE", "0")
    assert list(pairs.near_pairs(*none, 3)) == []


def test_arrays_that_do_not_match_are_refused():
    keys, codes, components = example(2)
    wrong = [
        (keys[:-1], codes, components),
        (keys.astype(np.int64), codes, components),
        (keys, codes[:, 0], components),
        (keys, codes, components.astype(np.uint64)),
        (keys + np.uint64(1), codes, components),
        (keys, np.asfortranarray(codes), components),
    ]
    for arrays in wrong:
        with pytest.raises(UsageError, match="do not match"):
            next(pairs.near_pairs(*arrays, 3))
