"""The leaderboard: every measured number with seeds, interval and command."""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from .. import files
from ..data import find_dataset
from .collected import Record
from .intervals import t_interval
from .names import display_name
from .recipe_trials import NAME as RECIPE
from .recipes import Recipe
from .tables import listed, row_name

Entry = dict[str, Any]
_MARK = "/*ENTRIES*/[]"
_MEASURES = {"mAP@all": "all", "mAP@1000": "1000_found"}


def write_leaderboard(
    recipes: Sequence[Recipe],
    plans: Mapping[str, Sequence[Record]],
    results: Path,
    docs: Path,
) -> list[Path]:
    """Write docs/leaderboard.html and docs/tables/leaderboard.json.

    Args:
        recipes: All recipes.
        plans: Records by name of the plan.
        results: Folder of the results.
        docs: Folder of the documents.

    Returns:
        The files that were written.
    """
    entries = _of_recipes(recipes, results)
    for name, records in plans.items():
        entries += _of_plan(name, records)
    paths = [docs / "leaderboard.html", docs / "tables" / "leaderboard.json"]
    data = json.dumps(entries, ensure_ascii=False, indent=0)
    page = (resources.files(__package__) / "leaderboard.html").read_text("utf-8")
    files.write_text(paths[0], page.replace(_MARK, data.replace("</", "<\\/")))
    files.write_text(paths[1], data + "\n")
    return paths


def _of_recipes(recipes: Sequence[Recipe], results: Path) -> list[Entry]:
    found: dict[tuple[str, str, str, int], list[tuple[str, Any]]] = defaultdict(list)
    seen: set[Path] = set()  # a cell may belong to several recipes
    for recipe in recipes:
        for cell in recipe.cells:
            path = cell.path(results)
            if path not in seen and path.exists() and not cell.is_degenerate(results):
                seen.add(path)
                own = files.read_json(path)
                key = (recipe.name, cell.dataset, row_name(cell), cell.bits)
                found[key].append((f"{cell.dataset}/{cell.name}", own))
    entries = []
    for (recipe_name, dataset, row, bits), own in found.items():
        measure = f"mAP@{find_dataset(dataset).depth or 'all'}"
        facts = own[0][1]
        about = {
            "source": recipe_name,
            "backbone": facts["backbone"],
            "pixels": facts["preprocess"]["train_size"],
        }
        values = {name: result["map"] for name, result in own}
        entries.append(_entry(dataset, row, bits, measure, values) | about)
    return entries


def _of_plan(plan: str, records: Sequence[Record]) -> list[Entry]:
    groups: dict[tuple[str, str, int, str], list[Record]] = defaultdict(list)
    for record in records:
        if "map" in record and "-repeat" not in record["name"]:
            for measure, key in _MEASURES.items():
                if key in record["maps"]:
                    row = f"recipe: {_row(record)}" if plan == RECIPE else _row(record)
                    group = record["dataset"], row, record["bits"], measure
                    groups[group].append(record)
    entries = []
    for (dataset, row, bits, measure), own in groups.items():
        values = {
            f"{plan}/{dataset}/{record['name']}": record["maps"][_MEASURES[measure]]
            for record in own
        }
        about = {
            "source": plan,
            "backbone": own[0]["backbone"],
            "pixels": own[0]["preprocess"]["train_size"],
        }
        entries.append(_entry(dataset, row, bits, measure, values) | about)
    return entries


def _row(record: Record) -> str:
    """The method with its codebook, and other settings that vary."""
    varied = dict(record["varied"])
    codebook = varied.pop("codebook", None)
    shown = display_name(record["method"]) + (f" ({codebook})" if codebook else "")
    return ", ".join(filter(None, [shown, listed(varied)]))


def _entry(dataset: str, row: str, bits: int, measure: str, found: Mapping[str, float]) -> Entry:
    """One row; `found` has the values by the name of their cell."""
    values = list(found.values())
    interval = t_interval(values)
    several = len(values) > 1
    return {
        "dataset": display_name(dataset),
        "method": row,
        "bits": bits,
        "measure": measure,
        "mean": round(interval.mean, 4),
        "sd": round(statistics.stdev(values), 4) if several else None,
        "low": round(interval.low, 4) if several else None,
        "high": round(interval.high, 4) if several else None,
        "seeds": len(values),
        "command": f"hadahash reproduce check {' '.join(found)}",
    }
