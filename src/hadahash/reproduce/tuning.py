"""Tuning: the same number of trials for every method, on held-out training images.

tuning.toml lists the points of each method, tuning-frozen.toml those with a fixed backbone, and
tuning-alexnet.toml those with the paper's network. A trial trains on 80 % of the training images of
the tuning seed; the other 20 % search them. Queries and database are not used. The best points at
the first length are tried at the second one too, and the point with the best mean is chosen.

Further points are tried after all others. No choice waits for them; one that is better replaces it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any

from .. import files
from ..data import find_dataset
from .collected import Collected, Record
from .grid_edges import Point, edges_to_extend
from .intervals import short
from .recipes import Cell, mark_of

NAMES = ("tuning", "tuning-frozen", "tuning-alexnet")  # each is a plan, and a file of points


@dataclass(frozen=True)
class Tuning:
    """The points of all methods and data sets.

    Attributes:
        content: The content of the file of points.
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
            Settings by name.
        """
        rows = self._own(dataset, method).get("rows", self.content["points"][method]["rows"])
        return self._named(dataset, method, [*rows, *self._added("more", dataset, method)])

    def further(self, dataset: str, method: str) -> list[Point]:
        """The points that are tried after all others, as `points`.

        One that is among `points` too is only tried at the second length.
        """
        return self._named(dataset, method, self._added("further", dataset, method))

    def apart(self, method: str) -> bool:
        """Whether each length of a method has its own choice."""
        return method in self.content.get("apart", ())

    def _own(self, dataset: str, method: str) -> dict[str, Any]:
        found: dict[str, Any] = self.content.get(dataset, {}).get(method, {})
        return found

    def _added(self, table: str, dataset: str, method: str) -> list[list[Any]]:
        rows: list[list[Any]] = self.content.get(table, {}).get(dataset, {}).get(method, [])
        return rows

    def _named(self, dataset: str, method: str, rows: Iterable[list[Any]]) -> list[Point]:
        """Rows as points. A row may end with a table of settings that the others do not name."""
        common = self.content["points"][method]["settings"]
        names = self._own(dataset, method).get("settings", common)
        split = [(row[: len(names)], row[len(names) :]) for row in rows]
        return [dict(zip(names, values, strict=True)) | dict(*others) for values, others in split]

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
        point: The chosen point; while trials are missing, the best one of those that were tried at
            both lengths, or at the first if there is none. None without a trial.
        scores: Validation mAP of that point by code length.
        best_frozen: Best validation mAP with a fixed backbone at the first length.
        longer: Best validation mAP of the points with more epochs than the budget, at the first
            length. These show what longer training adds; they are not chosen.
        trials: Number of trials with a result.
        diverged: Number of those that diverged.
        missing: Trials that must still be run.
        finalists: The trials at the second length, once those at the first one have been run.
        extend: Where the point lies at an edge of the grid, for example "lr above 0.3".
        by_length: The chosen point of each length, for a method whose lengths are tuned apart.
        further: The trials of further points.
        untried: Those of them without a result.
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
    by_length: Mapping[int, Point] = field(default_factory=dict)
    further: tuple[Cell, ...] = ()
    untried: tuple[Cell, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether all trials have been run, and the chosen point did not diverge."""
        return not self.missing and any(self.scores.values())

    def at(self, bits: int) -> Point:
        """The chosen point at a code length; a length without trials has that of the nearest."""
        if not self.by_length:
            return self.point or {}
        return self.by_length[min(self.by_length, key=lambda tried: (abs(tried - bits), tried))]

    @property
    def text(self) -> str:
        """The chosen points."""
        if not self.by_length:
            return point_text(self.point or {})
        return "; ".join(f"{n} bits: {point_text(own)}" for n, own in self.by_length.items())

    def __str__(self) -> str:
        name = f"{self.dataset} {self.method}"
        if self.point is None:
            return f"{name}: no trial yet, {len(self.missing)} missing"
        scores = ", ".join(f"{short(value)} at {bits} bits" for bits, value in self.scores.items())
        text = f"{name}: {self.text}: validation mAP {scores}"
        text += f"; {len(self.missing)} trials missing" if self.missing else ""
        text += f"; {len(self.untried)} further trials not run" if self.untried else ""
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
    return [_choose(_Trials.of(tuning, *key, found)) for key in tuning.keys]


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

    @property
    def fixed(self) -> bool:
        """Whether the backbone is fixed."""
        return self.point.get("backbone_lr") == 0


