"""Several worker processes over one index.

The parent process listens, and each worker accepts connections of the same socket. A worker that
ends is started again. The workers share a folder of small files: two counters, of changes and of
reloads, and a lock for writers (core/shared.py); and the metrics, which any worker can add up.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from ..errors import HadaHashError
from .core.collection import ServeConfig
from .settings import ServeSettings

LOG = logging.getLogger(__name__)
METRICS_FOLDER = "PROMETHEUS_MULTIPROC_DIR"  # prometheus_client reads it when it is imported
_RESTART_SECONDS = 1.0  # between two starts of the same worker
_KILL_SECONDS = 5.0  # beyond the time that running requests have


class _Worker(NamedTuple):
    process: SpawnProcess
    errors: Connection
    started: float


class Workers:
    """Starts worker processes and keeps them running.

    Args:
        target: The function of a worker process. Its arguments are the configuration, the settings,
            the listening socket, the shared folder, a connection for the error if it cannot start,
            and whether to load everything before it accepts connections, since others do.
        config: Locations of the index, its model and its images.
        settings: Limits.
        listener: The listening socket.
    """

    def __init__(
        self,
        target: Callable[..., None],
        config: ServeConfig,
        settings: ServeSettings,
        listener: socket.socket,
    ) -> None:
        self._target, self._config, self._settings = target, config, settings
        self._listener, self._workers = listener, list[_Worker]()
        self._context = multiprocessing.get_context("spawn")
        self._stopping = False

    def run(self) -> None:
        """Run until SIGTERM or Ctrl-C. SIGHUP is passed on.

        Raises:
            HadaHashError: If a worker cannot start.
        """
        with _shared_folder() as folder, self._signals():
            self._workers = [self._start(folder, first=True) for _ in range(self._settings.workers)]
            try:
                while not self._stopping:
                    wait([worker.process.sentinel for worker in self._workers], timeout=1.0)
                    self._replace_ended(folder)
            finally:
                self._stop()

    def _start(self, folder: Path, *, first: bool) -> _Worker:
        receiver, sender = self._context.Pipe(duplex=False)
        arguments = (self._config, self._settings, self._listener, folder, sender, not first)
        process = self._context.Process(target=self._target, args=arguments)
        process.start()
        sender.close()
        return _Worker(process, receiver, time.monotonic())

    def _replace_ended(self, folder: Path) -> None:
        for place, worker in enumerate(self._workers):
            if worker.process.is_alive() or self._stopping:
                continue
            if worker.errors.poll():
                with suppress(EOFError):
                    raise worker.errors.recv()
            code = worker.process.exitcode
            LOG.error("Worker %d ended with exit code %s.", worker.process.pid, code)
            _forget_metrics(worker.process.pid)
            time.sleep(max(0.0, worker.started + _RESTART_SECONDS - time.monotonic()))
            self._workers[place] = self._start(folder, first=False)

    def _stop(self) -> None:
        """End all workers; running requests finish first."""
        for worker in self._workers:
            worker.process.terminate()
        deadline = time.monotonic() + self._settings.drain_seconds + _KILL_SECONDS
        for worker in self._workers:
            worker.process.join(max(0.0, deadline - time.monotonic()))
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()

    @contextmanager
    def _signals(self) -> Iterator[None]:
        handlers = {signal.SIGTERM: self._on_stop, signal.SIGINT: self._on_stop}
        if not sys.stdin.isatty():  # otherwise SIGHUP means that the terminal was closed
            handlers[signal.SIGHUP] = self._on_hangup
        before = {number: signal.signal(number, each) for number, each in handlers.items()}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_stop(self, number: int, frame: FrameType | None) -> None:
        self._stopping = True

    def _on_hangup(self, number: int, frame: FrameType | None) -> None:
        for worker in self._workers:
            with suppress(ProcessLookupError):
                os.kill(worker.process.pid or 0, signal.SIGHUP)


@contextmanager
def _shared_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="hadahash-") as name:
        metrics = Path(name) / "metrics"
        metrics.mkdir()
        os.environ[METRICS_FOLDER] = str(metrics)
        try:
            yield Path(name)
        finally:
            del os.environ[METRICS_FOLDER]


def _forget_metrics(pid: int | None) -> None:
    """Drop the gauges of a process that ended; its counters stay in the sums."""
    for path in Path(os.environ[METRICS_FOLDER]).glob(f"gauge_live*_{pid}.db"):
        path.unlink(missing_ok=True)


def report(errors: Connection, error: HadaHashError) -> None:
    """Send the error of a worker that cannot start to the parent process.

    Args:
        errors: The connection.
        error: The error.
    """
    with suppress(OSError):
        errors.send(error)
