"""The toy set, a tiny network and a few hands that several test files need."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from torch import nn

from hadahash import Hasher
from hadahash.errors import HadaHashError
from hadahash.networks import Backbone

CLASS_NAMES = ("blue", "green", "red", "yellow")
_COLOURS = np.array([[60, 60, 200], [60, 200, 60], [200, 60, 60], [200, 200, 60]])


def make_toy(
    count: int, *, seed: int, side: int = 32
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Four classes in turn, each a colour with waves of one direction, in noise: uint8 (count, side, side, 3) and labels."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:side, :side]
    directions = np.stack([x, y, x + y, x - y])
    labels = np.arange(count) % 4
    phases = rng.uniform(0, 2 * np.pi, (count, 1, 1))
    waves = 50 * np.sin(directions[labels] * 2 * np.pi / 8 + phases)
    pixels = (
        _COLOURS[labels][:, None, None]
        + waves[..., None]
        + rng.normal(0, 20, (count, side, side, 3))
    )
    return np.clip(pixels, 0, 255).astype(np.uint8), labels


def write_folder(root: Path, pixels: NDArray[np.uint8], labels: NDArray[np.int64]) -> Path:
    """root/<class>/<number>.png"""
    for number, (image, label) in enumerate(zip(pixels, labels, strict=True)):
        folder = root / CLASS_NAMES[label]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(folder / f"{number:03d}.png")
    return root


def tiny_hasher(method: str = "hcdh", **changes: Any) -> Hasher:
    """A hasher on a network of 0.1 million weights and 32-pixel input, on the CPU; `changes` override its arguments."""
    arguments: dict[str, Any] = {
        "bits": 16,
        "backbone": "test_efficientnet",
        "weights": "none",
        "device": "cpu",
        "size": 32,
        "epochs": 2,
        "batch_size": 32,
    }
    return Hasher(method, **(arguments | changes))


def smallest_backbone(
    name: str = "smallest", *, weights: str = "none", partial_weights: bool = False
) -> Backbone:
    """A backbone of one convolution, with batch statistics and dropout; can take the place of `build_backbone`."""
    layers = (
        nn.Conv2d(3, 8, 5, stride=4),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.5),
    )
    return Backbone(nn.Sequential(*layers), name=name, size=32, mean=(127.0,) * 3, std=(64.0,) * 3)


def tensor_bytes(hasher: Hasher) -> dict[str, bytes]:
    """Every tensor of the network as bytes, to tell equal from nearly equal."""
    return {
        key: value.contiguous().numpy().tobytes()
        for key, value in hasher.model_.network.state_dict().items()
    }


def one_line(error: HadaHashError | str) -> str:
    """The text of an error, which must be one line and end as a sentence does."""
    text = str(error)
    assert text and "\n" not in text, f"not one line: {text!r}"
    return text
