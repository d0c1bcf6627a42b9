"""Parts of messages that several commands print."""

from __future__ import annotations

from collections.abc import Mapping


def counts_text(counts: Mapping[str, int], shown: int = 10) -> str:
    """List the most frequent names with their counts, in one line.

    Args:
        counts: A count for each name.
        shown: How many names to list.

    Returns:
        The line; "none" if there is no name.

    Example:
        >>> counts_text({"cat": 3, "dog": 1200, "eel": 2}, shown=2)
        'dog (1,200), cat (3), ... (3 in all)'
    """
    largest = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:shown]
    more = [f"... ({len(counts):,} in all)"] if len(counts) > shown else []
    return ", ".join([*(f"{name} ({count:,})" for name, count in largest), *more]) or "none"
