"""Time per stage of a request."""

from __future__ import annotations

import time

from .metrics import Metrics


class StageTimer:
    """Measures the stages of one request in milliseconds.

    Args:
        metrics: Records every stage.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._started = self._lap = time.perf_counter()
        self._stages = {"decode": 0.0, "encode": 0.0, "search": 0.0}

    def stage(self, name: str) -> None:
        """Assign the time since the previous stage to this one."""
        now = time.perf_counter()
        self._stages[name] = 1000 * (now - self._lap)
        self._metrics.stages.labels(name).observe(now - self._lap)
        self._lap = now

    def skip(self) -> None:
        """Assign the time since the previous stage to none."""
        self._lap = time.perf_counter()

    def elapsed(self) -> dict[str, float]:
        """Return the milliseconds per stage, and in total."""
        total = 1000 * (time.perf_counter() - self._started)
        return {name: round(ms, 3) for name, ms in {**self._stages, "total": total}.items()}
