"""Squares: cropped or squashed, antialiased, and decoded no larger than needed."""

from __future__ import annotations

import numpy as np
import pytest
from make_images import encode, picture

from hadahash.data.images import open_image
from hadahash.data.squares import shrink_to_square
from hadahash.errors import UsageError


def triangle(length: int, start: int, short: int, side: int) -> np.ndarray:
    """Weights (side, length) of the pixels when start..start+short of a row becomes `side`."""
    step = short / side
    centers = start + (np.arange(side) + 0.5) * step
    away = np.abs(np.arange(length) + 0.5 - centers[:, None]) / max(step, 1)
    weights = np.maximum(0, 1 - away)
    return weights / weights.sum(1, keepdims=True)


@pytest.mark.parametrize("size", [(40, 56), (56, 40), (51, 50), (16, 80), (300, 211)])
@pytest.mark.parametrize("side", [16, 50])
def test_crop_is_the_antialiased_center(size, side):
    image = np.random.default_rng(0).integers(0, 256, (*size, 3), dtype=np.uint8)
    short = min(size)
    rows, columns = (triangle(length, (length - short) // 2, short, side) for length in size)
    expected = np.einsum("iwc,jw->ijc", np.tensordot(rows, image, 1), columns)
    assert np.abs(shrink_to_square(image, side) - expected).max() < 1.6  # rounded twice


def test_shrinking_is_antialiased_and_crops_exactly():
    stripes = np.zeros((64, 64, 3), np.uint8)
    stripes[:, ::2] = 255
    assert (
        np.abs(shrink_to_square(stripes, 16).astype(int)[:, 1:-1] - 127).max() <= 2
    )  # not aliased to 0 or 255
    image = picture(40, 51)
    assert np.array_equal(shrink_to_square(image, 40), image[:, 5:45])
    square = picture(32, 32)
    assert shrink_to_square(square, 32) is square
    assert shrink_to_square(square, 32, fit="squash") is square


def test_squash_keeps_the_whole_image():
    image = np.zeros((20, 60, 3), np.uint8)
    image[:, :20], image[:, 40:] = 100, 200
    squashed = shrink_to_square(image, 20, fit="squash")
    assert squashed[:, 0].mean() == 100
    assert squashed[:, -1].mean() == 200
    assert shrink_to_square(image, 20).max() == 0


def test_extreme_aspect_ratios_become_squares():
    for shape in ((1, 10_000), (10_000, 1), (1, 1)):
        assert (shrink_to_square(np.full((*shape, 3), 7, np.uint8), 224) == 7).all()
    with pytest.raises(UsageError, match="fit"):
        shrink_to_square(picture(), 8, fit="stretch")
    with pytest.raises(UsageError, match="side must be >= 1, got 0"):
        shrink_to_square(picture(), 0)


def test_at_least_decodes_a_jpeg_smaller_but_never_too_small():
    smooth = picture(400, 640)
    data = encode(smooth, "JPEG", quality=95)
    exact = shrink_to_square(open_image(data), 50).astype(int)
    for side, expected in (
        (1000, 400),
        (400, 400),
        (201, 400),
        (200, 200),
        (100, 100),
        (51, 100),
        (50, 50),
        (3, 50),
    ):
        assert min(open_image(data, at_least=side).shape[:2]) == expected
    near = shrink_to_square(open_image(data, at_least=100), 50).astype(int)
    assert np.abs(near - exact).mean() < 2
    assert open_image(encode(smooth, "PNG"), at_least=50).shape == smooth.shape
