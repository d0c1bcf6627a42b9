"""Tuning: the same number of trials for every method, on held-out training images.

tuning.toml lists the points of each method, tuning-frozen.toml those with a fixed backbone. A trial
trains on 80 % of the training images of the tuning seed; the other 20 % search them. Queries and
database are not used. The best points at the first length are tried at the second one too, and the
point with the best mean is chosen.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from .. import files
from ..data import find_dataset
from .collected import Collected, Record
from .intervals import short
from .names import display_name
from .recipes import Cell, mark_of

Point = dict[str, Any]
NAMES = ("tuning", "tuning-frozen")  # each is a plan, and a file of points


@dataclass(frozen=True)
class Tuning:
    """The points of all methods and data sets.

    Attributes:
        content: The content of tuning.toml or tuning-frozen.toml.
        name: Name of the plan.
    """

    content: Mapping[str, Any]
    name: str = NAMES[0]

    @property
    def keys(self) -> list[tuple[str, str]]:
        """All pairs of data set and method."""
        return [(data, method) for data in self.content["datasets"] for method in self.methods]

    @property
    def methods(self) -> list[str]:
        """Names of the methods."""
        return list(self.content["points"])

    def points(self, dataset: str, method: str) -> list[Point]:
        """The points of a method on a data set.

        Args:
            dataset: Name of the data set.
            method: Name of the method.

        Returns:
            Settings by name; all points name the same settings.
        """
        common = self.content["points"][method]
        special = self.content.get(dataset, {}).get(method, {})
        extended = self.content.get("more", {}).get(dataset, {}).get(method, [])
        names = special.get("settings", common["settings"])
        rows = [*special.get("rows", common["rows"]), *extended]
        return [dict(zip(names, row, strict=True)) for row in rows]

    def trial(self, dataset: str, method: str, bits: int, point: Point) -> Cell:
        """The cell that tries a point."""
        return Cell(
            dataset=dataset,
            method=method,
            bits=bits,
            backbone=self.content["backbone"],
            seed=self.content["seed"],
            protocol=find_dataset(dataset).protocol,
            mark=mark_of(self.content["mark"], point),
            settings={**self.content["settings"], **point},
            choose=False,
            validation=self.content["share"],
            recipe=self.name,
        )


def read_tuning(name: str = NAMES[0]) -> Tuning:
    """Read the points of a plan of `NAMES`."""
    return Tuning(files.read_toml(resources.files(__package__) / f"{name}.toml"), name)


@dataclass(frozen=True)
class Choice:
    """What the trials of a method on a data set say so far.

    Attributes:
        dataset: Name of the data set.
        method: Name of the method.
        point: The chosen point, or the best one so far; None without a trial.
        scores: Validation mAP of that point by code length.
        best_frozen: Best validation mAP with a fixed backbone at the first length.
        longer: Best validation mAP of the points with more epochs than the budget, at the first
            length. These show what longer training adds; they are not chosen.
        trials: Number of trials with a result.
        diverged: Number of those that diverged.
        missing: Trials that must still be run.
        finalists: The trials at the second length, once those at the first one have been run.
        extend: Where the point lies at an edge of the grid, for example "lr above 0.3".
    """

    dataset: str
    method: str
    point: Point | None = None
    scores: dict[int, float] = field(default_factory=dict)
    best_frozen: float | None = None
    longer: float | None = None
    trials: int = 0
    diverged: int = 0
    missing: tuple[Cell, ...] = ()
    finalists: tuple[Cell, ...] = ()
    extend: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether all trials have been run, and the chosen point did not diverge."""
        return not self.missing and any(self.scores.values())

    def __str__(self) -> str:
        name = f"{self.dataset} {self.method}"
        if self.point is None:
            return f"{name}: no trial yet, {len(self.missing)} missing"
        scores = ", ".join(f"{short(value)} at {bits} bits" for bits, value in self.scores.items())
        text = f"{name}: {point_text(self.point)}: validation mAP {scores}"
        text += f"; {len(self.missing)} trials missing" if self.missing else ""
        return text + (f"; EDGE: extend {', '.join(self.extend)}" if self.extend else "")


