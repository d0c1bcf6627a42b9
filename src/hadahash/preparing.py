"""Prepare training data: embeddings or images, with labels or without."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from .building import initial_backbone
from .config import Config, TrainConfig
from .data.base import LabelledImages
from .data.embeddings import FIT_ROWS, Embeddings, are_embeddings, sample_rows
from .errors import DataError, UsageError
from .methods import METHODS, ShallowMethod
from .networks import EMBEDDINGS, Backbone, GivenFeatures


def prepare(data: LabelledImages, config: Config) -> tuple[LabelledImages, Config]:
    """Check the classes, choose the rows to fit on, and the backbone of embeddings.

    Embeddings for a method without gradients, and data without labels, are sampled by the seed.

    Args:
        data: The training data.
        config: The requested configuration.

    Returns:
        The data to fit on, without unused classes, and the configuration to run.

    Raises:
        DataError: The method learns from labels, and there are fewer than 2 classes.
        UsageError: There are fewer than 2 embeddings.
    """
    kind, given = METHODS.get(config.method), are_embeddings(data)
    if given and len(data) < 2:
        raise UsageError(f"Fitting needs at least 2 embeddings, got n_samples = {len(data)}.")
    data = data.used_classes()
    if kind.uses_labels and len(data.classes) < 2:
        raise DataError(f"Training needs at least 2 classes with images, got {len(data.classes)}.")
    if not data.classes or (given and issubclass(kind, ShallowMethod)):
        rows = sample_rows(len(data), FIT_ROWS, config.seed)
        data = data.take(rows) if len(rows) < len(data) else data
    if given:
        frozen = replace(cast(TrainConfig, config.train), frozen=True)
        config = replace(config, backbone=EMBEDDINGS, weights="none", train=frozen)
    return data, config


def backbone_of(config: Config, data: LabelledImages) -> Backbone:
    """The backbone of a configuration, or the identity for embeddings.

    Args:
        config: The configuration.
        data: The training data.

    Returns:
        The backbone with its initial weights.
    """
    if isinstance(data.images, Embeddings):
        return GivenFeatures(data.images.width)
    return initial_backbone(config)
