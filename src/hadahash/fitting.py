"""Fitting: train a HashModel from a configuration and labelled images."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from .building import build_network, choose_device
from .calibrating import Calibration, Inputs, limit_content_bits
from .codes import Skipped
from .config import Config, TrainConfig, backbone_key
from .data.base import LabelledImages
from .data.decode import to_skipped
from .data.pixel_store import PixelStore
from .data.preprocess import Preprocess, choose_preprocess
from .data.sources import as_images
from .encoding import Encoder, Progress
from .environment import hardware
from .errors import DataError
from .messages import counts_text, is_terminal, reading_bar
from .methods import DeepMethod, ShallowMethod
from .model import HashModel
from .model_files import CHECKPOINT
from .networks.hash_network import HashNetwork
from .preparing import backbone_of, prepare
from .settings import require
from .shared_features import SharedFeatures
from .training import Checkpoint, Log, TrainingResult, TrainingSet, current_processes, train
from .training.distributed import limits_of
from .training.step import effective_precision

LOG = "log.jsonl"

Info = Callable[[str], object]


@dataclass(frozen=True, eq=False)
class FitResult:
    """A trained model and the training images that could not be read."""

    model: HashModel
    skipped: tuple[Skipped, ...]


def fit_model(
    config: Config,
    data: LabelledImages,
    *,
    device: str = "auto",
    folder: Path | None = None,
    resume: bool = False,
    progress: bool = False,
    cache: SharedFeatures | None = None,
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
    started = time.perf_counter()
    processes = current_processes()  # must come first: it selects the GPU of this process
    single = processes.count == 1  # in distributed training only rank 0 has a folder
    require(not (resume and single and folder is None), "To resume, give --out.")
    data, config = prepare(data, config)
    where, config_train = choose_device(device), cast(TrainConfig, config.train)
    backbone = backbone_of(config, data)
    preprocess = choose_preprocess(data.images, backbone.size, config.input)
    network = build_network(
        config,
        backbone,
        classes=len(data.classes),
        multilabel=data.multilabel,
        train_images=len(data),
        device=where,
        create=True,
    )
    info("\n".join([_describe(data), *limits_of(processes, network.backbone, config_train)]))
    config = limit_content_bits(config, backbone.features, info)
    fixed = isinstance(network.method, ShallowMethod) or config_train.fixed_backbone
    original = copy.deepcopy(network.backbone) if config.content_bits and not fixed else None
    begun, shown = time.perf_counter(), progress and processes.rank == 0
    with reading_bar(len(data), shown=shown and fixed) as advance:
        inputs = _read_inputs(config, network, preprocess, data, cache, folder, info, advance)
    reading = time.perf_counter() - begun
    writes = folder if processes.rank == 0 else None
    checkpoint = _checkpoint(writes, resume, config, data, config_train.checkpoint_seconds)
    labels = data.labels.take(inputs.rows)
    with Log(writes / LOG if writes else None, progress=shown and is_terminal()) as log:
        result = _learn(network, inputs, labels, config, preprocess, log, checkpoint)
    trained = Calibration(network, preprocess, inputs, config)
    ranking = trained.calibrate(labels, data.classes, original, info)
    resolved = _resolve(config, network, preprocess, result, where)
    facts = _facts(config_train, result, where, train_images=len(inputs.rows))
    seconds = time.perf_counter() - started
    facts |= {"reading_seconds": round(reading, 2), "fit_seconds": round(seconds, 2)}
    precision = effective_precision(config_train, where)
    about = (data.classes, data.multilabel, resolved, facts, precision, ranking)
    return FitResult(HashModel(network, preprocess, *about), inputs.skipped)


def _describe(data: LabelledImages) -> str:
    """What is learned from: a folder of albums or cameras is noticed here."""
    if not data.classes:
        return f"{len(data):,} training images without labels"
    counts = dict(zip(data.classes, map(int, data.labels.class_counts()), strict=True))
    return f"{len(data):,} training images of {len(counts):,} classes: {counts_text(counts)}"


def _read_inputs(
    config: Config,
    network: HashNetwork,
    preprocess: Preprocess,
    data: LabelledImages,
    cache: SharedFeatures | None,
    folder: Path | None,
    info: Info,
    progress: Progress,
) -> Inputs:
    """Features where the backbone stays fixed, else pixels."""
    config_train = cast(TrainConfig, config.train)
    if isinstance(network.method, ShallowMethod) or config_train.fixed_backbone:
        precision = effective_precision(config_train, network.device)
        encoder = Encoder(network, preprocess, precision)
        features = cache or SharedFeatures()
        found = features.get(encoder, as_images(data), backbone_key(config), progress)
        inputs = Inputs(
            torch.from_numpy(found.values), found.rows, to_skipped(found.failed, data.ids)
        )
    else:
        store = PixelStore.build(data, preprocess, folder=folder, info=info)
        inputs = Inputs(store.pixels, store.kept, store.skipped, not store.in_memory)
    _check_enough(inputs, len(data))
    return inputs


def _learn(
    network: HashNetwork,
    inputs: Inputs,
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
        Calibration(network, preprocess, inputs, config).show_features(labels)
    tensor = _to_device_if_it_fits(inputs.tensor, network.device)
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


def _check_enough(inputs: Inputs, requested: int) -> None:
    if len(inputs.rows) < 2:
        first = inputs.skipped[0] if inputs.skipped else None
        reason = f" First failure: {first.path}: {first.reason}." if first else ""
        raise DataError(
            f"Training needs at least 2 readable images, got {len(inputs.rows)} of {requested:,}."
            f"{reason} Replace unreadable files, or give another folder or table."
        )


def _to_device_if_it_fits(inputs: Tensor, device: torch.device) -> Tensor:
    """Move to the device if the inputs take at most half of its free memory."""
    if device.type != "cuda" or inputs.nbytes > torch.cuda.mem_get_info(device)[0] // 2:
        return inputs
    return inputs.to(device)
