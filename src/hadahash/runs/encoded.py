"""Encode the images of an evaluation, and keep the features of some of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..codes import Codes
from ..config import backbone_key
from ..data.base import LabelledImages
from ..data.sources import ImageSource
from ..encoding import Progress
from ..model import HashModel
from ..outputs import Outputs, join_outputs
from ..shared_features import SharedFeatures

_PART = 4096  # images whose features are in memory at once


@dataclass(frozen=True, eq=False)
class Sampled:
    """Features of some images.

    Attributes:
        rows: int64 (m,), their rows among the codes.
        features: float32 (m, d), from the original backbone.
    """

    rows: NDArray[np.int64]
    features: NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class EncodedImages:
    """Codes of images.

    Attributes:
        codes: The codes; images that cannot be read are in `.skipped`.
        values: Real values and scores before binarization, if they were asked for.
        sampled: Features of a sample; None if the original backbone is not part of the model.
    """

    codes: Codes
    values: Outputs | None
    sampled: Sampled | None


def encode_images(
    model: HashModel,
    source: ImageSource,
    *,
    sample: int,
    values: bool = False,
    progress: Progress | None = None,
    cache: SharedFeatures | None = None,
) -> EncodedImages:
    """Encode images, part by part.

    Args:
        model: The model.
        source: The images.
        sample: Largest number of images whose features are kept, evenly spaced.
        values: Whether real values are kept.
        progress: Called with the number of images of each batch.
        cache: Features that several models with one fixed backbone share.

    Returns:
        Codes, values and features, in the order of the images.
    """
    wanted = np.unique(np.linspace(0, len(source) - 1, min(sample, len(source))).astype(np.int64))
    encoder, codes, outputs = model.encoder(), list[Codes](), list[Outputs]()
    kept, places, done = list[Any](), [np.empty(0, np.int64)], 0
    for features in _features(model, source, progress, cache):
        part = encoder.head(features, scores=values)
        codes.append(model.to_codes(part, source.ids))
        outputs += [part] if values else []
        original = features.content
        if original is None and model.fixed_backbone:
            original = features.values
        if original is not None:
            chosen = np.flatnonzero(np.isin(features.rows, wanted))
            kept.append(original[chosen])
            places.append(chosen + done)
        done += len(part.rows)
    sampled = Sampled(np.concatenate(places), np.concatenate(kept)) if kept else None
    joined = join_outputs(outputs[1:], outputs[0]) if outputs else None
    return EncodedImages(Codes.concatenate(codes), joined, sampled)


def labels_of(codes: Codes, images: LabelledImages) -> NDArray[Any]:
    """The labels of the images that have a code.

    Args:
        codes: Codes of the images, in their order; some images may have been skipped.
        images: The images.

    Returns:
        Class numbers (n,), or for multi-label data 0 and 1 (n, C), in the order of the codes.
    """
    if not codes.skipped:
        return images.labels.array
    known = set(codes.ids.tolist())  # np.isin takes quadratic time on text
    return images.labels.take([name in known for name in images.ids.tolist()]).array


def _features(
    model: HashModel, source: ImageSource, progress: Progress | None, cache: SharedFeatures | None
) -> Iterator[Outputs]:
    """Features of all images; rows count from the first image."""
    encoder = model.encoder()
    if cache is not None and model.fixed_backbone:
        yield cache.get(encoder, source, backbone_key(model.config), progress)
        return
    known = cache if model.runtime.has_original else None
    for start in range(0, max(len(source), 1), _PART):
        part = source.take(np.arange(start, min(start + _PART, len(source))))
        if known is None:
            found = encoder.features(part.images, progress)
        else:
            found = known.get(encoder, part, None, progress)
        failed = [(row + start, reason) for row, reason in found.failed]
        yield found._replace(rows=found.rows + start, failed=failed)
