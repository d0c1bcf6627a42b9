"""A tiny version of every recipe, to see on a CPU and in minutes that all of it works; its numbers mean nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..data import find_dataset
from .recipes import Cell, Recipe

# Handwritten digits stand for the data sets, a very small network for the backbones, and 64 bits, which the figures need, for
# all lengths.
_STANDS_FOR = {"voc2012": "digit-pairs", "nuswide21": "digit-pairs"}
_SETTINGS: dict[str, Any] = {"epochs": 1, "batch": 64, "size": 32}
_FOR = {
    "ksh": {"ksh_anchors": 50, "ksh_refinements": 5},
    "sdh": {"sdh_anchors": 100, "sdh_iterations": 2},
}
_NOT_SMALL = ("size", "encode_size", "compile", "partial_weights")
_POINTS, _VALUES, BITS = 2, 3, 64


def shrink(recipe: Recipe) -> Recipe:
    """The same recipe with few, small cells: one length, one seed, two points of each grid, three of the values that vary."""
    trials, points = {}, {}
    for (dataset, method), own in recipe.trials.items():
        key = (_stand_in(dataset), method)
        trials[key] = [_small(trial) for trial in own[:_POINTS]]
        points[key] = recipe.points[dataset, method][:_POINTS]
    rows: dict[tuple[str, str], dict[Cell, None]] = {}
    for cell in recipe.cells:
        if cell.bits == BITS and cell.seed == 0:
            rows.setdefault((_stand_in(cell.dataset), cell.method), {})[_small(cell)] = None
    cells = [cell for found in rows.values() for cell in _some(list(found))]
    return replace(recipe, cells=cells, trials=trials, points=points)


def _stand_in(dataset: str) -> str:
    return _STANDS_FOR.get(dataset, "digits")


def _small(cell: Cell) -> Cell:
    dataset = _stand_in(cell.dataset)
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
    """The first, the last, and those evenly between."""
    count = min(_VALUES, len(cells))
    return [cells[round(place * (len(cells) - 1) / max(1, count - 1))] for place in range(count)]
