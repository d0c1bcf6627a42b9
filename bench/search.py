"""Search times compared with faiss: flat scan and routed search, on random and on clustered codes.

    python bench/search.py               # 1e5, 1e6 and 1e7 codes of 32, 64 and 128 bits
    python bench/search.py --sizes 100000 --bits 64 --rounds 4 --out small.json

All engines take turns in every round, in rotating order, so that neither a busy machine nor a warm
cache favors one. A turn takes at least 8 queries and 30 ms. The result has the median times, the
median and quartiles of each ratio over all rounds, and the smallest ratios (`least`). Clustered
codes are 100 codewords with 5 % of the bits flipped. "exact" is the default engine; "routed" gets
the codewords of clustered codes, and learns centroids of random ones. faiss is IndexBinaryFlat, and
on clustered codes also IndexBinaryIVF with 100 lists and the fewest probes that find all true
distances. The read bandwidth is that of numpy's fastest reduction over the same number of bytes.
Threads wait passively everywhere.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import argparse
import datetime
import itertools
import json
import platform
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import faiss
import numpy as np
from evaluation import hardware
from numpy.typing import NDArray

import hadahash as hh
from hadahash import files, native

CODEWORDS, FLIPS = 100, 0.05
QUERIES = 256  # distinct queries, so that the cache rarely holds what the next one needs
FEWEST, TURN = 8, 0.03  # minimum queries and seconds per turn of an engine
CASE = ("kind", "codes", "bits", "batch", "threads")
Packed = NDArray[np.uint8]
Search = Callable[[Packed, int], NDArray[Any]]  # queries, threads -> distances (q, k)


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    result: dict[str, Any] = {
        "command": shlex.join(
            ["python", "bench/search.py", *(sys.argv[1:] if arguments is None else arguments)]
        ),
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "hardware": hardware(),
        "versions": {
            "python": platform.python_version(),
            "numpy": np.__version__,
            "faiss": faiss.__version__,
            "hadahash": hh.__version__,
        },
        "scan": native.describe(),
        "k": options.k,
        "rounds": options.rounds,
        "load_before": os.getloadavg()[0],
        "cases": [],
    }
    for bits in options.bits:
        for size in options.sizes:
            for kind in options.kinds:
                for row in compare(kind, size, bits, options):
                    result["cases"].append(row)
                    print(json.dumps(row), file=sys.stderr)
    result["least"] = least(result["cases"])
    files.write_json(options.out, result)
    print(json.dumps(result, indent=2))


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[100_000, 1_000_000, 10_000_000])
    parser.add_argument("--bits", type=int, nargs="+", default=[32, 64, 128])
    parser.add_argument(
        "--kinds", nargs="+", default=["random", "clustered"], choices=["random", "clustered"]
    )
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 64], help="queries per call")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--k", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).parent / "results" / "search.json"
    )
    return parser.parse_args(arguments)


def compare(kind: str, size: int, bits: int, options: argparse.Namespace) -> list[dict[str, Any]]:
    """One row per batch size and number of threads."""
    make = maker(kind, bits)
    packed = make(size)
    engines, facts = searchers(kind, packed, bits, options.k, make)
    rows = []
    for batch in options.batches:
        queries = make(-(-QUERIES // batch) * batch)
        for threads in options.threads:
            times, equal = measure(engines, packed, queries, batch, threads, options.rounds)
            rows.append(
                {"kind": kind, "codes": size, "bits": bits, "batch": batch, "threads": threads}
                | facts
                | summary(times, packed)
                | equal
            )
    return rows


def measure(
    engines: dict[str, Search],
    packed: Packed,
    queries: Packed,
    batch: int,
    threads: int,
    rounds: int,
) -> tuple[dict[str, list[float]], dict[str, Any]]:
    """Seconds per query of each engine and round, and the fraction of rows that equal faiss."""
    words = packed.reshape(-1).view(np.uint32 if packed.size % 8 else np.uint64)
    batches = [queries[first : first + batch] for first in range(0, len(queries), batch)]
    few = -(-FEWEST // batch)
    times: dict[str, list[float]] = {}
    found, calls = {}, {}
    for name, search in engines.items():  # warm-up
        found[name] = [search(part, threads) for part in batches[:few]]
        start = time.perf_counter()
        search(batches[0], threads)
        calls[name] = max(few, int(TURN / (time.perf_counter() - start)))
    coming = {
        name: itertools.cycle(batches) for name in engines
    }  # a turn continues where the last one stopped
    names = list(engines)
    for turn in range(rounds):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            parts = [next(coming[name]) for _ in range(calls[name])]
            start = time.perf_counter()
            for part in parts:
                engines[name](part, threads)
            times.setdefault(name, []).append((time.perf_counter() - start) / (calls[name] * batch))
        for name, reduce in (("max", np.max), ("sum", np.sum), ("xor", np.bitwise_xor.reduce)):
            start = time.perf_counter()
            reduce(words)
            times.setdefault(f"read {name}", []).append(time.perf_counter() - start)
    shares = {name: same_rows(answers, found["faiss flat"]) for name, answers in found.items()}
    return times, {"rows_with_the_true_distances": shares}


def same_rows(answers: list[NDArray[Any]], true: list[NDArray[Any]]) -> float:
    return float((np.concatenate(answers) == np.concatenate(true)).all(axis=1).mean())


def summary(times: dict[str, list[float]], packed: Packed) -> dict[str, Any]:
    middle = {name: median(values) for name, values in times.items()}
    read = min(seconds for name, seconds in middle.items() if name.startswith("read"))
    engines = [name for name in times if not name.startswith("read")]
    pairs = [
        (peer, name) for peer in engines if peer.startswith("faiss") for name in ("exact", "routed")
    ]
    rounds = {
        f"{peer} / {name}": np.divide(times[peer], times[name])
        for peer, name in [*pairs, ("exact", "routed")]
    }
    return {
        "milliseconds_per_query": {name: 1000 * middle[name] for name in engines},
        "ratios": {name: float(np.median(values)) for name, values in rounds.items()},
        "quartiles": {
            name: np.quantile(values, [0.25, 0.75]).tolist() for name, values in rounds.items()
        },
        "read_bandwidth_gb_per_s": packed.nbytes / read / 1e9,
        "exact_share_of_bandwidth": read / middle["exact"],
    }


def least(cases: list[dict[str, Any]]) -> dict[str, Any]:
    """The smallest ratios: the scan against faiss, and routing where it gains most and least."""
    largest = max(case["codes"] for case in cases)
    promised = {
        "faiss flat / exact": cases,
        "exact / routed, random": [case for case in cases if case["kind"] == "random"],
        "exact / routed, clustered, most codes": [
            case for case in cases if case["kind"] == "clustered" and case["codes"] == largest
        ],
    }
    worst = {}
    for name, among in promised.items():
        ratio = name.split(",")[0]
        if among:
            case = min(among, key=lambda case: case["ratios"][ratio])
            worst[name] = {"ratio": case["ratios"][ratio]} | {key: case[key] for key in CASE}
    return worst


def searchers(
    kind: str, packed: Packed, bits: int, k: int, make: Callable[[int], Packed]
) -> tuple[dict[str, Search], dict[str, Any]]:
    """The engines, and facts about them."""
    codes = hh.Codes(packed=packed, bits=bits)
    words = np.where(np.unpackbits(codewords(bits), axis=1), 1, -1) if kind == "clustered" else None
    indexes = {
        "exact": hh.Index.build(codes),
        "routed": hh.Index.build(codes, engine="routed", codewords=words),
    }
    flat = faiss.IndexBinaryFlat(bits)
    flat.add(packed)
    found: dict[str, Search] = {name: ours(index, k) for name, index in indexes.items()} | {
        "faiss flat": theirs(flat, k)
    }
    if kind == "random":
        return found, {}
    inverted = faiss.IndexBinaryIVF(faiss.IndexBinaryFlat(bits), bits, CODEWORDS)
    inverted.train(packed[: 50 * CODEWORDS])
    inverted.add(packed)
    inverted.own_fields = False
    probes = fewest_probes(inverted, make(200), k, found["exact"])
    return found | {"faiss ivf": theirs(inverted, k)}, {"ivf_probes": probes}


def fewest_probes(inverted: Any, queries: Packed, k: int, exact: Search) -> int:
    """Set and return the smallest number of probes with which IVF finds all true distances."""
    true, probes = exact(queries, 1), 1
    while True:
        inverted.nprobe = probes
        if probes >= CODEWORDS or np.array_equal(inverted.search(queries, k)[0], true):
            return probes
        probes = min(2 * probes, CODEWORDS)


def ours(index: hh.Index, k: int) -> Search:
    return lambda queries, threads: index.search(queries, k, threads=threads).distances


def theirs(index: Any, k: int) -> Search:
    def search(queries: Packed, threads: int) -> NDArray[Any]:
        faiss.omp_set_num_threads(threads)
        return np.asarray(index.search(queries, k)[0])

    return search


def codewords(bits: int) -> Packed:
    return np.random.default_rng(1).integers(0, 256, (CODEWORDS, bits // 8), dtype=np.uint8)


def maker(kind: str, bits: int) -> Callable[[int], Packed]:
    """A function that makes n packed codes, in blocks."""
    rng, centroids = np.random.default_rng(0), codewords(bits)

    def block(n: int) -> Packed:
        if kind == "random":
            return rng.integers(0, 256, (n, bits // 8), dtype=np.uint8)
        flips = np.packbits(rng.random((n, bits), np.float32) < FLIPS, axis=1)
        return np.asarray(centroids[rng.integers(0, CODEWORDS, n)] ^ flips)

    return lambda n: np.concatenate(
        [block(min(1 << 18, n - start)) for start in range(0, n, 1 << 18)]
    )


if __name__ == "__main__":
    main()
