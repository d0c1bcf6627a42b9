"""Runs: a data set, a protocol and a Hasher in one folder, trained, evaluated and written down.

run.json          data set, protocol, seed, command, hardware, versions, time
split.json        which images are queries, training images and database
hasher.json, model-*.safetensors, log.jsonl, checkpoint.safetensors
codes/            once evaluated: query.npz and database.npz, labels.npz with the labels of both and the names of the classes,
                  and values.npy, the queries' values before sign
report.json       the evaluation
skipped.csv       images that could not be read
"""

from __future__ import annotations

import datetime
import platform
import shlex
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from . import files
from ._version import __version__
from .codes import Codes
from .settings import require
from .settings import split as split_settings
from .data import LabelledImages, Split, find_dataset, make_split, open_dataset, validation_split
from .data.preprocess import AugmentSettings
from .encoding import Advance, FeatureCache, ids_digest
from .errors import DataError, StorageError
from .evaluation import Report, evaluate
from .hasher import Hasher, ModelSettings
from .training import TrainSettings, workers_here

_PACKAGES = ("torch", "torchvision", "timm", "numpy")


@dataclass(frozen=True)
class Source:
    """Where a run's images come from and how they are divided."""

    data: str  # a data set's name, a table, or a folder
    root: str | None = None  # where the data set's files are; None: the cache
    protocol: str | None = None  # None: the data set's own
    validation: float = (
        0.0  # share of the training images held out to choose settings by; queries are not touched
    )


def train_run(
    hasher: Hasher,
    source: Source,
    out: str | Path,
    *,
    resume: bool = False,
    progress: bool = False,
    dataset: LabelledImages | None = None,
    cache: FeatureCache | None = None,
    say: Callable[[str], object] = lambda text: None,
) -> Hasher:
    """Train on the training part of the data and save everything that evaluation needs."""
    out = Path(out)
    require(
        0 <= source.validation < 1,
        f"validation={source.validation} is not possible: it is a share, 0 <= validation < 1.",
    )
    dataset = dataset or open_dataset(source.data, source.root, info=say)
    split = make_split(
        dataset, source.protocol or find_dataset(source.data).protocol, seed=hasher.seed
    )
    train, held_out = split.train, split.train[:0]
    if source.validation:
        train, held_out = validation_split(
            split.train, dataset.labels, fraction=source.validation, seed=hasher.seed
        )
    first = workers_here().rank == 0  # of several processes only one writes
    if first:
        split.save(out / "split.json")
    hasher.fit(replace(dataset.take(train), parts=None), out=out, resume=resume, progress=progress, cache=cache)
    if not first:
        return hasher
    hasher.save(out)
    for done in (out / "report.json", *(out / "codes").glob("*.np[yz]")):
        done.unlink(missing_ok=True)  # they speak of the model before
    about = describe(hasher, source, split, len(train) - len(hasher.skipped)) | {
        "ids_sha256": ids_digest(dataset.ids)
    }
    if source.validation:
        about["validation_map"] = validate(hasher, dataset.take(held_out))
    files.write_json(out / "run.json", about)
    (out / "checkpoint.safetensors").unlink(missing_ok=True)
    if hasher.skipped:
        Codes(np.empty((0, 1), np.uint8), 8, skipped=hasher.skipped).save_skipped(
            out / "skipped.csv"
        )
    return hasher


def validate(hasher: Hasher, held_out: LabelledImages) -> float:
    """mAP of held-out training images searched for among themselves; each also finds itself."""
    codes = hasher.encode(held_out)
    labels = labels_of(codes, held_out)
    return float(evaluate(codes, labels, codes, labels).map)


