"""Fitting: train a HashModel from a configuration and labelled images."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .building import (
    backbone_key,
    build_network,
    choose_device,
    initial_backbone,
    to_device_if_it_fits,
)
from .codes import Skipped
from .config import Config, TrainConfig
from .content import MOST_IMAGES, content_bits_that_fit, fit_content
from .data.base import ArrayImages, Images, LabelledImages, MemoryImages
from .data.decode import to_skipped
from .data.labels import Labels
from .data.pixel_store import PixelStore
from .data.preprocess import Preprocess, choose_preprocess
from .data.sources import as_images
from .encoding import Encoder, FeatureCache, network_relaxed
from .environment import hardware
from .errors import DataError, TrainingDivergedError
from .messages import counts_text
from .methods import DeepMethod, ShallowMethod
from .model import HashModel
from .networks import Backbone
from .networks.content import ContentPart
from .networks.hash_network import HashNetwork
from .ranking import Ranking, fit_ranking
from .settings import require
from .training import Checkpoint, Log, TrainingResult, TrainingSet, current_processes, train
from .training.loop import effective_precision

CHECKPOINT = "checkpoint.safetensors"
LOG = "log.jsonl"
_RANKING_IMAGES = 5_000  # more do not change the fitted numbers noticeably

Info = Callable[[str], object]


@dataclass(frozen=True, eq=False)
class FitResult:
    """A trained model and the training images that could not be read."""

    model: HashModel
    skipped: tuple[Skipped, ...]


@dataclass(frozen=True, eq=False)
class _Inputs:
    """What a method learns from."""

    tensor: Tensor  # uint8 pixels (n, 3, side, side), or float features (n, d)
    rows: NDArray[np.int64]  # the images that could be read
    skipped: tuple[Skipped, ...]
    on_disk: bool = False


def fit_model(
    config: Config,
    data: LabelledImages,
    *,
    device: str = "auto",
    folder: Path | None = None,
    resume: bool = False,
    progress: bool = False,
    cache: FeatureCache | None = None,
    info: Info = lambda text: None,
) -> FitResult:
    """Train a model.

    Args:
        config: The requested configuration.
        data: Labelled training images. Classes without an image are ignored.
        device: "auto", "cpu" or "cuda".
        folder: Folder of the log and the checkpoints; None: they are not written.
        resume: Continue from the last checkpoint in `folder`.
        progress: Show a progress bar on stderr.
        cache: Features that several models with one fixed backbone share.
        info: Receives messages for the user.

    Returns:
        The model, with the configuration that ran.

    Raises:
        DataError: Fewer than two classes or readable images.
        UsageError: The checkpoint belongs to a different configuration or different data.
        TrainingDivergedError: The loss became NaN or infinite.
    """
    processes = current_processes()  # must come first: it selects the GPU of this process
    single = processes.count == 1  # in distributed training only rank 0 has a folder
    require(not (resume and single and folder is None), "To resume, give --out.")
    where, config_train = choose_device(device), cast(TrainConfig, config.train)
    data = data.used_classes()
    if len(data.classes) < 2:
        raise DataError(f"Training needs at least 2 classes with images, got {len(data.classes)}.")
    backbone = initial_backbone(config)
    preprocess = choose_preprocess(data.images, backbone.size, config.input)
    network = build_network(
        config,
        backbone,
        classes=len(data.classes),
        multilabel=data.labels.multilabel,
        train_images=len(data),
        device=where,
        create=True,
    )
    info(_describe(data))
    config = _fit_content_bits(config, network.backbone.features, info)
    fixed = isinstance(network.method, ShallowMethod) or config_train.fixed_backbone
    original = copy.deepcopy(network.backbone) if config.content_bits and not fixed else None
    started = time.perf_counter()
    inputs = _read_inputs(config, network, preprocess, data, cache, folder, info)
    seconds = time.perf_counter() - started
    _check_enough(inputs, len(data))
    writes = folder if processes.rank == 0 else None
    checkpoint = _checkpoint(writes, resume, config, data, config_train.checkpoint_seconds)
    with Log(writes / LOG if writes else None, progress=progress and processes.rank == 0) as log:
        labels = data.labels.take(inputs.rows)
        result = _learn(network, inputs, labels, config, preprocess, log, checkpoint)
    if result is not None:
        _check_outputs(
            _values(network, preprocess, inputs, config_train, np.arange(min(64, len(inputs.rows))))
        )
    if config_train.threshold != "zero":
        values = _values(network, preprocess, inputs, config_train)
        mean = config_train.threshold == "mean"
        network.threshold.copy_(values.mean(0) if mean else values.median(0).values)
    content = None
    if config.content_bits:
        content = _fit_content(network, original, inputs, preprocess, config, info)
    ranking = _fit_ranking(network, inputs, labels, preprocess, config)
    network.content = content
    resolved = _resolve(config, network, preprocess, result, where)
    facts = _facts(config_train, result, where, train_images=len(inputs.rows))
    facts |= {"features_seconds" if fixed else "reading_seconds": round(seconds, 2)}
    model = HashModel(
        network,
        preprocess,
        data.classes,
        data.labels.multilabel,
        resolved,
        facts,
        effective_precision(config_train, where),
        replace(
            ranking,
            classes=data.classes,
            content_fingerprint=content.projection.fingerprint if content else None,
        ),
    )
    return FitResult(model, inputs.skipped)


def _fit_content_bits(config: Config, features: int, info: Info) -> Config:
    """The configuration with as many content bits as there are features for."""
    bits = content_bits_that_fit(config.content_bits, features)
    if bits < config.content_bits:
        info(
            f"{bits} content bits instead of {config.content_bits}: "
            f"the backbone has {features} features."
        )
    return replace(config, content_bits=bits)


def _fit_content(
    network: HashNetwork,
    original: Backbone | None,
    inputs: _Inputs,
    preprocess: Preprocess,
    config: Config,
    info: Info,
) -> ContentPart:
    """Fit the projection to content bits on training images."""
    rows = _sample(len(inputs.rows), MOST_IMAGES, config.seed)
    if original is not None:
        network = HashNetwork(original, network.method, network.bits).to(network.device)
    features = _features(network, inputs, rows, preprocess, config)
    projection = fit_content(features, config.content_bits, config.seed, info=info)
    return ContentPart(projection, original).to(network.device).eval()


def _features(
    network: HashNetwork,
    inputs: _Inputs,
    rows: NDArray[np.int64],
    preprocess: Preprocess,
    config: Config,
) -> Tensor:
    """The backbone's features of some of the training images."""
    if inputs.tensor.ndim == 2:
        return inputs.tensor[rows]
    precision = effective_precision(cast(TrainConfig, config.train), network.device)
    return Encoder(network, preprocess, precision).features(_images(inputs, rows)).values


