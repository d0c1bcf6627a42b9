"""The log of a run: one JSON object a line, always; a progress bar where a person watches."""

from __future__ import annotations

import json
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from ..files import storage_error, write_text


class Log:
    """Writes `log.jsonl` (when it has a path) and moves the progress bar (when it is asked to)."""

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
        """Forget lines beyond `step`: an interrupted run may have logged work that is now done again."""
        if self.path is not None:
            lines = self.path.read_text().splitlines() if self.path.exists() and step else []
            kept = [line for line in lines if _step(line) <= step]
            write_text(self.path, "".join(f"{line}\n" for line in kept))
        self._bar.update(self._task, total=steps, completed=step)

    def advance(self, step: int) -> None:
        self._bar.update(self._task, completed=step)

    def write(self, **values: Any) -> None:
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
    """The step of a log line; a line that a crash cut off counts as beyond all."""
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return float("inf")
