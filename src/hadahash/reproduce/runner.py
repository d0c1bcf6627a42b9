"""Run the cells of a plan in one process.

Each model is trained, encodes its data set once and is measured in every way. Records are appended
after each cell; weights and codes are not kept. Measures run on the CPU while the next cell is
trained.
"""

from __future__ import annotations

import multiprocessing
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from typing import Any

from ..errors import HadaHashError, UsageError
from .cells import RunContext, relative_traceback
from .collected import Collected, Record
from .measures import Coded, measure
from .provenance import source_revision
from .recipes import Cell
from .trainer import Trainer

MAX_FAILURES = 3  # unexpected errors in a row that end a run: the device or the data is broken
_FIRST_GUESS = 20.0  # seconds that a cell may take before one of its kind has been timed
_USUAL_EPOCHS = 18


def run_plan(
    cells: Sequence[Cell],
    context: RunContext,
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
        context: Data folders, weights and device.
        collected: Where results are appended.
        seconds: Time budget: cells that are expected to exceed it are not started. None: no limit.
        revision: Commit of the source code, for machines without git.
        workers: Processes that measure in parallel to training. 0: measure in this process.
        clock: Returns the time in seconds.

    Returns:
        The number of cells that were run.

    Raises:
        HadaHashError: If several cells in a row failed with an unexpected error.
    """
    start, latest = clock(), dict[tuple[Any, ...], float]()
    count = failures = 0
    with _Measurer(collected, workers, context.info) as measurer:
        trainer = Trainer(context, source_revision(revision))
        for cell in collected.missing(cells):
            began = clock()
            kind, guess = _kind(cell), _guess(cell)
            expected = latest.get(kind, guess)
            if seconds is not None and began - start + expected > seconds:
                context.info(
                    f"Stopped before {cell.dataset} {cell.name}: the time budget is used up."
                )
                break
            record, coded = trainer.run(cell)
            measurer.submit(record, coded)
            count += 1
            failures = failures + 1 if "failed" in record else 0
            if failures == MAX_FAILURES:
                raise HadaHashError(f"{failures} cells in a row failed: {record['failed']}")
            latest[kind] = min(clock() - began, 3 * guess)  # the first one compiles
    return count


def _kind(cell: Cell) -> tuple[Any, ...]:
    """Cells of one kind take about the same time."""
    fixed = cell.settings.get("backbone_lr") == 0
    return cell.dataset, cell.settings.get("epochs"), fixed, cell.validation


def _guess(cell: Cell) -> float:
    return _FIRST_GUESS * max(1.0, float(cell.settings.get("epochs", 1)) / _USUAL_EPOCHS)


class _Measurer:
    """Measures codes in parallel to training, and appends the records in order."""

    def __init__(self, collected: Collected, workers: int, info: Callable[[str], object]) -> None:
        self._collected, self._info, self._limit = collected, info, 2 * workers
        spawn = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(workers, spawn) if workers else None
        self._waiting: deque[tuple[Record, Future[dict[str, Any]]]] = deque()

    def __enter__(self) -> _Measurer:
        return self

    def submit(self, record: Record, coded: Coded | None) -> None:
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
            measured = {"failed": relative_traceback()}
        for name, value in measured.pop("rankings", {}).items():
            record["rankings"][name]["1000_found"] = value
        record |= measured
        self._collected.append(record)
        score = _score(record)
        self._info(f"{record['dataset']} {record['name']}: {score} ({record['seconds']})")

    def __exit__(self, *error: object) -> None:
        while self._waiting:
            self._finish()
        if self._pool is not None:
            self._pool.shutdown()


def _score(record: Record) -> str:
    if "map" in record:
        return f"mAP {record['map']:.4f}"
    if "validation_map" in record:
        return f"validation mAP {record['validation_map']:.4f}"
    return "diverged" if "diverged" in record else "failed"


def select(
    cells: Sequence[Cell], names: Sequence[str], is_selected: Callable[[Cell], bool]
) -> list[Cell]:
    """Select cells of a plan.

    Args:
        cells: All cells.
        names: Cells by name, DATASET/NAME; if empty, all cells that `is_selected` accepts.
        is_selected: Returns whether to include a cell.

    Returns:
        The selected cells.

    Raises:
        UsageError: If the plan has no cell of a given name.
    """
    if not names:
        return [cell for cell in cells if is_selected(cell)]
    known = {f"{own.dataset}/{own.name}": own for own in cells}
    missing = [name for name in names if name not in known]
    if missing:
        raise UsageError(f"Unknown cell '{missing[0]}'.")
    return [known[name] for name in names]
