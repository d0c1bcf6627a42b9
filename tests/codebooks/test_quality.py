"""The measures of a codebook against slow reference implementations."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from hadahash.codebooks import CodebookQuality, codebook, codebook_quality
from hadahash.errors import UsageError


def slow_measures(codewords: np.ndarray) -> dict[str, float]:
    codewords = codewords.astype(float)
    pairs = list(combinations(codewords, 2))
    distances = [int((a != b).sum()) for a, b in pairs]
    products = [abs(a @ b) / codewords.shape[1] for a, b in pairs]
    bits = list(codewords.T)
    correlations = [
        0.0
        if a.std() == 0 or b.std() == 0
        else abs(((a - a.mean()) * (b - b.mean())).mean() / (a.std() * b.std()))
        for a, b in combinations(bits, 2)
    ]
    return {
        "classes": codewords.shape[0],
        "bits": codewords.shape[1],
        "minimum_distance": min(distances),
        "mean_distance": float(np.mean(distances)),
        "bit_balance": float(np.mean([bit.mean() ** 2 for bit in bits])),
        "worst_column_sum": max(abs(int(bit.sum())) for bit in bits),
        "codeword_balance": float(np.mean([abs(word.sum()) for word in codewords])),
        "mean_bit_correlation": float(np.mean(correlations)),
        "max_bit_correlation": max(correlations),
        "mean_inner_product": float(np.mean(products)),
        "max_inner_product": max(products),
        "dead_bits": sum(len(set(bit)) == 1 for bit in bits),
        "duplicates": len(codewords) - len({tuple(word) for word in codewords}),
    }


@pytest.mark.parametrize("block", [1, 7, 64, 1 << 22])
def test_measures_equal_the_slow_reference(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(codebook_quality.__globals__, "_BLOCK", block)
    rng = np.random.default_rng(0)
    for classes, bits in [(2, 2), (5, 3), (9, 8), (23, 17)]:
        codewords = rng.choice(np.array([-1, 1], np.int8), (classes, bits), p=[0.2, 0.8])
        found = codebook_quality(codewords).to_dict()
        for name, value in slow_measures(codewords).items():
            assert found[name] == pytest.approx(value, abs=1e-12), name


def test_a_simplex_code() -> None:
    found = codebook_quality(codebook(16, 15))  # a simplex code: equidistant, balanced
    assert isinstance(found, CodebookQuality)
    assert (found.minimum_distance, found.distance_bound, found.mean_distance) == (8, 8, 8.0)
    assert found.bit_balance == 0 and found.worst_column_sum == 0
    assert found.max_bit_correlation == 0  # its bits are uncorrelated


def test_one_bit() -> None:
    found = codebook_quality([[1], [-1]])
    assert (
        found.minimum_distance == 1
        and found.mean_bit_correlation == 0
        and found.max_bit_correlation == 0
    )


@pytest.mark.parametrize(
    "codewords", [[1, -1], [[1, -1]], [[1, 0], [1, 1]], [[], []], [["a"], ["b"]]]
)
def test_other_arrays_are_refused(codewords: object) -> None:
    with pytest.raises(UsageError, match="codebook"):
        codebook_quality(codewords)  # type: ignore[arg-type]
