"""Throughput and response time of the service: uploads of a photo, and searches by id.

    python bench/serve.py                         # 100,000 codes, EfficientNet-Lite0 at 224 pixels
    python bench/serve.py --seconds 2 --items 1000 --backbone test_efficientnet --out x.json

The script makes its own collection: noise images, a model trained on them for one epoch (speed
does not depend on the weights), and random codes. The server runs as `hadahash serve` in a
process of its own. The clients are threads of this process on the same cores; each sends the next
request as soon as it has the response.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import argparse
import http.client
import io
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import common
import numpy as np
from PIL import Image

import hadahash as hh

BITS = 64


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark and write the result as JSON."""
    options = parse(arguments)
    result = common.begin(options)
    result |= {
        "backbone": options.backbone,
        "pixels": options.size,
        "items": options.items,
        "bits": BITS,
        "upload": "JPEG, 640 x 480 pixels",
        "cases": [],
    }
    with tempfile.TemporaryDirectory() as folder:
        photo = make_collection(Path(folder), options)
        with server(Path(folder)) as port:
            for kind, request in requests(photo).items():
                for clients in options.clients:
                    row = {"kind": kind, "clients": clients} | measure(
                        port, request, clients, options.seconds
                    )
                    result["cases"].append(row)
                    print(json.dumps(row), file=sys.stderr)
    common.finish(result, options)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Options of the command line."""
    parser = common.make_parser("serve", __doc__)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--backbone", default="efficientnet_lite0")
    parser.add_argument("--size", type=int, default=224)
    return common.parse(parser, arguments)


def make_collection(folder: Path, options: argparse.Namespace) -> bytes:
    """Write a run and an index to the folder; return a photo to search with."""
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (16, 64, 64, 3), dtype=np.uint8)
    hasher = hh.Hasher(
        bits=BITS,
        backbone=options.backbone,
        weights="none",
        size=options.size,
        side=round(options.size / 0.875),
        frozen=True,
        epochs=1,
        device="cpu",
    )
    hasher.fit(pixels, np.arange(16) % 2).save(folder / "run")
    packed = rng.integers(0, 256, (options.items, BITS // 8), dtype=np.uint8)
    hh.Index.build(hh.Codes(packed=packed, bits=BITS), np.arange(options.items) % 10).save(
        folder / "index"
    )
    small = rng.integers(0, 256, (30, 40, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(small).resize((640, 480), Image.Resampling.BICUBIC).save(
        buffer, "JPEG", quality=90
    )
    return buffer.getvalue()


def requests(photo: bytes) -> dict[str, tuple[bytes, str]]:
    """Body and content type of each kind of search, for 10 results."""
    return {
        "upload": (photo, "image/jpeg"),
        "id": (json.dumps({"id": 7}).encode(), "application/json"),
    }


@contextmanager
def server(folder: Path) -> Iterator[int]:
    """Run `hadahash serve` on a free port; yield the port when it is ready."""
    command = [
        sys.executable,
        "-m",
        "hadahash",
        "serve",
        str(folder / "index"),
        "--run",
        str(folder / "run"),
        "--port",
        "0",
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        line = process.stdout.readline() if process.stdout else ""
        port = int(line.split("/")[2].split(":")[1])
        while send(http.client.HTTPConnection("127.0.0.1", port), "GET", "/readyz") != 200:
            time.sleep(0.1)
        yield port
    finally:
        process.terminate()
        process.wait()


def measure(port: int, request: tuple[bytes, str], clients: int, seconds: float) -> dict[str, Any]:
    """Every client sends requests until the time is over; up to 1 s of warm-up does not count."""
    begin = time.perf_counter() + min(1.0, seconds)
    rows: list[list[tuple[float, int]]] = [[] for _ in range(clients)]

    def client(mine: list[tuple[float, int]]) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        while (sent := time.perf_counter()) < begin + seconds or not mine:
            status = send(connection, "POST", "/v1/search", *request)
            if sent >= begin:
                mine.append((time.perf_counter() - sent, status))

    threads = [threading.Thread(target=client, args=(mine,)) for mine in rows]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    done = [row for mine in rows for row in mine]
    took = np.array([took for took, status in done if status == 200])
    return {
        "requests": len(done),
        "refused": sum(status == 503 for _, status in done),
        "failed": sum(status not in (200, 503) for _, status in done),
        "per_second": round(len(took) / (time.perf_counter() - begin), 1),
        "p50_ms": round(1000 * float(np.median(took)), 2),
        "quartiles_ms": [round(1000 * value, 2) for value in common.quartiles(took)],
        "p95_ms": round(1000 * float(np.quantile(took, 0.95)), 2),
    }


def send(
    connection: http.client.HTTPConnection,
    method: str,
    path: str,
    body: bytes = b"",
    kind: str = "",
) -> int:
    """Send a request, read the response and return its status."""
    connection.request(method, path, body, {"Content-Type": kind} if kind else {})
    answer = connection.getresponse()
    answer.read()
    return answer.status


if __name__ == "__main__":
    main()
