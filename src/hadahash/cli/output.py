"""Output of all commands: results on stdout, everything else on stderr."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import typer

Advance = Callable[[int], object]


def info(text: str) -> None:
    """Print a message, on stderr.

    Args:
        text: The line. Characters that cannot be encoded are replaced.
    """
    typer.echo(_printable(text), err=True)


def result(text: str) -> None:
    """Print a line of the result, on stdout.

    Args:
        text: The line. Characters that cannot be encoded are replaced.
    """
    typer.echo(_printable(text))


def as_json(value: Any) -> None:
    """Print a value as JSON, on stdout.

    Args:
        value: Anything that `json.dumps` takes.
    """
    typer.echo(json.dumps(value, indent=2))


def is_interactive() -> bool:
    """Return whether stderr is a terminal."""
    from rich.console import Console

    return Console(stderr=True).is_terminal


@contextmanager
def progress(title: str, total: int | None) -> Iterator[Advance]:
    """Show a progress bar with the speed and the time left, on a terminal only.

    Args:
        title: The text before the bar.
        total: Number of steps; None if it is not known.

    Yields:
        A function that advances the bar by a number of steps.
    """
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        Task,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class SpeedColumn(ProgressColumn):
        """Steps per second, in the last seconds."""

        def render(self, task: Task) -> Text:
            return Text(speed_text(task.finished_speed or task.speed), style="progress.data.speed")

    bar = Progress(
        TextColumn(title),
        BarColumn(),
        MofNCompleteColumn(),
        SpeedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not is_interactive(),
    )
    with bar:
        task = bar.add_task(title, total=total)
        yield lambda count: bar.advance(task, count)


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


def _printable(text: str) -> str:
    """Replace characters that are not valid Unicode, such as file names in another encoding."""
    return re.sub("[\ud800-\udfff]", "\ufffd", text)