def evaluate_run(
    run: str | Path,
    *,
    root: str | None = None,
    depth: int | Literal["all"] | None = None,
    device: str = "auto",
    advance: Advance | None = None,
    hasher: Hasher | None = None,
    dataset: LabelledImages | None = None,
    cache: FeatureCache | None = None,
) -> Report:
    """Encode the run's queries and database and measure the retrieval; codes and report stay in the run's folder.

    mAP looks at the first `depth` results; None: as many as is usual for the data set.
    """
    run = Path(run)
    about = _about(run)
    depth = _whole_depth(find_dataset(about["data"]).depth if depth is None else depth)
    hasher = hasher or Hasher.load(run, device=device)
    dataset = dataset or open_dataset(about["data"], root or about["root"])
    if about.get("ids_sha256", "") not in ("", ids_digest(dataset.ids)):
        raise DataError(
            f"Images have been added to {about['data']}, or removed, since {run} was trained. Train again."
        )
    split = Split.load(run / "split.json")
    parts = {"query": dataset.take(split.query), "database": dataset.take(split.database)}
    values = hasher.values(parts["query"], advance=advance, cache=cache)
    codes = {
        "query": hasher.encoder().codes_of(values, parts["query"].ids),
        "database": hasher.encode(parts["database"], advance=advance, cache=cache),
    }
    labels = {part: labels_of(codes[part], images) for part, images in parts.items()}
    _keep(run / "codes", codes, labels, dataset.classes, hasher.relaxed(values))
    report = evaluate(
        codes["query"], labels["query"], codes["database"], labels["database"], depth=depth
    )
    report.to_json(run / "report.json")
    skipped = codes["query"].skipped + codes["database"].skipped
    if skipped:
        Codes(codes["query"].packed[:0], hasher.bits, skipped=skipped).save_skipped(
            run / "skipped.csv"
        )
    return report


def _whole_depth(depth: int | Literal["all"] | None) -> int | None:
    """How many results mAP looks at; None: all of them."""
    if depth is None or depth == "all":
        return None
    require(
        depth >= 1,
        f"depth={depth} is not possible: mAP looks at the first 1 or more results, or at all.",
    )
    return depth


def _about(run: Path) -> dict[str, Any]:
    """run.json; where there is none, an error that says what the folder is instead."""
    if (run / "run.json").exists():
        about: dict[str, Any] = files.read_json(run / "run.json")
        return about
    if run.is_file():
        what, remedy = (
            "is a file, not the folder of a run",
            "Give the folder that hadahash train DATA --out FOLDER has made.",
        )
    elif not run.exists():
        what, remedy = (
            "does not exist",
            f"Check the name, or train a run: hadahash train DATA --out {run}",
        )
    elif (run / "split.json").exists():
        what = "is a run whose training has not ended (run.json is missing)"
        remedy = f"Go on with the command that began it, and --resume: hadahash train DATA --out {run} --resume"
    elif (run / "hasher.json").exists():
        what = "holds a model without a run (run.json is missing), so it is not known which images it is to be measured on"
        remedy = f"Encode images with hadahash encode {run} IMAGES, and measure: hadahash evaluate --queries Q --database D"
    else:
        what, remedy = (
            "is not the folder of a run (run.json is missing)",
            f"Train one: hadahash train DATA --out {run}",
        )
    raise StorageError(f"{run} {what}. {remedy}")


def _keep(
    folder: Path,
    codes: dict[str, Codes],
    labels: dict[str, NDArray[np.int64]],
    classes: tuple[str, ...],
    values: NDArray[np.float16],
) -> None:
    for part, own in codes.items():
        own.save(folder / f"{part}.npz")
    with files.replacing(folder / "labels.npz") as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, classes=np.array(classes, str), **labels)  # type: ignore[arg-type]
    with files.replacing(folder / "values.npy") as temporary, temporary.open("wb") as file:
        np.save(file, values)


@dataclass(frozen=True, eq=False)
class Evaluated:
    """What an evaluated run left in its folder."""

    folder: Path
    about: dict[str, Any]  # run.json
    report: dict[str, Any]  # report.json
    query: Codes
    database: Codes
    query_labels: NDArray[np.int64]  # (n,) class numbers, or (n, C) of 0 and 1
    database_labels: NDArray[np.int64]
    classes: tuple[str, ...]
    values: NDArray[np.float16]  # (queries, bits): the values before sign


