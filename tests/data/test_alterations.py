"""Alterations of images."""

from __future__ import annotations

import numpy as np
import pytest

from hadahash.data import ArrayImages
from hadahash.data.alterations import ALTERATIONS, AlteredImages, alter
from hadahash.errors import UsageError


@pytest.fixture
def photo():
    y, x = np.mgrid[:40, :60]
    return np.stack([4 * x, 6 * y, 120 + 0 * x], axis=2).astype(np.uint8)


def test_each_alteration_does_what_its_name_says(photo):
    assert (alter(photo, "none") == photo).all()
    assert (alter(photo, "crop80") == photo[4:36, 6:54]).all()
    assert alter(photo, "resize50").shape == (20, 30, 3)
    assert (alter(photo, "mirror") == photo[:, ::-1]).all()
    assert np.abs(alter(photo, "dark") - 0.6 * photo).max() <= 1
    spread = [np.ptp(alter(photo, name), axis=2).astype(int).mean() for name in ("none", "color")]
    assert spread[1] == pytest.approx(spread[0] / 2, rel=0.1)
    error = np.abs(alter(photo, "jpeg50").astype(int) - photo).mean()
    assert 0 < error < 10


@pytest.mark.parametrize("name", ALTERATIONS)
def test_a_single_pixel_can_be_altered(name):
    assert alter(np.full((1, 1, 3), 9, np.uint8), name).shape == (1, 1, 3)


def test_images_are_altered_when_they_are_read(photo):
    images = AlteredImages(ArrayImages(np.stack([photo, photo[::-1]])), "crop80")
    assert len(images) == 2
    assert (images.take(np.array([1]))[0] == photo[::-1][4:36, 6:54]).all()


def test_an_unknown_alteration_is_refused(photo):
    with pytest.raises(UsageError, match="blur"):
        alter(photo, "blur")
