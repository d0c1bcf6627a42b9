"""The arguments of `codebook`, and the designs paper, csq and random."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from scipy.linalg import hadamard as scipy_hadamard

import hadahash
from hadahash.codebooks import DESIGNS, codebook, codebook_quality, paper_order
from hadahash.codebooks.quality import minimum_distance
from hadahash.errors import UsageError


@pytest.mark.parametrize(
    ("classes", "bits", "text"),
    [
        (1, 16, "classes must be >= 2 and <= 1048576, got 1."),
        (0, 16, "classes must be >= 2 and <= 1048576, got 0."),
        (-3, 16, "classes must be >= 2 and <= 1048576, got -3."),
        (2**20 + 1, 64, "classes must be >= 2 and <= 1048576, got 1048577."),
        (10, 0, "bits must be >= 1 and <= 4096, got 0."),
        (10, -8, "bits must be >= 1 and <= 4096, got -8."),
        (10, 4097, "bits must be >= 1 and <= 4096, got 4097."),
        (17, 4, "bits must be >= 5 for 17 classes, got 4: 4 bits give only 16 codewords."),
        (2.0, 4, "classes must be an integer, got 2.0."),
        (2, True, "bits must be an integer, got True."),
    ],
)
def test_wrong_sizes(classes: int, bits: int, text: str) -> None:
    for design in DESIGNS.names():
        with pytest.raises(UsageError) as caught:
            codebook(classes, bits, design=design)
        assert str(caught.value) == text


def test_wrong_names_and_seeds() -> None:
    with pytest.raises(UsageError, match=r"Unknown codebook design 'papre'\. Did you mean 'paper'"):
        codebook(10, 16, design="papre")
    with pytest.raises(UsageError, match=r"seed must be >= 0, got -1\.$"):
        codebook(10, 16, seed=-1)
    with pytest.raises(UsageError, match=r"seed must be an integer, got 0\.5"):
        codebook(10, 16, seed=0.5)  # type: ignore[arg-type]


def test_numpy_sizes_and_the_default_design() -> None:
    assert (
        codebook(np.int64(10), np.int32(16)) == codebook(classes=10, bits=16, design="far", seed=0)
    ).all()


def test_public_names_survive_the_import_of_the_subpackage() -> None:
    assert hadahash.codebook is codebook
    assert hadahash.hadamard(4).shape == (4, 4)


@pytest.mark.parametrize("design", DESIGNS.names())
@pytest.mark.parametrize(
    ("classes", "bits"),
    [(2, 4), (10, 16), (10, 64), (21, 16), (30, 24), (100, 32), (6, 4), (6, 3), (2, 1)],
)
def test_every_design_keeps_the_contract(design: str, classes: int, bits: int) -> None:
    if (design, classes, bits) == ("csq", 6, 3):  # only 3 codewords have half of 3 bits set
        with pytest.raises(UsageError, match="only 3 distinct codewords of 3 bits for 6 classes"):
            codebook(classes, bits, design=design)
        return
    codewords = codebook(classes, bits, design=design, seed=3)
    assert (
        codewords.dtype == np.int8
        and codewords.shape == (classes, bits)
        and codewords.flags.c_contiguous
    )
    assert set(np.unique(codewords)) == {-1, 1}
    assert codebook_quality(codewords).duplicates == 0
    assert (codewords == codebook(classes, bits, design=design, seed=3)).all()
    if bits >= 16:
        assert (codewords != codebook(classes, bits, design=design, seed=4)).any()


GOLDEN = {
    ("paper", 10, 16, 0): "fbdcb5c57c01ac13",
    ("paper", 21, 16, 1): "510dab50692d8e28",
    ("far", 10, 32, 0): "9b211de8955621c9",
    ("csq", 10, 16, 0): "7605a2312701889c",
    ("csq", 100, 16, 1): "2a8cd56a4c1e8665",
    ("random", 10, 16, 0): "52ca9492c93eaa15",
    ("far", 21, 16, 5): "5ad54949599833fa",
    ("far", 100, 32, 0): "e772dc4a9aefdead",
}


@pytest.mark.parametrize("key", GOLDEN)
def test_the_same_bytes_everywhere(key: tuple[str, int, int, int]) -> None:
    design, classes, bits, seed = key
    codewords = codebook(classes, bits, design=design, seed=seed)
    assert hashlib.sha256(codewords.tobytes()).hexdigest()[:16] == GOLDEN[key]


def printed_order(classes: int, bits: int) -> int:
    """Equation (6): K* = min {r | r = 2^k, r >= K, r >= C, k = 1, 2, ...}."""
    return next(2**k for k in range(1, 64) if 2**k >= bits and 2**k >= classes)


def printed(classes: int, bits: int, seed: int) -> np.ndarray:
    """Algorithm 1 line by line, with the stated deviations.

    Codewords are rows, row 0 is left out where it is not needed, and equal codewords are redrawn.
    """
    rng = np.random.Generator(np.random.PCG64(seed))
    order = printed_order(classes, bits)
    first = 0 if classes == order else 1
    while True:
        H = scipy_hadamard(order).astype(float)
        if order != bits:
            H = H @ rng.standard_normal((order, bits))
        H = np.where(H >= 0, 1, -1)
        codewords = H[first:][rng.permutation(order - first)[:classes]]
        if len({tuple(word) for word in codewords.tolist()}) == classes:
            return codewords


@pytest.mark.parametrize(
    ("classes", "bits"),
    [
        (10, 16),
        (64, 64),
        (16, 16),
        (21, 16),
        (100, 16),
        (64, 32),
        (32, 16),
        (10, 48),
        (5, 3),
        (2, 1),
    ],
)
def test_paper_equals_the_printed_algorithm(classes: int, bits: int) -> None:
    for seed in range(8):
        assert (
            codebook(classes, bits, design="paper", seed=seed) == printed(classes, bits, seed)
        ).all()


@pytest.mark.parametrize("bits", [2, 4, 16, 32, 64, 128])
def test_paper_with_as_many_classes_as_bits_is_the_whole_hadamard_matrix(bits: int) -> None:
    for seed in range(4):
        codewords = codebook(bits, bits, design="paper", seed=seed)
        rows = {tuple(row) for row in scipy_hadamard(bits).tolist()}
        assert {tuple(word) for word in codewords.tolist()} == rows
        assert minimum_distance(codewords) == bits // 2


def test_paper_order_is_equation_6() -> None:
    for classes in range(2, 140):
        for bits in (1, 2, 3, 16, 31, 32, 48, 64, 128):
            assert paper_order(classes, bits) == printed_order(classes, bits)


@pytest.mark.parametrize(("classes", "bits"), [(10, 16), (15, 16), (21, 32), (63, 64), (100, 128)])
def test_paper_codewords_are_orthogonal_rows_of_sylvester(classes: int, bits: int) -> None:
    rows = {tuple(row) for row in scipy_hadamard(bits)[1:].tolist()}
    for seed in range(30):
        codewords = codebook(classes, bits, design="paper", seed=seed).astype(int)
        assert {
            tuple(word) for word in codewords.tolist()
        } <= rows  # the constant row is not among them
        assert (
            codewords @ codewords.T == bits * np.eye(classes)
        ).all()  # every distance is bits / 2
        assert (codewords.sum(1) == 0).all() and (
            codewords[:, 0] == 1
        ).all()  # codewords balanced; bit 0 is constant


@pytest.mark.parametrize(("classes", "bits"), [(10, 16), (21, 32), (100, 128)])
def test_orthogonal_codewords_cannot_have_balanced_bits(classes: int, bits: int) -> None:
    for seed in range(5):
        found = codebook_quality(codebook(classes, bits, design="paper", seed=seed))
        assert found.bit_balance == pytest.approx(1 / classes, rel=1e-12)
        assert found.dead_bits >= 1


def test_paper_draws_again_when_codewords_collide() -> None:
    distances = [
        minimum_distance(codebook(100, 16, design="paper", seed=seed)) for seed in range(40)
    ]
    assert min(distances) == 1 and np.mean(distances) < 2.5  # distinct, and not improved


def test_paper_gives_up_with_a_remedy() -> None:
    with pytest.raises(UsageError, match="more bits, or design='far'"):
        codebook(200, 8, design="paper")


@pytest.mark.parametrize(("classes", "bits"), [(5, 64), (21, 16), (10, 32)])
def test_random_codewords_that_differ_are_taken_as_drawn(classes: int, bits: int) -> None:
    rng = np.random.Generator(np.random.PCG64(3))
    drawn = np.stack([rng.integers(0, 2, bits) * 2 - 1 for _ in range(classes)])
    assert len(np.unique(drawn, axis=0)) == classes
    assert (codebook(classes, bits, design="random", seed=3) == drawn).all()


@pytest.mark.parametrize(("classes", "bits"), [(100, 8), (256, 8), (300, 12), (2, 1)])
def test_repeated_random_codewords_are_drawn_again(classes: int, bits: int) -> None:
    for seed in range(5):
        found = codebook_quality(codebook(classes, bits, design="random", seed=seed))
        assert (found.classes, found.bits, found.duplicates) == (classes, bits, 0)
