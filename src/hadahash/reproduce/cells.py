"""Cells, trained and measured: one file in `results/` each, written as soon as it is there."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.pool import Pool
from pathlib import Path
from typing import Any

import numpy as np

from .. import files
from ..data import LabelledImages, Split, open_dataset
from ..data.decode import in_memory
from ..data.preprocess import Preprocess
from ..encoding import FeatureCache
from ..errors import HadaHashError, TrainingDivergedError, UsageError
from ..evaluation import evaluate
from ..hasher import Hasher, ModelSettings, choose_preprocess
from ..runs import Evaluated, Source, evaluate_run, read_evaluated, train_run, validate, versions
from ..settings import fields_of, make
from ..visuals.report.measures import measure
from .recipes import Cell, Recipe


def say_nothing(text: str) -> None:
    pass


@dataclass(frozen=True)
class Bench:
    """Where cells are run, and what with."""

    results: Path
    runs: Path
    roots: dict[str, str] = field(default_factory=dict)  # data set: folder of its files
    weights: str = "imagenet"
    device: str = "auto"
    jobs: int = 1  # cells at once, each in a process of its own
    say: Callable[[str], object] = say_nothing


def run_recipes(wanted: Sequence[tuple[Recipe, Sequence[Cell]]], bench: Bench) -> None:
    """Run what is missing of these cells: first the trials that choose their settings, then the cells themselves.

    A result made with other settings than the recipe and its trials now ask for counts as missing. A cell that falls apart is
    run again with the settings that did next best in its trials. One that fails does not stop the others; all failures are
    named at the end.
    """
    with Workers(bench) as workers:
        chosen = [(recipe, cell) for recipe, cells in wanted for cell in cells if cell.choose]
        trials = [
            trial
            for recipe, cell in chosen
            for trial in recipe.trials.get((cell.dataset, cell.method), [])
        ]
        failures = workers.run(list(dict.fromkeys(trials)))
        todo = settled = _settle(wanted, bench.results)
        while todo:
            failures += workers.run(list(dict.fromkeys(todo)))
            before, settled = settled, _settle(wanted, bench.results)
            pairs = zip(before, settled, strict=True)
            todo = [
                new for old, new in pairs if (new.settings, new.least) != (old.settings, old.least)
            ]
    lost = [cell for cell in dict.fromkeys(settled) if cell.lost(bench.results)]
    failures += [
        f"{cell.dataset} {cell.name}: fell apart; remove {cell.mishap_path(bench.results)} to try again"
        for cell in lost
    ]
    if failures:
        raise HadaHashError(f"{len(failures)} cells failed: {'; '.join(failures)}")


def _settle(wanted: Sequence[tuple[Recipe, Sequence[Cell]]], results: Path) -> list[Cell]:
    """All cells whose trials have been run, with their settings."""
    return [
        recipe.settle(cell, results)
        for recipe, cells in wanted
        for cell in cells
        if recipe.ready(cell, results)
    ]


class Workers:
    """Whoever runs cells: this process, or several others that take the next cell as soon as they are done with one."""

    def __init__(self, bench: Bench) -> None:
        self._bench: Bench = bench
        self._pool: Pool | None = None

    def __enter__(self) -> Workers:
        if self._bench.jobs > 1:
            self._pool = multiprocessing.get_context("spawn").Pool(
                self._bench.jobs, _start, (self._bench,)
            )
        else:
            _start(self._bench)
        return self

    def run(self, cells: Sequence[Cell]) -> list[str]:
        """Run those of the cells that have no such result yet; what went wrong, a line each."""
        results = self._bench.results
        missing = [cell for cell in cells if not cell.done(results) and not cell.lost(results)]
        found = (
            map(_next, missing) if self._pool is None else self._pool.imap_unordered(_next, missing)
        )
        return [failure for failure in found if failure]

    def __exit__(self, *error: object) -> None:
        if self._pool is not None:
            self._pool.terminate()


class Opened:
    """Data sets, opened once and decoded once for each input size, since many cells go through them."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._files: dict[str, LabelledImages] = {}
        self._squares: dict[tuple[str, Preprocess], LabelledImages] = {}

    def get(self, cell: Cell) -> LabelledImages:
        if cell.dataset not in self._files:
            root = self._bench.roots.get(cell.dataset)
            self._files[cell.dataset] = open_dataset(cell.dataset, root, info=self._bench.say)
        data = self._files[cell.dataset]
        model = make(
            ModelSettings,
            {key: cell.settings[key] for key in fields_of(ModelSettings) if key in cell.settings},
        )
        if model.size is None:
            return data
        preprocess = choose_preprocess(data.images, model.size, model)
        key = (cell.dataset, preprocess)
        if key not in self._squares:
            self._squares[key] = in_memory(data, preprocess)
        return self._squares[key]


