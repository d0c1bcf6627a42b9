"""The toy data set, a tiny network, and helpers that several test files share."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from torch import nn

from hadahash import Hasher
from hadahash.config import Config
from hadahash.data.sources import as_labelled
from hadahash.errors import HadaHashError
from hadahash.fitting import fit_model
from hadahash.model import HashModel
from hadahash.networks import Backbone, SkipInitialization

CLASS_NAMES = ("blue", "green", "red", "yellow")
_COLORS = np.array([[60, 60, 200], [60, 200, 60], [200, 60, 60], [200, 200, 60]])


def make_toy(
    count: int, *, seed: int, side: int = 32
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Four classes in turn, each a color with waves of one direction, in noise.

    Returns uint8 (count, side, side, 3) and the labels (count,).
    """
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:side, :side]
    directions = np.stack([x, y, x + y, x - y])
    labels = np.arange(count) % 4
    phases = rng.uniform(0, 2 * np.pi, (count, 1, 1))
    waves = 50 * np.sin(directions[labels] * 2 * np.pi / 8 + phases)
    pixels = (
        _COLORS[labels][:, None, None]
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
    """A hasher on a network of 0.1 million weights with 32-pixel input, on the CPU."""
    arguments: dict[str, Any] = {
        "bits": 16,
        "content_bits": 0,
        "backbone": "test_efficientnet",
        "weights": "none",
        "device": "cpu",
        "size": 32,
        "epochs": 2,
        "batch_size": 32,
    }
    return Hasher(method, **(arguments | changes))


def tiny_config(method: str = "hcdh", **changes: Any) -> Config:
    """The configuration of `tiny_hasher(method, **changes)`."""
    return tiny_hasher(method, **changes).config


def fit_in(
    hasher: Hasher,
    data: Any,
    labels: Any = None,
    *,
    folder: Path | None,
    resume: bool = False,
    device: str = "cpu",
) -> Hasher:
    """Fit as `Hasher.fit` does, with log and checkpoints in a folder."""
    images = as_labelled(data, labels)
    hasher.model_ = fit_model(
        hasher.config, images, device=device, folder=folder, resume=resume
    ).model
    return hasher


def use_smallest_backbone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace every backbone by `smallest_backbone`."""
    for module in ("building", "restoring"):
        monkeypatch.setattr(f"hadahash.{module}.build_backbone", smallest_backbone)


def smallest_backbone(name: str = "smallest", **options: Any) -> Backbone:
    """A backbone of one convolution, with batch statistics and dropout, for `build_backbone`."""
    with SkipInitialization() if options.get("empty") else nullcontext():
        layers = (
            nn.Conv2d(3, 8, 5, stride=4),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
            nn.Dropout(0.5),
        )
    return Backbone(nn.Sequential(*layers), name=name, size=32, mean=(127.0,) * 3, std=(64.0,) * 3)


def tensor_bytes(hasher: Hasher | HashModel) -> dict[str, bytes]:
    """Every tensor of the network as bytes, to distinguish equal from nearly equal."""
    model = hasher if isinstance(hasher, HashModel) else hasher.model_
    return {
        key: value.contiguous().numpy().tobytes()
        for key, value in model.network.state_dict().items()
    }


def one_line(error: HadaHashError | str) -> str:
    """The text of an error, which must be one line that ends with a period."""
    text = str(error)
    assert text and "\n" not in text, f"not one line: {text!r}"
    return text
