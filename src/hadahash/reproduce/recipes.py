"""Recipes: TOML files that say which cells a table has, and between which settings each method may choose.

A table of a recipe describes the cells of one data set; what all of them share may stand in `[common]`:

    [cifar10]
    backbone = "efficientnet_lite0"
    bits = [16, 32]
    methods = { hcdh = [0, 1], lsh = [0] }              # method = seeds
    settings = { epochs = 18 }                          # for all methods
    mark = "128px"                                      # added to the names of the results, where the method and length are not
                                                        # enough to tell them from those of another recipe
    depths = [5000]                                     # mAP is also taken at these depths
    vary = { lam = [0, 1] }                             # a cell for each value, which is added to the name

and `[grid]` the points that a method's settings are chosen from, on a part of the training images that is held out:

    [grid]
    share = 0.2                                         # of the training images
    bits = 64                                           # at one length; the choice holds for all
    settings = { epochs = 9 }                           # what is different from the cells
    [grid.points]                                       # all points of a method name the same settings
    dpsh = [{ lr = 0.1 }, { lr = 0.03 }]
    [grid.voc2012]                                      # points for one data set only
    hcdh = [{ lam = 1 }, { lam = 5 }]

A recipe that says `grid_of = "table1"` uses what that recipe's grid has chosen, but not for tables that say `choose = false`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from importlib import resources
from itertools import product
from pathlib import Path
from typing import Any

from .. import files
from ..data import find_dataset
from ..errors import DataError, unknown

Key = tuple[str, str]  # data set, method
Mishap = dict[
    str, Any
]  # settings, reason, train_map (None: the loss was no number), command, versions

_NOT_DATA = ("common", "grid", "grid_of")


@dataclass(frozen=True)
class Cell:
    """One number of a table: a method at a length on a data set, with one seed."""

    dataset: str
    method: str
    bits: int
    backbone: str
    seed: int
    protocol: str
    mark: str = (
        ""  # tells it from cells of the same method and length that were made in another way
    )
    settings: dict[str, Any] = field(default_factory=dict, compare=False)
    varied: dict[str, Any] = field(
        default_factory=dict, compare=False
    )  # settings that no grid may change; also in the mark
    depths: tuple[int, ...] = ()  # mAP is also taken at these
    choose: bool = True  # may the grid choose its settings?
    validation: float = (
        0.0  # > 0: a trial, measured on this share of the training images; queries are not touched
    )
    recipe: str = field(default="", compare=False)  # where it stands
    least: float = field(
        default=0.0, compare=False
    )  # if its training images find each other with a lower mAP, it fell apart

    @property
    def name(self) -> str:
        """<method>-<bits>-<backbone>-s<seed>, then the protocol if it is not the data set's own, then the mark."""
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

    def command(self, weights: str) -> str:
        """What one types to run this cell alone."""
        where = (
            f"--dataset {self.dataset} --only {self.method} --bits {self.bits} --seed {self.seed}"
        )
        own = f"hadahash reproduce {self.recipe} {where}"
        return own if weights == "imagenet" else f"{own} --weights {Path(weights).name}"

    def path(self, results: Path) -> Path:
        """Where its result is written; those of trials lie apart."""
        return (
            (results / "validation" if self.validation else results)
            / self.dataset
            / f"{self.name}.json"
        )

    def done(self, results: Path) -> bool:
        """Is there a result, and was it made with these settings?"""
        path = self.path(results)
        if not path.exists():
            return False
        made = files.read_json(path)["settings"]
        return all(
            made.get(key) == value for key, value in {**self.settings, **self.varied}.items()
        )

    def mishap_path(self, results: Path) -> Path:
        return results / "fell-apart" / self.dataset / f"{self.name}.json"

    def mishaps(self, results: Path) -> list[Mishap]:
        """With which settings it fell apart, and how."""
        path = self.mishap_path(results)
        found: list[Mishap] = files.read_json(path) if path.exists() else []
        return found

    def lost(self, results: Path) -> bool:
        """Is it known that these settings end without a number?"""
        return any(
            mishap["settings"] == self.settings and mishap["train_map"] is None
            for mishap in self.mishaps(results)
        )

    def hopeless(self, results: Path) -> bool:
        """Is its result one of a run that fell apart, since other settings were no better?"""
        return any(
            replace(self, settings=mishap["settings"]).done(results)
            for mishap in self.mishaps(results)
        )

    def folder(self, runs: Path) -> Path:
        """The folder of its run."""
        return (runs / "validation" if self.validation else runs) / self.dataset / self.name


@dataclass(frozen=True)
class Recipe:
    """The cells of a table and, for the methods that have a choice, the trials it is made by."""

    name: str
    cells: list[Cell]
    trials: dict[Key, list[Cell]]
    points: dict[Key, list[dict[str, Any]]]
    owns_grid: bool = True  # False: the trials are those of another recipe

    def settle(self, cell: Cell, results: Path) -> Cell:
        """The cell with the settings that did best in its method's trials, all of which must have been run.

        Settings with which it fell apart are passed over, except in a cell that varies one setting and leaves the others.
        Whether it did, training alone decides: the loss must be a number, and the training images must find each other at least
        half as well as held-out ones did in the trial. If they do not with two settings, the first of these stands.
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
        broken = [mishap["settings"] for mishap in cell.mishaps(results)]
        left = [option for option in options if not option.lost(results)]
        whole = [option for option in left if option.settings not in broken]
        if whole and len(left) - len(whole) < 2:
            return whole[0]
        return replace(left[0], least=0.0) if left else options[-1]

    def ready(self, cell: Cell, results: Path) -> bool:
        """Have all trials been run that its settings are chosen by?"""
        return not cell.choose or not self.untried(cell.dataset, cell.method, results)

    def untried(self, dataset: str, method: str, results: Path) -> list[str]:
        """The names of a method's trials that have not been run."""
        return [
            trial.name
            for trial in self.trials.get((dataset, method), [])
            if not trial.path(results).exists()
        ]

    def ranking(
        self, dataset: str, method: str, results: Path
    ) -> list[tuple[dict[str, Any], float]]:
        """The points of a method's grid with the mAP of their trials, the best first; empty where nothing is to be chosen."""
        missing = self.untried(dataset, method, results)
        if missing:
            raise DataError(
                f"{len(missing)} trials of {method} on {dataset} have not been run ({missing[0]}, ...)."
            )
        scores = [
            files.read_json(trial.path(results))["validation_map"]
            for trial in self.trials.get((dataset, method), [])
        ]
        scored = zip(self.points.get((dataset, method), []), scores, strict=True)
        return sorted(scored, key=lambda option: -option[1])


def recipes() -> list[str]:
    return sorted(path.name[:-5] for path in _folder().iterdir() if path.name.endswith(".toml"))


def read_recipe(name: str) -> Recipe:
    """A recipe by its name; its cells are in the order of seeds, so that an interrupted table has all its rows."""
    if name not in recipes():
        raise unknown("recipe", name, recipes())
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
    """The mark with these settings: 128px-lam0.1"""
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
