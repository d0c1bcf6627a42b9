"""Time per stage of a request."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from typing import TypeVar

from ..problem import busy
from .metrics import Metrics

T = TypeVar("T")


async def within(awaited: Awaitable[T], seconds: float) -> T:
    """Wait for the index, but not for ever: Milvus may not respond.

    Args:
        awaited: Work in another thread. It is not interrupted.
        seconds: Time limit.

    Returns:
        The result.

    Raises:
        Problem: 503, if it takes longer.
    """
    try:
        return await asyncio.wait_for(awaited, seconds)
    except asyncio.TimeoutError:
        raise busy("The index does not respond.") from None


async def settled(future: asyncio.Future[T], seconds: float) -> T:
    """Wait for a future that nobody else waits for, as `within`, but without a task of its own.

    Args:
        future: A future that is set by a callback, which checks whether it is done.
        seconds: Time limit.

    Returns:
        The result.

    Raises:
        Problem: 503, if it takes longer.
    """
    timer = future.get_loop().call_later(seconds, _expire, future)
    try:
        return await future
    finally:
        timer.cancel()


def _expire(future: asyncio.Future[T]) -> None:
    if not future.done():
        future.set_exception(busy("The index does not respond."))


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
