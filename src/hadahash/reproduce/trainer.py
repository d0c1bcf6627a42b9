"""Train a cell of a plan, encode its data set once, and prepare all measures."""

from __future__ import annotations

import gc
import json
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..building import has_fixed_backbone, make_config
from ..config import Config, backbone_key
from ..data import LabelledImages, Split, find_dataset, make_split, validation_split
from ..data.pixel_store import PixelStore
from ..data.preprocess import Preprocess
from ..data.sources import as_images
from ..environment import versions
from ..errors import TrainingDivergedError
from ..fitting import LOG, fit_model
from ..model import HashModel
from ..networks.weights import weights_digest
from ..shared_features import SharedFeatures
from .cells import DatasetCache, RunContext, relative_traceback
from .collected import Record
from .content import measure_content
from .inputs import content_inputs, encode_all, ranking_inputs, relaxed_values
from .measures import Coded
from .originals import Originals
from .provenance import data_digests
from .rankings import rank_all
from .recipes import Cell, current_names


@dataclass(frozen=True, eq=False)
class _Resident:
    """A data set with its pixels on the device."""

    data: LabelledImages
    pixels: Tensor  # uint8 (n, 3, side, side)
    digests: dict[str, str | None]
    preprocess: Preprocess


class Trainer:
    """Trains cells, one after the other, in this process.

    Args:
        context: Data folders, weights and device.
        revision: Revision of the source code, see `provenance.source_revision`.
    """

    def __init__(self, context: RunContext, revision: dict[str, Any]) -> None:
        self.context, self.revision = context, revision
        self._datasets = DatasetCache(context)
        self._resident: dict[str, _Resident] = {}
        self._features = SharedFeatures()  # of trials with a fixed backbone
        self._originals = Originals(self._features)

    def run(self, cell: Cell) -> tuple[Record, Coded | None]:
        """Train and encode a cell. Errors are recorded, not raised.

        Args:
            cell: The cell.

        Returns:
            The record so far, and what remains to be measured on the CPU. If training diverged, the
            record has `diverged`; after an unexpected error it has `failed` and `traceback`. Both
            leave nothing to measure.
        """
        started = time.perf_counter()
        record = self._request(cell)
        coded = None
        try:
            coded = self._train(cell, record)
        except TrainingDivergedError as error:
            record["diverged"] = str(error)
        except Exception as error:
            record["failed"] = f"{type(error).__name__}: {error}"
            record["traceback"] = relative_traceback()
        gc.collect()
        record["seconds"]["total"] = round(time.perf_counter() - started, 2)
        return record, coded

    def _request(self, cell: Cell) -> Record:
        validation = {"validation": cell.validation} if cell.validation else {}
        return {
            "dataset": cell.dataset,
            "name": cell.name,
            "method": cell.method,
            "bits": cell.bits,
            "backbone": cell.backbone,
            "seed": cell.seed,
            "protocol": cell.protocol,
            **validation,
            "asked": {**cell.settings, **cell.varied},
            "varied": cell.varied,
            "revision": self.revision,
            "versions": versions(),
            "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "command": f"hadahash reproduce check {cell.recipe}/{cell.dataset}/{cell.name}",
            "seconds": {},
        }

    def _train(self, cell: Cell, record: Record) -> Coded:
        data = self._datasets.get(cell)
        split = split_of(cell, data)
        with tempfile.TemporaryDirectory(prefix="hadahash-") as folder:
            try:
                fitted = fit_model(
                    self._config(cell),
                    data.take(split.train),
                    device=self.context.device,
                    folder=Path(folder),
                    cache=self._features,
                )
            finally:
                record["log"] = _read_log(Path(folder) / LOG)
        model, began = fitted.model, time.perf_counter()
        resident = self._on_device(cell, data, model)
        record |= _facts(model, split, resident)
        values = self._encode(cell, split, data, model, resident)
        encoded = time.perf_counter()
        coded = _prepare(cell, split, data, model, values, record)
        ranked = time.perf_counter()
        record["seconds"] = {
            "train": record["train_seconds"],
            "encode": round(encoded - began, 2),
            "rank": round(ranked - encoded, 2),
        }
        if cell.content:
            original = self._originals.get(model, data, resident.pixels, split)
            record["content"] = measure_content(
                content_inputs(split, data, model, values, original),
                sweep=cell.content == "sweep",
            )
            record["seconds"]["content"] = round(time.perf_counter() - ranked, 2)
        return coded

    def _encode(
        self,
        cell: Cell,
        split: Split,
        data: LabelledImages,
        model: HashModel,
        resident: _Resident,
    ) -> Tensor:
        """The values of all images; in a trial, 0 for those outside of the split."""
        if not cell.validation:
            return self._encode_images(model, data, resident.pixels)
        used = np.union1d(split.query, split.database)
        rows = torch.from_numpy(used).to(resident.pixels.device)
        found = self._encode_images(model, data.take(used), resident.pixels[rows])
        values = torch.zeros(len(resident.pixels), found.shape[1], device=found.device)
        values[rows] = found
        return values

    def _encode_images(self, model: HashModel, data: LabelledImages, pixels: Tensor) -> Tensor:
        """Values, from shared features where a fixed backbone runs on the CPU."""
        if model.device.type == "cpu" and has_fixed_backbone(model.config, model.method):
            return self._known_values(model, data)
        deterministic = bool(model.config.settings().get("deterministic"))
        return encode_all(model, pixels, deterministic=deterministic)

    @torch.no_grad()
    def _known_values(self, model: HashModel, data: LabelledImages) -> Tensor:
        """The values of images from features that cells with one fixed backbone share."""
        features = self._features.get(model.encoder(), as_images(data), backbone_key(model.config))
        values: Tensor = model.network.eval().values(torch.from_numpy(features.values))
        return values

    def _config(self, cell: Cell) -> Config:
        return make_config(
            cell.method,
            bits=cell.bits,
            backbone=cell.backbone,
            weights=self.context.weights,
            seed=cell.seed,
            settings=current_names({**cell.settings, **cell.varied}),
        )

    def _on_device(self, cell: Cell, data: LabelledImages, model: HashModel) -> _Resident:
        """The data set on the device, one at a time."""
        known = self._resident.get(cell.dataset)
        if known is None or known.preprocess != model.preprocess:
            pixels = PixelStore.build(data, model.preprocess).pixels.to(model.device)
            known = _Resident(data, pixels, data_digests(data), model.preprocess)
            self._resident = {cell.dataset: known}
        return known


