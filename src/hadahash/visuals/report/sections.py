"""Contents of the report page: numbers and charts for the templates in templates/report/.

Each part of a comparison is one function here and one template of the same name. Numbers of a group
are means over its runs; charts of single bits and pictures are those of its first run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from ...runs import EvaluatedRun
from ..charts import Series, dot_strip, line_chart, swatch
from .code_sections import bits_content, distances_content, outputs_content
from .formatting import Content, mean_text, named, run_title
from .groups import Comparison, Group, differing, format_setting
from .measures import Measured
from .neighbors import NEIGHBORS, Pictures, choose, neighbor_rows
from .ranking_sections import rankings_content

FEW_CLASSES, ENDS = (
    20,
    10,
)  # with more than FEW_CLASSES classes, only the first and last ENDS are shown
_ALL = 0.99995  # a precision that is shown as 1.0000
SHEETS = 8  # groups with pictures: about 0.6 MB each
_RUN_COLUMNS = (
    *("seed", "queries", "database", "train_images", "train_seconds"),
    *("hardware", "date", "command"),
)


class Part(NamedTuple):
    """A part of a comparison.

    Attributes:
        name: Name of the template.
        title: Heading.
        anchor: Target of links.
        content: Variables of the template.
    """

    name: str
    title: str
    anchor: str
    content: Content

    @property
    def template(self) -> str:
        """Name of the template."""
        return f"report/{self.name}.html.j2"


_TITLES = {
    "map": "Mean average precision",
    "rankings": "Rankings",
    "curves": "Precision and recall",
    "classes": "Classes",
    "bits": "Bits: balance and independence",
    "distances": "Distances between classes",
    "outputs": "Outputs before binarization",
    "queries": "Queries and their nearest images",
}


def table_of_contents(comparisons: Sequence[Comparison]) -> list[tuple[str, str]]:
    """Links at the top of the page.

    Args:
        comparisons: All comparisons of the page.

    Returns:
        (anchor, text): to the comparisons, or to the parts if there is only one.
    """
    if len(comparisons) > 1:
        links = [(f"c{i}", comparison.title) for i, comparison in enumerate(comparisons)]
    else:
        links = [(f"c0-{name}", text) for name, text in _TITLES.items()]
    return [("settings", "Settings"), *links]


def settings_content(comparisons: Sequence[Comparison]) -> Content:
    """The tables of settings and of runs.

    Args:
        comparisons: All comparisons of the page.

    Returns:
        Variables of the template.
    """
    groups = [group for comparison in comparisons for group in comparison.groups]
    settings = [group.settings for group in groups]
    several = len(groups) > 1
    shown = ["dataset", "protocol", "method", "bits", "backbone"]
    columns = differing(settings) if several else shown
    rows = [
        (
            named(number, group),
            *(format_setting(group.settings.get(name, "–")) for name in columns),
            ", ".join(map(str, group.seeds)),
        )
        for comparison in comparisons
        for number, group in enumerate(comparison.groups)
    ]
    names = dict.fromkeys(name for own in settings for name in own)
    return {
        "several": several,
        "head": ("", *columns, "seeds"),
        "rows": rows,
        "shared": [(name, _shared(name, groups)) for name in names if name not in columns],
        "run_head": ("folder", "mAP", *(name.replace("_", " ") for name in _RUN_COLUMNS)),
        "run_rows": [_run_row(run) for group in groups for run in group.runs],
    }


def comparison_content(
    comparison: Comparison, number: int, measured: Measured, pictures: Pictures | str, seed: int
) -> Content:
    """All parts of one comparison.

    Args:
        comparison: Groups of runs that can be compared.
        number: Position on the page.
        measured: Statistics of the codes of each run.
        pictures: The images, or why they cannot be shown.
        seed: Random seed of the queries shown besides the hardest.

    Returns:
        Variables of the template.
    """
    groups, best = comparison.groups, comparison.groups[0]
    report = best.reports[0]
    parts: dict[str, Callable[[], Content]] = {
        "map": lambda: _map(groups),
        "rankings": lambda: rankings_content(groups),
        "curves": lambda: _curves(groups),
        "classes": lambda: class_content(groups),
        "bits": lambda: bits_content(groups, measured),
        "distances": lambda: distances_content(groups, measured),
        "outputs": lambda: outputs_content(groups),
        "queries": lambda: _queries(groups, pictures, seed),
    }
    depth = "the whole ranking" if report.depth is None else f"the first {report.depth:,} results"
    skipped = max(own.skipped for group in groups for own in group.reports)
    return {
        "anchor": f"c{number}",
        "title": comparison.title,
        "description": f"{report.queries:,} queries, {report.database:,} database images of "
        f"{len(comparison.first.classes)} classes. mAP is computed over {depth}."
        + (f" {skipped:,} images could not be read and were not evaluated." if skipped else ""),
        "summary": f"{run_title(best)}: {report.summary()}",
        "parts": [
            Part(name, _TITLES[name], f"c{number}-{name}", make()) for name, make in parts.items()
        ],
    }


def _map(groups: Sequence[Group]) -> Content:
    maps = [report.map for group in groups for report in group.reports]
    low = max(0.0, np.floor(min(maps) * 20 - 0.1) / 20)
    high = min(1.0, np.ceil(max(maps) * 20 + 0.1) / 20)
    cuts = _common_cuts(groups)
    first = groups[0].reports[0]
    possible = first.depth is not None and bool(first.map_by_denominator)
    rows = [
        (
            named(number, group),
            group.map_text(),
            *((mean_text(_by_denominator(group, "possible"), ".4f"),) if possible else ()),
            dot_strip([report.map for report in group.reports], low, high, number),
            *(mean_text([report.precision_at[k] for report in group.reports], ".4f") for k in cuts),
        )
        for number, group in enumerate(groups)
    ]
    if not math.isnan(first.chance):
        blank = ("", "") if possible else ("",)
        chance = f"{first.prevalence:.4f}"
        rows.append(("random ranking", f"{first.chance:.4f}", *blank, *(chance for _ in cuts)))
    if any(first.precision_at_most.get(k, 1) < _ALL for k in cuts):
        most = (f"{first.precision_at_most.get(k, 1):.4f}" for k in cuts)
        rows.append(("largest possible", "", *(("",) if possible else ()), "", *most))
    head = ("", "mAP", *(("possible",) if possible else ()), f"{low:.2f} to {high:.2f}")
    return {"head": (*head, *(f"P@{k}" for k in cuts)), "rows": rows, "possible": possible}


def _common_cuts(groups: Sequence[Group]) -> list[int]:
    """Values of k that all reports have and that do not exceed the database."""
    reports = [report for group in groups for report in group.reports]
    return [
        k
        for k in reports[0].precision_at
        if all(k in report.precision_at and k <= report.database for report in reports)
    ]


def _by_denominator(group: Group, name: str) -> list[float]:
    maps = (report.map_by_denominator for report in group.reports)
    return [own[name] for own in maps if name in own]


def _curves(groups: Sequence[Group]) -> Content:
    lines = []
    for group in groups:
        curves = [report.precision_recall for report in group.reports]
        recall = np.mean([curve.recall for curve in curves], axis=0)
        precision = np.mean([curve.precision for curve in curves], axis=0)
        notes = [
            f"radius {r}: precision {p:.3f}, recall {c:.3f}"
            for r, (p, c) in enumerate(zip(precision, recall, strict=True))
        ]
        lines.append(Series(group.name, recall, precision, notes))
    return {
        "legend": [(group.name, swatch(number)) for number, group in enumerate(groups)],
        "chart": line_chart(lines, x="recall", y="precision"),
        "lookup": _lookup(groups),
    }


def _lookup(groups: Sequence[Group]) -> list[tuple[object, ...]]:
    """Rows about radius 2; none for reports of version 0.1, which do not have these numbers."""
    reports = [report for group in groups for report in group.reports]
    if any(report.distinct_codes is None for report in reports):
        return []
    return [
        (
            named(number, group),
            mean_text([report.precision_radius_2 for report in group.reports], ".4f"),
            mean_text([report.nonempty_radius_2 for report in group.reports], ".1%"),
            mean_text([report.distinct_codes or 0 for report in group.reports], ",.0f"),
        )
        for number, group in enumerate(groups)
    ]


def class_content(groups: Sequence[Group]) -> Content:
    """Average precision of each class in each group.

    Args:
        groups: The groups of one comparison.

    Returns:
        Variables of the template; `rows` are (class, one value or None per group), hardest first.
    """
    names = groups[0].runs[0].classes
    columns = [_class_means(group) for group in groups]
    present = sorted({number for column in columns for number in column})

    def mean(number: int) -> float:
        return float(np.mean([column[number] for column in columns if number in column]))

    return {
        "groups": [group.name for group in groups],
        "rows": [
            (names[number], [column.get(number) for column in columns])
            for number in sorted(present, key=mean)
        ],
        "few": FEW_CLASSES,
        "ends": ENDS,
    }


def _class_means(group: Group) -> dict[int, float]:
    """AP of each class: mean over the runs that have queries of it."""
    stored = [report.per_class for report in group.reports]
    numbers = sorted({number for own in stored for number in own})
    return {
        number: float(np.mean([own[number] for own in stored if number in own]))
        for number in numbers
    }


def _queries(groups: Sequence[Group], pictures: Pictures | str, seed: int) -> Content:
    if isinstance(pictures, str):
        return {"problem": pictures}
    sheets = []
    for group in groups[:SHEETS]:
        run, ap = group.runs[0], group.reports[0].average_precision
        hardest, drawn = choose(ap, seed=seed)
        sheets.append(
            {
                "title": run_title(group),
                "hardest": neighbor_rows(run, pictures, hardest, ap),
                "random": neighbor_rows(run, pictures, drawn, ap),
            }
        )
    return {
        "problem": "",
        "neighbors": NEIGHBORS,
        "sheets": sheets,
        "left_out": len(groups[SHEETS:]),
    }


def _shared(name: str, groups: Sequence[Group]) -> str:
    """The value of a setting that is equal in all groups that have it."""
    having = [group.settings for group in groups if name in group.settings]
    methods = ", ".join(sorted({settings["method"] for settings in having}))
    suffix = "" if len(having) == len(groups) else f" (only: {methods})"
    return format_setting(having[0][name]) + suffix


def _run_row(run: EvaluatedRun) -> tuple[object, ...]:
    values = (run.record.get(name) for name in _RUN_COLUMNS)
    blanks = ("–" if value is None else value for value in values)
    return (str(run.folder), f"{run.report['map']:.4f}", *blanks)
