"""One million embeddings from a file: fit, encode, index and search in bounded memory.

    python bench/embeddings.py

A file of --rows vectors of --width floats is made first (seeded; correlated dimensions, far from
the origin, as features after a ReLU). Everything after that runs in a process of its own, whose
peak of resident memory is measured after each step. The file is removed at the end.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import common
import numpy as np

import hadahash as hh

QUERIES, K = 100, 10


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark and write the result as JSON."""
    parser = common.make_parser("embeddings", __doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--bits", type=int, nargs="+", default=[128])
    parser.add_argument("--types", nargs="+", default=["float32", "float16"])
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    options = common.parse(parser, arguments)
    if options.worker is not None:
        print(json.dumps(measure(options.worker, options.bits[0])))
        return
    result = common.begin(options)
    result |= {"rows": options.rows, "width": options.width, "cases": []}
    for kind in options.types:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "x.npy"
            write_vectors(path, options.rows, options.width, kind)
            for bits in options.bits:
                result["cases"].append(run_worker(path, bits))
    common.finish(result, options)


def write_vectors(path: Path, rows: int, width: int, kind: str) -> None:
    """Correlated vectors around a common mean, in batches."""
    rng = np.random.default_rng(0)
    mixing = rng.normal(size=(64, width)).astype(np.float32) / 8
    mapped = np.lib.format.open_memmap(path, "w+", np.dtype(kind), (rows, width))
    for start in range(0, rows, 10_000):
        count = min(10_000, rows - start)
        hidden = rng.standard_normal((count, 64), np.float32)
        noise = rng.standard_normal((count, width), np.float32)
        mapped[start : start + count] = 2 + hidden @ mixing + 0.5 * noise
    mapped.flush()


def run_worker(path: Path, bits: int) -> dict[str, Any]:
    """Measure in a new process, whose peak of memory is its own."""
    command = [sys.executable, __file__, "--worker", str(path), "--bits", str(bits)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def measure(path: Path, bits: int) -> dict[str, Any]:
    """Fit, encode, index and search; seconds, and the peak of memory after each step."""
    steps: dict[str, dict[str, float]] = {"imports": {"peak_mb": peak()}}
    folder = path.parent

    def step(name: str, started: float) -> None:
        steps[name] = {"seconds": round(time.perf_counter() - started, 2), "peak_mb": peak()}

    started = time.perf_counter()
    hasher = hh.Hasher("itq", bits=bits, device="cpu").fit(path)
    step("fit", started)
    started = time.perf_counter()
    codes = hasher.model_.encode_to_file(path, folder / "codes.npz")
    step("encode", started)
    started = time.perf_counter()
    hh.Index.build(codes, ranking=hasher.model_.ranking).save(folder / f"{bits}.index")
    step("index", started)
    index = hh.Index.open(folder / f"{bits}.index")
    queries = hasher.queries(np.load(path, mmap_mode="r")[:QUERIES])
    for name, query in (("hamming", queries.codes()), ("class", queries)):
        index.search(query[[0]], K, rank=name)  # not counted
        started = time.perf_counter()
        found = index.search(query, K, rank=name)
        step(f"search {name}", started)
        if not (found.ids[:, 0] == np.arange(QUERIES)).mean() > 0.9:
            raise SystemExit(f"{name}: queries do not find themselves")
    return {
        "type": str(np.load(path, mmap_mode="r").dtype),
        "bits": bits,
        "file_mb": round(path.stat().st_size / 1e6),
        "fitted_on": hasher.model_.info["train_images"],
        "codes": len(codes),
        "queries": QUERIES,
        "steps": steps,
    }


def peak() -> int:
    """The peak of resident memory of this process in MB; ru_maxrss would include the parent's."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(found[1]) // 1024 if found else 0


if __name__ == "__main__":
    main()
