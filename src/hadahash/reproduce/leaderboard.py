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
from .recipes import Recipe
from .tables import row_name

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
        values = [result["map"] for _, result in own]
        entries.append(_entry(dataset, row, bits, measure, values, own[0][0]) | about)
    return entries


def _of_plan(plan: str, records: Sequence[Record]) -> list[Entry]:
    groups: dict[tuple[str, str, int, str], list[Record]] = defaultdict(list)
    for record in records:
        arm = set(record["varied"]) <= {"codebook"} and "-repeat" not in record["name"]
        if "map" in record and arm:
            codebook = record["varied"].get("codebook")
            row = display_name(record["method"])
            row += f" ({codebook})" if codebook else ""
            for measure in _MEASURES:
                groups[record["dataset"], row, record["bits"], measure].append(record)
    entries = []
    for (dataset, row, bits, measure), own in groups.items():
        values = [record["maps"][_MEASURES[measure]] for record in own]
        name = f"{plan}/{dataset}/{own[0]['name']}"
        about = {
            "source": plan,
            "backbone": own[0]["backbone"],
            "pixels": own[0]["preprocess"]["train_size"],
        }
        entries.append(_entry(dataset, row, bits, measure, values, name) | about)
    return entries


def _entry(
    dataset: str, row: str, bits: int, measure: str, values: Sequence[float], name: str
) -> Entry:
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
        "command": f"hadahash reproduce check {name}",
    }
