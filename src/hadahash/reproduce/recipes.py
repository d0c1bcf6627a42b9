"""Recipes: TOML files that list the cells of a table and the settings each method chooses from.

A table of a recipe describes the cells of one data set; `[common]` holds what all of them share:

    [cifar10]
    backbone = "efficientnet_lite0"
    bits = [16, 32]
    methods = { hcdh = [0, 1], lsh = [0] }  # method = seeds
    settings = { epochs = 18 }              # of all methods
    for = { hcdh = { codebook = "far" } }   # of one method
    mark = "128px"                          # part of the names of the results
    depths = [5000]                         # further depths of mAP
    vary = { lam = [0, 1] }                 # one cell per value, which becomes part of the name

`[grid]` lists the candidate settings of a method, which are compared on held-out training images:

    [grid]
    share = 0.2                             # fraction of the training images that is held out
    bits = 64                               # one length; the choice holds for all
    settings = { epochs = 9 }               # what differs from the cells
    [grid.points]                           # all points of a method name the same settings
    dpsh = [{ lr = 0.1 }, { lr = 0.03 }]
    [grid.voc2012]                          # points for one data set
    hcdh = [{ lam = 1 }, { lam = 5 }]

A recipe with `grid_of = "table1"` uses the choices of that recipe's grid, except in tables with
`choose = false`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from importlib import resources
from itertools import product
from pathlib import Path
from typing import Any, Literal

from .. import files
from ..data import find_dataset
from ..errors import DataError, unknown

Key = tuple[str, str]  # data set, method
# settings, reason, train_map (None: the loss was not finite), command, versions
FailedRun = dict[str, Any]

_NOT_DATA = ("common", "grid", "grid_of")
_RENAMED = {"batch": "batch_size"}  # settings in results of version 0.1


@dataclass(frozen=True)
class Cell:
    """One number of a table: a method at a code length on a data set, with one seed.

    Attributes:
        dataset: Name of the data set.
        method: Name of the method.
        bits: Code length.
        backbone: Name of the network.
        seed: Seed of split, codebook, initial weights and order.
        protocol: Split protocol.
        mark: Distinguishes cells of the same method and length that were made in different ways.
        settings: Settings that the grid may override.
        varied: Settings that no grid changes; they are part of the mark.
        depths: Further depths of mAP.
        choose: Whether the grid chooses settings.
        validation: > 0: a trial, measured on this fraction of the training images.
        recipe: Name of the recipe or plan.
        least: Minimum training mAP; below it the run counts as degenerate.
        content: "default" measures content bits too, with the default weight; "sweep" with every
            weight. See `measure_content`. Plans only.
    """

    dataset: str
    method: str
    bits: int
    backbone: str
    seed: int
    protocol: str
    mark: str = ""
    settings: dict[str, Any] = field(default_factory=dict, compare=False)
    varied: dict[str, Any] = field(default_factory=dict, compare=False)
    depths: tuple[int, ...] = ()
    choose: bool = True
    validation: float = 0.0
    recipe: str = field(default="", compare=False)
    least: float = field(default=0.0, compare=False)
    content: Literal["", "default", "sweep"] = field(default="", compare=False)

    @property
    def name(self) -> str:
        """Stem of its file: METHOD-BITS-BACKBONE-sSEED[-PROTOCOL, if not the usual one][-MARK]."""
        own = find_dataset(self.dataset).protocol == self.protocol
        parts = [
            self.method,
            str(self.bits),
            self.backbone,
            f"s{self.seed}",
            "" if own else self.protocol,
            self.mark,
        ]
        return "-".join(part for part in parts if part)

    @property
    def codebook(self) -> str | None:
        """The codebook design, if the cell names one."""
        found = {**self.settings, **self.varied}.get("codebook")
        return None if found is None else str(found)

    def path(self, results: Path) -> Path:
        """Path of the result; results of trials are in a folder of their own."""
        folder = results / "validation" if self.validation else results
        return folder / self.dataset / f"{self.name}.json"

    def done(self, results: Path) -> bool:
        """Whether there is a result with these settings."""
        path = self.path(results)
        if not path.exists():
            return False
        made = current_names(files.read_json(path)["settings"])
        requested = current_names({**self.settings, **self.varied})
        return all(made.get(key) == value for key, value in requested.items())

    def failed_runs_path(self, results: Path) -> Path:
        """Path of the list of diverged or degenerate runs."""
        return results / "diverged" / self.dataset / f"{self.name}.json"

    def failed_runs(self, results: Path) -> list[FailedRun]:
        """Runs of this cell that diverged or were degenerate, with their settings."""
        path = self.failed_runs_path(results)
        found: list[FailedRun] = files.read_json(path) if path.exists() else []
        return found

    def is_diverged(self, results: Path) -> bool:
        """Whether a run with these settings ended without a finite loss."""
        return any(
            run["settings"] == self.settings and run["train_map"] is None
            for run in self.failed_runs(results)
        )

    def is_degenerate(self, results: Path) -> bool:
        """Whether the stored result is of a degenerate run, because no settings did better."""
        return any(
            replace(self, settings=run["settings"]).done(results)
            for run in self.failed_runs(results)
        )

    def folder(self, runs: Path) -> Path:
        """Folder of the run."""
        return (runs / "validation" if self.validation else runs) / self.dataset / self.name


def current_names(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings under their current names; version 0.1 stored `batch` for `batch_size`."""
    return {_RENAMED.get(key, key): value for key, value in settings.items()}


