"""The figures of a report for programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from .groups import Comparison, Group
from .measures import CodeFigures, Measured, saturated


def summary(out: str | Path, comparisons: list[Comparison], measured: Measured) -> dict[str, Any]:
    """What the page shows, as JSON has it."""
    return {
        "page": str(out),
        "comparisons": [
            {
                "dataset": comparison.first.about["dataset"],
                "protocol": comparison.first.about["protocol"],
                "depth": comparison.first.report["depth"],
                "groups": [_group(group, measured) for group in comparison.groups],
            }
            for comparison in comparisons
        ],
    }


def _group(group: Group, measured: Measured) -> dict[str, Any]:
    maps = [run.report["map"] for run in group.runs]
    return {
        "name": group.name,
        "settings": group.settings,
        "map": {
            "mean": float(np.mean(maps)),
            "sd": float(np.std(maps, ddof=1)) if len(maps) > 1 else None,
            "n": len(maps),
        },
        "runs": [
            {
                "folder": str(run.folder),
                "seed": run.about["seed"],
                "map": run.report["map"],
                **_codes(measured[run.folder]),
            }
            | {"saturated": saturated(run.values)}
            for run in group.runs
        ],
    }


def _codes(figures: CodeFigures) -> dict[str, Any]:
    observed, book = figures.observed, figures.book
    return {
        "mean_bit_correlation": float(figures.pairs.mean()),
        "max_bit_correlation": float(figures.pairs.max()),
        "class_distance": {"minimum": observed.minimum_distance, "mean": observed.mean_distance}
        if observed
        else None,
        "codebook_distance": {"minimum": book.minimum_distance, "mean": book.mean_distance}
        if book
        else None,
    }
