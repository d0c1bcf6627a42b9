"""Text of docs/performance.md: paragraphs, and numbers with quartiles."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from typing import Any

from common import QUIET

Result = dict[str, Any]


def count_cores(result: Result) -> int:
    """Cores of the machine of a result."""
    return int(re.findall(r"(\d+) cores", result["hardware"])[0])


def disturbed(result: Result) -> bool:
    """Whether the machine was busy when the measurement began, as far as it was recorded."""
    return bool((result["load_before"] or 0.0) > QUIET * count_cores(result))


def later_runs(result: Result) -> list[str]:
    """The commands that measured parts of a result later."""
    runs = result.get("resumed", [])
    return [f"then parts by `{each['command']}`, {each['date'][:10]}" for each in runs]


def paragraph(*sentences: str) -> list[str]:
    """Sentences as lines of at most 100 columns, and an empty line."""
    text = " ".join(filter(None, sentences))
    return [*textwrap.wrap(text, 100, break_long_words=False, break_on_hyphens=False), ""]


def with_quartiles(value: float, quartiles: Sequence[float] | None, digits: int) -> str:
    """A number, followed by its quartiles if they are known."""
    text = f"{value:.{digits}f}"
    if quartiles is None:
        return text
    low, high = quartiles
    return f"{text} [{low:.{digits}f}, {high:.{digits}f}]"


def time_of(case: Result, way: str, digits: int = 3) -> str:
    """Milliseconds of one way."""
    quartiles = case.get("milliseconds_quartiles", {}).get(way)
    return with_quartiles(case["milliseconds_per_query"][way], quartiles, digits)


def ratio_of(case: Result, name: str, digits: int = 2) -> str:
    """A ratio, empty if it was not measured."""
    if name not in case["ratios"]:
        return ""
    return with_quartiles(case["ratios"][name], case.get("quartiles", {}).get(name), digits)
