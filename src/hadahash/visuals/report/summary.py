"""The numbers of a report page as JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ...evaluation import Report
from ...runs import EvaluatedRun
from .groups import Comparison, Group
from .measures import CodeFigures, Measured, saturated


def summarize(out: str | Path, comparisons: list[Comparison], measured: Measured) -> dict[str, Any]:
    """Return the numbers on the page as JSON values.

    Args:
        out: The page.
        comparisons: The comparisons on the page.
        measured: Statistics of the codes of each run.

    Returns:
        A dictionary of plain numbers, texts and lists.
    """
    return {
        "page": str(out),
        "comparisons": [
            {
                "dataset": comparison.first.record["dataset"],
                "protocol": comparison.first.record["protocol"],
                "depth": comparison.first.report["depth"],
                "groups": [_group(group, measured) for group in comparison.groups],
            }
            for comparison in comparisons
        ],
    }


def _group(group: Group, measured: Measured) -> dict[str, Any]:
    maps = [report.map for report in group.reports]
    return {
        "name": group.name,
        "settings": group.settings,
        "map": {
            "mean": group.mean_map,
            "sd": float(np.std(maps, ddof=1)) if len(maps) > 1 else None,
            "n": len(maps),
        },
        "runs": [
            _run(run, report, measured[run.folder])
            for run, report in zip(group.runs, group.reports, strict=True)
        ],
    }


def _run(run: EvaluatedRun, report: Report, figures: CodeFigures) -> dict[str, Any]:
    return {
        "folder": str(run.folder),
        "seed": run.record["seed"],
        "map": report.map,
        "chance": None if np.isnan(report.chance) else report.chance,
        "rankings": {name: own.map for name, own in report.rankings.items()},
        "map_by_training": report.map_by_training,
        "known_item": {
            rank: dict(zip(("recall_1", "recall_10"), report.known_item_recall(rank), strict=True))
            for rank in report.known_item
        },
        **_codes(figures),
        "saturated": saturated(run.values),
    }


def _codes(figures: CodeFigures) -> dict[str, Any]:
    both = {"class_distance": figures.observed, "codebook_distance": figures.book}
    return {
        "mean_bit_correlation": float(figures.pairs.mean()),
        "max_bit_correlation": float(figures.pairs.max()),
    } | {
        name: quality and {"minimum": quality.minimum_distance, "mean": quality.mean_distance}
        for name, quality in both.items()
    }
