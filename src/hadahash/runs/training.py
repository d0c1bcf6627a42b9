"""Train a run."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..codes import Codes
from ..config import Config
from ..data import (
    LabelledImages,
    Split,
    find_dataset,
    make_split,
    open_dataset,
    validation_split,
)
from ..encoding import FeatureCache
from ..errors import DataError
from ..evaluation import evaluate
from ..fitting import FitResult, fit_model
from ..model import HashModel
from ..settings import require
from ..training import current_processes
from .record import DataSpec, make_record
from .run_dir import RunDir

Info = Callable[[str], object]


def train_run(
    config: Config,
    spec: DataSpec,
    out: str | Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    device: str = "auto",
    progress: bool = False,
    dataset: LabelledImages | None = None,
    cache: FeatureCache | None = None,
    info: Info = lambda text: None,
) -> HashModel:
    """Train on the training part of the data and save everything that evaluation needs.

    Args:
        config: The configuration.
        spec: The data.
        out: Folder of the run.
        resume: Continue an unfinished training; nothing to do if it is finished.
        overwrite: Replace a run that is in the folder.
        device: "auto", "cpu" or "cuda".
        progress: Show a progress bar on stderr.
        dataset: The data set, if it is open already.
        cache: Features that several models with one fixed backbone share.
        info: Receives messages for the user.

    Returns:
        The model.

    Raises:
        UsageError: The folder holds a run, or a training with other settings.
        DataError: The data cannot be used.
    """
    run = RunDir(out)
    run.check_free(resume=resume, overwrite=overwrite)
    dataset = dataset or open_dataset(spec.data, spec.root, info=info)
    protocol = spec.protocol or find_dataset(spec.data).protocol
    seed = config.seed if config.split_seed is None else config.split_seed
    split = make_split(dataset, protocol, seed=seed)
    train, held_out = split.train, split.train[:0]
    if spec.validation:
        train, held_out = validation_split(
            split.train, dataset.labels, fraction=spec.validation, seed=seed
        )
    request = _request(config, spec, split)
    if resume and run.state in ("trained", "evaluated"):
        return _already_finished(run, request, device, info)
    writes = current_processes().rank == 0
    if not writes:
        return _fit(config, dataset, train, None, resume, device, progress, cache, info).model
    with run.locked():
        staging = run.begin(request, split, resume=resume)
        fitted = _fit(config, dataset, train, staging, resume, device, progress, cache, info)
        record = make_record(fitted.model, spec, split, dataset) | {"requested": request}
        if spec.validation:
            parts = dataset.take(held_out), dataset.take(train)
            record["validation_map"] = validation_map(fitted.model, *parts, cache=cache)
        run.publish(fitted.model, record, fitted.skipped)
    return fitted.model


def _fit(
    config: Config,
    dataset: LabelledImages,
    rows: NDArray[np.int64],
    folder: Path | None,
    resume: bool,
    device: str,
    progress: bool,
    cache: FeatureCache | None,
    info: Info,
) -> FitResult:
    data = replace(dataset.take(rows), parts=None)
    return fit_model(
        config,
        data,
        device=device,
        folder=folder,
        resume=resume,
        progress=progress,
        cache=cache,
        info=info,
    )


def _request(config: Config, spec: DataSpec, split: Split) -> dict[str, Any]:
    """What was asked for, as JSON values."""
    facts = {"config": config.to_dict(), "data": spec.data, "split_sha256": split.sha256}
    return dict(json.loads(json.dumps(facts)))


def _already_finished(run: RunDir, request: dict[str, Any], device: str, info: Info) -> HashModel:
    record = run.record()
    before = record.get("requested", {}).get("config")
    changed = [k for k, v in request["config"].items() if before and before.get(k) != v]
    require(
        not changed,
        f"{run.path} holds a finished run with other settings ({', '.join(changed)}). "
        "Replace it with --overwrite, or choose another --out.",
    )
    info(f"{run.path} is trained already; nothing to do.")
    return run.model(record, device=device)


def validation_map(
    model: HashModel,
    held_out: LabelledImages,
    searched: LabelledImages,
    *,
    cache: FeatureCache | None = None,
) -> float:
    """mAP of held-out training images searching the other training images.

    Args:
        model: The model.
        held_out: The queries, which the model was not trained on.
        searched: The database, without the queries.
        cache: Features that several models with one fixed backbone share.

    Returns:
        mAP over all results.

    Raises:
        DataError: No held-out image shares a class with a searched one.
    """
    codes = [model.encode(part, cache=cache) for part in (held_out, searched)]
    labels = [labels_of(c, part) for c, part in zip(codes, (held_out, searched), strict=True)]
    report = evaluate(codes[0], labels[0], codes[1], labels[1])
    if report.queries_without_relevant == report.queries:
        raise DataError(
            "No held-out image shares a class with another training image. "
            "Use a smaller --validation fraction or more images per class."
        )
    return float(report.map)


def labels_of(codes: Codes, images: LabelledImages) -> NDArray[Any]:
    """The labels of the images that have a code, in the order of the codes."""
    if not codes.skipped:
        return images.labels.array
    return images.labels.take(np.isin(images.ids, codes.ids)).array
