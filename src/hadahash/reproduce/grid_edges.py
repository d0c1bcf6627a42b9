"""Where a grid of settings must be extended, because the best point lies at its edge."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

Point = dict[str, Any]


def edges_to_extend(
    points: Sequence[Point], chosen: Point, unordered: Sequence[str] = ()
) -> Iterator[str]:
    """Find the settings whose chosen value is the smallest or largest that was tried.

    Points that train the backbone are compared with each other, and so are those that do not: the
    chosen rate of the backbone alone is compared with all. A setting that varies in the grid, but
    not among the points that are compared, was not tuned either. Points with the same options are
    compared, if there are several: settings that are no numbers, or that only some points name. A
    value of 0 cannot be lowered, and fewer epochs than tried are not asked for.

    Args:
        points: All points of the grid.
        chosen: One of them.
        unordered: Settings whose values have no order.

    Yields:
        For each such setting, where the grid must be extended.

    Example:
        >>> grid = [{"lr": 0.1, "lam": 0}, {"lr": 0.3, "lam": 1}]
        >>> list(edges_to_extend(grid, {"lr": 0.3, "lam": 0}))
        ['lr above 0.3']
    """
    fixed = chosen.get("backbone_lr") == 0
    common = set.intersection(*(set(point) for point in points))
    for key, value in chosen.items():
        if key not in common:
            continue
        group = [p for p in points if key == "backbone_lr" or (p.get("backbone_lr") == 0) == fixed]
        tried = {p[key] for p in group}
        if len(tried) < 2:
            if len({p[key] for p in points}) > 1:
                yield f"{key} with a {'fixed' if fixed else 'trained'} backbone"
            continue
        if key in unordered or isinstance(value, (bool, str)):
            continue
        alike = {p[key] for p in group if _options(p, common) == _options(chosen, common)}
        values = alike if len(alike) > 1 else tried
        if value == max(values):
            yield f"{key} above {value:g}"
        elif value == min(values) and value > 0 and key != "epochs":
            yield f"{key} below {value:g}"


def _options(point: Point, common: Collection[str]) -> Point:
    return {
        key: value
        for key, value in point.items()
        if isinstance(value, (bool, str)) or key not in common
    }
