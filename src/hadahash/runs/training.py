"""Train a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from ..config import Config, differences
from ..data import (
    LabelledImages,
    Split,
    find_dataset,
    make_split,
    validation_split,
)
from ..errors import DataError
from ..evaluation import evaluate
from ..fitting import fit_model
from ..model import HashModel
from ..settings import require
from ..shared_features import SharedFeatures
from ..training import current_processes
from .encoded import labels_of
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
    cache: SharedFeatures | None = None,
    info: Info = lambda text: None,
) -> HashModel:
    """Train on the training part of the data and save everything that evaluation needs.

    Args:
        config: The configuration.
        spec: The data.
        out: Folder of the run.
        resume: Continue an unfinished training run; a finished one is left unchanged.
        overwrite: Replace an existing run in the folder.
        device: "auto", "cpu" or "cuda".
        progress: Show a progress bar on stderr.
        dataset: The data set, if it is open already.
        cache: Features that several models with one fixed backbone share.
        info: Receives messages for the user.

    Returns:
        The model.

    Raises:
        UsageError: The folder contains a run, or an unfinished one with other settings.
        DataError: The data cannot be used.
    """
    run, processes = RunDir(out), current_processes()
    if processes.rank == 0:
        run.check_free(resume=resume, overwrite=overwrite)
    finished = resume and not run.can_resume
    if processes.rank > 0:  # only the first process downloads, writes and prints
        info = lambda text: None  # noqa: E731
        processes.barrier()
    dataset = dataset or spec.open(info=info)
    if processes.rank == 0:
        processes.barrier()
    job = _plan(config, spec, dataset)
    if finished:
        return _already_finished(run, job.request, device, info)
    fit = partial(
        fit_model, config, job.train, device=device, resume=resume, cache=cache, info=info
    )
    if processes.rank > 0:
        return fit().model
    with run.locked():
        run.check_free(resume=resume, overwrite=overwrite)  # nothing was written in the meantime
        if resume:
            _check_request(run.request(), job.request, run)
        fitted = fit(folder=run.begin(job.request, job.split, resume=resume), progress=progress)
        record = make_record(fitted.model, spec, job.split, dataset, run.path)
        record["requested"] = job.request
        if len(job.held_out):
            score = validation_map(fitted.model, job.held_out, job.train, cache=cache)
            record["validation_map"] = score
        run.publish(fitted.model, record, fitted.skipped)
    return fitted.model


@dataclass(frozen=True, eq=False)
class _Job:
    """The inputs of a training run.

    Attributes:
        split: The split of the data set.
        train: The training images.
        held_out: Training images that are held out for validation.
        request: The requested configuration and data as JSON values, compared on resume.
    """

    split: Split
    train: LabelledImages
    held_out: LabelledImages
    request: dict[str, Any]


def _plan(config: Config, spec: DataSpec, dataset: LabelledImages) -> _Job:
    protocol = spec.protocol or find_dataset(spec.data).protocol
    seed = config.seed if config.split_seed is None else config.split_seed
    split = make_split(dataset, protocol, seed=seed)
    train, held_out = split.train, split.train[:0]
    if spec.validation:
        train, held_out = validation_split(
            split.train, dataset.labels, fraction=spec.validation, seed=seed
        )
    request = config.identity() | {"split": split.sha256, "validation": spec.validation}
    data = replace(dataset, parts=None)
    return _Job(split, data.take(train), data.take(held_out), request)


def _already_finished(run: RunDir, request: dict[str, Any], device: str, info: Info) -> HashModel:
    record = run.record()
    changed = _changes(_requested(record, request), request)
    require(
        not changed,
        f"{run.path} contains a finished run with other settings or data "
        f"({'; '.join(changed[:4])}). Replace it with --overwrite, or choose another --out.",
    )
    info(f"{run.path} is trained already; nothing to do.")
    return run.model(record, device=device)


def _requested(record: dict[str, Any], request: dict[str, Any]) -> dict[str, Any]:
    """What a finished training was asked for, as far as its record says so."""
    if "requested" in record:
        return dict(record["requested"])
    settings = record.get("settings")  # version 0.1 recorded what ran, and named batch_size batch
    ran = {**settings, "batch_size": settings.get("batch")} if isinstance(settings, dict) else {}
    ran |= record | {"split": record.get("split_sha256", request["split"])}
    if ran.get("weights") == Path(request["weights"]).name:  # the record has no folder
        ran["weights"] = request["weights"]
    return {key: ran.get(key, value) for key, value in request.items()}


def _check_request(before: dict[str, Any] | None, now: dict[str, Any], run: RunDir) -> None:
    changed = _changes(before or now, now)
    require(
        not changed,
        f"{run.path} contains an unfinished training run with other settings or data "
        f"({'; '.join(changed[:4])}). Use the same ones, or start again with --overwrite.",
    )


def _changes(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """What differs between two requests; a request without content bits does not name them."""
    return differences({"content_bits": 0, **before}, {"content_bits": 0, **now})


def validation_map(
    model: HashModel,
    held_out: LabelledImages,
    searched: LabelledImages,
    *,
    cache: SharedFeatures | None = None,
) -> float:
    """mAP with held-out training images as queries and the other training images as database.

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
