"""Parts of the report about the codes: bits, distances between classes, outputs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...evaluation.analysis import histogram
from ...runs import EvaluatedRun
from ..charts import bit_bars, heat_map, histogram_bars
from .formatting import Content, mean_text, named, run_title
from .groups import Group
from .measures import CodeFigures, Measured, class_distances, nearest_classes, saturated

_BINS = 40  # of a histogram
_PAIRS = 5  # closest pairs of classes


def bits_content(groups: Sequence[Group], measured: Measured) -> Content:
    """Balance and correlation of bits.

    Args:
        groups: The groups of one comparison.
        measured: Statistics of the codes of each run.

    Returns:
        Variables of the template.
    """
    rows = []
    for number, group in enumerate(groups):
        balance = [report.bit_balance for report in group.reports]
        pairs = [measured[run.folder].pairs for run in group.runs]
        rows.append(
            (
                named(number, group),
                mean_text([np.abs(own - 0.5).mean() for own in balance], ".3f"),
                mean_text([np.abs(own - 0.5).max() for own in balance], ".3f"),
                mean_text([np.isin(own, (0, 1)).sum() for own in balance], "g"),
                mean_text([own.mean() for own in pairs], ".3f"),
                mean_text([own.max() for own in pairs], ".3f"),
            )
        )
    return {
        "head": (
            *("", "mean |fraction of +1 - ½|", "largest", "constant bits"),
            *("mean |correlation|", "largest"),
        ),
        "rows": rows,
        "cards": [(run_title(group), _bit_card(group, measured)) for group in groups],
    }


def _bit_card(group: Group, measured: Measured) -> Content:
    figures = measured[group.runs[0].folder]
    off_diagonal = figures.correlation - np.diag(np.diagonal(figures.correlation))
    mean, largest = figures.pairs.mean(), figures.pairs.max()
    label = f"|correlation| of bits: mean {mean:.3f}, largest {largest:.3f}"
    return {
        "balance": bit_bars(group.reports[0].bit_balance),
        "correlation": heat_map(off_diagonal, label),
    }


def distances_content(groups: Sequence[Group], measured: Measured) -> Content:
    """Distances between the codes of classes.

    Args:
        groups: The groups of one comparison.
        measured: Statistics of the codes of each run.

    Returns:
        Variables of the template.
    """
    rows: list[tuple[object, ...]] = []
    for number, group in enumerate(groups):
        own = [measured[run.folder] for run in group.runs]
        seen = [each.observed for each in own if each.observed]
        books = [each.book for each in own if each.book]
        rows.append(
            (
                named(number, group),
                mean_text([each.minimum_distance for each in seen]),
                mean_text([each.mean_distance for each in seen]),
                mean_text([each.duplicates for each in seen]),
                mean_text([each.minimum_distance for each in books]),
                mean_text([each.met * len(each.present) for each in own if each.met is not None]),
            )
        )
    head = [
        *("", "smallest distance", "mean distance", "duplicate codes"),
        *("smallest in the codebook", "classes at their codeword"),
    ]
    if all(row[-1] == "–" for row in rows):  # no run has a codebook
        head, rows = head[:-2], [row[:-2] for row in rows]
    cards = [
        (run_title(group), distance_card(group.runs[0], measured[group.runs[0].folder]))
        for group in groups
    ]
    return {"head": head, "rows": rows, "cards": cards}


def distance_card(run: EvaluatedRun, figures: CodeFigures) -> Content:
    """Closeness of the classes of one run.

    Args:
        run: The run.
        figures: Statistics of its codes.

    Returns:
        `closeness`, a chart or None, and `pairs`, the closest pairs of classes.
    """
    if len(figures.present) < 2:
        return {"closeness": None, "pairs": []}
    distances = class_distances(figures.majority)
    near = 1 - distances / run.database.bits
    np.fill_diagonal(near, 0)
    names = [run.classes[number] for number in figures.present]
    closest = nearest_classes(figures.majority, names, _PAIRS)
    rows: list[tuple[str, int]] = [(f"{first} – {second}", bits) for first, second, bits in closest]
    last = closest[-1][2]
    more = int((distances[np.triu_indices(len(names), 1)] <= last).sum()) - len(closest)
    rows += [(f"and {more:,} more", last)] if more else []
    label = f"closeness of the codes of {len(names)} classes"
    return {"closeness": heat_map(near, label), "pairs": rows}


def outputs_content(groups: Sequence[Group]) -> Content:
    """Distribution of outputs before binarization.

    Args:
        groups: The groups of one comparison.

    Returns:
        Variables of the template.
    """
    rows = []
    for number, group in enumerate(groups):
        fractions = [saturated(run.values) for run in group.runs]
        bounded = [fraction for fraction in fractions if fraction is not None]
        text = mean_text(bounded, ".1%") if bounded else "– (not bounded)"
        rows.append((named(number, group), text))
    cards = [
        (run_title(group), histogram_bars(*histogram(group.runs[0].values, bins=_BINS)[:2]))
        for group in groups
    ]
    return {"rows": rows, "cards": cards}
