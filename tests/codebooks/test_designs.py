"""The arguments of `codebook`, and the design of the paper."""

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
        (1, 16, "One class has nothing to tell apart: give at least 2 classes."),
        (0, 16, "at least 2 classes, got classes=0"),
        (-3, 16, "got classes=-3"),
        (10, 0, "at least 1 bit, got bits=0"),
        (10, -8, "got bits=-8"),
        (
            17,
            4,
            "4 bits have only 16 different codes, too few for 17 classes: give at least 5 bits.",
        ),
        (10, 4097, "at most 1048576 classes and 4096 bits, got classes=10, bits=4097"),
        (2**20 + 1, 64, "at most 1048576 classes"),
        (2.0, 4, "classes must be a whole number, got 2.0"),
        (2, True, "bits must be a whole number, got True"),
    ],
)
def test_wrong_sizes(classes: int, bits: int, text: str) -> None:
    for design in DESIGNS.names():
        with pytest.raises(UsageError) as caught:
            codebook(classes, bits, design=design)
        assert text in str(caught.value) and "\n" not in str(caught.value)


def test_wrong_names_and_seeds() -> None:
    with pytest.raises(UsageError, match=r"Unknown codebook design 'papre'\. Did you mean 'paper'"):
        codebook(10, 16, design="papre")
    with pytest.raises(UsageError, match="seed"):
        codebook(10, 16, seed=-1)
    with pytest.raises(UsageError, match="seed must be a whole number"):
        codebook(10, 16, seed=0.5)  # type: ignore[arg-type]


def test_numpy_sizes_and_the_default_design() -> None:
    assert (
        codebook(np.int64(10), np.int32(16)) == codebook(classes=10, bits=16, design="far", seed=0)
    ).all()


def test_public_names_survive_the_import_of_the_subpackage() -> None:
    assert hadahash.codebook is codebook
    assert hadahash.hadamard(4).shape == (4, 4)


@pytest.mark.parametrize("design", ["far", "paper"])
@pytest.mark.parametrize(
    ("classes", "bits"), [(2, 4), (10, 16), (10, 64), (21, 16), (30, 24), (100, 32), (6, 3), (2, 1)]
)
def test_every_design_keeps_the_contract(design: str, classes: int, bits: int) -> None:
    book = codebook(classes, bits, design=design, seed=3)
    assert book.dtype == np.int8 and book.shape == (classes, bits) and book.flags.c_contiguous
    assert set(np.unique(book)) == {-1, 1}
    assert codebook_quality(book).duplicates == 0
    assert (book == codebook(classes, bits, design=design, seed=3)).all()
    if bits >= 16:
        assert (book != codebook(classes, bits, design=design, seed=4)).any()


GOLDEN = {
    ("paper", 10, 16, 0): "fbdcb5c57c01ac13",
    ("paper", 21, 16, 1): "510dab50692d8e28",
    ("far", 10, 32, 0): "9b211de8955621c9",
    ("far", 21, 16, 5): "5ad54949599833fa",
    ("far", 100, 32, 0): "e772dc4a9aefdead",
}


@pytest.mark.parametrize("key", GOLDEN)
def test_the_same_bytes_everywhere(key: tuple[str, int, int, int]) -> None:
    design, classes, bits, seed = key
    book = codebook(classes, bits, design=design, seed=seed)
    assert hashlib.sha256(book.tobytes()).hexdigest()[:16] == GOLDEN[key]


def literal(classes: int, bits: int, seed: int) -> np.ndarray:
    """Algorithm 1 line by line, without row 0, drawn again while two codewords are equal."""
    rng = np.random.Generator(np.random.PCG64(seed))
    order = 2
    while order < bits or order < classes + 1:
        order *= 2
    while True:
        H = scipy_hadamard(order).astype(float)
        if order != bits:
            H = H @ rng.standard_normal((order, bits))
        H = np.where(H >= 0, 1, -1)
        book = H[1:][rng.permutation(order - 1)[:classes]]
        if len({tuple(word) for word in book.tolist()}) == classes:
            return book


@pytest.mark.parametrize(
    ("classes", "bits"),
    [(10, 16), (10, 64), (16, 16), (21, 16), (100, 16), (100, 32), (10, 48), (5, 3)],
)
def test_paper_equals_the_literal_algorithm(classes: int, bits: int) -> None:
    for seed in range(8):
        assert (
            codebook(classes, bits, design="paper", seed=seed) == literal(classes, bits, seed)
        ).all()


def test_paper_order() -> None:
    assert [
        paper_order(c, k) for c, k in [(10, 16), (15, 16), (16, 16), (100, 16), (10, 48), (2, 1)]
    ] == [
        16,
        16,
        32,
        128,
        64,
        4,
    ]


@pytest.mark.parametrize(("classes", "bits"), [(10, 16), (15, 16), (21, 32), (63, 64), (100, 128)])
def test_paper_codewords_are_orthogonal_rows_of_sylvester(classes: int, bits: int) -> None:
    rows = {tuple(row) for row in scipy_hadamard(bits)[1:].tolist()}
    for seed in range(30):
        book = codebook(classes, bits, design="paper", seed=seed).astype(int)
        assert {tuple(word) for word in book.tolist()} <= rows  # the constant row is not among them
        assert (book @ book.T == bits * np.eye(classes)).all()  # every distance is bits / 2
        assert (book.sum(1) == 0).all() and (
            book[:, 0] == 1
        ).all()  # codewords balanced; bit 0 is dead


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
