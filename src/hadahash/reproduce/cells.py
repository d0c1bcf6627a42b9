"""Run the cells of recipes: train, measure, and write one result file per cell."""

from __future__ import annotations

import json
import multiprocessing
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.pool import Pool
from pathlib import Path
from typing import Any

import numpy as np

from .. import files
from ..building import choose_device, make_config
from ..config import InputConfig
from ..data import LabelledImages, Split, open_dataset
from ..data.base import ArrayImages
from ..data.contents import DigestedPixels
from ..data.decode import in_memory
from ..data.preprocess import Preprocess, choose_preprocess
from ..environment import versions
from ..errors import HadaHashError, TrainingDivergedError, UsageError
from ..evaluation import evaluate
from ..model import HashModel
from ..runs import (
    DataSpec,
    EvaluatedRun,
    RunDir,
    evaluate_run,
    read_evaluated_run,
    train_run,
)
from ..settings import fields_of, from_mapping
from ..shared_features import SharedFeatures
from .measures import code_statistics, training_map
from .recipes import Cell, Recipe, current_names

_PRIVATE = ("data", "data_path", "root", "requested", "format", "plugins")


def ignore(text: str) -> None:
    """Ignore a message."""


@dataclass(frozen=True)
class RunContext:
    """Where and how cells are run.

    Attributes:
        results: Folder of the results.
        runs: Folder of the runs: models, codes, logs.
        roots: Folder of the files of each data set.
        weights: Initial weights: "imagenet", "none" or a file.
        device: "auto", "cpu" or "cuda".
        jobs: Number of cells that run at the same time, in one process each.
        info: Receives messages.
    """

    results: Path
    runs: Path
    roots: dict[str, str] = field(default_factory=dict)
    weights: str = "imagenet"
    device: str = "auto"
    jobs: int = 1
    info: Callable[[str], object] = ignore


def run_recipes(selection: Sequence[tuple[Recipe, Sequence[Cell]]], context: RunContext) -> None:
    """Run the missing cells of recipes: first the trials that choose settings, then the cells.

    A result whose settings differ from those of the recipe and its trials counts as missing. A cell
    that
    diverges is run again with the next best settings of its trials. A failed cell does not stop
    other cells.

    Args:
        selection: Recipes with the selected cells of each.
        context: Where and how to run.

    Raises:
        HadaHashError: If cells failed; the message names all of them.
    """
    with Workers(context) as workers:
        trials = [
            trial
            for recipe, cells in selection
            for cell in cells
            if cell.choose
            for trial in recipe.trials.get((cell.dataset, cell.method), [])
        ]
        failures = workers.run(list(dict.fromkeys(trials)))
        todo = resolved = _resolve(selection, context.results)
        while todo:
            failures += workers.run(list(dict.fromkeys(todo)))
            before, resolved = resolved, _resolve(selection, context.results)
            pairs = zip(before, resolved, strict=True)
            todo = [
                new for old, new in pairs if (new.settings, new.least) != (old.settings, old.least)
            ]
    failures += [
        f"{cell.dataset} {cell.name}: diverged; "
        f"remove {cell.failed_runs_path(context.results)} to try again"
        for cell in dict.fromkeys(resolved)
        if cell.is_diverged(context.results)
    ]
    if failures:
        raise HadaHashError(f"{len(failures)} cells failed: {'; '.join(failures)}")


def _resolve(selection: Sequence[tuple[Recipe, Sequence[Cell]]], results: Path) -> list[Cell]:
    """All cells whose trials have been run, with their settings."""
    return [
        recipe.resolve_settings(cell, results)
        for recipe, cells in selection
        for cell in cells
        if recipe.ready(cell, results)
    ]


