"""Features of the original backbone and altered copies of database images, shared by cells.

They depend on data, split and initial weights, not on the trained model, so the cells of a seed
compute them once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..building import initial_backbone
from ..config import backbone_key
from ..content import MOST_IMAGES, ContentProjection, fit_content
from ..data import LabelledImages, Split
from ..data.alterations import ALTERATIONS, AlteredImages
from ..data.decode import decode
from ..data.embeddings import sample_rows
from ..data.sources import as_images
from ..data.views import center_view
from ..model import HashModel
from ..networks import Backbone
from ..networks.hash_network import HashNetwork
from ..runtime.torch import backbone_kernels
from ..shared_features import SharedFeatures
from .content import BITS, SAMPLE

_BATCH = 1000


@dataclass(frozen=True, eq=False)
class Original:
    """What the original backbone makes of a split.

    Attributes:
        features: float32 (n, d), features of the whole data set.
        items: int64 (q,), rows in the database of the images that were altered.
        pixels: Altered copies by alteration, uint8 (q, 3, side, side).
        altered: Their features by alteration, float32 (q, d).
        projections: Content bits of each length, fitted on the training images.
    """

    features: Tensor
    items: NDArray[np.int64]
    pixels: Mapping[str, Tensor]
    altered: Mapping[str, Tensor]
    projections: tuple[ContentProjection, ...]


class Originals:
    """Keeps the features of one data set, and what belongs to one split of it.

    Args:
        cache: Features that cells with one backbone share; used on the CPU.
    """

    def __init__(self, cache: SharedFeatures) -> None:
        self._cache = cache
        self._features: tuple[Any, Tensor, Tensor] | None = None
        self._kept: tuple[Any, Original] | None = None

    def get(self, model: HashModel, data: LabelledImages, pixels: Tensor, split: Split) -> Original:
        """What the original backbone of a model makes of a split, computed on the first call.

        Args:
            model: A model; its initial backbone is used.
            data: The data set.
            pixels: Its pixels on the device, uint8 (n, 3, side, side).
            split: The split.

        Returns:
            Features, altered copies and projections.
        """
        key = (backbone_key(model.config), model.preprocess)
        known = self._features
        if known is None or known[0] != key or known[1] is not pixels:
            self._features = known = key, pixels, self._compute(model, data, pixels)
            self._kept = None
        if self._kept is None or self._kept[0] != split.sha256:
            self._kept = split.sha256, _prepare(model, data, split, known[2])
        return self._kept[1]

    def _compute(self, model: HashModel, data: LabelledImages, pixels: Tensor) -> Tensor:
        backbone = _original_backbone(model)
        if model.device.type != "cpu":
            return features_of(backbone, pixels, model)
        network = HashNetwork(backbone, model.method, model.bits).eval()
        encoder = replace(model.encoder(), network=network)
        found = self._cache.get(encoder, as_images(data), backbone_key(model.config))
        return torch.from_numpy(found.values)


def _prepare(model: HashModel, data: LabelledImages, split: Split, features: Tensor) -> Original:
    generator = np.random.default_rng(split.seed)
    count = min(SAMPLE, len(split.database))
    items = np.sort(generator.choice(len(split.database), count, replace=False))
    images = data.take(split.database[items]).images
    pixels = {
        name: torch.from_numpy(_squares(AlteredImages(images, name), model)).to(features.device)
        for name in ALTERATIONS
    }
    backbone = _original_backbone(model)
    altered = {name: features_of(backbone, own, model) for name, own in pixels.items()}
    rows = split.train[sample_rows(len(split.train), MOST_IMAGES, split.seed)]
    train = features[torch.from_numpy(rows).to(features.device)]
    projections = [
        fit_content(train, bits, split.seed).to(features.device)
        for bits in BITS
        if bits <= min(train.shape[1], len(train) - 1)
    ]
    return Original(features, items, pixels, altered, tuple(projections))


def _squares(images: AlteredImages, model: HashModel) -> NDArray[np.uint8]:
    parts = decode(images, model.preprocess, batch_size=len(images))
    return np.concatenate([part.pixels for part in parts])


def _original_backbone(model: HashModel) -> Backbone:
    backbone = initial_backbone(model.config).eval()
    return backbone.to(memory_format=torch.channels_last).to(model.device)


@torch.no_grad()
def features_of(backbone: nn.Module, pixels: Tensor, model: HashModel) -> Tensor:
    """Features of images whose pixels are on the device.

    Args:
        backbone: The backbone, in evaluation mode.
        pixels: uint8 (n, 3, side, side).
        model: Names preprocessing and precision.

    Returns:
        float32 (n, d).
    """
    parts = (pixels[start : start + _BATCH] for start in range(0, len(pixels), _BATCH))
    return torch.cat([batch_features(backbone, part, model).float() for part in parts])


def batch_features(
    backbone: nn.Module, pixels: Tensor, model: HashModel, *, deterministic: bool = False
) -> Tensor:
    """Features of one batch.

    Args:
        backbone: The backbone, in evaluation mode.
        pixels: uint8 (n, 3, side, side).
        model: Names preprocessing and precision.
        deterministic: Use deterministic kernels.

    Returns:
        (n, d), in the precision of the backbone.
    """
    view = center_view(pixels, model.preprocess)
    with backbone_kernels(model.device, model.precision), _deterministic(deterministic):
        features: Tensor = backbone(view)
        if model.preprocess.mirror:
            features = (features + backbone(view.flip(-1))) / 2
    return features


@contextmanager
def _deterministic(enabled: bool) -> Iterator[None]:
    if not enabled:
        yield
        return
    with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True):
        yield
