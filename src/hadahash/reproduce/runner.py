"""Run the cells of a plan in one process: train, encode once, and measure each model in every way.

Results are collected as JSON lines, one file per data set, and appended after each cell; weights and codes are not kept.
Measures on the CPU run beside the training of the next cell.
"""

from __future__ import annotations

import gc
import json
import multiprocessing
import tempfile
import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from .. import files
from ..data import LabelledImages, Split, find_dataset, make_split
from ..data.preprocess import Preprocess, center
from ..errors import FellApart, HadaHashError
from ..hasher import Hasher, one_hot
from ..methods import Method
from ..methods.hcdh import HCDH, HCDHClassifierOnly
from ..runs import hardware, versions
from ..training import PixelStore
from ..training.loop import kernels
from .cells import Bench, Opened
from .measures import Coded, measure
from .provenance import data_digests, effective_settings, source_revision, weights_digest
from .rankings import Scene, rank_all
from .recipes import Cell

FAILURES = 3  # unexpected errors in a row that end a run: the device or the data is broken
_FIRST_GUESS = 20.0  # seconds a cell may take before one of its data set has been timed
_ENCODE_BATCH = 1000


@dataclass(frozen=True)
class Collected:
    """The results of a plan: a folder with one file of JSON lines per data set (and shard)."""

    folder: Path
    suffix: str = ""  # tells the files of several processes apart

    def append(self, record: dict[str, Any]) -> None:
        """Append a record; a line that an interrupted process left unfinished is removed first."""
        path = self.folder / f"{record['dataset']}{self.suffix}.jsonl"
        self.folder.mkdir(parents=True, exist_ok=True)
        kept = path.read_bytes() if path.exists() else b""
        if kept and not kept.endswith(b"\n"):
            files.write_bytes(path, kept[: kept.rfind(b"\n") + 1])
        with path.open("ab") as file:
            file.write(json.dumps(record, separators=(",", ":")).encode() + b"\n")

    def records(self) -> list[dict[str, Any]]:
        """All complete records of all files; the last of a cell counts."""
        found: dict[str, dict[str, Any]] = {}
        for path in sorted(self.folder.glob("*.jsonl")):
            for line in path.read_bytes().split(b"\n"):
                try:
                    record = json.loads(line)
                except ValueError:
                    continue
                found[f"{record['dataset']}/{record['name']}"] = record
        return list(found.values())

    def missing(self, cells: Sequence[Cell]) -> list[Cell]:
        """The cells that have no result with these settings; a failed run is no result."""
        known = {
            (record["dataset"], record["name"], json.dumps(record["asked"], sort_keys=True))
            for record in self.records()
            if "failed" not in record
        }
        return [cell for cell in cells if (cell.dataset, cell.name, _asked(cell)) not in known]


def _asked(cell: Cell) -> str:
    return json.dumps({**cell.settings, **cell.varied}, sort_keys=True)


def run_plan(
    cells: Sequence[Cell],
    bench: Bench,
    collected: Collected,
    *,
    seconds: float | None = None,
    revision: str | None = None,
    workers: int = 2,
    clock: Callable[[], float] = time.monotonic,
) -> int:
    """Run the cells that have no result yet, in order.

    Args:
        cells: The cells of a plan.
        bench: Data folders, weights and device.
        collected: Where results are appended.
        seconds: No cell is started that is not expected to end within this time. None: no limit.
        revision: Commit of the source code, for machines without git.
        workers: Processes that measure beside the training. 0: measure in this process.
        clock: Returns the time in seconds.

    Returns:
        The number of cells that were run.

    Raises:
        HadaHashError: If several cells in a row failed with an unexpected error.
    """
    start, latest = clock(), dict[str, float]()
    count = failures = 0
    with _Measurer(collected, workers, bench.say) as measurer:
        desk = _Desk(bench, source_revision(revision))
        for cell in collected.missing(cells):
            began = clock()
            expected = latest.get(cell.dataset, _FIRST_GUESS)
            if seconds is not None and began - start + expected > seconds:
                bench.say(f"Stopped before {cell.dataset} {cell.name}: the time is used up.")
                break
            record, coded, failed = desk.run(cell)
            measurer.submit(record, coded)
            count += 1
            failures = failures + 1 if failed else 0
            if failures == FAILURES:
                raise HadaHashError(f"{FAILURES} cells in a row failed: {record['failed']}")
            latest[cell.dataset] = min(clock() - began, 3 * _FIRST_GUESS)  # the first one compiles
    return count