def split_of(cell: Cell, data: LabelledImages) -> Split:
    """The split of a cell.

    Args:
        cell: The cell.
        data: Its data set.

    Returns:
        The split of its protocol and seed. That of a trial lies inside the training part: held-out
        training images search the others, which are trained on.
    """
    split = make_split(data, cell.protocol, seed=cell.seed)
    if not cell.validation:
        return split
    train, held = validation_split(
        split.train, data.labels, fraction=cell.validation, seed=cell.seed
    )
    return Split(f"{split.name}-validation", split.seed, held, train, train)


def second_database(split: Split) -> NDArray[np.int64] | None:
    """Another database for the same queries.

    Args:
        split: A split.

    Returns:
        The database with the training images if it has none of them, otherwise without them. None
        if the training images are the database.
    """
    if len(np.intersect1d(split.train, split.database)) == 0:
        return np.union1d(split.train, split.database)
    rest = np.setdiff1d(split.database, split.train)
    return rest if len(rest) else None


def measured_prefixes(cell: Cell) -> tuple[int, ...]:
    """The prefixes of the codes that are measured too.

    Args:
        cell: The cell.

    Returns:
        Lengths in bits. The codebook "nested" is made for prefixes, so it has more of them, and
        trials with another codebook have none.
    """
    nested, trial = cell.codebook == "nested", cell.validation > 0
    usual = () if trial else (16, 32, 64)
    lengths = (8, 16, 24, 32, 48, 64) if nested else usual
    return tuple(bits for bits in lengths if bits < cell.bits)


def _read_log(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    lines = path.read_text().splitlines()
    return [{key: _short(value) for key, value in json.loads(line).items()} for line in lines]


def _facts(model: HashModel, split: Split, resident: _Resident) -> Record:
    """The effective settings, data and environment."""
    return {
        "settings": effective_settings(model),
        "preprocess": vars(model.preprocess),
        "weights": Path(model.config.weights).name,
        "split_sha256": split.sha256,
        "queries": len(split.query),
        "database": len(split.database),
        "train_images": len(split.train),
        "digests": {
            **resident.digests,
            "weights_sha256": weights_digest(model.config.weights, model.config.backbone),
            "model_sha256": model.weights_sha256,
        },
        "train_seconds": model.info.get("train_seconds"),
        "images_per_second": model.info.get("images_per_second"),
        "hardware": model.info["hardware"],
    }


def effective_settings(model: HashModel) -> dict[str, Any]:
    """All settings as they were used, for example lam = 0 for hcdh-h.

    Args:
        model: A trained model.

    Returns:
        Settings by name. Codebook settings are None if the method has no codewords.
    """
    found = model.config.settings()
    if model.method.codewords() is None:
        return {k: None if k.startswith("codebook") else v for k, v in found.items()}
    return found


def _prepare(
    cell: Cell,
    split: Split,
    data: LabelledImages,
    model: HashModel,
    values: Tensor,
    record: Record,
) -> Coded:
    """Rank on the device, and pack the codes: those of a trial under the threshold 0 only."""
    real, trial = relaxed_values(model, values), cell.validation > 0
    sizes, train = real[split.query].abs(), values[split.train]
    record["binarised"] = {
        "beyond_0.9": _short((sizes > 0.9).float().mean().item()),
        "largest": _short(sizes.max().item()),
    }
    thresholds = {"zero": torch.zeros_like(train[0])}
    if not trial:
        thresholds |= {"mean": train.mean(0), "median": train.median(0).values}
    ranked = rank_all(ranking_inputs(split, data, model, real.clamp(-1, 1)))
    record["rankings"] = {
        name: {"all": _short(own.ap.mean().item())} for name, own in ranked.items()
    }
    return Coded(
        bits=cell.bits,
        codes={
            name: np.packbits((values >= threshold).cpu().numpy(), axis=1)
            for name, threshold in thresholds.items()
        },
        labels=data.labels.array,
        query=split.query,
        database=split.database,
        train=split.train,
        second_database=None if trial else second_database(split),
        prefixes=measured_prefixes(cell),
        depth=find_dataset(cell.dataset).depth,
        rankings={name: (own.ties, own.hits) for name, own in ranked.items()},
        trial=trial,
    )


def _short(value: Any) -> Any:
    return round(value, 5) if isinstance(value, float) else value