def choose(tuning: Tuning, records: Sequence[Record]) -> list[Choice]:
    """Choose the best point of each method on each data set.

    Args:
        tuning: The grids.
        records: Records of the trials.

    Returns:
        One choice per data set and method, complete or not.
    """
    found = {
        _key(record["dataset"], record["name"], record["asked"]): record
        for record in records
        if "failed" not in record
    }
    return [_choose(tuning, dataset, method, found) for dataset, method in tuning.keys]


def _choose(tuning: Tuning, dataset: str, method: str, records: Mapping[str, Record]) -> Choice:
    first, second = tuning.content["bits"]
    points = tuning.points(dataset, method)
    tried = _tried(tuning, (dataset, method, first), points, records)
    budget = tuning.content.get("epochs")
    usual, long = _divided([trial for trial in tried if trial.record], budget)
    ranked = sorted(usual, key=lambda trial: -trial.score)
    finals: list[_Trial] = []
    if len(usual) + len(long) == len(points):
        best = [trial.point for trial in ranked[: tuning.content["finalists"]]]
        finals = _tried(tuning, (dataset, method, second), best, records)
    missing = tuple(trial.cell for trial in [*tried, *finals] if not trial.record)
    if not ranked:
        return Choice(dataset, method, missing=missing)
    chosen, scores = ranked[0].point, {first: ranked[0].score}
    if not missing:
        pairs = list(zip(ranked, finals, strict=False))
        one, two = max(pairs, key=lambda pair: pair[0].score + pair[1].score)
        chosen, scores = one.point, {first: one.score, second: two.score}
    frozen = [trial.score for trial in ranked if trial.point.get("backbone_lr") == 0]
    done = [trial.record for trial in [*tried, *finals] if trial.record]
    return Choice(
        dataset,
        method,
        chosen,
        scores,
        best_frozen=max(frozen, default=None),
        longer=max((trial.score for trial in long), default=None),
        trials=len(done),
        diverged=sum("diverged" in record for record in done),
        missing=missing,
        finalists=tuple(trial.cell for trial in finals),
        extend=tuple(
            edges_to_extend(
                [trial.point for trial in _divided(tried, budget)[0]],
                chosen,
                tuning.content.get("unordered", ()),
            )
        ),
    )


@dataclass(frozen=True)
class _Trial:
    """A point at one length, with its record if it has been run."""

    cell: Cell
    point: Point
    record: Record | None

    @property
    def score(self) -> float:
        """Validation mAP; 0 if the trial diverged."""
        return float((self.record or {}).get("validation_map", 0.0))


def _divided(trials: Sequence[_Trial], budget: int | None) -> tuple[list[_Trial], list[_Trial]]:
    """Trials within the budget of epochs, and those beyond it."""
    beyond = [budget is not None and trial.point.get("epochs", 0) > budget for trial in trials]
    return (
        [trial for trial, long in zip(trials, beyond, strict=True) if not long],
        [trial for trial, long in zip(trials, beyond, strict=True) if long],
    )


def _tried(
    tuning: Tuning,
    where: tuple[str, str, int],
    points: Sequence[Point],
    records: Mapping[str, Record],
) -> list[_Trial]:
    cells = [tuning.trial(*where, point) for point in points]
    found = [records.get(_key(cell.dataset, cell.name, cell.settings)) for cell in cells]
    return [_Trial(*parts) for parts in zip(cells, points, found, strict=True)]