class Workers:
    """Runs cells in this process or in a pool of processes.

    Args:
        context: Where and how to run.
    """

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._pool: Pool | None = None

    def __enter__(self) -> Workers:
        if self._context.jobs > 1:
            spawn = multiprocessing.get_context("spawn")
            self._pool = spawn.Pool(self._context.jobs, _start, (self._context,))
        else:
            _start(self._context)
        return self

    def run(self, cells: Sequence[Cell]) -> list[str]:
        """Run those of the cells that have no result yet.

        Args:
            cells: The cells.

        Returns:
            One line per failure.
        """
        results = self._context.results
        missing = [
            cell for cell in cells if not cell.done(results) and not cell.is_diverged(results)
        ]
        pool = self._pool
        found = map(_next, missing) if pool is None else pool.imap_unordered(_next, missing)
        return [failure for failure in found if failure]

    def __exit__(self, *error: object) -> None:
        if self._pool is not None:
            self._pool.terminate()


class DatasetCache:
    """Data sets, opened once and decoded once per input size.

    Args:
        context: Names the folders of the data sets.
    """

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._files: dict[str, LabelledImages] = {}
        self._squares: dict[tuple[str, Preprocess], LabelledImages] = {}

    def get(self, cell: Cell) -> LabelledImages:
        """Return the data set of a cell, in memory if the cell sets the input size.

        Args:
            cell: The cell.

        Returns:
            The data set.

        Raises:
            DataError: If the data set is missing.
        """
        if cell.dataset not in self._files:
            root = self._context.roots.get(cell.dataset)
            self._files[cell.dataset] = open_dataset(cell.dataset, root, info=self._context.info)
        data = self._files[cell.dataset]
        requested = {**cell.settings, **cell.varied}
        known = fields_of(InputConfig)
        config = from_mapping(
            InputConfig, {key: requested[key] for key in known if key in requested}
        )
        if config.size is None:
            return data
        preprocess = choose_preprocess(data.images, config.size, config)
        key = (cell.dataset, preprocess)
        if key not in self._squares:
            self._squares[key] = self._in_memory(data, preprocess)
        return self._squares[key]

    def _in_memory(self, data: LabelledImages, preprocess: Preprocess) -> LabelledImages:
        """The squares; on a CPU, features of fixed backbones are then kept on disk."""
        squares = in_memory(data, preprocess)
        images, device = squares.images, choose_device(self._context.device)
        if device.type == "cpu" and isinstance(images, ArrayImages):
            return replace(squares, images=DigestedPixels(images.pixels))
        return squares


_process: tuple[RunContext, DatasetCache, SharedFeatures]  # state of a worker process


def _start(context: RunContext) -> None:
    global _process
    _process = context, DatasetCache(context), SharedFeatures()


def _next(cell: Cell) -> str:
    """Run a cell and write its result, or how it failed; returns the failure, if any."""
    context, datasets, cache = _process
    try:
        result = run_cell(cell, datasets.get(cell), context, cache)
    except TrainingDivergedError as error:
        return _diverged(cell, error, context)
    except UsageError as error:
        return _useless_point(cell, error, context)
    except HadaHashError as error:
        return _failed(cell, error, context)
    except Exception as error:
        path = context.results / "failed" / cell.dataset / f"{cell.name}.txt"
        files.write_text(path, relative_traceback())
        text = f"{type(error).__name__}: {error} (traceback in {path})"
        return _failed(cell, text, context)
    files.write_json(cell.path(context.results), result)
    if cell.validation:
        context.info(f"{cell.dataset} {cell.name}: validation mAP {result['validation_map']:.4f}")
    else:
        context.info(f"{cell.dataset} {cell.name}: mAP {result['map']:.4f}")
    return ""


def _failed(cell: Cell, error: object, context: RunContext) -> str:
    failure = f"{cell.dataset} {cell.name}: {error}"
    context.info(f"failed: {failure}")
    return failure