def _fit_ranking(
    network: HashNetwork, inputs: _Inputs, labels: Labels, preprocess: Preprocess, config: Config
) -> Ranking:
    """Fit the ranking on the codes of training images."""
    words = network.codewords()
    if words is None:
        return Ranking(None, multilabel=labels.multilabel)
    rows = _sample(len(inputs.rows), _RANKING_IMAGES, config.seed)
    values = _values(network, preprocess, inputs, cast(TrainConfig, config.train), rows)
    return fit_ranking(
        network_relaxed(network, values.cpu()).numpy(),
        labels.take(rows).array,
        words.sign().to(torch.int8).cpu().numpy(),
        multilabel=labels.multilabel,
    )


def _sample(count: int, limit: int, seed: int) -> NDArray[np.int64]:
    """At most `limit` rows, in ascending order."""
    if count <= limit:
        return np.arange(count)
    return np.sort(np.random.default_rng(seed).permutation(count)[:limit])


def _describe(data: LabelledImages) -> str:
    """What is learned from: a folder of albums or cameras is noticed here."""
    counts = dict(zip(data.classes, map(int, data.labels.class_counts()), strict=True))
    return f"{len(data):,} training images of {len(counts):,} classes: {counts_text(counts)}"


def _read_inputs(
    config: Config,
    network: HashNetwork,
    preprocess: Preprocess,
    data: LabelledImages,
    cache: FeatureCache | None,
    folder: Path | None,
    info: Info,
) -> _Inputs:
    """Features where the backbone stays fixed, else pixels."""
    config_train = cast(TrainConfig, config.train)
    if isinstance(network.method, ShallowMethod) or config_train.fixed_backbone:
        precision = effective_precision(config_train, network.device)
        encoder = Encoder(network, preprocess, precision)
        found = (cache or FeatureCache()).get(encoder, as_images(data), backbone_key(config))
        return _Inputs(found.values, found.rows, to_skipped(found.failed, data.ids))
    store = PixelStore.build(data, preprocess, folder=folder, info=info)
    return _Inputs(store.pixels, store.kept, store.skipped, not store.in_memory)


