"""Output of all commands: results on stdout, everything else on stderr."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

from ..messages import ProgressLines, is_terminal, speed_text

if TYPE_CHECKING:
    from ..pace import Pace

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


@contextmanager
def progress(title: str, total: int | None) -> Iterator[Advance]:
    """Show done, total, speed and time left: a bar on a terminal, a line every 30 s elsewhere.

    Args:
        title: The text before the bar.
        total: Number of steps; None if it is not known.

    Yields:
        A function that advances the bar by a number of steps.
    """
    if not is_terminal():
        yield ProgressLines(title, total, info)
        return
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
    )
    with bar:
        task = bar.add_task(title, total=total)
        yield lambda count: bar.advance(task, count)


def show_pace(pace: Pace) -> None:
    """Print how fast images were encoded, on stderr; nothing if there were none.

    Args:
        pace: The measurement.
    """
    if pace.images:
        info(str(pace))


def _printable(text: str) -> str:
    """Replace characters that are not valid Unicode, such as file names in another encoding."""
    return re.sub("[\ud800-\udfff]", "\ufffd", text)
