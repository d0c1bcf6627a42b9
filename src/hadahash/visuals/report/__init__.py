"""`write_report`: one self-contained page that compares evaluated runs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ...data import open_dataset
from ...errors import HadaHashError, StorageError, UsageError
from ...evaluation import Report
from ...runs import EvaluatedRun, RunDir, find_run_data, read_evaluated_run
from ..templating import write_page
from .groups import Comparison, compare
from .measures import Measured, measure
from .neighbors import Pictures
from .sections import comparison_content, settings_content, table_of_contents
from .summary import summarize

__all__ = ["read_runs", "write_report"]


def write_report(
    runs: Iterable[str | Path],
    out: str | Path = "report.html",
    *,
    data: str | Path | None = None,
    root: str | Path | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """Write a page about evaluated runs.

    Args:
        runs: Folders of the runs.
        out: The page to write.
        data: Location of the images, if they were moved after training. Runs whose images are not
            found are shown without thumbnails.
        root: Folder with the files of named data sets; None: as in training.
        seed: Random seed of the queries shown besides the hardest.

    Returns:
        The numbers on the page as JSON values.

    Raises:
        UsageError: If no run is given.
        StorageError: If a run has not been evaluated, its files are damaged, or the page cannot be
            written.
    """
    evaluated = read_runs(runs)
    comparisons = compare(evaluated)
    measured: Measured = {run.folder: measure(run) for run in evaluated}
    library = _Library(data, root)
    contents = [
        comparison_content(comparison, number, measured, library.pictures(comparison), seed)
        for number, comparison in enumerate(comparisons)
    ]
    write_page(
        out,
        "report.html.j2",
        title=f"HadaHash report: {len(evaluated)} run{'s' if len(evaluated) > 1 else ''}",
        contents=table_of_contents(comparisons),
        settings=settings_content(comparisons),
        comparisons=contents,
    )
    return summarize(out, comparisons, measured)


def read_runs(folders: Iterable[str | Path]) -> list[EvaluatedRun]:
    """Read evaluated runs, each folder once.

    Args:
        folders: Folders of runs.

    Returns:
        The runs, in the order given.

    Raises:
        UsageError: If there is none.
        StorageError: If runs have not been evaluated or are damaged. The message names all.
    """
    unique = {_identity(Path(folder)): Path(folder) for folder in folders}
    if not unique:
        raise UsageError("A report needs at least one run. Example: hadahash report runs/photos")
    runs, errors = [], []
    for folder in unique.values():
        try:
            runs.append(_checked(read_evaluated_run(folder)))
        except StorageError as error:
            errors.append(error)
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise StorageError(" ".join(str(error).rstrip(".") + "." for error in errors))
    return runs


def _identity(folder: Path) -> Path:
    try:
        return folder.resolve()
    except (OSError, RuntimeError):  # a loop of symbolic links; opening it gives the error
        return folder.absolute()


def _checked(run: EvaluatedRun) -> EvaluatedRun:
    try:
        report = Report.from_dict(run.report)
        sizes = (
            len(run.query) == len(run.query_labels) == len(run.values) == report.queries,
            len(run.query) == len(report.average_precision),
            len(run.database) == len(run.database_labels),
        )
        problem = "" if all(sizes) else "its codes, labels and report have different sizes"
    except StorageError as error:
        problem = str(error).split(". ")[0]
    if problem:
        raise StorageError(
            f"The evaluation of {run.folder} is damaged ({problem}). "
            f"Repeat it: hadahash evaluate {run.folder}"
        )
    return run


class _Library:
    """Opens each data set once."""

    def __init__(self, data: str | Path | None, root: str | Path | None) -> None:
        self._data, self._root = data, root
        self._opened: dict[tuple[str, str], Pictures | str] = {}

    def pictures(self, comparison: Comparison) -> Pictures | str:
        """The images of a comparison, or why they cannot be shown."""
        record = comparison.first.record
        root = self._root or record.get("root")
        key = str(record.get("data_path") or record["data"]), str(root)
        if key not in self._opened:
            try:
                data = self._data or find_run_data(RunDir(comparison.first.folder), record)
                self._opened[key] = Pictures(open_dataset(data, root, download=False))
            except HadaHashError as error:
                self._opened[key] = str(error)
        return self._opened[key]
