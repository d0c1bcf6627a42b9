"""Evaluate a run, and read an evaluated run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from .. import files
from ..codes import Codes, write_skipped
from ..data import LabelledImages, find_dataset
from ..data.datasets import DATASETS
from ..data.embeddings import Embeddings
from ..data.labels import Labels
from ..data.remote import is_address, is_stored
from ..data.sources import ImageSource
from ..encoding import Progress
from ..errors import DataError, StorageError, UsageError, unknown
from ..evaluation import Report
from ..evaluation.known_item import KnownItem
from ..model import HashModel
from ..outputs import Outputs
from ..settings import require
from ..shared_features import SharedFeatures
from .encoded import EncodedImages, encode_images, labels_of
from .known_item import available_ranks, search_copies, usual_sample
from .rankings import check_content_weight, measure_rankings
from .record import DataSpec, data_digests
from .run_dir import RunDir

_QUERY_SAMPLE, _DATABASE_SAMPLE = 200, 2000  # images whose features are kept

Depth = int | Literal["all"] | None


def evaluate_run(
    run: str | Path,
    *,
    data: str | Path | None = None,
    root: str | None = None,
    depth: Depth = None,
    device: str = "auto",
    progress: Progress | None = None,
    model: HashModel | None = None,
    dataset: LabelledImages | None = None,
    cache: SharedFeatures | None = None,
    ranks: Sequence[str] | None = None,
    weight: float | None = None,
    known_items: int | None = 0,
) -> Report:
    """Encode the queries and the database of a run and measure retrieval.

    Args:
        run: Folder of the run.
        data: Location of the data; None: as in training.
        root: Folder with the files of a named data set; None: as in training.
        depth: Rank cut-off R of mAP@R, or "all"; None: the default of the data set.
        device: "auto", "cpu" or "cuda".
        progress: Called with the number of images of each batch.
        model: The model of the run, if it is loaded already.
        dataset: The data set, if it is open already.
        cache: Features that several models with one fixed backbone share.
        ranks: Rankings beside "hamming" that are measured; None: all that the model allows.
        weight: Weight of the content in "photo"; None: that of the model.
        known_items: Number of images for `search_copies`; None: 500 on a GPU, 50 on a CPU.

    Returns:
        The report by Hamming distance, the others in `rankings`; also written to the folder.

    Raises:
        StorageError: The folder has no finished run, or files of several runs.
        DataError: The data differ from the training data; the message lists the differences.
        UsageError: The model does not allow a ranking, or the weight belongs to none.
    """
    folder = RunDir(run)
    record = folder.record()
    with folder.locked():
        pass  # detect an unwritable folder before the work, not after it
    spec = str(data) if data is not None else find_run_data(folder, record)
    depth = check_depth(find_dataset(spec).depth if depth is None else depth)
    model = model or HashModel.load(folder.path, device=device)
    folder.check_model(record, model)
    ranks = _check_ranks(model, ranks, weight)
    split = folder.split(record)
    dataset = dataset or open_run_data(folder, record, data=spec, root=root)
    digests = _check_data(folder, record, dataset)
    parts = {"query": dataset.take(split.query), "database": dataset.take(split.database)}
    encoded = _encode(model, parts, progress, cache)
    codes = {part: own.codes for part, own in encoded.items()}
    labels = {part: labels_of(codes[part], images) for part, images in parts.items()}
    _check_classes(parts, labels, codes)
    values = cast(Outputs, encoded["query"].values)
    queries = model.to_queries(values, parts["query"].ids)
    ranked: dict[str, Any] = {"ranks": ranks, "weight": weight}
    report = measure_rankings(model.ranking, queries, encoded, labels, depth=depth, **ranked)
    images = parts["database"].source
    report = replace(
        report,
        known_item=_search(model, images, codes["database"], known_items, ranked, progress),
        skipped=sum(len(part.skipped) for part in codes.values()),
        map_by_training=_by_training(report, labels["query"], dataset.labels.take(split.train)),
    )
    facts = {"model_id": model.id, "split_sha256": split.sha256, **digests}
    relaxed = model.runtime.relaxed(values.values).astype(np.float16)
    with folder.locked(), folder.new_evaluation() as staged:
        _write_evaluation(staged, codes, labels, dataset.classes, relaxed)
        files.write_json(staged / "report.json", report.to_dict() | facts)
        write_skipped(staged / "skipped.csv", [s for part in codes.values() for s in part.skipped])
    return report


def open_run_data(
    folder: RunDir,
    record: dict[str, Any],
    *,
    data: str | Path | None = None,
    root: str | None = None,
) -> LabelledImages:
    """Open the data set of a run.

    Args:
        folder: The run.
        record: Content of its run.json.
        data: Location of the data; None: as in training.
        root: Folder with the files of a named data set; None: as in training.

    Returns:
        The data set.

    Raises:
        DataError: The data have moved, or cannot be read.
    """
    return DataSpec(
        str(data) if data is not None else find_run_data(folder, record),
        root or record.get("root"),
        labels=record.get("labels"),
        array=record.get("array"),
        exclude=tuple(record.get("exclude", ())),
    ).open()


def _encode(
    model: HashModel,
    parts: dict[str, LabelledImages],
    progress: Progress | None,
    cache: SharedFeatures | None,
) -> dict[str, EncodedImages]:
    """Encode queries and database; the features of samples tell the agreement with them."""
    samples = {"query": _QUERY_SAMPLE, "database": _DATABASE_SAMPLE}
    return {
        part: encode_images(
            model,
            images.source,
            sample=samples[part],
            values=part == "query",
            progress=progress,
            cache=cache,
        )
        for part, images in parts.items()
    }


def _search(
    model: HashModel,
    images: ImageSource,
    database: Codes,
    count: int | None,
    ranked: dict[str, Any],
    progress: Progress | None,
) -> dict[str, dict[str, KnownItem]]:
    count = usual_sample(model.runtime.device) if count is None else count
    if not count or isinstance(images.images, Embeddings):  # embeddings cannot be cropped
        return {}
    options = ranked | {"ranks": ["hamming", *ranked["ranks"]], "progress": progress}
    return search_copies(model, images, database, count=count, **options)


def _by_training(report: Report, query_labels: NDArray[Any], trained: Labels) -> dict[str, float]:
    """mAP of queries with and without a class that was trained on; empty if all have one."""
    known = trained.class_counts() > 0
    seen = query_labels @ known > 0 if query_labels.ndim == 2 else known[query_labels]
    if seen.all():
        return {}
    ap = np.nan_to_num(report.average_precision)
    groups = {"seen": ap[seen], "unseen": ap[~seen]}
    return {name: float(own.mean()) for name, own in groups.items() if len(own)}


def _check_ranks(model: HashModel, ranks: Sequence[str] | None, weight: float | None) -> list[str]:
    """The rankings beside "hamming" that are measured."""
    allowed = available_ranks(model)
    for rank in ranks or ():
        if rank == "photo" and rank not in allowed:
            raise UsageError(
                "rank='photo' needs content bits, and this model has none. "
                "Train with --content-bits 128."
            )
        if rank not in allowed:
            raise unknown("ranking", rank, allowed)
    measured = [rank for rank in (allowed if ranks is None else ranks) if rank != "hamming"]
    check_content_weight(weight, measured)
    return measured


def find_run_data(folder: RunDir, record: dict[str, Any]) -> str:
    """Locate the data of a run: by name, at the absolute path, or relative to the run folder.

    Args:
        folder: The run.
        record: Content of its run.json.

    Returns:
        What `open_dataset` takes.

    Raises:
        DataError: The data have moved.
    """
    spec, relative = str(record["data"]), record.get("data_from_run")
    if spec in DATASETS or is_address(spec):
        return spec
    places = [record.get("data_path"), folder.path / relative if relative else None, spec]
    found = next((str(place) for place in places if place and _is_there(place)), None)
    if found is None:
        raise DataError(
            f"The images of {folder.path} are no longer at {record.get('data_path') or spec}. "
            "Pass their new location with --data."
        )
    return found


def _is_there(place: str | Path) -> bool:
    return Path(place).exists() or is_stored(place)  # it may be a pattern of files


def _check_data(
    folder: RunDir, record: dict[str, Any], dataset: LabelledImages
) -> dict[str, str | None]:
    """Raise an error that lists what changed if the data differ from the training data.

    Returns the digests of the data.
    """
    names = {
        "ids_sha256": "images were added, removed or renamed",
        "labels_sha256": "labels changed",
        "classes_sha256": "class names changed",
        "files_sha256": "image files changed",
    }
    now = data_digests(dataset)
    changed = [text for key, text in names.items() if record.get(key, now[key]) != now[key]]
    if changed:
        raise DataError(
            f"The data of {folder.path} differ from those it was trained on: {'; '.join(changed)}. "
            "Restore them, pass their location with --data, or train again."
        )
    return now


def _check_classes(
    parts: dict[str, LabelledImages], labels: dict[str, NDArray[Any]], codes: dict[str, Codes]
) -> None:
    """Raise an error if no image of a class is readable."""
    for part, images in parts.items():
        if not codes[part].skipped:
            continue
        before = images.labels.class_counts() > 0
        after = Labels.from_array(labels[part], images.labels.count).class_counts() > 0
        lost = [images.classes[number] for number in np.flatnonzero(before & ~after)]
        if lost:
            raise DataError(
                f"No {part} image of the class '{lost[0]}' can be read ({len(codes[part].skipped)} "
                f"unreadable, first: {codes[part].skipped[0].path}). Restore the files."
            )


def check_depth(depth: Depth) -> int | None:
    """Validate the rank cut-off of mAP.

    Args:
        depth: The rank; None or "all": all results.

    Returns:
        The rank; None: all results.

    Raises:
        UsageError: It is less than 1.
    """
    if depth is None or depth == "all":
        return None
    require(depth >= 1, f"depth must be >= 1 or 'all', got {depth}.")
    return depth


def _write_evaluation(
    folder: Path,
    codes: dict[str, Codes],
    labels: dict[str, NDArray[Any]],
    classes: tuple[str, ...],
    values: NDArray[np.float16],
) -> None:
    for part, own in codes.items():
        own.save(folder / f"{part}.npz")
    with files.replacing(folder / "labels.npz") as temporary, temporary.open("wb") as file:
        arrays: dict[str, Any] = {"classes": np.array(classes, str), **labels}
        np.savez_compressed(file, **arrays)
    with files.replacing(folder / "values.npy") as temporary, temporary.open("wb") as file:
        np.save(file, values)


@dataclass(frozen=True, eq=False)
class EvaluatedRun:
    """An evaluated run, as it was written to its folder.

    Attributes:
        folder: The folder.
        record: Content of run.json.
        report: Content of report.json.
        query: Codes of the queries.
        database: Codes of the database.
        query_labels: Class numbers (n,), or 0/1 (n, C).
        database_labels: As `query_labels`.
        classes: Names of the classes.
        values: Real values of the queries before binarization, float16 (queries, bits).
    """

    folder: Path
    record: dict[str, Any]
    report: dict[str, Any]
    query: Codes
    database: Codes
    query_labels: NDArray[Any]
    database_labels: NDArray[Any]
    classes: tuple[str, ...]
    values: NDArray[np.float16]


def read_evaluated_run(run: str | Path) -> EvaluatedRun:
    """Read what `evaluate_run` wrote; no model is loaded and no image is read.

    Raises:
        StorageError: The run has not been evaluated, or its files are damaged or inconsistent.
    """
    folder = RunDir(run)
    place = folder.evaluation()
    try:
        with np.load(place / "labels.npz", allow_pickle=False) as stored:
            labels = {part: stored[part] for part in ("query", "database")}
            classes = tuple(map(str, stored["classes"]))
        values = np.load(place / "values.npy", allow_pickle=False)
    except files.ARCHIVE_ERRORS as error:
        raise StorageError(
            f"The codes of {run} are damaged ({error}). Evaluate again: hadahash evaluate {run}"
        ) from error
    codes = {part: Codes.load(place / f"{part}.npz") for part in ("query", "database")}
    return EvaluatedRun(
        folder=folder.path,
        record=folder.record(),
        report=folder.report(),
        query=codes["query"],
        database=codes["database"],
        query_labels=labels["query"],
        database_labels=labels["database"],
        classes=classes,
        values=values,
    )
