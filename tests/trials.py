"""Repeated trials: how many, with which random numbers, and what came of them.

By default a test makes a few trials. With HADAHASH_TORTURE=1 (`make torture`) it makes many, and
adds a row to bench/results/torture.jsonl. Variables of the environment:

    HADAHASH_TORTURE_SECONDS   make trials for this long in each test, however many
    HADAHASH_TORTURE_SCALE     multiply the number of trials
    HADAHASH_TORTURE_SEED      another sequence of random numbers; 0 by default
    HADAHASH_TORTURE_ONLY      repeat the trial with this number
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
import zlib
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from types import TracebackType

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "bench" / "results" / "torture.jsonl"
MAX_FAILURES = 20  # then a test ends


class Lost(AssertionError):
    """Something acknowledged is gone."""


class Crashed(Exception):
    """A process died, hung, or raised something that is not an error of the library."""


def is_long() -> bool:
    """Whether the long variant runs."""
    return os.environ.get("HADAHASH_TORTURE") == "1"


def seed() -> int:
    return int(os.environ.get("HADAHASH_TORTURE_SEED", "0"))


class Trial:
    """One trial. Used as a context, it counts what is raised inside and goes on."""

    def __init__(self, trials: Trials, number: int) -> None:
        self.number, self.trials = number, trials
        self.rng = np.random.default_rng([seed(), zlib.crc32(trials.what.encode()), number])

    def __enter__(self) -> Trial:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        if error is None:
            self.trials.count("survived")
            return True
        if not isinstance(error, Exception):
            return False
        outcome = "lost" if isinstance(error, Lost) else "crashed"
        if isinstance(error, AssertionError) and outcome != "lost":
            outcome = "wrong"
        place = ""
        while traceback is not None:
            place = f"{Path(traceback.tb_frame.f_code.co_filename).name}:{traceback.tb_lineno}"
            traceback = traceback.tb_next
        self.trials.count(outcome)
        text = " ".join(str(error).split())[:500]
        self.trials.failures.append(
            f"trial {self.number}: {outcome}: {type(error).__name__}: {text} ({place})"
        )
        return True


class Trials:
    """The trials of one test.

    Attributes:
        area: Such as "index".
        what: What is tried; a row of the table.
        outcomes: Number of trials by outcome.
        failures: One line for each trial that was not survived.
    """

    def __init__(self, area: str, what: str) -> None:
        self.area, self.what = area, what
        self.outcomes = dict.fromkeys(("survived", "lost", "wrong", "crashed"), 0)
        self.failures: list[str] = []
        self._started = time.monotonic()

    def count(self, outcome: str, number: int = 1) -> None:
        self.outcomes[outcome] += number

    def numbers(self, short: int, long: int) -> Iterator[Trial]:
        """The trials: `short` of them, or `long`, or as many as there is time for."""
        seconds = os.environ.get("HADAHASH_TORTURE_SECONDS")
        only = os.environ.get("HADAHASH_TORTURE_ONLY")
        scale = float(os.environ.get("HADAHASH_TORTURE_SCALE", "1"))
        if only is not None:
            yield Trial(self, int(only))
            return
        limit = max(1, round(long * scale)) if is_long() else short
        number = 0
        while len(self.failures) < MAX_FAILURES:
            if is_long() and seconds is not None:
                if time.monotonic() - self._started > float(seconds):
                    return
            elif number >= limit:
                return
            yield Trial(self, number)
            number += 1

    def finish(self) -> None:
        """Store the row of a long run, and fail if a trial was not survived."""
        if is_long() and sum(self.outcomes.values()):
            RESULTS.parent.mkdir(parents=True, exist_ok=True)
            with RESULTS.open("a") as file:
                file.write(json.dumps(self.row()) + "\n")
        assert not self.failures, "\n".join(["", *self.failures])

    def row(self) -> dict[str, object]:
        return {
            "area": self.area,
            "what": self.what,
            "tried": sum(self.outcomes.values()),
            **self.outcomes,
            "seed": seed(),
            "seconds": round(time.monotonic() - self._started, 1),
            "date": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M"),
            "commit": _commit(),
            "python": platform.python_version(),
            "machine": platform.machine(),
            "failures": self.failures,
        }


@pytest.fixture
def trials() -> Iterator[Callable[[str, str], Trials]]:
    """trials(area, what): the trials of a test, stored and checked at its end."""
    made: list[Trials] = []

    def make(area: str, what: str) -> Trials:
        made.append(Trials(area, what))
        return made[-1]

    yield make
    for each in made:
        each.finish()


def _commit() -> str:
    command = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip()
