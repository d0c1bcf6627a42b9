"""Time of `hadahash.evaluate`, compared with a loop that sorts the whole database per query.

    python bench/evaluation.py                            10,000 queries x 1,000,000 codes, 64 bits
    python bench/evaluation.py --queries 200 --database 5000 --sample 4 --rounds 2 --out /tmp/x.json

First the full evaluation, with its seconds and the peak memory of the process. Then both ways in
turn on samples of the queries, so that other load affects both alike: medians and their ratio. The
loop has two forms: "float", as in DeepHash-pytorch (dot products of +-1 floats and of one-hot
labels), and "popcount", the same with packed bits and class numbers. BLAS uses one thread, so
"1 thread" means one everywhere.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import resource
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

import hadahash as hh
from hadahash import files, native
from hadahash.codes import hamming, pack


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark and write the result as JSON."""
    options = parse(arguments)
    result: dict[str, Any] = {
        "command": shlex.join(
            ["python", "bench/evaluation.py", *(sys.argv[1:] if arguments is None else arguments)]
        ),
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "hardware": hardware(),
        "versions": {
            "python": platform.python_version(),
            "numpy": np.__version__,
            "hadahash": hh.__version__,
        },
        "counting": native.describe(),
        "sizes": {
            name: getattr(options, name)
            for name in ("queries", "database", "bits", "threads", "sample", "rounds")
        },
        "load_before": os.getloadavg()[0],
    }
    rng = np.random.default_rng(0)
    cases = {
        "single_label": case(rng, options, 100, False),
        "multi_label": case(rng, options, 20, True),
    }
    # Before the loops allocate memory, which would count in the peak.
    result |= {name: {"whole": evaluate_all(options, *data)} for name, data in cases.items()}
    with threadpool_limits(1):
        for name, data in cases.items():
            result[name] |= compare(options, *data)
    files.write_json(options.out, result)
    print(json.dumps(result, indent=2))


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Options of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--queries", type=int, default=10_000)
    parser.add_argument("--database", type=int, default=1_000_000)
    parser.add_argument("--bits", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--sample",
        type=int,
        default=30,
        help="number of queries for the sorting loops, over all rounds",
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).parent / "results" / "evaluation.json"
    )
    return parser.parse_args(arguments)


# Query codes, query labels, database codes, database labels.
Case = tuple[hh.Codes, NDArray[Any], hh.Codes, NDArray[Any]]


def case(
    rng: np.random.Generator, options: argparse.Namespace, classes: int, multilabel: bool
) -> Case:
    """Queries and a database of clustered codes."""
    make = clustered(rng, options.bits, classes, multilabel)
    return *make(options.queries), *make(options.database)


def evaluate_all(options: argparse.Namespace, *data: Any) -> dict[str, float]:
    """One full evaluation."""
    start = time.perf_counter()
    report = hh.evaluate(*data, threads=options.threads)
    seconds = time.perf_counter() - start
    return {
        "seconds": seconds,
        "milliseconds_per_query": 1000 * seconds / options.queries,
        "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "map": report.map,
    }


