"""What the measures of a cell need from its trained model."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ..building import has_fixed_backbone
from ..data import LabelledImages, Split
from ..methods.hcdh import HCDH
from ..model import HashModel
from .content import ContentInputs, Encoded
from .originals import Original, batch_features
from .rankings import RankingInputs

_ENCODE_BATCH = 1000


@torch.no_grad()
def encode_all(model: HashModel, pixels: Tensor, *, deterministic: bool = False) -> Tensor:
    """Compute the values of images whose pixels are on the device.

    Args:
        model: The model.
        pixels: uint8 (n, 3, side, side).
        deterministic: Use deterministic kernels.

    Returns:
        float32 (n, bits), before binarization.
    """
    network = model.network.eval()
    parts = []
    for start in range(0, len(pixels), _ENCODE_BATCH):
        part = pixels[start : start + _ENCODE_BATCH]
        features = batch_features(network.backbone, part, model, deterministic=deterministic)
        parts.append(network.values(features))
    return torch.cat(parts)


@torch.no_grad()
def relaxed_values(model: HashModel, values: Tensor) -> Tensor:
    """Compute real-valued codes.

    Args:
        model: The model.
        values: float32 (n, bits), before binarization.

    Returns:
        float32 (n, bits), as the loss of the method sees them.
    """
    return model.method.relaxed(values).float()


def content_inputs(
    split: Split, data: LabelledImages, model: HashModel, values: Tensor, original: Original
) -> ContentInputs:
    """Collect what the measures of content bits need.

    Args:
        split: The split of the cell.
        data: Its data set.
        model: The trained model.
        values: Values of all images, before binarization.
        original: Features of the original backbone, and altered copies.

    Returns:
        The inputs of `measure_content`.
    """
    ranking = ranking_inputs(split, data, model, relaxed_values(model, values).clamp(-1, 1))

    def encoded(values: Tensor, features: Tensor) -> Encoded:
        real = relaxed_values(model, values).clamp(-1, 1)
        scores = _class_scores(model, real)
        return Encoded(real, features, None if scores is None else scores.softmax(1))

    whole = encoded(values, original.features)
    return ContentInputs(
        ranking=ranking,
        query=whole[split.query],
        database=whole[split.database],
        altered={
            name: encoded(_altered_values(model, original, name), own)
            for name, own in original.altered.items()
        },
        items=torch.from_numpy(original.items).to(values.device),
        projections=original.projections,
    )


@torch.no_grad()
def _altered_values(model: HashModel, original: Original, name: str) -> Tensor:
    """Values of altered copies; a fixed backbone has made their features already."""
    if not has_fixed_backbone(model.config, model.method):
        return encode_all(model, original.pixels[name])
    values: Tensor = model.network.eval().values(original.altered[name])
    return values


@torch.no_grad()
def _class_scores(model: HashModel, real: Tensor) -> Tensor | None:
    """Scores of the classifier of the method, if it has one."""
    method = model.method
    if isinstance(method, HCDH) and method.head.classifier is not None and method.streams == 1:
        found: Tensor = method.head.classifier(real)
        return found
    return None


def ranking_inputs(
    split: Split, data: LabelledImages, model: HashModel, real: Tensor
) -> RankingInputs:
    """Collect what the rankings need.

    Args:
        split: The split of the cell.
        data: Its data set.
        model: The trained model.
        real: Real-valued codes of all images, from -1 to 1.

    Returns:
        The inputs of `rank_all`.
    """
    trained = data.labels.take(split.train)
    used = np.flatnonzero(trained.class_counts())  # the classes of the model
    targets = data.labels.targets(torch.arange(len(data)), real.device)
    return RankingInputs(
        query=real[split.query],
        database=torch.where(real[split.database] >= 0, 1.0, -1.0),
        train=real[split.train],
        query_targets=targets[split.query],
        database_targets=targets[split.database],
        train_targets=targets[split.train][:, used],
        multilabel=data.labels.multilabel,
        codewords=model.method.codewords(),
        class_scores=_class_scores(model, real[split.query]),
    )
