"""JSON Lines log, and a progress bar on a terminal."""

from __future__ import annotations

import json
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)

from ..files import storage_error, write_text


class Log:
    """Writes the log file and updates the progress bar.

    Args:
        path: The file; None: no file.
        progress: Whether to show a progress bar on stderr.
    """

    def __init__(self, path: Path | None, *, progress: bool) -> None:
        self.path = path
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[note]}"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
            disable=not progress,
        )
        self._task = self._bar.add_task("training", total=None, note="")

    def __enter__(self) -> Log:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def begin(self, step: int, steps: int) -> None:
        """Start at `step` of `steps`; lines of later steps, which are now repeated, are removed."""
        if self.path is not None:
            lines = self.path.read_text().splitlines() if self.path.exists() and step else []
            kept = [line for line in lines if _step(line) <= step]
            write_text(self.path, "".join(f"{line}\n" for line in kept))
        self._bar.update(self._task, total=steps, completed=step)

    def advance(self, step: int) -> None:
        """Update the progress bar."""
        self._bar.update(self._task, completed=step)

    def write(self, **values: Any) -> None:
        """Append one line.

        Raises:
            StorageError: The file cannot be written.
        """
        note = " ".join(
            f"{key} {value:.4f}"
            for key, value in values.items()
            if key in ("loss", "validation_map")
        )
        self._bar.update(self._task, note=note)
        if self.path is not None:
            try:
                with self.path.open("a") as file:
                    file.write(json.dumps(values) + "\n")
            except OSError as error:
                raise storage_error("write", self.path, error) from error


def _step(line: str) -> float:
    """The step of a log line; infinity for a line truncated by a crash."""
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return float("inf")
