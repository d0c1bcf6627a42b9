"""How images reach the network: the chosen square, and its central view."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn import functional as F  # noqa: N812

from hadahash.config import InputConfig
from hadahash.data import ArrayImages, FileImages, MemoryImages
from hadahash.data.preprocess import Preprocess, choose_preprocess
from hadahash.data.views import center_view
from hadahash.errors import UsageError


def _pixels(side: int, count: int = 3, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(256, (count, 3, side, side), generator=generator, dtype=torch.uint8)


def test_enlarging_is_bilinear_interpolation():
    pixels = _pixels(32)
    ours = center_view(pixels, Preprocess(side=32, size=64, crop=1.0))
    theirs = F.interpolate(pixels.float(), size=64, mode="bilinear", align_corners=False)
    assert ours.dtype == torch.float32
    assert (ours - theirs).abs().max() / 255 < 1e-4


def test_the_central_crop_of_whole_pixels_is_plain_slicing():
    pixels = _pixels(256, count=1)
    view = center_view(pixels, Preprocess(side=256, size=224, crop=0.875))
    torch.testing.assert_close(view, pixels[:, :, 16:240, 16:240].float(), rtol=0, atol=0.02)


def test_an_image_of_the_right_size_is_left_alone():
    pixels = _pixels(32)
    assert torch.equal(center_view(pixels, Preprocess(side=32, size=32, crop=1.0)), pixels.float())


@pytest.mark.parametrize(
    ("pixels", "settings", "expected"),
    [
        ((32, 32), {}, (32, 224, 1.0)),  # small images are used whole
        ((300, 400), {}, (256, 224, 0.875)),
        ((256, 256), {}, (256, 224, 0.875)),
        ((240, 300), {}, (240, 224, 1.0)),
        ((300, 300), {"size": 64}, (73, 64, 0.875)),
        ((300, 300), {"size": 64, "side": 100, "crop": 0.5}, (100, 64, 0.5)),
    ],
)
def test_the_square_follows_the_size_of_the_images(pixels, settings, expected):
    images = ArrayImages(np.zeros((3, *pixels, 3), np.uint8))
    chosen = choose_preprocess(images, 224, InputConfig(**settings))
    assert (chosen.side, chosen.size, chosen.crop) == expected


def test_the_square_follows_the_median_image(tmp_path):
    sizes = [(50, 60), (50, 60), (40, 41), (2000, 1000), (50, 90)]
    pictures = [Image.new("RGB", size) for size in sizes]
    for number, picture in enumerate(pictures):
        picture.save(tmp_path / f"{number}.png")
    (tmp_path / "x.png").write_bytes(b"broken")
    paths = sorted(tmp_path.glob("*.png"))
    contents = [path.read_bytes() for path in paths]
    arrays = [np.asarray(picture) for picture in pictures]
    for images in (FileImages(paths), *map(MemoryImages, (contents, arrays, pictures))):
        assert choose_preprocess(images, 224, InputConfig()).side == 50


def test_sizes_of_a_lazily_loaded_image_are_read_from_its_header():
    buffer = io.BytesIO()
    Image.new("RGB", (30, 20)).save(buffer, "PNG")
    images = MemoryImages([buffer.getvalue()])
    assert choose_preprocess(images, 224, InputConfig()).side == 20


def test_images_that_are_too_small_are_refused():
    images = ArrayImages(np.zeros((3, 3, 3, 3), np.uint8))
    with pytest.raises(UsageError, match=r"side >= 4, got size=224 and side=3"):
        choose_preprocess(images, 224, InputConfig())
