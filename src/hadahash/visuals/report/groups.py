"""Which runs belong together.

Runs that differ only in their seed are one group, whose figures are means over its runs. Groups that answered the same
questions - the same images, protocol and depth of mAP - stand in one comparison; others share no chart and no ranking.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from ...data.preprocess import AugmentSettings
from ...runs import Evaluated
from ...training import TrainSettings

_CORE = ("dataset", "protocol", "method", "bits", "backbone", "weights", "epochs", "validation")
_NAMED = ("method", "bits")  # every group's name begins with them
_MOST_NAMED = 3  # settings in a name besides these
_IDLE = ("checkpoint_seconds", "compile", "epochs")  # change nothing, or stand in the core already
_TRAINED = {field.name for kind in (TrainSettings, AugmentSettings) for field in fields(kind)} - {
    "threshold"
} | {"frozen"}

Settings = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Group:
    """Runs that differ only in their seed, in the order of seeds."""

    name: str
    settings: Settings
    runs: tuple[Evaluated, ...]

    @property
    def seeds(self) -> list[int]:
        return [int(run.about["seed"]) for run in self.runs]

    def mean(self, key: str) -> float:
        """Of a number in the runs' reports."""
        return float(np.mean([run.report[key] for run in self.runs]))

    def map_text(self) -> str:
        values = [run.report["map"] for run in self.runs]
        spread = f" ± {np.std(values, ddof=1):.4f}" if len(values) > 1 else ""
        return f"{np.mean(values):.4f}{spread} ({len(values)})"


@dataclass(frozen=True, eq=False)
class Comparison:
    """Groups that can be compared, the best first."""

    title: str
    groups: tuple[Group, ...]

    @property
    def first(self) -> Evaluated:
        return self.groups[0].runs[0]


def settings_of(run: Evaluated) -> Settings:
    """All that was chosen for a run except its seed; of methods that are not trained, without what only training uses."""
    core = {name: run.about.get(name) for name in _CORE} | {"depth": run.report["depth"] or "all"}
    trained = core["epochs"] is not None
    unused = {*_IDLE, *(() if trained else _TRAINED)}
    if not trained:
        del core["epochs"]
    return core | {
        name: value for name, value in run.about.get("settings", {}).items() if name not in unused
    }


def differing(several: Sequence[Settings]) -> list[str]:
    """The settings that have more than one value, in order. One that only some methods know differs only among these.

    >>> differing([{"method": "hcdh", "bits": 16, "lam": 1.0}, {"method": "lsh", "bits": 16}])
    ['method']
    """
    names = list(dict.fromkeys(name for settings in several for name in settings))
    return [
        name
        for name in names
        if len({str(settings[name]) for settings in several if name in settings}) > 1
    ]


def compare(runs: Sequence[Evaluated]) -> list[Comparison]:
    """Put runs into groups and groups into comparisons, in the order in which they were given."""
    together: dict[tuple[str, ...], list[Evaluated]] = {}
    for run in runs:
        key = (
            *_place(run),
            *(f"{name}={value}" for name, value in sorted(settings_of(run).items())),
        )
        together.setdefault(key, []).append(run)
    groups = [
        Group("", settings_of(own[0]), tuple(sorted(own, key=_seed))) for own in together.values()
    ]
    places: dict[tuple[str, ...], list[Group]] = {}
    for group in groups:
        places.setdefault(_place(group.runs[0]), []).append(group)
    return [Comparison(_title(own[0]), _ranked(_with_names(own))) for own in places.values()]


def text_of(value: object) -> str:
    """A setting's value as a person writes it.

    >>> [text_of(value) for value in (None, True, 0.5, 3.0, "far")]
    ['auto', 'yes', '0.5', '3', 'far']
    """
    if value is None:
        return "auto"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _seed(run: Evaluated) -> int:
    return int(run.about["seed"])


def _place(run: Evaluated) -> tuple[str, ...]:
    """The images, how they were divided and how far mAP looks: what must agree for a comparison."""
    about = run.about
    return (
        str(about["dataset"]),
        str(about["protocol"]),
        str(about.get("ids_sha256", "")),
        str(run.report["depth"]),
    )


def _with_names(groups: Sequence[Group]) -> list[Group]:
    """Method and bits, with as many other settings as it takes to tell a group; where none does, the name of a folder."""
    names = [_name(group.settings, [other.settings for other in groups]) for group in groups]
    folders = [
        f" ({group.runs[0].folder.name})" if names.count(name) > 1 else ""
        for group, name in zip(groups, names, strict=True)
    ]
    return [
        replace(group, name=name + folder)
        for group, name, folder in zip(groups, names, folders, strict=True)
    ]


def _name(settings: Settings, several: Sequence[Settings]) -> str:
    """What tells a group from `several`: settings are added until none of them differs among those that are left.

    >>> _name({"method": "hcdh", "bits": 16, "lr": 0.1, "lam": 1.0}, [{"method": "hcdh", "bits": 16, "lr": 0.3, "lam": 2.0},
    ...     {"method": "hcdh", "bits": 16, "lr": 0.1, "lam": 1.0}, {"method": "lsh", "bits": 16}])
    'hcdh, 16 bits, lr 0.1'
    """
    alike = [other for other in several if all(other[name] == settings[name] for name in _NAMED)]
    shown: list[str] = []
    while len(shown) < _MOST_NAMED and (
        names := [name for name in differing(alike) if name in settings]
    ):
        shown.append(f"{names[0]} {text_of(settings[names[0]])}")
        alike = [other for other in alike if other.get(names[0]) == settings[names[0]]]
    return ", ".join([settings["method"], f"{settings['bits']} bits", *shown])


def _title(group: Group) -> str:
    about = group.settings
    return f"{about['dataset']}, protocol {about['protocol']}"


def _ranked(groups: Sequence[Group]) -> tuple[Group, ...]:
    return tuple(sorted(groups, key=lambda group: -group.mean("map")))
