"""Text that several parts of the report share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from markupsafe import Markup

from ..charts import swatch
from .groups import Group

Content = dict[str, Any]  # variables of a template


def run_title(group: Group) -> str:
    """Title of a chart or sheet that shows the first run of a group.

    Args:
        group: The group.

    Returns:
        Its name, with the seed if there are several runs.
    """
    return group.name + (f", seed {group.seeds[0]}" if len(group.runs) > 1 else "")


def named(number: int, group: Group) -> Markup:
    """The name of a group with a piece of its line in the charts.

    Args:
        number: Position of the group in its comparison.
        group: The group.

    Returns:
        The first cell of a table row.
    """
    return Markup("{} {}").format(swatch(number), group.name)


def mean_text(values: Iterable[Any], form: str = ".4g") -> str:
    """The mean of some numbers as text.

    Args:
        values: The numbers.
        form: Format specification.

    Returns:
        The text; a dash if `values` is empty.

    Example:
        >>> mean_text([1, 2]), mean_text([])
        ('1.5', '–')
    """
    numbers = [float(value) for value in values]
    return format(float(np.mean(numbers)), form) if numbers else "–"
