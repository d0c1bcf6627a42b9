"""Random augmentation: the sampled parameters, and what they do to a batch."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from hadahash.config import AugmentConfig
from hadahash.data.augment import augment, mix_targets, own_share, sample_augmentations
from hadahash.data.preprocess import Preprocess
from hadahash.data.views import center_view

PLAIN = AugmentConfig(crop_area=1, jitter=0, flip=0)


def _pixels(side: int, count: int = 3, seed: int = 0) -> torch.Tensor:
    return torch.randint(
        256,
        (count, 3, side, side),
        generator=torch.Generator().manual_seed(seed),
        dtype=torch.uint8,
    )


def _params(
    count: int, settings: AugmentConfig, *, crop: float = 1.0, seed: int = 0
) -> torch.Tensor:
    return sample_augmentations(count, settings, crop, torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    ("side", "size", "crop"), [(32, 32, 1.0), (32, 64, 1.0), (64, 56, 0.875), (40, 28, 0.7)]
)
def test_without_augmentation_training_sees_what_encoding_sees(side, size, crop):
    pixels, params = _pixels(side), _params(3, replace(PLAIN, crop_shift=0.0), crop=crop)
    assert _params(3, PLAIN, crop=crop)[:, :2].abs().max() <= 1 - crop, (
        "shifted crops stay inside the square"
    )
    view = center_view(pixels, Preprocess(side=side, size=size, crop=crop))
    torch.testing.assert_close(augment(pixels, params, size), view, rtol=0, atol=0.02)


def test_a_flip_mirrors_exactly():
    pixels = _pixels(32)
    params = _params(3, PLAIN)
    mirrored = params.clone()
    mirrored[:, 2] *= -1
    assert torch.equal(augment(pixels, mirrored, 32), augment(pixels, params, 32).flip(3))
    torch.testing.assert_close(
        augment(pixels, mirrored, 32), pixels.flip(3).float(), rtol=0, atol=0.02
    )


@pytest.mark.parametrize(("flip", "low", "high"), [(0.0, 0, 0), (1.0, 1, 1), (0.5, 0.45, 0.55)])
def test_the_frequency_of_flips(flip, low, high):
    share = (_params(2000, AugmentConfig(flip=flip))[:, 2] < 0).float().mean()
    assert low <= share <= high


@pytest.mark.parametrize(
    ("area", "aspect", "crop"),
    [(0.5, 4 / 3, 1.0), (0.9, 4 / 3, 1.0), (0.08, 2.0, 0.875), (1.0, 4 / 3, 1.0)],
)
def test_crops_respect_area_and_aspect_and_stay_inside(area, aspect, crop):
    params = _params(4000, AugmentConfig(crop_area=area, crop_aspect=aspect), crop=crop)
    across, down, wide, high = params[:, 0], params[:, 1], params[:, 2].abs(), params[:, 3]
    share = wide * high / crop**2
    assert share.min() >= area - 1e-5 and share.max() <= 1 + 1e-5
    assert (wide / high).max() <= aspect + 1e-4 and (high / wide).max() <= aspect + 1e-4
    assert (across.abs() + wide).max() <= 1 + 1e-5 and (down.abs() + high).max() <= 1 + 1e-5
    if area < 1:
        assert share.std() > 0.01 and (wide / high).std() > 0.01 and across.std() > 0.01


def test_a_crop_is_a_bilinear_resampling_of_its_box():
    pixels, params = _pixels(32), _params(3, PLAIN)
    params[:, :4] = torch.tensor(
        [-0.25, 0.5, 0.5, 0.25]
    )  # columns 4 to 20, rows 20 to 28 of the 32
    view = augment(pixels, params, 16)
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
    settings = AugmentConfig(crop_area=1, flip=0, jitter=0.5)
    params = _params(3, settings)
    assert ((params[:, 4:7] >= 0.5) & (params[:, 4:7] <= 1.5)).all() and params[:, 4:7].std() > 0.05
    slow = []
    for image, (brightness, contrast, saturation) in zip(
        pixels.float(), params[:, 4:7], strict=True
    ):
        image = image * brightness
        image = (image - image.mean()) * contrast + image.mean()
        gray = image.mean(0, keepdim=True)
        slow.append(((image - gray) * saturation + gray).clamp(0, 255))
    torch.testing.assert_close(augment(pixels, params, 16), torch.stack(slow), rtol=0, atol=0.02)


def test_mixup_mixes_pixels_and_targets_with_the_same_weights():
    pixels, settings = (
        _pixels(16, count=5),
        AugmentConfig(crop_area=1, jitter=0, flip=0, mixup=0.4),
    )
    params, targets = _params(5, settings), torch.eye(5)
    weights = params[:, 7]
    assert ((weights >= 0.5) & (weights <= 1)).all() and weights.std() > 0
    images, mixed = augment(pixels, params, 16), mix_targets(targets, params)
    for i in range(5):
        expected = weights[i] * pixels[i].float() + (1 - weights[i]) * pixels[4 - i].float()
        torch.testing.assert_close(images[i], expected, rtol=0, atol=0.02)
        torch.testing.assert_close(
            mixed[i], weights[i] * targets[i] + (1 - weights[i]) * targets[4 - i]
        )
    torch.testing.assert_close(mixed.sum(1), torch.ones(5))


def test_without_mixup_all_weights_are_one():
    assert torch.equal(_params(50, AugmentConfig())[:, 7], torch.ones(50))


def test_equal_seeds_sample_equal_params():
    settings = AugmentConfig(mixup=0.2)
    assert torch.equal(_params(64, settings, seed=3), _params(64, settings, seed=3))
    assert not torch.equal(_params(64, settings, seed=3), _params(64, settings, seed=4))


def test_cutmix_pastes_the_box_of_the_partner_and_mixes_targets_by_area():
    pixels, settings = _pixels(16, count=6), replace(PLAIN, cutmix=1.0)
    params, targets = _params(6, settings), torch.eye(6)
    assert params.shape == (6, 12) and torch.equal(params[:, 7], torch.ones(6))
    images, mixed = augment(pixels, params, 16), mix_targets(targets, params)
    plain = augment(pixels, params[:, :8], 16)
    for i, (left, right, top, bottom) in enumerate(params[:, 8:].tolist()):
        for y in range(16):
            for x in range(16):
                cut = left <= (x + 0.5) / 16 < right and top <= (y + 0.5) / 16 < bottom
                assert torch.equal(images[i, :, y, x], plain[5 - i if cut else i, :, y, x])
        share = 1 - (right - left) * (bottom - top)
        assert 0.5 <= share <= 1
        torch.testing.assert_close(mixed[i], share * targets[i] + (1 - share) * targets[5 - i])
        torch.testing.assert_close(own_share(params)[i].item(), share)


def test_mixup_and_cutmix_share_the_images():
    params = _params(4000, AugmentConfig(mixup=0.4, cutmix=1.0, mix_share=0.5))
    mixup, cutmix = (
        params[:, 7] < 1,
        (params[:, 9] > params[:, 8]) & (params[:, 11] > params[:, 10]),
    )
    assert not (mixup & cutmix).any()
    assert 0.2 < mixup.float().mean() < 0.3 and 0.2 < cutmix.float().mean() < 0.3


def test_cutmix_and_mix_share_do_not_change_the_other_parameters():
    plain, cut = _params(50, AugmentConfig()), _params(50, AugmentConfig(cutmix=1.0, mix_share=0.5))
    assert torch.equal(cut[:, :8], plain)