def _diverged(cell: Cell, error: TrainingDivergedError, context: RunContext) -> str:
    """Record a diverged run; a trial counts as the worst point."""
    if cell.validation:
        return _useless_point(cell, error, context)
    _failed(cell, error, context)
    run = {
        "settings": cell.settings,
        "reason": str(error),
        "train_map": error.train_map,
        "command": repeat_command(cell),
        "versions": versions(),
    }
    path = cell.failed_runs_path(context.results)
    files.write_json(path, [*cell.failed_runs(context.results), run])
    return ""


def _useless_point(cell: Cell, error: HadaHashError, context: RunContext) -> str:
    if cell.validation:
        result = {"validation_map": 0.0, "failed": str(error), "settings": cell.settings}
        files.write_json(cell.path(context.results), result)
    return _failed(cell, error, context)


def run_cell(
    cell: Cell, dataset: LabelledImages, context: RunContext, cache: SharedFeatures | None = None
) -> dict[str, Any]:
    """Train and measure one cell.

    Args:
        cell: The cell, with its settings complete.
        dataset: Its data set.
        context: Where and how to run.
        cache: Features that cells with one fixed backbone share.

    Returns:
        The content of the result file.

    Raises:
        TrainingDivergedError: If the loss became NaN or infinite, or the training mAP is below
            `cell.least`.
    """
    config = make_config(
        cell.method,
        bits=cell.bits,
        backbone=cell.backbone,
        weights=context.weights,
        seed=cell.seed,
        settings=current_names({**cell.settings, **cell.varied}),
    )
    out = cell.folder(context.runs)
    spec = DataSpec(cell.dataset, protocol=cell.protocol, validation=cell.validation)
    options: dict[str, Any] = {"device": context.device, "dataset": dataset, "cache": cache}
    model = train_run(config, spec, out, overwrite=True, **options)
    measured: dict[str, Any] = {}
    if not cell.validation:
        found = train_map(model, RunDir(out).split(RunDir(out).record()), dataset)
        if found < cell.least:
            raise TrainingDivergedError(
                f"Training mAP {found:.3f} is below the minimum of {cell.least:.3f}.", found
            )
        evaluate_run(out, model=model, dataset=dataset, cache=cache, ranks=())
        measured = {"train_map": found, **_measured(cell, out)}
    record = {k: v for k, v in RunDir(out).record().items() if k not in _PRIVATE}
    log = (out / "log.jsonl").read_text().splitlines() if (out / "log.jsonl").exists() else []
    return {
        **record,
        "jobs": context.jobs,
        "command": repeat_command(cell),
        "log": [json.loads(line) for line in log],
        **measured,
    }


def repeat_command(cell: Cell) -> str:
    """The command that trains a stored cell again, with its stored settings."""
    return f"hadahash reproduce check {cell.dataset}/{cell.name}"


def train_map(model: HashModel, split: Split, dataset: LabelledImages) -> float:
    """mAP with training images as queries and database; each query is excluded from its results.

    Args:
        model: A trained model.
        split: The split of its data.
        dataset: The data set.

    Returns:
        The mean over at most 2,000 training images.
    """
    codes = model.encode(dataset.take(split.train).source)
    return training_map(codes, dataset.labels.array[split.train])


def relative_traceback() -> str:
    """The current traceback, with paths relative to the package."""
    return traceback.format_exc(limit=-8).replace(f"{Path(__file__).parents[2]}/", "")


def _measured(cell: Cell, out: Path) -> dict[str, Any]:
    run = read_evaluated_run(out)
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


def code_figures(run: EvaluatedRun) -> dict[str, Any]:
    """Correlation of bits, and how close the values before binarization are to +-1.

    Args:
        run: An evaluated run.

    Returns:
        `bit_correlation` and `binarised`, as stored in results.
    """
    values = np.abs(run.values.astype(np.float32))
    return {
        "bit_correlation": code_statistics(run.database)["bit_correlation"],
        "binarised": {
            "beyond_0.9": round(float((values > 0.9).mean()), 5),
            "largest": round(float(values.max()), 3),
        },
    }