def _learn(
    network: HashNetwork,
    inputs: _Inputs,
    labels: Any,
    config: Config,
    preprocess: Preprocess,
    log: Log,
    checkpoint: Checkpoint | None,
) -> TrainingResult | None:
    """Run the training loop, or the fit of a shallow method."""
    method = network.method
    if isinstance(method, ShallowMethod):
        device = network.device
        targets = labels.targets(torch.arange(len(inputs.rows)), torch.device("cpu"))
        method.cpu().fit(inputs.tensor, targets, torch.Generator().manual_seed(config.seed))
        network.to(device)
        return None
    if cast(DeepMethod, method).needs_features:
        rows = _sample(len(inputs.rows), _RANKING_IMAGES, config.seed)
        features = _features(network, inputs, rows, preprocess, config).float().cpu()
        cast(DeepMethod, method).prepare(features, labels.targets(rows))
    tensor = to_device_if_it_fits(inputs.tensor, network.device)
    return train(
        network,
        TrainingSet(tensor, labels, network.device, inputs.on_disk and tensor is inputs.tensor),
        cast(TrainConfig, config.train),
        augmentation=cast(Any, config.augment),
        preprocess=preprocess,
        seed=config.seed,
        log=log,
        checkpoint=checkpoint,
        processes=current_processes(),
    )


@torch.inference_mode()
def _values(
    network: HashNetwork,
    preprocess: Preprocess,
    inputs: _Inputs,
    config: TrainConfig,
    rows: NDArray[np.int64] | None = None,
) -> Tensor:
    """The values of the training images, or of some of them."""
    rows = np.arange(len(inputs.rows)) if rows is None else rows
    if inputs.tensor.ndim == 2:
        return network.values(inputs.tensor[rows].to(network.device))
    encoder = Encoder(network, preprocess, effective_precision(config, network.device))
    return encoder.values(_images(inputs, rows)).values


def _images(inputs: _Inputs, rows: NDArray[np.int64]) -> Images:
    """Decoded training images as images, without a copy."""
    pixels = inputs.tensor.numpy().transpose(0, 2, 3, 1)
    if len(rows) == len(pixels):
        return ArrayImages(pixels)
    return MemoryImages([pixels[row] for row in rows])


def _check_outputs(values: Tensor) -> None:
    """Weights may be finite but so large that the outputs are not."""
    if not bool(torch.isfinite(values).all()):
        raise TrainingDivergedError(
            "Training diverged: the outputs of the network are NaN or infinite. "
            "Lower the learning rate with --set lr=..."
        )


def _resolve(
    config: Config,
    network: HashNetwork,
    preprocess: Preprocess,
    result: TrainingResult | None,
    device: torch.device,
) -> Config:
    """The configuration that ran."""
    facts: dict[str, Any] = {
        "size": preprocess.train_size,
        "encode_size": preprocess.size,
        "side": preprocess.side,
        "crop": preprocess.crop,
    }
    if result is not None:
        facts["precision"] = result.precision
        facts["batch_size"] = result.batch_size
        facts["compile"] = result.compiled
    fixed = cast(TrainConfig, config.train).fixed_backbone
    facts["frozen"] = fixed
    return config.resolve(
        method_settings=cast(Any, network.method).settings,
        trained=result is not None,
        augmented=result is not None and not fixed,
        **facts,
    )


def _facts(
    config: TrainConfig, result: TrainingResult | None, device: torch.device, *, train_images: int
) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "train_images": train_images,
        "threshold": config.threshold,
        "hardware": hardware(device),
    }
    if result is not None:
        facts["steps"] = result.steps
        facts["train_seconds"] = round(result.seconds, 2)
        facts["images_per_second"] = round(result.images_per_second, 1)
    return facts


def _checkpoint(
    folder: Path | None, resume: bool, config: Config, data: LabelledImages, seconds: float
) -> Checkpoint | None:
    if folder is None:
        return None
    checkpoint = Checkpoint(folder / CHECKPOINT, fingerprint(config, data), seconds)
    for leftover in folder.glob(f".{CHECKPOINT}.*.part"):  # left by a killed process
        leftover.unlink(missing_ok=True)
    if not resume:
        checkpoint.remove()
    return checkpoint


def fingerprint(config: Config, data: LabelledImages) -> dict[str, Any]:
    """What must match to resume training: all settings, the images and their labels."""
    images, labels = data.source.fingerprint()[:16], data.labels.digest()[:16]
    return config.identity() | {"images": images, "labels": labels}


def _check_enough(inputs: _Inputs, requested: int) -> None:
    if len(inputs.rows) < 2:
        first = inputs.skipped[0] if inputs.skipped else None
        reason = f" First failure: {first.path}: {first.reason}." if first else ""
        raise DataError(
            f"Training needs at least 2 readable images, got {len(inputs.rows)} of {requested:,}."
            f"{reason} Replace unreadable files, or give another folder or table."
        )
