"""A tiny version of every recipe, which runs on a CPU in minutes. Its numbers are meaningless."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..data import find_dataset
from .recipes import Cell, Recipe

# Handwritten digits replace the data sets, a very small network the backbones, and 64 bits, which
# the figures need, all lengths.
_REPLACEMENTS = {"voc2012": "digit-pairs", "nuswide21": "digit-pairs"}
_SETTINGS: dict[str, Any] = {"epochs": 1, "batch_size": 64, "size": 32}
_FOR = {
    "ksh": {"ksh_anchors": 50, "ksh_refinements": 5},
    "sdh": {"sdh_anchors": 100, "sdh_iterations": 2},
}
_NOT_SMALL = ("size", "encode_size", "compile", "partial_weights")
_POINTS, _VALUES, BITS = 2, 3, 64


def shrink(recipe: Recipe) -> Recipe:
    """Shrink a recipe to few, small cells.

    Args:
        recipe: A recipe.

    Returns:
        The recipe with one length, one seed, two points per grid and three varied values.
    """
    trials, points = {}, {}
    for (dataset, method), own in recipe.trials.items():
        key = (_replacement(dataset), method)
        trials[key] = [_small(trial) for trial in own[:_POINTS]]
        points[key] = recipe.points[dataset, method][:_POINTS]
    rows: dict[tuple[str, str], dict[Cell, None]] = {}
    for cell in recipe.cells:
        if cell.bits == BITS and cell.seed == 0:
            rows.setdefault((_replacement(cell.dataset), cell.method), {})[_small(cell)] = None
    cells = [cell for found in rows.values() for cell in _some(list(found))]
    return replace(recipe, cells=cells, trials=trials, points=points)


def _replacement(dataset: str) -> str:
    return _REPLACEMENTS.get(dataset, "digits")


def _small(cell: Cell) -> Cell:
    dataset = _replacement(cell.dataset)
    own = {key: value for key, value in cell.settings.items() if key not in _NOT_SMALL}
    return replace(
        cell,
        dataset=dataset,
        backbone="test_efficientnet",
        protocol=find_dataset(dataset).protocol,
        depths=(100,) if cell.depths else (),
        settings={**own, **_SETTINGS, **_FOR.get(cell.method, {})},
    )


def _some(cells: list[Cell]) -> list[Cell]:
    """The first, the last, and evenly spaced ones between them."""
    count = min(_VALUES, len(cells))
    return [cells[round(place * (len(cells) - 1) / max(1, count - 1))] for place in range(count)]
