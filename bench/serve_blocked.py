"""The service while something blocks: a Milvus server, many changes, clients that are slow.

    python bench/serve_blocked.py --old /tmp/old     # see bench/serve_million.py

Each version runs as `hadahash serve` in processes of its own. Measured, one after the other:

- an index on a Milvus server that is stopped (SIGSTOP): /healthz every 10 ms while /metrics is
  asked for;
- a local index to which 70 clients add an item at the same time: a search by id beside them;
- 64 clients that announce a body and send one byte of it per second: a search by id beside them.

A search that is refused is sent again; its wait ends with the first answer. No part takes longer
than --limit seconds: what is not answered by then counts as that long.
"""

from __future__ import annotations

import argparse
import json
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import common
import versions
from milvus import running_server
from serve_client import TOKEN, connect, health, send
from serve_million import JSON, timed_change
from serve_process import item_name, make, server

MILVUS_ITEMS = 1000
WRITERS, SLOW_CLIENTS = 70, 64
PAUSE = 0.05  # seconds between two searches
BODY = 100_000  # bytes that a slow client announces


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark and write the result as JSON."""
    options = parse(arguments)
    result = common.begin(options)
    result |= {"items": options.items, "limit": options.limit, "cases": []}
    sources = {"0.1": options.old} if options.old else {}
    with tempfile.TemporaryDirectory() as temporary:
        for name, source in (sources | {"0.2": common.ROOT}).items():
            folder = Path(temporary) / name
            make(source, folder, options.items, 0)
            row: dict[str, Any] = {"case": name}
            if not options.without_milvus:
                row["milvus"] = stopped_milvus(source, folder, options)
            with server(source, folder) as (port, _, _):
                row["slow_clients"] = slow_clients(port, options)
            with server(source, folder) as (port, _, _):
                row["writers"] = writers(port, options)
            result["cases"].append(row)
            print(json.dumps(row), file=sys.stderr)
    common.finish(result, options)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Options of the command line."""
    parser = common.make_parser("serve_blocked", __doc__)
    versions.add_option(parser)
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--limit", type=float, default=120.0, help="seconds of each part at most")
    parser.add_argument("--slow", type=float, default=20.0, help="seconds of slow clients")
    parser.add_argument("--stopped", type=float, default=5.0, help="least seconds without Milvus")
    parser.add_argument("--without-milvus", action="store_true", help="leave out the Milvus server")
    return common.parse(parser, arguments)


# ---- What blocks ---------------------------------------------------------------------------------


def stopped_milvus(source: Path, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """/metrics and /healthz while the Milvus server of the index is stopped."""
    place = folder / "milvus"
    (place / "photos").mkdir(parents=True)
    (place / "run").symlink_to(folder / "run")
    with running_server(place / "server") as process:
        index = place / "index"
        versions.Version(source).step("index on Milvus", "milvus", index, MILVUS_ITEMS)
        with server(source, place) as (port, _, _):
            process.pause()
            try:
                return asked_for_metrics(port, options)
            finally:
                process.resume()


def asked_for_metrics(port: int, options: argparse.Namespace) -> dict[str, Any]:
    """Ask for /metrics; /healthz until it is answered, and for some seconds."""
    began = time.perf_counter()
    took: list[float] = []
    answered: list[float] = []
    status: list[int] = []
    failed: list[bool] = []

    def metrics() -> None:
        with suppress(OSError):
            status.append(send(connect(port, options.limit), "GET", "/metrics"))
        answered.append(time.perf_counter() - began)

    def watch() -> None:
        while not answered or time.perf_counter() - began < options.stopped:
            sent, answer = time.perf_counter(), 0
            with suppress(OSError):
                answer = send(connect(port, options.limit), "GET", "/healthz")
            took.append(time.perf_counter() - sent)
            failed.append(answer != 200)
            time.sleep(0.01)

    together(metrics, watch)
    return {
        "metrics_status": status[0] if status else 0,
        "metrics_ms": longest(answered),
        "healthz": {"failed": sum(failed)} | health(took),
    }


def writers(port: int, options: argparse.Namespace) -> dict[str, Any]:
    """Searches while many clients add an item each."""
    codes: list[int] = []
    name = json.dumps({"id": "first", "code": "0123456789abcdef", "label": ["class0001"]})

    def add(number: int) -> None:
        body = name.replace("first", f"new/{number}.jpg").encode()
        with suppress(OSError):
            codes.append(send(connect(port, options.limit), "POST", "/v1/items", body, JSON))

    timed_change(port, "new/first.jpg")
    threads = [threading.Thread(target=add, args=(n,), daemon=True) for n in range(WRITERS)]
    for thread in threads:
        thread.start()
    found = searches(port, lambda: not any(each.is_alive() for each in threads), options.limit)
    return {"writers": WRITERS, "added": codes.count(201), "refused": codes.count(503)} | found


def slow_clients(port: int, options: argparse.Namespace) -> dict[str, Any]:
    """Searches while many clients send a body byte by byte."""
    head = f"POST /v1/search HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: image/jpeg\r\n"
    head += f"Authorization: Bearer {TOKEN}\r\nContent-Length: {BODY}\r\n\r\n"
    clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(SLOW_CLIENTS)]
    ended = threading.Event()

    def drip() -> None:
        for each in clients:
            each.sendall(head.encode())
        while not ended.wait(1.0):
            for each in clients:
                with suppress(OSError):  # closed by the service
                    each.sendall(b"x")

    thread = threading.Thread(target=drip)
    thread.start()
    time.sleep(1.5)  # until every client has sent a byte
    try:
        end = time.perf_counter() + options.slow
        found = searches(port, lambda: time.perf_counter() > end, options.limit)
    finally:
        ended.set()
        thread.join()
        for each in clients:
            each.close()
    return {"clients": SLOW_CLIENTS} | found


# ---- What is watched -----------------------------------------------------------------------------


def searches(port: int, ended: Callable[[], bool], limit: float) -> dict[str, Any]:
    """Search by id again and again: how many are refused, and the longest wait for an answer."""
    body, end = json.dumps({"id": item_name(300)}).encode(), time.perf_counter() + limit
    waits, refused, done = [], 0, False
    while not done and time.perf_counter() < end:
        done = ended()  # once more after the end
        began, status = time.perf_counter(), 0
        while status != 200 and time.perf_counter() < end:
            with suppress(OSError):
                status = send(connect(port, limit), "POST", "/v1/search", body, JSON)
            refused += status != 200
            time.sleep(PAUSE)
        waits.append(time.perf_counter() - began - PAUSE)
    return {"searches": len(waits), "refused_searches": refused, "longest_ms": longest(waits)}


def longest(seconds: Sequence[float]) -> float:
    """The longest time in milliseconds."""
    return round(1000 * max(seconds), 1)


def together(*actions: Callable[[], None]) -> None:
    """Run functions at the same time."""
    threads = [threading.Thread(target=each) for each in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