def read_evaluated(run: str | Path) -> Evaluated:
    """All that `evaluate_run` wrote; no model is loaded and no image is read."""
    run = Path(run)
    if not (run / "codes" / "labels.npz").exists() or not (run / "report.json").exists():
        _about(run)
        raise StorageError(f"{run} has not been evaluated. Do it with: hadahash evaluate {run}")
    try:
        with np.load(run / "codes" / "labels.npz", allow_pickle=False) as stored:
            query, database, classes = (
                stored["query"],
                stored["database"],
                tuple(map(str, stored["classes"])),
            )
        values = np.load(run / "codes" / "values.npy", allow_pickle=False)
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise StorageError(
            f"The codes of {run} are damaged ({error}). Make them again: hadahash evaluate {run}"
        ) from error
    codes = [Codes.load(run / "codes" / f"{part}.npz") for part in ("query", "database")]
    about, report = _about(run), files.read_json(run / "report.json")
    return Evaluated(run, about, report, codes[0], codes[1], query, database, classes, values)


def evaluate_files(
    queries: str | Path, database: str | Path, *, depth: int | Literal["all"] | None = None
) -> Report:
    """Measure two saved files of codes whose ids are CLASS/NAME: the class is the label."""
    depth = _whole_depth(depth)
    parts = [Codes.load(queries), Codes.load(database)]
    names = [
        [_class_of(str(name), path) for name in part.ids]
        for part, path in zip(parts, (queries, database), strict=True)
    ]
    numbers = {
        name: number
        for number, name in enumerate(sorted({name for part in names for name in part}))
    }
    labels = [np.array([numbers[name] for name in part], np.int64) for part in names]
    return evaluate(parts[0], labels[0], parts[1], labels[1], depth=depth)


def _class_of(name: str, path: str | Path) -> str:
    if "/" not in name:
        raise DataError(
            f"{path}: the id '{name}' has no class; ids must be CLASS/NAME. Encode a folder of class folders."
        )
    return name.split("/", 1)[0]


def labels_of(codes: Codes, images: LabelledImages) -> NDArray[np.int64]:
    """The labels of the images that have a code, in the order of the codes."""
    if not codes.skipped:
        return images.labels.array
    known = set(codes.ids.tolist())
    return images.labels.take([name in known for name in images.ids]).array


def describe(hasher: Hasher, source: Source, split: Split, train_images: int) -> dict[str, Any]:
    """What must be known of a run to repeat it."""
    settings, augmentation, model, method = split_settings(
        hasher.settings,
        TrainSettings,
        AugmentSettings,
        ModelSettings,
        type(hasher.network.method).Settings,
    )
    values = {
        key: value
        for kind in (settings, augmentation, model, method)
        for key, value in vars(kind).items()
    }
    outcome = hasher.outcome
    return {
        "dataset": find_dataset(source.data).name,
        "data": source.data,
        "root": source.root,
        "protocol": split.name,
        "method": hasher.method,
        "bits": hasher.bits,
        "backbone": hasher.backbone,
        "weights": Path(hasher.weights).name,
        "seed": hasher.seed,
        "split_sha256": split.sha256,
        "queries": len(split.query),
        "database": len(split.database),
        "train_images": train_images,
        "epochs": settings.epochs if outcome else None,
        "settings": values,
        "preprocess": vars(hasher.preprocess),
        "validation": source.validation,
        "train_seconds": round(outcome.seconds, 2) if outcome else None,
        "images_per_second": round(outcome.images_per_second, 1) if outcome else None,
        "hardware": hardware(hasher),
        "versions": versions(),
        "command": command(),
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"),
    }


def hardware(hasher: Hasher) -> str:
    device = hasher.network.threshold.device
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"CPU {platform.machine()}, {torch.get_num_threads()} threads"


def versions() -> dict[str, str]:
    found = {name: metadata.version(name) for name in _PACKAGES}
    return {"hadahash": __version__, "python": platform.python_version(), **found}


def command() -> str:
    """The command line of this process, as one would type it."""
    program = Path(sys.argv[0]).name
    return shlex.join([{"__main__.py": "hadahash"}.get(program, program), *sys.argv[1:]])
