"""The best recipe: single changes, combinations of those that gained, and fresh seeds.

recipe.toml lists the base and the changes. Trials are those of tuning: held-out training images
search the others. The score of a trial is the mAP of its whole ranking by Hamming distance.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import resources
from itertools import groupby, product
from pathlib import Path
from typing import Any

from .. import files
from ..config import AugmentConfig, InputConfig, TrainConfig
from ..data import find_dataset
from ..methods import METHODS
from ..settings import fields_of
from .collected import Collected, Record
from .names import display_name
from .recipes import Cell

NAME, COMBINED, FINAL, LITE2 = "recipe", "recipe-combined", "recipe-final", "recipe-lite2"
STAGES = (NAME, COMBINED, LITE2, FINAL)  # in the order in which they are run
BASE = "base"


@dataclass(frozen=True)
class Change:
    """A change of the base.

    Attributes:
        name: Its name, part of the names of the trials.
        kind: Changes of one kind exclude each other.
        settings: Settings that it sets.
        scale: Factors of settings that the base or another change sets.
        method: Another method, or None.
        backbone: Another backbone, or None.
        mark: Another mark, or None.
        round: Trials of earlier rounds are run first.
    """

    name: str
    kind: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    scale: Mapping[str, float] = field(default_factory=dict)
    method: str | None = None
    backbone: str | None = None
    mark: str | None = None
    round: int = 1

    def __add__(self, other: Change) -> Change:
        """Both changes; the settings of the second one win."""
        return Change(
            f"{self.name}+{other.name}" if self.name else other.name,
            settings={**self.settings, **other.settings},
            scale={**self.scale, **other.scale},
            method=other.method or self.method,
            backbone=other.backbone or self.backbone,
            mark=other.mark or self.mark,
        )


@dataclass(frozen=True)
class Trials:
    """The content of recipe.toml, and the trials so far.

    Attributes:
        content: The content of recipe.toml.
        records: Records of the trials.
    """

    content: Mapping[str, Any]
    records: Sequence[Record] = ()

    def changes(self, table: str = "changes") -> list[Change]:
        """The changes of a table of the file."""
        return [Change(**entry) for entry in self.content.get(table, [])]

    def cell(self, dataset: str, bits: int, change: Change, seed: int | None = None) -> Cell:
        """The cell of a change.

        Args:
            dataset: Name of the data set.
            bits: Code length.
            change: The change.
            seed: Seed of a measurement on the queries; None: a trial.

        Returns:
            The cell.
        """
        own = self.content
        method = change.method or own["method"]
        base = _known(method, {**own["settings"], **own["base"].get(dataset, {})})
        varied = _known(method, {**change.settings, **_scaled(change, base)})
        return Cell(
            dataset=dataset,
            method=method,
            bits=bits,
            backbone=change.backbone or own["backbone"],
            seed=own["seed"] if seed is None else seed,
            protocol=find_dataset(dataset).protocol,
            mark=f"{change.mark or own['mark']}-{change.name}".strip("-"),
            settings={key: value for key, value in base.items() if key not in varied},
            varied=varied,
            choose=False,
            validation=own["share"] if seed is None else 0.0,
            recipe=NAME,
            content="" if seed is None else own["final"].get("content", ""),
        )

    def score(self, dataset: str, change: Change) -> float | None:
        """Mean mAP of the whole ranking over the lengths; None while a trial is missing."""
        found = self.found([self.cell(dataset, bits, change) for bits in self.content["bits"]])
        if len(found) < len(self.content["bits"]):
            return None
        scores = [record.get("maps", {}).get("all", 0.0) for record in found]
        return float(sum(scores) / len(scores))

    def mean(self, change: Change) -> float | None:
        """Mean score over the data sets; None while a trial is missing."""
        scores = [self.score(dataset, change) for dataset in self.content["datasets"]]
        known = [score for score in scores if score is not None]
        return sum(known) / len(known) if known and len(known) == len(scores) else None

    def found(self, cells: Iterable[Cell]) -> list[Record]:
        """The records of those cells that have been run with their settings.

        Args:
            cells: Cells of any stage.

        Returns:
            Records in the order of the cells.
        """
        keys = (_key(own.dataset, own.name, {**own.settings, **own.varied}) for own in cells)
        return [self._by_key[key] for key in keys if key in self._by_key]

    @cached_property
    def _by_key(self) -> dict[str, Record]:
        return {
            _key(record["dataset"], record["name"], record["asked"]): record
            for record in self.records
            if "failed" not in record
        }

    def gains(self, change: Change) -> dict[str, float]:
        """How much a change raises the score, by data set; those without trials are absent."""
        scores = {
            dataset: (self.score(dataset, change), self.score(dataset, Change(BASE)))
            for dataset in self.content["datasets"]
        }
        return {
            dataset: own - base
            for dataset, (own, base) in scores.items()
            if own is not None and base is not None
        }

    def won(self, change: Change) -> int:
        """On how many data sets a change gains."""
        return sum(gain > self.content["gain"] for gain in self.gains(change).values())

    def kept(self, table: str = "changes") -> list[Change]:
        """Of each kind of change the one with the largest mean gain, if it gained on two sets."""
        best: dict[str, tuple[float, Change]] = {}
        for change in self.changes(table):
            gains = self.gains(change)
            mean = sum(gains.values()) / max(1, len(gains))
            if self.won(change) >= self.enough and mean > best.get(change.kind, (0.0, change))[0]:
                best[change.kind] = mean, change
        return [change for _, change in sorted(best.values(), key=lambda entry: -entry[0])]

    @property
    def enough(self) -> int:
        """On how many data sets a change must gain: two, or the only one."""
        return min(2, len(self.content["datasets"]))

    def combinations(self) -> list[Change]:
        """All kept changes together, then all but one of them, the least useful one first."""
        kept = self.kept()
        if len(kept) < 2:
            return kept
        parts = [kept, *([*kept[:i], *kept[i + 1 :]] for i in reversed(range(len(kept))))]
        return [sum(own, Change("")) if own else Change(BASE) for own in parts]

    def larger(self) -> list[Change]:
        """Larger backbones that gained, each alone and with the best of the other changes."""
        alone, best = self.kept("lite2"), self._best_of(self._smaller())
        if best is None or best.name == BASE:
            return alone
        return [*alone, *(best + backbone for backbone in alone)]

    def best(self) -> Change | None:
        """The candidate with the best mean score; None while none is complete."""
        return self._best_of(self.candidates())

    def candidates(self) -> list[Change]:
        """The base, the changes that are kept, and their combinations."""
        found = [*self._smaller(), *self.larger()]
        return list({change.name: change for change in found}.values())

    def _smaller(self) -> list[Change]:
        """Candidates with the backbone of the base."""
        return [Change(BASE), *self.kept(), *self.combinations()]

    def _best_of(self, changes: Sequence[Change]) -> Change | None:
        scored = [(mean, own) for own in changes if (mean := self.mean(own)) is not None]
        return max(scored, key=lambda entry: entry[0])[1] if scored else None

    def stage(self, name: str) -> list[Cell]:
        """The cells of a stage, in the order in which they are run.

        Args:
            name: One of `STAGES`.

        Returns:
            The cells. Those of the later stages depend on the trials so far.
        """
        datasets, bits = self.content["datasets"], self.content["bits"]
        if name == NAME:
            return list(self._rounds([Change(BASE, round=0), *self.changes()]))
        if name in (LITE2, COMBINED):
            changes = self.combinations() if name == COMBINED else self.larger()
            order = product(changes, datasets, bits)
            cells = [self.cell(dataset, own, change) for change, dataset, own in order]
            first = self._rounds(self.changes("lite2")) if name == LITE2 else ()
            return list(dict.fromkeys([*first, *cells]))
        best, final = self.best(), self.content["final"]
        if best is None:
            return []
        every = product(final["seeds"], datasets, final["bits"])
        return [self.cell(dataset, own, best, seed) for seed, dataset, own in every]

    def _rounds(self, changes: Sequence[Change]) -> Iterator[Cell]:
        """A round at a time: one data set after the other, so that its images stay on the GPU."""
        ordered = sorted(changes, key=lambda change: change.round)
        for _, group in groupby(ordered, key=lambda change: change.round):
            own = list(group)
            for dataset, change, bits in product(
                self.content["datasets"], own, self.content["bits"]
            ):
                yield self.cell(dataset, bits, change)

    def summary(self) -> list[str]:
        """One line per change that has been tried: gains by data set, and what is kept."""
        kept = {change.name for change in [*self.kept(), *self.kept("lite2")]}
        single = [*self.changes(), *self.changes("lite2")]
        others = [own for own in self.candidates() if own.name not in {BASE} | _names(single)]
        lines = []
        for change in [*single, *others]:
            gains = self.gains(change)
            if gains:
                text = ", ".join(f"{display_name(own)} {gain:+.4f}" for own, gain in gains.items())
                lines.append(f"{change.name}: {text}" + (", kept" if change.name in kept else ""))
        best = self.best()
        return [*lines, f"best so far: {best.name}"] if best else lines


def read_trials(results: Path) -> Trials:
    """Read recipe.toml and the trials in a folder of results."""
    content = files.read_toml(resources.files(__package__) / "recipe.toml")
    return Trials(content, Collected(results / NAME).records())


def _names(changes: Iterable[Change]) -> set[str]:
    return {change.name for change in changes}


def _scaled(change: Change, base: Mapping[str, Any]) -> dict[str, float]:
    """The settings that a change multiplies, with three digits."""
    settings = {**base, **change.settings}
    return {
        name: float(f"{settings[name] * factor:.3g}")
        for name, factor in change.scale.items()
        if name in settings
    }


def _known(method: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that training with a method has: a change of HCDH may not concern another."""
    groups = TrainConfig, AugmentConfig, InputConfig, METHODS.get(method).Settings
    names = {name for group in groups for name in fields_of(group)}
    return {key: value for key, value in settings.items() if key in names}


def _key(dataset: str, name: str, asked: Mapping[str, Any]) -> str:
    return json.dumps([dataset, name, asked], sort_keys=True)
