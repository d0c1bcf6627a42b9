"""A client of the service for `bench/serve_million.py`: timed requests, and /healthz watched."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

TOKEN = "a-token-long-enough"


def connect(port: int, timeout: float = 600) -> http.client.HTTPConnection:
    """A connection to the service."""
    return http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)


def send(
    connection: http.client.HTTPConnection,
    method: str,
    path: str,
    body: bytes = b"",
    kind: str = "",
) -> int:
    """Send a request, read the response and return its status."""
    headers = {"Authorization": f"Bearer {TOKEN}"} | ({"Content-Type": kind} if kind else {})
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        answer.read()
        return answer.status
    except ConnectionError:
        connection.close()
        return 0


def timed(
    connection: http.client.HTTPConnection,
    method: str,
    path: str,
    body: bytes = b"",
    kind: str = "",
) -> float:
    """Milliseconds of a request that must succeed."""
    started = time.perf_counter()
    status = send(connection, method, path, body, kind)
    if not 200 <= status < 300:
        raise SystemExit(f"{method} {path} was answered {status}.")
    return round(1000 * (time.perf_counter() - started), 2)


def milliseconds(seconds: Sequence[float]) -> dict[str, float]:
    """Median, 95th percentile and maximum in milliseconds."""
    values = 1000 * np.asarray(seconds)
    found = {"p50_ms": np.median(values), "p95_ms": np.quantile(values, 0.95)}
    return {name: round(float(value), 2) for name, value in found.items()} | {
        "max_ms": round(float(values.max()), 2)
    }


@contextmanager
def watching(
    port: int, method: str = "GET", path: str = "/healthz", body: bytes = b"", kind: str = ""
) -> Iterator[list[float]]:
    """Send a request every 10 ms in a thread, to /healthz by default; yields the seconds of each.

    Args:
        port: Port of the service.
        method: Method of the request.
        path: Its path.
        body: Its content.
        kind: Type of the content.
    """
    took: list[float] = []
    failures: list[SystemExit] = []
    stop = threading.Event()

    def watch() -> None:
        connection = connect(port)
        try:
            ended = False
            while not ended:  # at least once, however short the block is
                took.append(timed(connection, method, path, body, kind) / 1000)
                ended = stop.wait(0.01)
        except SystemExit as failure:  # in a thread it would end only the thread
            failures.append(failure)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield took
    finally:
        stop.set()
        thread.join()
    if failures:
        raise failures[0]


def health(took: Sequence[float]) -> dict[str, Any]:
    """What `watching` saw."""
    return {"count": len(took)} | milliseconds(took)
