"""Many requests at once: how many may wait, and how those that wait are worked on together."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Generic, TypeVar

from .problems import busy

Q = TypeVar("Q")
A = TypeVar("A")


class Gate:
    """Lets so many requests in; whoever comes when it is full is told to come back."""

    def __init__(self, places: int) -> None:
        self.places, self.taken = places, 0

    def __enter__(self) -> None:
        if self.taken >= self.places:
            raise busy()
        self.taken += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.taken -= 1


class Batcher(Generic[Q, A]):
    """Answers questions in a thread of its own, as many at once as have gathered while it worked on those before.

    Nobody waits for a batch to fill: a question that comes alone is answered alone.
    """

    def __init__(
        self, work: Callable[[list[Q]], list[A]], *, most: int, seen: Callable[[int], object]
    ) -> None:
        self._work, self._most, self._seen = work, most, seen
        self._waiting: deque[tuple[Q, asyncio.Future[A]]] = deque()
        self._thread = ThreadPoolExecutor(1)
        self._running: asyncio.Task[None] | None = None

    async def ask(self, question: Q) -> A:
        future: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        self._waiting.append((question, future))
        if self._running is None:
            self._running = asyncio.create_task(self._run())
        return await future

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            batch = [self._waiting.popleft() for _ in range(min(self._most, len(self._waiting)))]
            self._seen(len(batch))
            job = loop.run_in_executor(
                self._thread, self._work, [question for question, _ in batch]
            )
            await asyncio.wait([job])
            _hand_out(job, [future for _, future in batch])
        self._running = None

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)


def _hand_out(job: asyncio.Future[list[A]], futures: list[asyncio.Future[A]]) -> None:
    """Each asker gets its answer, or the error that concerns them all; those who have gone get nothing."""
    error = job.exception()
    for place, future in enumerate(futures):
        if future.done():
            continue
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(job.result()[place])