def edges_to_extend(
    points: Sequence[Point], chosen: Point, unordered: Sequence[str] = ()
) -> Iterator[str]:
    """Find the settings whose chosen value is the smallest or largest that was tried.

    Points that train the backbone are compared with each other, and so are those that do not: the
    chosen rate of the backbone alone is compared with all. A setting that varies in the grid, but
    not among the points that are compared, was not tuned either. Points with the same options
    (settings that are no numbers) are compared, if there are several. A value of 0 cannot be
    lowered, and fewer epochs than tried are not asked for.

    Args:
        points: All points of the grid.
        chosen: One of them.
        unordered: Settings whose values have no order.

    Yields:
        For each such setting, where the grid must be extended.

    Example:
        >>> grid = [{"lr": 0.1, "lam": 0}, {"lr": 0.3, "lam": 1}]
        >>> list(edges_to_extend(grid, {"lr": 0.3, "lam": 0}))
        ['lr above 0.3']
    """
    fixed = chosen.get("backbone_lr") == 0
    for key, value in chosen.items():
        group = [p for p in points if key == "backbone_lr" or (p.get("backbone_lr") == 0) == fixed]
        tried = {p[key] for p in group}
        if len(tried) < 2:
            if len({p[key] for p in points}) > 1:
                yield f"{key} with a {'fixed' if fixed else 'trained'} backbone"
            continue
        if key in unordered or isinstance(value, (bool, str)):
            continue
        alike = {p[key] for p in group if _options(p) == _options(chosen)}
        values = alike if len(alike) > 1 else tried
        if value == max(values):
            yield f"{key} above {value:g}"
        elif value == min(values) and value > 0 and key != "epochs":
            yield f"{key} below {value:g}"


def _options(point: Point) -> Point:
    return {key: value for key, value in point.items() if isinstance(value, (bool, str))}


def trials(tuning: Tuning, records: Sequence[Record]) -> list[Cell]:
    """All trials: those of the first length, and what the results so far add at the second.

    Args:
        tuning: The grids.
        records: Records of the trials so far.

    Returns:
        The cells, those of the first length first.
    """
    cells = [
        tuning.trial(dataset, method, tuning.content["bits"][0], point)
        for dataset, method in tuning.keys
        for point in tuning.points(dataset, method)
    ]
    return cells + [cell for choice in choose(tuning, records) for cell in choice.finalists]


def write_tuning(tuning: Tuning, choices: Sequence[Choice], docs: Path) -> list[Path]:
    """Write the table of a plan: the chosen points, and which grids must be extended.

    Args:
        tuning: The grids.
        choices: The choices.
        docs: Folder of the documents; the table is written to its folder `tables`.

    Returns:
        The files that were written.
    """
    lengths = tuning.content["bits"]
    head = ["data set", "method", "trials", "diverged", "chosen"]
    head += [f"mAP, {bits} bits" for bits in lengths]
    head += ["best frozen", "60 epochs", "extend", "missing"]
    title = "# Tuning with a fixed backbone" if "frozen" in tuning.name else "# Tuning"
    lines = [title, "", *_row(head), *_row(["---"] * len(head))]
    for choice in choices:
        others = [choice.best_frozen, choice.longer]
        scores = [short(choice.scores[bits]) if bits in choice.scores else "" for bits in lengths]
        lines += _row(
            [
                display_name(choice.dataset),
                display_name(choice.method),
                str(choice.trials),
                str(choice.diverged),
                point_text(choice.point or {}),
                *scores,
                *("" if value is None else short(value) for value in others),
                ", ".join(choice.extend),
                str(len(choice.missing) or ""),
            ]
        )
    path = docs / "tables" / f"{tuning.name}.md"
    files.write_text(path, "\n".join(lines) + "\n")
    return [path]


def load_choices(results: Path, name: str = NAMES[0]) -> list[Choice]:
    """The choices that the trials of a plan in a folder of results give."""
    return choose(read_tuning(name), Collected(results / name).records())


def point_text(point: Point) -> str:
    """A point as text.

    Example:
        >>> point_text({"lr": 0.1, "sampler": "random"})
        'lr 0.1, sampler random'
    """
    return ", ".join(f"{key} {value}" for key, value in point.items())


def _row(cells: Sequence[str]) -> list[str]:
    return ["| " + " | ".join(cells) + " |"]


def _key(dataset: str, name: str, asked: Mapping[str, Any]) -> str:
    return json.dumps([dataset, name, asked], sort_keys=True)
