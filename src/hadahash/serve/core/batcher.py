"""Dynamic batching: jobs that arrive while a batch runs form the next batch."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

Job = TypeVar("Job")
Result = TypeVar("Result")


class Batcher(Generic[Job, Result]):
    """Runs jobs in a separate thread, batched with those that arrived during the previous batch.

    No job waits for a batch to fill: a job that arrives alone runs alone. `max_batch` can be
    changed at any time.

    Args:
        work: Returns one result per job, in order. An exception instead of a result is raised for
            that job only; an exception raised by `work` is raised for all jobs of the batch.
        max_batch: Largest number of jobs per batch.
        on_batch: Called with the size of every batch.
    """

    def __init__(
        self,
        work: Callable[[list[Job]], Sequence[Result | Exception]],
        *,
        max_batch: int,
        on_batch: Callable[[int], object],
    ) -> None:
        self._work, self.max_batch, self._on_batch = work, max_batch, on_batch
        self._waiting: deque[tuple[Job, asyncio.Future[Result]]] = deque()
        self._thread = ThreadPoolExecutor(1)
        self._running = False

    async def submit(self, job: Job) -> Result:
        """Return the result of one job, once its batch is done."""
        return await self.enqueue(job)

    def enqueue(self, job: Job) -> asyncio.Future[Result]:
        """Return a future for the result of one job. Call it in the event loop."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Result] = loop.create_future()
        self._waiting.append((job, future))
        if not self._running:
            self._running = True
            loop.call_soon(self._start, loop)  # with the jobs that arrive at the same time
        return future

    def close(self) -> None:
        """Cancel the jobs that have not started."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run the next batch, if there are jobs."""
        size = min(self.max_batch, len(self._waiting))
        self._running = size > 0
        if size:
            batch = [self._waiting.popleft() for _ in range(size)]
            self._on_batch(size)
            self._thread.submit(self._run, loop, batch)

    def _run(
        self, loop: asyncio.AbstractEventLoop, batch: list[tuple[Job, asyncio.Future[Result]]]
    ) -> None:
        """Run a batch in the thread. Nothing waits for the thread, which saves hand-overs."""
        results: Sequence[Result | BaseException]
        try:
            results = self._work([job for job, _ in batch])
        except BaseException as error:  # raised again for each job
            results = [error] * len(batch)
        loop.call_soon_threadsafe(self._finish, loop, [future for _, future in batch], results)

    def _finish(
        self,
        loop: asyncio.AbstractEventLoop,
        futures: list[asyncio.Future[Result]],
        results: Sequence[Result | BaseException],
    ) -> None:
        """Pass each result to its caller, unless the caller was cancelled."""
        self._start(loop)
        for result, future in zip(results, futures, strict=True):
            if future.done():
                continue
            if isinstance(result, BaseException):
                future.set_exception(result)
            else:
                future.set_result(result)
