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
        self._running: asyncio.Task[None] | None = None

    async def submit(self, job: Job) -> Result:
        """Return the result of one job, once its batch is done."""
        return await self.enqueue(job)

    def enqueue(self, job: Job) -> asyncio.Future[Result]:
        """Return a future for the result of one job. Call it in the event loop."""
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiting.append((job, future))
        if self._running is None:
            self._running = asyncio.create_task(self._run())
        return future

    def close(self) -> None:
        """Cancel the jobs that have not started."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            size = min(self.max_batch, len(self._waiting))
            batch = [self._waiting.popleft() for _ in range(size)]
            self._on_batch(size)
            task = loop.run_in_executor(self._thread, self._work, [job for job, _ in batch])
            await asyncio.wait([task])
            _resolve(task, [future for _, future in batch])
        self._running = None


def _resolve(
    task: asyncio.Future[Sequence[Result | Exception]], futures: list[asyncio.Future[Result]]
) -> None:
    """Pass each result to its caller, unless the caller was cancelled."""
    error = task.exception()
    results = [error] * len(futures) if error is not None else task.result()
    for result, future in zip(results, futures, strict=True):
        if future.done():
            continue
        if isinstance(result, BaseException):
            future.set_exception(result)
        else:
            future.set_result(result)