_desk: tuple[Bench, Opened, FeatureCache]  # of this process, if it runs cells


def _start(bench: Bench) -> None:
    global _desk
    _desk = bench, Opened(bench), FeatureCache()


def _next(cell: Cell) -> str:
    """Run a cell and write its result, or how it fell apart; the text says what went wrong otherwise, if anything."""
    bench, opened, cache = _desk
    failure = ""
    try:
        result = run_cell(cell, opened.get(cell), bench, cache)
    except HadaHashError as error:
        failure = f"{cell.dataset} {cell.name}: {error}"
        bench.say(f"failed: {failure}")
        if isinstance(error, TrainingDivergedError) and not cell.validation:
            mishap = {"settings": cell.settings, "reason": str(error), "train_map": error.train_map}
            mishap |= {"command": cell.command(bench.weights), "versions": versions()}
            files.write_json(
                cell.mishap_path(bench.results), [*cell.mishaps(bench.results), mishap]
            )
            return ""
        if not cell.validation or not isinstance(error, (TrainingDivergedError, UsageError)):
            return failure
        result = {
            "validation_map": 0.0,
            "failed": str(error),
            "settings": cell.settings,
        }  # a point nobody should choose
    files.write_json(cell.path(bench.results), result)
    measured = result["validation_map"] if cell.validation else result["map"]
    bench.say(
        f"{cell.dataset} {cell.name}: {'validation ' if cell.validation else ''}mAP {measured:.4f}"
    )
    return failure


def run_cell(
    cell: Cell, dataset: LabelledImages, bench: Bench, cache: FeatureCache | None = None
) -> dict[str, Any]:
    """Train and measure one cell: what is to be written to `results/`."""
    hasher = Hasher(
        cell.method,
        bits=cell.bits,
        backbone=cell.backbone,
        seed=cell.seed,
        weights=bench.weights,
        device=bench.device,
        **{**cell.settings, **cell.varied},
    )
    out = cell.folder(bench.runs)
    source = Source(cell.dataset, protocol=cell.protocol, validation=cell.validation)
    train_run(hasher, source, out, dataset=dataset, cache=cache)
    if not cell.validation:
        train_map = _train_map(hasher, Split.load(out / "split.json"), dataset)
        if train_map < cell.least:
            text = f"Its training images find each other with an mAP of {train_map:.3f} only, not {cell.least:.3f}."
            raise TrainingDivergedError(text, train_map)
        evaluate_run(out, hasher=hasher, dataset=dataset, cache=cache)
    about = files.read_json(out / "run.json")
    for private in ("data", "root"):
        del about[private]
    about["jobs"] = bench.jobs  # others at work beside it slow it down
    about["command"] = cell.command(bench.weights)
    return {
        **about,
        **({} if cell.validation else {"train_map": train_map, **_measured(cell, out)}),
    }


def _train_map(hasher: Hasher, split: Split, dataset: LabelledImages) -> float:
    some = split.train[:: max(1, len(split.train) // 2000)]
    return round(validate(hasher, dataset.take(some)), 5)


def _measured(cell: Cell, out: Path) -> dict[str, Any]:
    run = read_evaluated(out)
    kept = (
        "map",
        "depth",
        "denominator",
        "precision_at",
        "precision_recall",
        "per_class",
        "bit_balance",
    )
    deeper = {
        str(depth): evaluate(
            run.query, run.query_labels, run.database, run.database_labels, depth=depth
        ).map
        for depth in cell.depths
    }
    return {
        **{key: run.report[key] for key in kept},
        **({"map_at": deeper} if deeper else {}),
        **code_figures(run),
    }


def code_figures(run: Evaluated) -> dict[str, Any]:
    """What the claims about codes are judged by: how bits go together, and how near the values before sign are to +-1."""
    pairs = measure(run).pairs
    values = np.abs(run.values.astype(np.float32))
    return {
        "bit_correlation": {
            "mean": round(float(pairs.mean()), 5),
            "largest": round(float(pairs.max()), 5),
        },
        "binarised": {
            "beyond_0.9": round(float((values > 0.9).mean()), 5),
            "largest": round(float(values.max()), 3),
        },
    }
