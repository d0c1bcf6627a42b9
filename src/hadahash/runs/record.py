"""The record of a run: what is needed to reproduce it and to detect changed data."""

from __future__ import annotations

import datetime
import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from .. import files
from ..data import LabelledImages, Split, find_dataset, open_dataset, read_folder
from ..data.base import ArrayImages, FileImages, MemoryImages
from ..data.datasets import DATASETS
from ..data.remote import is_address, is_stored, read_stored
from ..data.sources import read_embeddings
from ..environment import command_line, source_revision, versions
from ..errors import StorageError
from ..model import HashModel
from ..settings import require

_SAMPLED = 2048  # bytes at each place of a file


@dataclass(frozen=True)
class DataSpec:
    """Where the images of a run come from and how they are split.

    Attributes:
        data: Name of a data set, a table, or a folder of class folders.
        root: Folder with the files of a named data set; None: the cache.
        protocol: Split protocol; None: the default of the data set.
        validation: Fraction of the training images held out for choosing settings.
        labels: Labels of a file of embeddings: a file, or a column or array of it.
        array: Array or column of a file of embeddings.
        exclude: Patterns of files of a folder that are left out.
    """

    data: str
    root: str | None = None
    protocol: str | None = None
    validation: float = 0.0
    labels: str | None = None
    array: str | None = None
    exclude: tuple[str, ...] = ()

    def open(self, **options: Any) -> LabelledImages:
        """Open the data set; see `open_dataset` for the options."""
        if self.exclude and is_stored(self.data):
            return read_stored(self.data, exclude=self.exclude)
        if self.exclude:
            return read_folder(self.data, exclude=self.exclude)
        if self.labels is None:
            return open_dataset(self.data, self.root, **options)
        return read_embeddings(self.data, self.labels, array=self.array)

    def __post_init__(self) -> None:
        require(
            0 <= self.validation < 1,
            f"validation must be >= 0 and < 1 (a fraction), got {self.validation}.",
        )
        require(
            not self.exclude or is_stored(self.data) or not _is_fixed(self.data),
            f"exclude applies to a folder of images, got {self.data}.",
        )


def _is_fixed(data: str) -> bool:
    return data in DATASETS or Path(data).is_file()


def make_record(
    model: HashModel, spec: DataSpec, split: Split, dataset: LabelledImages, out: Path
) -> dict[str, Any]:
    """Collect what is needed to reproduce a run and to detect changed data.

    Args:
        model: The trained model, with the configuration that ran.
        spec: The data.
        split: The split of the data.
        dataset: The data set.
        out: Folder of the run.

    Returns:
        The content of run.json.
    """
    from ..networks.weights import weights_digest

    ran = model.config
    settings = {key: value for key, value in ran.settings().items() if key != "checkpoint_seconds"}
    return {
        "format": 2,
        "model_id": model.id,
        "weights_sha256": model.weights_sha256,
        "dataset": find_dataset(spec.data).name,
        **_data_location(spec, out),
        "protocol": split.name,
        "split_sha256": split.sha256,
        **data_digests(dataset),
        "method": ran.method,
        "bits": ran.bits,
        **({"content_bits": ran.content_bits} if ran.content_bits else {}),
        "backbone": ran.backbone,
        "weights": Path(ran.weights).name,
        "initial_weights_sha256": weights_digest(ran.weights, ran.backbone),
        "seed": ran.seed,
        "split_seed": split.seed,
        "plugins": list(ran.plugins),
        "queries": len(split.query),
        "database": len(split.database),
        "validation": spec.validation,
        "train_images": model.info["train_images"],
        "epochs": ran.train.epochs if ran.train else None,
        "settings": settings,
        "preprocess": vars(model.preprocess),
        "precision": model.precision,
        "train_seconds": model.info.get("train_seconds"),
        "reading_seconds": model.info.get("reading_seconds"),
        "fit_seconds": model.info.get("fit_seconds"),
        "images_per_second": model.info.get("images_per_second"),
        "hardware": model.info["hardware"],
        "versions": versions(),
        "revision": source_revision(),
        "command": command_line(),
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"),
    }


def _data_location(spec: DataSpec, out: Path) -> dict[str, Any]:
    """A named data set by name; a path as it was given, absolute, and relative to the run."""
    root = str(Path(spec.root).absolute()) if spec.root else None
    location: dict[str, Any] = {"data": spec.data, "root": root}
    if spec.labels is not None:
        is_file = Path(spec.labels).is_file()
        labels = str(Path(spec.labels).absolute()) if is_file else spec.labels
        location |= {"labels": labels, "array": spec.array}
    if spec.exclude:
        location["exclude"] = list(spec.exclude)
    if spec.data in DATASETS or is_address(spec.data):
        return location
    relative = os.path.relpath(os.path.realpath(spec.data), os.path.realpath(out))
    return location | {"data_path": str(Path(spec.data).absolute()), "data_from_run": relative}


def data_digests(dataset: LabelledImages) -> dict[str, str | None]:
    """Digests of the ids, labels, class names and files of a data set.

    Files are represented by their sizes and a sample of their bytes, which survive a copy; images
    in memory by their pixels. Other images have no such digest, because computing it would read all
    of them.
    """
    classes = hashlib.sha256("\0".join(dataset.classes).encode("utf-8", "surrogateescape"))
    return {
        "ids_sha256": ids_digest(dataset.ids),
        "labels_sha256": dataset.labels.digest(),
        "classes_sha256": classes.hexdigest(),
        "files_sha256": _files_digest(dataset),
    }


def ids_digest(ids: NDArray[Any]) -> str:
    """sha256 of all ids in their order."""
    digest = hashlib.sha256()
    for start in range(0, len(ids), 65536):
        part = "\0".join(map(str, ids[start : start + 65536]))
        digest.update(part.encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def _files_digest(dataset: LabelledImages) -> str | None:
    if isinstance(dataset.images, (ArrayImages, MemoryImages)):
        return dataset.source.fingerprint()
    if not isinstance(dataset.images, FileImages):
        return None
    digest = hashlib.sha256()
    for path in dataset.images.paths:
        try:
            digest.update(_sample(path))
        except (OSError, StorageError):
            digest.update(b"missing!")
    return digest.hexdigest()


def _sample(path: Path) -> bytes:
    """The size of a file, and some bytes of its start, middle and end."""
    with files.require_regular(path).open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        parts = [size.to_bytes(8, "little")]
        for start in (0, size // 2, size - _SAMPLED):
            file.seek(max(0, start))
            parts.append(file.read(_SAMPLED))
    return b"".join(parts)