class _Measurer:
    """Measures codes beside the training and appends the records in order."""

    def __init__(self, collected: Collected, workers: int, say: Callable[[str], object]) -> None:
        self._collected, self._say = collected, say
        self._pool = (
            ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) if workers else None
        )
        self._waiting: deque[tuple[dict[str, Any], Future[dict[str, Any]]]] = deque()
        self._limit = 2 * workers

    def __enter__(self) -> _Measurer:
        return self

    def submit(self, record: dict[str, Any], coded: Coded | None) -> None:
        future: Future[dict[str, Any]] = Future()
        if coded is None:
            future.set_result({})
        elif self._pool is None:
            future.set_result(measure(coded))
        else:
            future = self._pool.submit(measure, coded)
        self._waiting.append((record, future))
        while self._waiting and (len(self._waiting) > self._limit or self._waiting[0][1].done()):
            self._finish()

    def _finish(self) -> None:
        record, future = self._waiting.popleft()
        try:
            measured = future.result()
        except Exception:
            measured = {"failed": _traceback()}
        rankings = record.pop("rankings", {})
        record |= measured
        for name, depth_map in record.pop("rankings", {}).items():
            rankings[name]["1000_found"] = depth_map
        if rankings:
            record["rankings"] = rankings
        self._collected.append(record)
        score = f"mAP {record['map']:.4f}" if "map" in record else "failed"
        self._say(f"{record['dataset']} {record['name']}: {score} ({record['seconds']})")

    def __exit__(self, *error: object) -> None:
        while self._waiting:
            self._finish()
        if self._pool is not None:
            self._pool.shutdown()


@dataclass(eq=False)
class _Prepared:
    """A data set on the device."""

    data: LabelledImages
    pixels: Tensor  # uint8 (n, 3, side, side)
    digests: dict[str, str | None]
    preprocess: Preprocess


@dataclass(eq=False)
class _Desk:
    """What the cells of one process share."""

    bench: Bench
    revision: dict[str, Any]
    prepared: dict[str, _Prepared] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.opened = Opened(self.bench)

    def run(self, cell: Cell) -> tuple[dict[str, Any], Coded | None, bool]:
        """Train and encode a cell: its record so far, what is to be measured, and whether it failed unexpectedly."""
        started = time.perf_counter()
        record: dict[str, Any] = {
            "dataset": cell.dataset,
            "name": cell.name,
            "method": cell.method,
            "bits": cell.bits,
            "backbone": cell.backbone,
            "seed": cell.seed,
            "protocol": cell.protocol,
            "asked": {**cell.settings, **cell.varied},
            "varied": cell.varied,
            "revision": self.revision,
            "versions": versions(),
            "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "command": command_of(cell, self.bench.weights),
            "seconds": {},
        }
        try:
            coded = self._trained(cell, record)
        except FellApart as error:
            record |= {"diverged": str(error)}
            coded = None
        except Exception as error:
            record |= {"failed": f"{type(error).__name__}: {error}"}
            record["traceback"] = _traceback()
            return record, None, True
        finally:
            gc.collect()
        record["seconds"]["total"] = round(time.perf_counter() - started, 2)
        return record, coded, False

    def _trained(self, cell: Cell, record: dict[str, Any]) -> Coded:
        data = self.opened.get(cell)
        split = make_split(data, cell.protocol, seed=cell.seed)
        hasher = Hasher(
            cell.method,
            bits=cell.bits,
            backbone=cell.backbone,
            seed=cell.seed,
            weights=self.bench.weights,
            device=self.bench.device,
            **{**cell.settings, **cell.varied},
        )
        with tempfile.TemporaryDirectory(prefix="hadahash-") as folder:
            hasher.fit(data.take(split.train), out=folder)
            lines = (Path(folder) / "log.jsonl").read_text().splitlines()
        log = [{key: _short(value) for key, value in json.loads(line).items()} for line in lines]
        began = time.perf_counter()
        prepared = self._prepare(cell, data, hasher)
        record["log"] = log
        record |= self._about(hasher, split, prepared, cell)
        exact = bool(record["settings"]["deterministic"])
        values = encode_all(hasher, prepared.pixels, deterministic=exact)
        encoded = time.perf_counter()
        coded = self._coded(cell, split, prepared, hasher, values, record)
        record["seconds"] = {
            "train": record["train_seconds"],
            "encode": round(encoded - began, 2),
            "rank": round(time.perf_counter() - encoded, 2),
        }
        return coded

    def _prepare(self, cell: Cell, data: LabelledImages, hasher: Hasher) -> _Prepared:
        known = self.prepared.get(cell.dataset)
        if known is None or known.preprocess != hasher.preprocess:
            pixels = PixelStore.build(data, hasher.preprocess).pixels.to(hasher.network.device)
            known = _Prepared(data, pixels, data_digests(data), hasher.preprocess)
            self.prepared = {cell.dataset: known}  # one data set at a time on the device
        return known

    def _about(
        self, hasher: Hasher, split: Split, prepared: _Prepared, cell: Cell
    ) -> dict[str, Any]:
        outcome = hasher.outcome
        return {
            "settings": effective_settings(hasher),
            "preprocess": vars(hasher.preprocess),
            "weights": Path(self.bench.weights).name,
            "split_sha256": split.sha256,
            "queries": len(split.query),
            "database": len(split.database),
            "train_images": len(split.train),
            "digests": {
                **prepared.digests,
                "weights_sha256": weights_digest(self.bench.weights, cell.backbone),
                "model_sha256": hasher.weights_sha256,
            },
            "train_seconds": round(outcome.seconds, 2) if outcome else None,
            "images_per_second": round(outcome.images_per_second) if outcome else None,
            "hardware": hardware(hasher),
        }

    def _coded(
        self,
        cell: Cell,
        split: Split,
        prepared: _Prepared,
        hasher: Hasher,
        values: Tensor,
        record: dict[str, Any],
    ) -> Coded:
        with torch.no_grad():
            real = cast(Method, hasher.network.method).relaxed(values).float()
        record["binarised"] = {
            "beyond_0.9": _short((real[split.query].abs() > 0.9).float().mean().item()),
            "largest": _short(real[split.query].abs().max().item()),
        }
        train = values[split.train]
        shifts = {
            "zero": torch.zeros_like(train[0]),
            "mean": train.mean(0),
            "median": train.median(0).values,
        }
        ranked = rank_all(_scene(split, prepared, hasher, real.clamp(-1, 1)))
        record["rankings"] = {
            name: {"all": _short(own.ap.mean().item())} for name, own in ranked.items()
        }
        return Coded(
            bits=cell.bits,
            codes={
                name: np.packbits((values >= shift).cpu().numpy(), axis=1)
                for name, shift in shifts.items()
            },
            labels=prepared.data.labels,
            query=split.query,
            database=split.database,
            train=split.train,
            second_database=second_database(split),
            prefixes=tuple(bits for bits in (16, 32) if bits < cell.bits),
            depth=find_dataset(cell.dataset).depth,
            rankings={name: (own.ties, own.hits) for name, own in ranked.items()},
        )


