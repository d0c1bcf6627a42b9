"""Pixels to network input: the central view, the augmentation table and what it does to a batch."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F  # noqa: N812

from hadahash.data.preprocess import AugmentSettings, Preprocess, augment, center, draw, mix_targets

PLAIN = AugmentSettings(crop_area=1, jitter=0, flip=0)


def _pixels(side: int, count: int = 3, seed: int = 0) -> torch.Tensor:
    return torch.randint(
        256,
        (count, 3, side, side),
        generator=torch.Generator().manual_seed(seed),
        dtype=torch.uint8,
    )


def _table(
    count: int, settings: AugmentSettings, *, crop: float = 1.0, seed: int = 0
) -> torch.Tensor:
    return draw(count, settings, crop, torch.Generator().manual_seed(seed))


def test_enlarging_is_bilinear_interpolation():
    pixels = _pixels(32)
    ours = center(pixels, Preprocess(side=32, size=64, crop=1.0))
    theirs = F.interpolate(pixels.float(), size=64, mode="bilinear", align_corners=False)
    assert ours.dtype == torch.float32
    assert (ours - theirs).abs().max() / 255 < 1e-4


def test_the_central_crop_of_whole_pixels_is_plain_slicing():
    pixels = _pixels(256, count=1)
    view = center(pixels, Preprocess(side=256, size=224, crop=0.875))
    torch.testing.assert_close(view, pixels[:, :, 16:240, 16:240].float(), rtol=0, atol=0.02)


def test_an_image_of_the_right_size_is_left_alone():
    pixels = _pixels(32)
    assert torch.equal(center(pixels, Preprocess(side=32, size=32, crop=1.0)), pixels.float())


@pytest.mark.parametrize(
    ("side", "size", "crop"), [(32, 32, 1.0), (32, 64, 1.0), (64, 56, 0.875), (40, 28, 0.7)]
)
def test_without_augmentation_training_sees_what_encoding_sees(side, size, crop):
    pixels, table = _pixels(side), _table(3, replace(PLAIN, crop_shift=0.0), crop=crop)
    assert _table(3, PLAIN, crop=crop)[:, :2].abs().max() <= 1 - crop, (
        "shifted crops stay inside the square"
    )
    view = center(pixels, Preprocess(side=side, size=size, crop=crop))
    torch.testing.assert_close(augment(pixels, table, size), view, rtol=0, atol=0.02)


def test_a_flip_mirrors_exactly():
    pixels = _pixels(32)
    table = _table(3, PLAIN)
    mirrored = table.clone()
    mirrored[:, 2] *= -1
    assert torch.equal(augment(pixels, mirrored, 32), augment(pixels, table, 32).flip(3))
    torch.testing.assert_close(
        augment(pixels, mirrored, 32), pixels.flip(3).float(), rtol=0, atol=0.02
    )


@pytest.mark.parametrize(("flip", "low", "high"), [(0.0, 0, 0), (1.0, 1, 1), (0.5, 0.45, 0.55)])
def test_flips_come_as_often_as_asked(flip, low, high):
    share = (_table(2000, AugmentSettings(flip=flip))[:, 2] < 0).float().mean()
    assert low <= share <= high


@pytest.mark.parametrize(
    ("area", "aspect", "crop"),
    [(0.5, 4 / 3, 1.0), (0.9, 4 / 3, 1.0), (0.08, 2.0, 0.875), (1.0, 4 / 3, 1.0)],
)
def test_crops_keep_their_share_their_shape_and_stay_inside(area, aspect, crop):
    table = _table(4000, AugmentSettings(crop_area=area, crop_aspect=aspect), crop=crop)
    across, down, wide, high = table[:, 0], table[:, 1], table[:, 2].abs(), table[:, 3]
    share = wide * high / crop**2
    assert share.min() >= area - 1e-5 and share.max() <= 1 + 1e-5
    assert (wide / high).max() <= aspect + 1e-4 and (high / wide).max() <= aspect + 1e-4
    assert (across.abs() + wide).max() <= 1 + 1e-5 and (down.abs() + high).max() <= 1 + 1e-5
    if area < 1:
        assert share.std() > 0.01 and (wide / high).std() > 0.01 and across.std() > 0.01


def test_a_crop_row_cuts_the_box_it_says():
    pixels, table = _pixels(32), _table(3, PLAIN)
    table[:, :4] = torch.tensor([-0.25, 0.5, 0.5, 0.25])  # columns 4 to 20, rows 20 to 28 of the 32
    view = augment(pixels, table, 16)
    assert view.shape == (3, 3, 16, 16)
    down = (
        (torch.arange(16) + 0.5) / 2 + 20 - 0.5
    )  # where the rows of the output lie among the rows of the square
    above = down.floor().long()
    part = (down - above)[:, None]
    slow = (1 - part) * pixels[:, :, above, 4:20].float() + part * pixels[
        :, :, above + 1, 4:20
    ].float()
    torch.testing.assert_close(view, slow, rtol=0, atol=0.02)


def test_jitter_stays_in_range_and_follows_its_formula():
    pixels = _pixels(16)
    settings = AugmentSettings(crop_area=1, flip=0, jitter=0.5)
    table = _table(3, settings)
    assert ((table[:, 4:7] >= 0.5) & (table[:, 4:7] <= 1.5)).all() and table[:, 4:7].std() > 0.05
    slow = []
    for image, (brightness, contrast, saturation) in zip(
        pixels.float(), table[:, 4:7], strict=True
    ):
        image = image * brightness
        image = (image - image.mean()) * contrast + image.mean()
        grey = image.mean(0, keepdim=True)
        slow.append(((image - grey) * saturation + grey).clamp(0, 255))
    torch.testing.assert_close(augment(pixels, table, 16), torch.stack(slow), rtol=0, atol=0.02)


def test_mixup_mixes_pixels_and_targets_with_the_same_weights():
    pixels, settings = (
        _pixels(16, count=5),
        AugmentSettings(crop_area=1, jitter=0, flip=0, mixup=0.4),
    )
    table, targets = _table(5, settings), torch.eye(5)
    weights = table[:, 7]
    assert ((weights >= 0.5) & (weights <= 1)).all() and weights.std() > 0
    images, mixed = augment(pixels, table, 16), mix_targets(targets, table)
    for i in range(5):
        expected = weights[i] * pixels[i].float() + (1 - weights[i]) * pixels[4 - i].float()
        torch.testing.assert_close(images[i], expected, rtol=0, atol=0.02)
        torch.testing.assert_close(
            mixed[i], weights[i] * targets[i] + (1 - weights[i]) * targets[4 - i]
        )
    torch.testing.assert_close(mixed.sum(1), torch.ones(5))


def test_without_mixup_all_weights_are_one():
    assert torch.equal(_table(50, AugmentSettings())[:, 7], torch.ones(50))


def test_the_same_seed_draws_the_same_table():
    settings = AugmentSettings(mixup=0.2)
    assert torch.equal(_table(64, settings, seed=3), _table(64, settings, seed=3))
    assert not torch.equal(_table(64, settings, seed=3), _table(64, settings, seed=4))