@dataclass(frozen=True)
class Recipe:
    """The cells of a table, and the trials that choose the settings of its methods.

    Attributes:
        name: Name of the recipe.
        cells: The cells.
        trials: The trials of each (data set, method) that has a choice.
        points: The points of these trials.
        owns_grid: False if the trials belong to another recipe.
    """

    name: str
    cells: list[Cell]
    trials: dict[Key, list[Cell]]
    points: dict[Key, list[dict[str, Any]]]
    owns_grid: bool = True

    def resolve_settings(self, cell: Cell, results: Path) -> Cell:
        """Return the cell with the settings that were best in its method's trials.

        Settings with which the cell diverged or was degenerate are skipped, except in a cell that
        varies one setting and keeps the others. Only training is considered: the loss must be
        finite, and the mAP among training images must be at least half of the mAP of the held-out
        images in the trial. If two settings are degenerate, the first of these is kept.

        Args:
            cell: A cell whose trials have been run.
            results: Folder of the results.

        Returns:
            The cell with its settings complete.

        Raises:
            DataError: If a trial has not been run.
        """
        ranking = self.ranking(cell.dataset, cell.method, results) if cell.choose else []
        if not ranking:
            return cell
        options = [
            replace(cell, settings={**cell.settings, **point}, least=score / 2)
            for point, score in ranking
        ]
        if cell.varied:
            return replace(options[0], least=0.0)
        failed = [run["settings"] for run in cell.failed_runs(results)]
        left = [option for option in options if not option.is_diverged(results)]
        sound = [option for option in left if option.settings not in failed]
        if sound and len(left) - len(sound) < 2:
            return sound[0]
        return replace(left[0], least=0.0) if left else options[-1]

    def ready(self, cell: Cell, results: Path) -> bool:
        """Whether all trials that choose the settings of a cell have been run."""
        return not cell.choose or not self.untried(cell.dataset, cell.method, results)

    def untried(self, dataset: str, method: str, results: Path) -> list[str]:
        """Names of the trials of a method that have not been run."""
        return [
            trial.name
            for trial in self.trials.get((dataset, method), [])
            if not trial.path(results).exists()
        ]

    def ranking(
        self, dataset: str, method: str, results: Path
    ) -> list[tuple[dict[str, Any], float]]:
        """Rank the points of a method's grid by the mAP of their trials.

        Args:
            dataset: Name of the data set.
            method: Name of the method.
            results: Folder of the results.

        Returns:
            (point, mAP), best first; empty if the method has no choice.

        Raises:
            DataError: If a trial has not been run.
        """
        missing = self.untried(dataset, method, results)
        if missing:
            raise DataError(
                f"{len(missing)} trials of {method} on {dataset} have not been run "
                f"({missing[0]}, ...)."
            )
        scores = [
            files.read_json(trial.path(results))["validation_map"]
            for trial in self.trials.get((dataset, method), [])
        ]
        scored = zip(self.points.get((dataset, method), []), scores, strict=True)
        return sorted(scored, key=lambda option: -option[1])


