"""Work that requests share, instead of repeating it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Generic, TypeVar

T = TypeVar("T")


class Joined(Generic[T]):
    """Runs work once for all callers that wait for it.

    A run that is in progress may have read an older state, so callers that arrive meanwhile share
    the next run. A caller that is cancelled, for example by a time limit, does not end a run.

    Args:
        work: Starts one run.
    """

    def __init__(self, work: Callable[[], Awaitable[T]]) -> None:
        self._work = work
        self._running: asyncio.Task[T] | None = None
        self._next: asyncio.Task[T] | None = None

    async def run(self) -> T:
        """Return the result of a run that starts after this call."""
        if self._running is None:
            self._running = _created(self._run(None))
            return await asyncio.shield(self._running)
        if self._next is None:
            self._next = _created(self._run(self._running))
        return await asyncio.shield(self._next)

    async def _run(self, before: asyncio.Task[T] | None) -> T:
        if before is not None:
            await asyncio.wait([before])
            self._running, self._next = self._next, None
        try:
            return await self._work()
        finally:
            if self._next is None:
                self._running = None


def _created(run: Coroutine[None, None, T]) -> asyncio.Task[T]:
    task = asyncio.create_task(run)
    task.add_done_callback(_retrieve)
    return task


def _retrieve(task: asyncio.Task[T]) -> None:
    """The error was raised, or nobody waits for it any more."""
    if not task.cancelled():
        task.exception()
