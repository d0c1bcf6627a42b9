"""The service at a million items, against version 0.1 in the same run.

    git archive --prefix=old/ e6859f9 | tar x -C /tmp     # version 0.1, the last commit before 0.2
    (cd /tmp/old && python setup.py -q build_ext --inplace)
    python bench/serve_million.py --old /tmp/old

Each version makes its own collection (`bench/serve_collection.py`) and runs as `hadahash serve` in
processes of its own; the model of 0.2 is exported before, as its first start would do. Measured:
the time from the start of the process until /readyz answers 200; the memory of all its processes
apart from mapped files (RssAnon); changes one after the other while another client asks for
/healthz every 10 ms; searches by id, searches with a label and uploads with 1 and 32 clients; the
same searches again beside that client; searches beside changes; an item that another process adds
to the index; an upload while thumbnails of 12-megapixel photos are made;
and, with content bits, a search for duplicates, of which every tenth item has one. The clients run
on the same cores. A version whose changes take longer than 2 s makes a twentieth of them.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import common
import numpy as np
import psutil
import versions
from serve_client import TOKEN, connect, health, milliseconds, send, timed, watching
from serve_collection import FILES, LABELS
from serve_process import item_name, make, memory, server

JSON = "application/json"
FEW_CHANGES = 20  # beside searches
PATIENCE = 120  # seconds until the service finds what another process added
THUMBNAIL_CLIENTS = 50  # which ask for thumbnails at the same time
Body = Callable[[random.Random], tuple[bytes, str]]  # content of a request, and its type


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark and write the result as JSON."""
    options = parse(arguments)
    result = common.begin(options)
    result |= {"items": options.items, "changes": options.changes, "cases": []}
    cases: list[tuple[str, Path, int]] = [("0.1", options.old, 0)] if options.old else []
    cases += [("0.2", common.ROOT, 0), ("0.2 with content bits", common.ROOT, 128)]
    for name, source, content_bits in cases:
        if options.only not in (None, name):
            continue
        with tempfile.TemporaryDirectory() as temporary:
            folder = (options.keep or Path(temporary)) / name.replace(" ", "-")
            row: dict[str, Any] = {"version": name, "bits": 64, "content_bits": content_bits}
            make(source, folder, options.items, content_bits)
            row |= measure(source, folder, options, duplicates=content_bits > 0)
            result["cases"].append(row)
            print(json.dumps(row), file=sys.stderr)
    common.finish(result, options)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Options of the command line."""
    parser = common.make_parser("serve_million", __doc__)
    parser.add_argument(
        "--old", type=common.absolute, help="sources of version 0.1, with its library built"
    )
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--changes", type=int, default=200, help="changes of the index")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 32])
    parser.add_argument("--keep", type=common.absolute, help="keep the collections in this folder")
    parser.add_argument("--only", help="measure only this version")
    return common.parse(parser, arguments)


# ---- Measurements --------------------------------------------------------------------------------


def measure(
    source: Path, folder: Path, options: argparse.Namespace, *, duplicates: bool
) -> dict[str, Any]:
    """All numbers of one version; those of duplicates, if it tells photos apart."""
    names = [item_name(number) for number in range(FILES, min(options.items, 10_000))]
    photo = (folder / "query.jpg").read_bytes()
    starts = []
    for _ in range(2):  # the second start reads from the page cache
        with server(source, folder) as (port, process, seconds):
            starts.append(round(seconds, 2))
    with server(source, folder) as (port, process, seconds):
        starts.append(round(seconds, 2))
        row: dict[str, Any] = {"ready_seconds": starts, "memory_ready": memory(process)}
        row["first"] = first_requests(port, names)
        time.sleep(2)  # 0.2 starts the rest of its decoders when it is ready
        row["load"] = common.load()
        kinds: dict[str, Body] = {
            "id": lambda rng: (json.dumps({"id": rng.choice(names)}).encode(), JSON),
            "label": lambda rng: (
                json.dumps({"id": rng.choice(names), "label": _label(rng)}).encode(),
                JSON,
            ),
            "upload": lambda rng: (photo, "image/jpeg"),
        }
        row["searches"] = [
            {"kind": kind, "clients": clients}
            | load_test(port, process, body, clients, options.seconds)
            for kind, body in kinds.items()
            for clients in options.clients
        ]
        most = max(options.clients)
        row["healthz"] = health_beside(port, process, kinds, most, options.seconds)
        row["changes"] = changes(port, options.changes)
        row["searches_beside_changes"] = searches_beside_changes(port, names[0])
        row["reload"] = reload(source, folder / "index", port)
        row["thumbnails"] = thumbnails(port, photo)
        row["memory_after"] = memory(process)
        if duplicates:
            row["duplicates"] = search_duplicates(port, process, folder / "index")
    return row


def _label(rng: random.Random) -> list[str]:
    return [f"class{rng.randrange(LABELS):04d}"]


def first_requests(port: int, names: Sequence[str]) -> dict[str, float]:
    """Milliseconds of the first requests, which may have to load something."""
    bodies = {"search": {"id": names[0]}, "label": {"id": names[0], "label": ["class0001"]}}
    found = {
        name: timed(connect(port), "POST", "/v1/search", json.dumps(body).encode(), JSON)
        for name, body in bodies.items()
    }
    return found | {"stats": timed(connect(port), "GET", "/v1/stats")}


def load_test(
    port: int,
    process: psutil.Process,
    body: Body,
    clients: int,
    seconds: float,
) -> dict[str, Any]:
    """Every client sends requests until the time is over; 1 s of warm-up does not count."""
    begin = time.perf_counter() + 1.0
    used = processor_seconds(process)
    sent_requests = [0] * clients
    rows: list[list[tuple[float, int]]] = [[] for _ in range(clients)]

    def client(number: int) -> None:
        rng, connection = random.Random(number), connect(port)
        while (sent := time.perf_counter()) < begin + seconds or not rows[number]:
            status = send(connection, "POST", "/v1/search", *body(rng))
            sent_requests[number] += 1
            if sent >= begin:
                rows[number].append((time.perf_counter() - sent, status))

    threads = [threading.Thread(target=client, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    done = [row for mine in rows for row in mine]
    took = [took for took, status in done if status == 200]
    return {
        "per_second": round(len(took) / (time.perf_counter() - begin), 1),
        "refused": sum(status != 200 for _, status in done),
        "processor_ms": round(1000 * (processor_seconds(process) - used) / sum(sent_requests), 2),
    } | milliseconds(took)


def processor_seconds(process: psutil.Process) -> float:
    """Processor time of the server and its decoders so far."""
    times = [each.cpu_times() for each in (process, *process.children(recursive=True))]
    return sum(each.user + each.system for each in times)


def health_beside(
    port: int, process: psutil.Process, kinds: Mapping[str, Body], clients: int, seconds: float
) -> dict[str, Any]:
    """/healthz during searches. These are not counted: the watcher would slow them."""
    found = {}
    for kind, body in kinds.items():
        with watching(port) as took:
            load_test(port, process, body, clients, seconds)
        found[kind] = {"clients": clients} | health(took)
    return found


def changes(port: int, count: int) -> dict[str, Any]:
    """Additions and removals one after the other, and /healthz meanwhile."""
    stamp = time.time_ns()
    count = max(2, count if timed_change(port, f"{stamp}/first") < 2000 else count // 20)
    with watching(port) as took:
        added = [timed_change(port, f"{stamp}/{number}.jpg") / 1000 for number in range(count)]
        removed = [
            timed(connect(port), "DELETE", f"/v1/items/{stamp}/{number}.jpg") / 1000
            for number in range(count)
        ]
    return {
        "count": count,
        "add": milliseconds(added),
        "remove": milliseconds(removed),
        "healthz_meanwhile": health(took),
    }


def searches_beside_changes(port: int, name: str) -> dict[str, Any]:
    """A search by id every 10 ms while items are added one after the other."""
    stamp, body = time.time_ns(), json.dumps({"id": name}).encode()
    count = FEW_CHANGES if timed_change(port, f"{stamp}/first") < 2000 else 2
    with watching(port, "POST", "/v1/search", body, JSON) as took:
        for number in range(count):
            timed_change(port, f"{stamp}/beside-{number}.jpg")
    return {"changes": count} | health(took)


def reload(source: Path, index: Path, port: int) -> dict[str, Any]:
    """Another process adds an item: the time until the service finds it; /healthz meanwhile."""
    name = f"{time.time_ns()}/other.jpg"
    body = json.dumps({"id": name}).encode()
    with watching(port) as took:
        versions.Version(source).step("add an item", "add", index, name)
        began = time.perf_counter()
        while status := send(connect(port), "POST", "/v1/search", body, JSON):
            seconds = time.perf_counter() - began
            if status == 200 or seconds > PATIENCE:
                break
            time.sleep(0.05)
    if status != 200:
        raise SystemExit(f"The item of another process was not found in {PATIENCE} s.")
    return {"found_after_ms": round(1000 * seconds, 1), "healthz_meanwhile": health(took)}


def timed_change(port: int, name: str) -> float:
    """Milliseconds to add one item by its code."""
    words = {"id": name, "code": "0123456789abcdef", "label": ["class0001"]}
    connection = connect(port)
    started = time.perf_counter()
    status = send(connection, "POST", "/v1/items", json.dumps(words).encode(), JSON)
    if status == 422:  # an index with content bits
        words["content"] = 16 * "5a"
        return timed(connect(port), "POST", "/v1/items", json.dumps(words).encode(), JSON)
    if status != 201:
        raise SystemExit(f"POST /v1/items was answered {status}.")
    return 1000 * (time.perf_counter() - started)


def thumbnails(port: int, photo: bytes) -> dict[str, Any]:
    """An upload alone, and one while thumbnails of large photos are made; /healthz meanwhile."""
    alone = [timed(connect(port), "POST", "/v1/search", photo, "image/jpeg") for _ in range(5)]
    waiting = deque(f"/v1/thumbnails/{item_name(number)}" for number in range(FILES))
    first = waiting[0]

    def client() -> None:
        connection = connect(port)
        with suppress(IndexError):
            while True:
                timed(connection, "GET", waiting.popleft())

    threads = [threading.Thread(target=client) for _ in range(THUMBNAIL_CLIENTS)]
    began = time.perf_counter()
    with watching(port) as took:
        for thread in threads:
            thread.start()
        time.sleep(0.3)
        beside = timed(connect(port), "POST", "/v1/search", photo, "image/jpeg")
        for thread in threads:
            thread.join()
    return {
        "upload_alone_ms": float(np.median(alone)),
        "upload_beside_ms": beside,
        "thumbnails": FILES,
        "left": len(waiting),
        "all_ms": round(1000 * (time.perf_counter() - began), 1),
        "again_ms": timed(connect(port), "GET", first),
        "healthz_meanwhile": health(took),
    }


def search_duplicates(port: int, process: psutil.Process, index: Path) -> dict[str, Any]:
    """The first search for duplicates, pages of them and a dismissal; /healthz meanwhile.

    The service answers 503 while it searches, and goes on; the client asks again.
    """
    for name in ("duplicates.json", "dismissed.json"):  # of earlier runs
        (index / name).unlink(missing_ok=True)
    with watching(port) as took:
        began, refused = time.perf_counter(), 0
        while (status := send(connect(port), "GET", "/v1/duplicates")) == 503:
            refused += 1
            time.sleep(0.1)
        if status != 200:
            raise SystemExit(f"GET /v1/duplicates was answered {status}.")
        seconds = time.perf_counter() - began
        pages = [f"/v1/duplicates?limit=100&skip={skip}" for skip in range(0, 1000, 100)]
        listed = [timed(connect(port), "GET", page) / 1000 for page in pages]
        found = fetched(port, "/v1/duplicates?limit=1")
        dismissed = [
            timed(connect(port), "POST", "/v1/duplicates/dismiss", body, JSON) / 1000
            for body in dismissals(fetched(port, "/v1/duplicates?limit=5"))
        ]
        listed.append(timed(connect(port), "GET", "/v1/duplicates?limit=100") / 1000)
    return {
        "groups": found.get("total", 0),
        "copies": found.get("surplus", 0),
        "first_seconds": round(seconds, 2),
        "refused": refused,
        "pages": milliseconds(listed),
        "dismiss": milliseconds(dismissed) if dismissed else None,
        "healthz_meanwhile": health(took),
        "memory": memory(process),
    }


def dismissals(answer: dict[str, Any]) -> list[bytes]:
    """The content of requests that dismiss each group of a page."""
    return [
        json.dumps({"key": group["key"], "threshold": answer["threshold"]}).encode()
        for group in answer.get("groups", ())
    ]


def fetched(port: int, path: str) -> dict[str, Any]:
    """The JSON of an answer."""
    connection = connect(port)
    connection.request("GET", path, headers={"Authorization": f"Bearer {TOKEN}"})
    content: dict[str, Any] = json.loads(connection.getresponse().read() or b"{}")
    return content


if __name__ == "__main__":
    main()
