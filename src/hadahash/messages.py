"""Parts of messages that several commands print."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from functools import partial

INTERVAL = 30.0  # seconds between two lines of progress


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


def speed_text(speed: float | None) -> str:
    """Describe a number of steps per second.

    Args:
        speed: Steps per second; None if it is not known yet.

    Returns:
        The text; empty if the speed is not known.

    Example:
        >>> speed_text(1234.5), speed_text(3.21), speed_text(None)
        ('1,234/s', '3.2/s', '')
    """
    if speed is None:
        return ""
    return f"{speed:,.0f}/s" if speed >= 10 else f"{speed:.1f}/s"


class ProgressLines:
    """Progress for a log file: a line about every 30 seconds, nothing for a short job.

    Args:
        title: The text before the numbers.
        total: Number of steps; None if it is not known.
        write: Receives the lines.
    """

    def __init__(self, title: str, total: int | None, write: Callable[[str], object]) -> None:
        self._title, self._total, self._write = title, total, write
        self._done, self._written, self._time = 0, 0, time.monotonic()

    def __call__(self, count: int) -> None:
        """Advance by a number of steps."""
        self._done += count
        now = time.monotonic()
        if now - self._time < INTERVAL:
            return
        speed = (self._done - self._written) / (now - self._time)  # since the last line
        self._write(f"{self._title}: {self._text(speed)}")
        self._written, self._time = self._done, now

    def _text(self, speed: float) -> str:
        if self._total is None:
            return f"{self._done:,}, {speed_text(speed)}"
        left = timedelta(seconds=round(max(self._total - self._done, 0) / speed)) if speed else "?"
        return f"{self._done:,} of {self._total:,}, {speed_text(speed)}, {left} left"


def is_terminal() -> bool:
    """Return whether stderr is a terminal."""
    from rich.console import Console  # light commands start faster

    return Console(stderr=True).is_terminal


@contextmanager
def reading_bar(total: int, *, shown: bool) -> Iterator[Callable[[int], object]]:
    """Show how many images have been read, and the time left, on stderr; see `ProgressLines`.

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

    console = Console(stderr=True)
    if shown and not console.is_terminal:
        yield ProgressLines("reading images", total, partial(console.print, highlight=False))
        return
    bar = Progress(
        TextColumn("reading images"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not shown,
    )
    with bar:
        task = bar.add_task("reading", total=total)
        yield lambda count: bar.advance(task, count)
