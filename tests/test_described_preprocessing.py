"""The preprocessing that an exported model describes is the one that hadahash does."""

from __future__ import annotations

import io
import re

import numpy as np
import pytest
from benches import ROOT
from PIL import Image

from hadahash.data.images import open_reduced
from hadahash.data.preprocess import Preprocess, center_array
from hadahash.data.squares import enough_for

pytest.importorskip("torch")

from hadahash.runtime.export import describe

SIDE = 256


def test_the_decoding_of_large_jpegs_is_described():
    for side in (64, SIDE):
        text = describe(Preprocess(size=side // 2, side=side))["before"]
        assert f"at least {enough_for(side)} pixels" in text
        assert "1/2, 1/4 or 1/8" in text and "rounded once" in text
    page = " ".join((ROOT / "docs" / "runtime.md").read_text("utf-8").split())
    assert "2.75 times `side`, and at least 512 pixels" in page
    assert enough_for(1000) == 2750 and enough_for(64) == 512


@pytest.mark.parametrize("size", [(3001, 2203), (1500, 2600), (900, 1700)])
def test_a_program_that_follows_the_description_gets_the_same_squares(size):
    rng = np.random.default_rng(0)
    small = Image.fromarray(rng.integers(0, 256, (30, 40, 3), dtype=np.uint8))
    buffer = io.BytesIO()
    small.resize(size, Image.Resampling.BICUBIC).save(buffer, "JPEG", quality=90)
    data = buffer.getvalue()
    expected = open_reduced(data, SIDE).square(SIDE)
    found = follow(data).astype(int)
    difference = np.abs(found - expected)
    assert difference.max() <= 1 and (difference == 0).mean() > 0.99


@pytest.mark.parametrize(
    ("side", "size", "crop"), [(256, 224, 0.875), (112, 144, 1.0), (60, 64, 0.9)]
)
def test_the_input_of_a_graph_without_a_crop_is_described(side, size, crop):
    preprocess = Preprocess(size=size, side=side, crop=crop)
    squares, view = describe(preprocess), describe(preprocess, view=True)
    assert squares["inside"].startswith("Crop of the center") and "center" not in squares["before"]
    assert view["inside"] == "Scaling by mean and standard deviation."
    formula = re.search(r"at pixel (.*); a neighbor.* float32 \(n, 3, (\d+), ", view["before"])
    assert int(formula[2]) == size
    points = np.array([eval(formula[1], {"i": i}) for i in range(size)])
    low, weight = np.floor(points).astype(int), points % 1
    ends = [np.clip(low + step, 0, side - 1) for step in (0, 1)]
    pixels = np.random.default_rng(0).integers(0, 256, (1, 3, side, side), dtype=np.uint8)
    rows = pixels[:, :, ends[0]].swapaxes(2, 3) * (1 - weight)
    rows = (rows + pixels[:, :, ends[1]].swapaxes(2, 3) * weight).swapaxes(2, 3)
    found = rows[..., ends[0]] * (1 - weight) + rows[..., ends[1]] * weight
    assert np.abs(found - center_array(pixels, preprocess)).max() < 0.01


def follow(data):
    """Pixels of a square as the description says, with plain numpy."""
    image, least = Image.open(io.BytesIO(data)), enough_for(SIDE)
    width, height = image.size
    scale = next((n for n in (8, 4, 2) if min(width, height) / n >= least), 1)
    image.draft(None, (width // scale, height // scale))
    pixels = np.array(image.convert("RGB"))
    short = min(width, height)
    left, top = (width - short) // 2, (height - short) // 2
    if scale == 1:
        box = (left, top, left + short, top + short)
        return np.array(
            Image.fromarray(pixels).resize((SIDE, SIDE), Image.Resampling.BILINEAR, box=box)
        )
    across = triangles(left / scale, short / scale / SIDE, pixels.shape[1])
    down = triangles(top / scale, short / scale / SIDE, pixels.shape[0])
    averages = np.einsum("yh,hwc,xw->yxc", down, pixels.astype(float), across, optimize=True)
    return np.floor(averages + 0.5)


def triangles(start, scale, count):
    """Weights (SIDE, count): triangles of twice the width of a new pixel, with sum 1."""
    centers = start + (np.arange(SIDE) + 0.5) * scale
    weights = np.maximum(0, 1 - np.abs(np.arange(count) + 0.5 - centers[:, None]) / scale)
    return weights / weights.sum(1, keepdims=True)
