"""Parts of messages that several commands print."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager


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


@contextmanager
def reading_bar(total: int, *, shown: bool) -> Iterator[Callable[[int], object]]:
    """Show how many images have been read, and the time left, on stderr.

    Args:
        total: Number of images.
        shown: Whether to show the bar.

    Yields:
        A function that advances the bar by a number of images.
    """
    from rich.console import Console  # light commands start faster
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    bar = Progress(
        TextColumn("reading images"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not shown,
    )
    with bar:
        task = bar.add_task("reading", total=total)
        yield lambda count: bar.advance(task, count)
