"""The report: one self-contained page that compares any runs which have been evaluated."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ...data import open_dataset
from ...errors import HadaHashError, StorageError, UsageError
from ...runs import Evaluated, read_evaluated
from ..html import write_page
from .groups import Comparison, compare
from .measures import Measured, measure
from .neighbours import Pictures
from .page import comparison_sections, contents, settings_section
from .summary import summary

__all__ = ["write_report"]

_NEEDED = ("map", "depth", "ap", "per_class", "precision_recall", "precision_at", "bit_balance")


def write_report(
    runs: Iterable[str | Path],
    out: str | Path = "report.html",
    *,
    root: str | Path | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """Write a page about the runs in these folders and return its figures as plain numbers.

    `root` is where the data sets' files are now, if not where they were in training; without its images a run's pictures are
    left out, and nothing else. `seed` draws the queries that are shown besides the hardest.
    """
    evaluated = read_runs(runs)
    comparisons = compare(evaluated)
    measured: Measured = {run.folder: measure(run) for run in evaluated}
    pictures = _Library(root)
    sections = [contents(comparisons), settings_section(comparisons)]
    for number, comparison in enumerate(comparisons):
        sections += comparison_sections(comparison, number, measured, pictures.of(comparison), seed)
    count = f"{len(evaluated)} run{'s' if len(evaluated) > 1 else ''}"
    write_page(out, f"HadaHash report: {count}", sections)
    return summary(out, comparisons, measured)


def read_runs(folders: Iterable[str | Path]) -> list[Evaluated]:
    """Evaluated runs, each folder once; if some have not been evaluated, the error names them all."""
    distinct = {Path(folder).resolve(): Path(folder) for folder in folders}
    if not distinct:
        raise UsageError("A report needs at least one run. Example: hadahash report runs/photos")
    found, errors = [], []
    for folder in distinct.values():
        try:
            found.append(_checked(read_evaluated(folder)))
        except StorageError as error:
            errors.append(error)
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise StorageError(" ".join(str(error).rstrip(".") + "." for error in errors))
    return found


def _checked(run: Evaluated) -> Evaluated:
    missing = [name for name in _NEEDED if name not in run.report]
    sizes = len(run.query) == len(run.query_labels) == len(run.values) and len(run.database) == len(
        run.database_labels
    )
    if missing or not sizes:
        wrong = (
            f"report.json has no {missing[0]!r}"
            if missing
            else "its codes and labels do not fit together"
        )
        raise StorageError(
            f"The evaluation of {run.folder} is damaged ({wrong}). Do it again: hadahash evaluate {run.folder}"
        )
    return run


class _Library:
    """Opens each data set once."""

    def __init__(self, root: str | Path | None) -> None:
        self._root = root
        self._opened: dict[tuple[str, str], Pictures | str] = {}

    def of(self, comparison: Comparison) -> Pictures | str:
        """The images of a comparison's runs, or why they cannot be shown."""
        about = comparison.first.about
        data, root = str(about["data"]), self._root or about.get("root")
        if (data, str(root)) not in self._opened:
            try:
                self._opened[data, str(root)] = Pictures(open_dataset(data, root, download=False))
            except HadaHashError as error:
                self._opened[data, str(root)] = str(error)
        return self._opened[data, str(root)]