def command_of(cell: Cell, weights: str) -> str:
    """The command that runs this cell alone, with the settings that the plan gives it."""
    own = f"hadahash reproduce {cell.recipe} --cell {cell.dataset}/{cell.name}"
    return own if weights == "imagenet" else f"{own} --weights {Path(weights).name}"


def second_database(split: Split) -> np.ndarray[Any, np.dtype[np.int64]] | None:
    """Another database for the same queries: with the training images if the first leaves them out, else without.

    None where the training images are the database.
    """
    if len(np.intersect1d(split.train, split.database)) == 0:
        return np.union1d(split.train, split.database)
    rest = np.setdiff1d(split.database, split.train)
    return rest if len(rest) else None


@torch.no_grad()
def encode_all(hasher: Hasher, pixels: Tensor, *, deterministic: bool = False) -> Tensor:
    """Values before sign, float32 (n, bits), of pixels that are already on the device."""
    network, device = hasher.network.eval(), pixels.device
    parts = []
    for start in range(0, len(pixels), _ENCODE_BATCH):
        view = center(pixels[start : start + _ENCODE_BATCH], hasher.preprocess)
        precision = torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda")
        with precision, kernels(device, deterministic=deterministic):
            features = network.backbone(view)
            if hasher.preprocess.mirror:
                features = (features + network.backbone(view.flip(-1))) / 2
        parts.append(network.values(features))
    return torch.cat(parts)


def _scene(split: Split, prepared: _Prepared, hasher: Hasher, real: Tensor) -> Scene:
    data, method = prepared.data, hasher.network.method
    targets = one_hot(data.labels, len(data.classes)).to(real.device)
    words = getattr(method, "codebook", getattr(method, "centers", None))
    if isinstance(method, HCDHClassifierOnly):
        words = None
    scores = None
    if isinstance(method, HCDH) and method.head.classifier is not None and method.streams == 1:
        with torch.no_grad():
            scores = method.head.classifier(real[split.query])
    return Scene(
        query=real[split.query],
        database=torch.where(real[split.database] >= 0, 1.0, -1.0),
        train=real[split.train],
        query_targets=targets[split.query],
        database_targets=targets[split.database],
        train_targets=targets[split.train],
        multilabel=data.multilabel,
        codewords=words,
        class_scores=scores,
    )


def _traceback() -> str:
    """The current traceback, with paths relative to the package."""
    return traceback.format_exc(limit=8).replace(f"{Path(__file__).parents[2]}/", "")


def _short(value: Any) -> Any:
    return round(value, 5) if isinstance(value, float) else value


def select(
    cells: Sequence[Cell], *, cell: Sequence[str] = (), wanted: Callable[[Cell], bool]
) -> list[Cell]:
    """The wanted cells of a plan, or those named DATASET/NAME."""
    if cell:
        known = {f"{own.dataset}/{own.name}": own for own in cells}
        missing = [name for name in cell if name not in known]
        if missing:
            raise HadaHashError(f"The plan has no cell '{missing[0]}'.")
        return [known[name] for name in cell]
    return [own for own in cells if wanted(own)]
