"""Grouping of runs.

Runs that differ only in their seed are one group; its numbers are means over its runs. Groups with
the same images, protocol and rank cut-off of mAP can be compared and share charts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from ...config import AugmentConfig, TrainConfig
from ...evaluation import Report
from ...runs import EvaluatedRun

_CORE = ("dataset", "protocol", "method", "bits", "backbone", "weights", "epochs", "validation")
_ALWAYS_NAMED = ("method", "bits")  # every name begins with these
_MAX_NAMED = 3  # other settings in a name
_IGNORED = ("checkpoint_seconds", "compile", "epochs")  # no effect on the result, or in _CORE
# Version 0.1 recorded these for methods that are not trained by gradient descent, too.
_TRAINING_ONLY = {each.name for kind in (TrainConfig, AugmentConfig) for each in fields(kind)} - {
    "threshold"
} | {"batch"}

Settings = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Group:
    """Runs that differ only in their seed.

    Attributes:
        name: Method and bits, plus the settings that distinguish it from other groups.
        settings: All settings except the seed.
        runs: The runs, ordered by seed.
        reports: Their evaluations, in the same order.
    """

    name: str
    settings: Settings
    runs: tuple[EvaluatedRun, ...]
    reports: tuple[Report, ...]

    @property
    def seeds(self) -> list[int]:
        """Seeds of the runs."""
        return [_seed(run) for run in self.runs]

    @property
    def mean_map(self) -> float:
        """Mean of mAP over the runs."""
        return float(np.mean([report.map for report in self.reports]))

    def map_text(self) -> str:
        """Mean, standard deviation and number of runs as text.

        Returns:
            Text such as "0.8123 ± 0.0041 (3)".
        """
        values = [report.map for report in self.reports]
        deviation = f" ± {np.std(values, ddof=1):.4f}" if len(values) > 1 else ""
        return f"{np.mean(values):.4f}{deviation} ({len(values)})"


@dataclass(frozen=True, eq=False)
class Comparison:
    """Groups that can be compared.

    Attributes:
        title: Data set, protocol and rank cut-off.
        groups: The groups, highest mAP first.
    """

    title: str
    groups: tuple[Group, ...]

    @property
    def first(self) -> EvaluatedRun:
        """First run of the best group."""
        return self.groups[0].runs[0]


def settings_of(run: EvaluatedRun) -> Settings:
    """All settings of a run except its seed.

    Args:
        run: The run.

    Returns:
        Settings by name. For a method that is not trained by gradient descent, the settings that
        only training uses are left out.
    """
    core = {name: run.record.get(name) for name in _CORE} | {"depth": run.report["depth"] or "all"}
    trained = core["epochs"] is not None
    unused = {*_IGNORED, *(() if trained else _TRAINING_ONLY)}
    if not trained:
        del core["epochs"]
    stored = run.record.get("settings", {})
    return core | {name: value for name, value in stored.items() if name not in unused}


def differing(several: Sequence[Settings]) -> list[str]:
    """Names of the settings with more than one value.

    Args:
        several: Settings of several runs. A setting that only some methods have is compared among
            those only.

    Returns:
        The names, in the order of their first appearance.

    Example:
        >>> differing([{"method": "hcdh", "bits": 16, "lam": 1.0}, {"method": "lsh", "bits": 16}])
        ['method']
    """
    names = dict.fromkeys(name for settings in several for name in settings)
    return [
        name
        for name in names
        if len({str(settings[name]) for settings in several if name in settings}) > 1
    ]


def compare(runs: Sequence[EvaluatedRun]) -> list[Comparison]:
    """Collect runs into groups and groups into comparisons.

    Args:
        runs: Evaluated runs.

    Returns:
        Comparisons in the order of their first run.
    """
    by_settings: dict[tuple[str, ...], list[EvaluatedRun]] = {}
    for run in runs:
        chosen = sorted(settings_of(run).items())
        key = (*_comparison_key(run), *(f"{name}={value}" for name, value in chosen))
        by_settings.setdefault(key, []).append(run)
    by_comparison: dict[tuple[str, ...], list[Group]] = {}
    for own in by_settings.values():
        by_comparison.setdefault(_comparison_key(own[0]), []).append(_group(own))
    return [
        Comparison(
            _title(own[0].settings),
            tuple(sorted(_with_names(own), key=lambda group: -group.mean_map)),
        )
        for own in by_comparison.values()
    ]


def format_setting(value: object) -> str:
    """Format the value of a setting for display.

    Args:
        value: The value.

    Returns:
        The text.

    Example:
        >>> [format_setting(value) for value in (None, True, 0.5, 3.0, "far")]
        ['auto', 'yes', '0.5', '3', 'far']
    """
    if value is None:
        return "auto"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _group(runs: Sequence[EvaluatedRun]) -> Group:
    ordered = tuple(sorted(runs, key=_seed))
    reports = tuple(Report.from_dict(run.report) for run in ordered)
    return Group("", settings_of(ordered[0]), ordered, reports)


def _title(settings: Settings) -> str:
    depth = "" if settings["depth"] == "all" else f", mAP@{settings['depth']:,}"
    return f"{settings['dataset']}, protocol {settings['protocol']}{depth}"


def _seed(run: EvaluatedRun) -> int:
    return int(run.record["seed"])


def _comparison_key(run: EvaluatedRun) -> tuple[str, ...]:
    """Key of runs that can be compared: images, protocol and rank cut-off of mAP."""
    record, depth = run.record, run.report["depth"]
    names = ("dataset", "protocol", "ids_sha256")
    return (*(str(record.get(name, "")) for name in names), str(depth))


def _with_names(groups: Sequence[Group]) -> list[Group]:
    """Give each group its name; where settings do not distinguish them, with its folder."""
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
    """Method and bits, plus settings until no other group of `several` has the same name.

    >>> one = {"method": "hcdh", "bits": 16, "lr": 0.1, "lam": 1.0}
    >>> two = {"method": "hcdh", "bits": 16, "lr": 0.3, "lam": 2.0}
    >>> _name(one, [two, one, {"method": "lsh", "bits": 16}])
    'hcdh, 16 bits, lr 0.1'
    """
    alike = [
        other for other in several if all(other[name] == settings[name] for name in _ALWAYS_NAMED)
    ]
    shown: list[str] = []
    while len(shown) < _MAX_NAMED and (
        names := [name for name in differing(alike) if name in settings]
    ):
        shown.append(f"{names[0]} {format_setting(settings[names[0]])}")
        alike = [other for other in alike if other.get(names[0]) == settings[names[0]]]
    return ", ".join([settings["method"], f"{settings['bits']} bits", *shown])