def compare(
    options: argparse.Namespace,
    queries: hh.Codes,
    query_labels: NDArray[Any],
    database: hh.Codes,
    labels: NDArray[Any],
) -> dict[str, Any]:
    """Milliseconds per query of each way: medians over rounds in which all take turns."""
    loops = {"float": float_loop(database, labels), "popcount": popcount_loop(database, labels)}
    times: dict[str, list[float]] = {}
    difference: list[float] = []
    each = max(1, options.sample // options.rounds)
    ours = min(500, options.queries)  # enough to amortize the fixed cost, as in a full evaluation
    for turn in range(options.rounds):
        rows = slice(turn * each % options.queries, turn * each % options.queries + each)
        for threads in sorted({1, options.threads}):
            start = time.perf_counter()
            hh.evaluate(queries[:ours], query_labels[:ours], database, labels, threads=threads)
            times.setdefault(f"hadahash, {threads} thread(s)", []).append(
                (time.perf_counter() - start) / ours
            )
        exact = hh.evaluate(queries[rows], query_labels[rows], database, labels).average_precision
        for name, loop in loops.items():
            start = time.perf_counter()
            ap = [
                loop(code, label)
                for code, label in zip(queries[rows].packed, query_labels[rows], strict=True)
            ]
            times.setdefault(f"argsort loop, {name}", []).append(
                (time.perf_counter() - start) / len(ap)
            )
            difference.extend(np.abs(exact - ap))
    medians = {name: 1000 * median(values) for name, values in times.items()}
    ratios = {
        f"{loop} / {way}": medians[loop] / medians[way]
        for loop in medians
        for way in medians
        if loop.startswith("argsort") and way.startswith("hadahash")
    }
    return {
        "milliseconds_per_query": medians,
        "ratios": ratios,
        "largest_difference_of_ap_by_ties": float(max(difference)),
    }


def clustered(
    rng: np.random.Generator, bits: int, classes: int, multilabel: bool
) -> Callable[[int], tuple[hh.Codes, NDArray[Any]]]:
    """Generator of codes around class centers: each bit is flipped with probability 0.15."""
    centers = rng.choice(np.array([-1, 1], np.int8), (classes, bits))

    def block(n: int) -> tuple[NDArray[np.uint8], NDArray[Any]]:
        if multilabel:
            labels = (rng.random((n, classes)) < 1.5 / classes).astype(np.uint8)
            values = np.where(labels.astype(np.int8) @ centers >= 0, 1, -1).astype(np.int8)
        else:
            labels = rng.integers(0, classes, n, np.uint8)
            values = centers[labels]
        flips = rng.random((n, bits), np.float32) < 0.15
        return pack(np.where(flips, -values, values)), labels

    def make(n: int) -> tuple[hh.Codes, NDArray[Any]]:
        blocks = [block(min(1 << 16, n - start)) for start in range(0, n, 1 << 16)]
        packed, labels = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
        return hh.Codes(packed=packed, bits=bits), labels

    return make


Loop = Callable[[NDArray[np.uint8], Any], float]


def float_loop(database: hh.Codes, labels: NDArray[Any]) -> Loop:
    """Sorting loop with dot products of floats."""
    signs = database.signs().astype(np.float32)
    classes = int(labels.max()) + 1 if labels.ndim == 1 else labels.shape[1]
    one_hot = (np.eye(classes, dtype=np.float32)[labels] if labels.ndim == 1 else labels).astype(
        np.float32
    )

    def one_query(packed: NDArray[np.uint8], label: Any) -> float:
        query = hh.Codes(packed=packed[None], bits=database.bits).signs()[0].astype(np.float32)
        query_classes = np.arange(classes) == label if labels.ndim == 1 else label
        relevant = one_hot @ query_classes.astype(np.float32) > 0
        return sorted_average_precision(0.5 * (database.bits - signs @ query), relevant)

    return one_query


def popcount_loop(database: hh.Codes, labels: NDArray[Any]) -> Loop:
    """Sorting loop with packed bits."""
    sets = labels.astype(bool) if labels.ndim == 2 else labels

    def one_query(packed: NDArray[np.uint8], label: Any) -> float:
        relevant = sets == label if labels.ndim == 1 else sets[:, np.flatnonzero(label)].any(axis=1)
        return sorted_average_precision(
            hamming(packed[None], database.packed)[0], np.asarray(relevant)
        )

    return one_query


def sorted_average_precision(distances: NDArray[Any], relevant: NDArray[np.bool_]) -> float:
    """Average precision of one arbitrary order of the ties."""
    ranks = np.flatnonzero(relevant[np.argsort(distances)]) + 1
    return float(np.mean(np.arange(1, len(ranks) + 1) / ranks)) if len(ranks) else 0.0


def hardware() -> str:
    """The processor, its usable cores and the operating system."""
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [
            line.split(":")[1].strip()
            for line in info.read_text().splitlines()
            if line.startswith("model name")
        ]
        cpu = names[0] if names else cpu
    return f"{cpu}, {native.usable_cores()} cores, {platform.system()}"


if __name__ == "__main__":
    main()