def edges(points: list[dict[str, Any]], chosen: dict[str, Any]) -> list[str]:
    """Settings whose chosen value is the smallest or largest number of the grid.

    Args:
        points: The points of a grid.
        chosen: One of them.

    Returns:
        Names of the settings at an edge.

    Example:
        >>> edges([{"lr": 0.1, "eta": 1.0}, {"lr": 0.3, "eta": 1.0}], {"lr": 0.3, "eta": 1.0})
        ['lr']
    """
    found = []
    for key, value in chosen.items():
        values = {point[key] for point in points}
        numeric = all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in values)
        if numeric and len(values) > 1 and value in (min(values), max(values)):
            found.append(key)
    return found


def list_recipes() -> list[str]:
    """Names of all recipes."""
    return sorted(path.name[:-5] for path in _folder().iterdir() if path.name.endswith(".toml"))


def read_recipe(name: str) -> Recipe:
    """Read a recipe.

    Args:
        name: Name of the recipe.

    Returns:
        The recipe. Its cells are ordered by seed, so that an interrupted table has all its rows.

    Raises:
        UsageError: If there is no such recipe.
    """
    if name not in list_recipes():
        raise unknown("recipe", name, list_recipes())
    content = _content(name)
    tables = {
        key: {**content.get("common", {}), **table}
        for key, table in content.items()
        if key not in _NOT_DATA
    }
    cells = [cell for dataset, table in tables.items() for cell in _cells(name, dataset, table)]
    ordered = sorted(cells, key=lambda cell: cell.seed)
    if "grid_of" in content:
        other = read_recipe(content["grid_of"])
        return Recipe(name, ordered, other.trials, other.points, owns_grid=False)
    points = {
        (dataset, method): found
        for dataset, table in tables.items()
        for method in table["methods"]
        if len(found := _points(content.get("grid", {}), dataset, method)) > 1
    }
    trials = {
        key: list(_trials(name, *key, tables[key[0]], content["grid"], found))
        for key, found in points.items()
    }
    return Recipe(name, ordered, trials, points)


def _points(grid: dict[str, Any], dataset: str, method: str) -> list[dict[str, Any]]:
    points: list[dict[str, Any]] = {**grid.get("points", {}), **grid.get(dataset, {})}.get(
        method, []
    )
    return points


def _content(name: str) -> dict[str, Any]:
    return files.read_toml(_folder() / f"{name}.toml")


def _cells(recipe: str, dataset: str, table: dict[str, Any]) -> Iterator[Cell]:
    vary = table.get("vary", {})
    for method, seeds in table["methods"].items():
        settings = {**table.get("settings", {}), **table.get("for", {}).get(method, {})}
        for bits, seed, *values in product(table["bits"], seeds, *vary.values()):
            varied = dict(zip(vary, values, strict=True))
            yield Cell(
                dataset,
                method,
                bits,
                table["backbone"],
                seed,
                protocol=table.get("protocol") or find_dataset(dataset).protocol,
                mark=mark_of(table.get("mark", ""), varied),
                settings=settings,
                varied=varied,
                depths=tuple(table.get("depths", ())),
                choose=table.get("choose", True),
                recipe=recipe,
            )


def mark_of(mark: str, settings: dict[str, Any]) -> str:
    """The mark with these settings, for example 128px-lam0.1."""
    return "-".join([mark, *(f"{key}{value}" for key, value in settings.items())]).strip("-")


def _trials(
    recipe: str,
    dataset: str,
    method: str,
    table: dict[str, Any],
    grid: dict[str, Any],
    points: list[dict[str, Any]],
) -> Iterator[Cell]:
    base = next(
        _cells(
            recipe, dataset, {**table, "methods": {method: [0]}, "bits": [grid["bits"]], "vary": {}}
        )
    )
    for point in points:
        mark = mark_of(base.mark, point)
        settings = {**base.settings, **grid.get("settings", {}), **point}
        yield replace(base, settings=settings, mark=mark, validation=grid["share"])


def _folder() -> Any:
    return resources.files(__package__) / "recipes"
