"""What all commands share in talking to a person."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ..encoding import Progress as Advance


def info(text: str) -> None:
    """A line about what goes on, on stderr, so that stdout stays for results."""
    typer.echo(text, err=True)


def result(text: str) -> None:
    """A line of the result, on stdout; of names that are not Unicode, what can be shown."""
    typer.echo(text.encode("utf-8", "surrogatepass").decode("utf-8", "replace"))


def as_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2))


def is_interactive() -> bool:
    """Is a person looking at stderr?"""
    return Console(stderr=True).is_terminal


@contextmanager
def progress(title: str, total: int | None) -> Iterator[Advance]:
    bar = Progress(
        TextColumn(title),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not is_interactive(),
    )
    with bar:
        task = bar.add_task(title, total=total)
        yield lambda count: bar.advance(task, count)
