"""The bits of what an image looks like."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image, ImageEnhance, ImageOps

from hadahash.codes import hamming
from hadahash.data.appearance import BITS, appearance_bits
from hadahash.data.squares import Reduced


def photo(seed: int = 0) -> Image.Image:
    """Smooth random colors."""
    small = np.random.default_rng(seed).integers(0, 256, (8, 10, 3), dtype=np.uint8)
    return Image.fromarray(small).resize((200, 150), Image.Resampling.BICUBIC)


def bits(image: Image.Image) -> np.ndarray:
    pixels = np.array(image)
    return np.frombuffer(appearance_bits(Reduced(pixels, pixels.shape[:2])), np.uint8)[None]


def slow_bits(image: Image.Image) -> np.ndarray:
    """The definition, coefficient by coefficient."""
    gray = np.array(image.resize((32, 32), Image.Resampling.BILINEAR)) @ [0.299, 0.587, 0.114]
    x = (2 * np.arange(32) + 1) * np.pi / 64
    found = []
    for number in range(1, BITS + 1):
        down, across = divmod(number, 8)
        wave = np.outer(np.cos(down * x), np.cos(2 * across * x))
        found.append((gray * wave).sum() > 1e-6 * gray.sum())
    return np.packbits(found)[None]


@pytest.mark.parametrize("seed", range(5))
def test_bits_are_signs_of_frequencies(seed):
    assert np.array_equal(bits(photo(seed)), slow_bits(photo(seed)))


@pytest.mark.parametrize("seed", range(5))
def test_copies_keep_their_bits_and_other_photos_do_not(seed):
    image = photo(seed)
    copies = {
        "mirrored": (ImageOps.mirror(image), 0),
        "half size": (image.resize((100, 75)), 2),
        "darker": (ImageEnhance.Brightness(image).enhance(0.7), 2),
    }
    for name, (copy, limit) in copies.items():
        assert hamming(bits(image), bits(copy))[0, 0] <= limit, name
    for other in (photo(seed + 100), image.transpose(Image.Transpose.ROTATE_90)):
        assert hamming(bits(image), bits(other))[0, 0] >= 16


def test_a_uniform_image_has_no_bits():
    for color in (0, 7, 255):
        assert not bits(Image.new("RGB", (40, 30), (color,) * 3)).any()