@dataclass(frozen=True)
class _Trials:
    """The trials of a method on a data set, with what is known about each."""

    tuning: Tuning
    dataset: str
    method: str
    records: Mapping[str, Record]
    required: Sequence[_Trial]  # at the first length, as the next ones
    further: Sequence[_Trial]

    @classmethod
    def of(
        cls, tuning: Tuning, dataset: str, method: str, records: Mapping[str, Record]
    ) -> _Trials:
        points = tuning.points(dataset, method)
        later = [point for point in tuning.further(dataset, method) if point not in points]
        own = cls(tuning, dataset, method, records, (), ())
        first = tuning.content["bits"][0]
        return replace(own, required=own.at(first, points), further=own.at(first, later))

    def at(self, bits: int, points: Iterable[Point]) -> list[_Trial]:
        """The trials of points at a length."""
        tried = [(self.tuning.trial(self.dataset, self.method, bits, own), own) for own in points]
        records, cells = self.records, [cell for cell, _ in tried]
        keys = [_key(cell.dataset, cell.name, cell.settings) for cell in cells]
        return [_Trial(*own, records.get(key)) for own, key in zip(tried, keys, strict=True)]

    def usual(self, trials: Iterable[_Trial]) -> list[_Trial]:
        """Those within the budget of epochs."""
        budget = self.tuning.content.get("epochs")
        return [own for own in trials if budget is None or own.point.get("epochs", 0) <= budget]

    @property
    def ranked(self) -> list[_Trial]:
        """Those at the first length that have a result and can be chosen, best first."""
        tried = (own for own in (*self.required, *self.further) if own.record)
        return sorted(self.usual(tried), key=lambda trial: -trial.score)

    def finals(self) -> tuple[list[_Trial], list[_Trial]]:
        """The trials at the second length: those that a choice waits for, and further ones.

        If the lengths are tuned apart, all points with a fixed backbone are tried, and all further
        ones.
        """
        second, count = self.tuning.content["bits"][1], self.tuning.content["finalists"]
        apart = self.tuning.apart(self.method)
        later = self.tuning.further(self.dataset, self.method)
        own: list[Point] = []
        if all(trial.record for trial in self.required):
            first = [trial for trial in self.ranked if trial not in self.further]
            own = [trial.point for trial in first[:count]]
            own += [trial.point for trial in first[count:] if apart and trial.fixed]
        best = [trial.point for trial in self.ranked[:count]] if own else []
        others = [point for point in later if (apart or point in best) and point not in own]
        return self.at(second, own), self.usual(self.at(second, others))

    def tried(self) -> list[_Trial]:
        """All that have a result, at the first length and then at the second."""
        known = [*self.required, *self.further]
        again = self.at(self.tuning.content["bits"][1], [own.point for own in known])
        return [own for own in (*known, *again) if own.record]


def _choose(trials: _Trials) -> Choice:
    ranked = trials.ranked
    needed, others = trials.finals()
    further = [*trials.further, *others]
    tried = trials.tried()
    missing = tuple(own.cell for own in (*trials.required, *needed) if not own.record)
    start = Choice(
        trials.dataset,
        trials.method,
        trials=len(tried),
        diverged=sum("diverged" in (own.record or {}) for own in tried),
        missing=missing,
        finalists=tuple(own.cell for own in needed),
        further=tuple(own.cell for own in further),
        untried=tuple(own.cell for own in further if not own.record),
    )
    if not ranked:
        return start
    long = [own.score for own in tried if not trials.usual([own])]
    frozen = [own.score for own in ranked if own.fixed]
    first, second = trials.tuning.content["bits"]
    best = {first: ranked[0]}
    finals = [own for own in (tried if missing else (*needed, *others)) if own.record]
    if finals := [own for own in trials.usual(finals) if own.cell.bits == second]:
        best = _best(ranked, finals, apart=trials.tuning.apart(trials.method))
    by_length = dict(zip((first, second), (own.point for own in best.values()), strict=False))
    return replace(
        start,
        point=best[first].point,
        scores={bits: own.score for bits, own in best.items()},
        best_frozen=max(frozen, default=None),
        longer=max(long, default=None),
        extend=tuple(dict.fromkeys(_edges(trials, by_length.values()))),
        by_length=by_length if trials.tuning.apart(trials.method) else {},
    )


def _best(ranked: Sequence[_Trial], finals: Sequence[_Trial], *, apart: bool) -> dict[int, _Trial]:
    """The best trial of each length, or those of the point with the best mean."""
    first = {point_text(own.point): own for own in ranked}
    pairs = [(first.get(point_text(own.point), own), own) for own in finals]
    one, two = max(pairs, key=lambda pair: pair[0].score + pair[1].score)
    if apart:
        one, two = ranked[0], max(finals, key=lambda own: own.score)
    return {one.cell.bits: one, two.cell.bits: two}


def _edges(trials: _Trials, chosen: Iterable[Point]) -> Iterable[str]:
    tried = [*trials.required, *(own for own in trials.further if own.record)]
    points = [own.point for own in trials.usual(tried)]
    unordered = trials.tuning.content.get("unordered", ())
    return (text for point in chosen for text in edges_to_extend(points, point, unordered))


def trials(tuning: Tuning, records: Sequence[Record]) -> list[Cell]:
    """All trials: at the first length, what the results so far add at the second, further points.

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
    choices = choose(tuning, records)
    cells += [cell for choice in choices for cell in choice.finalists]
    return cells + [cell for choice in choices for cell in choice.further]


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


def _key(dataset: str, name: str, asked: Mapping[str, Any]) -> str:
    return json.dumps([dataset, name, asked], sort_keys=True)
