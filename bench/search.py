"""Search times compared with faiss: flat scan and routed search, on random and on clustered codes.

    python bench/search.py               # 1e5, 1e6 and 1e7 codes of 32, 64 and 128 bits
    python bench/search.py --sizes 100000 --bits 64 --rounds 4 --out small.json

All engines with all numbers of threads take turns in every round, in rotating order, so that
neither a busy machine nor a warm cache favors one. A turn takes at least 8 queries and 30 ms.
`cases` has the times and ratios at equal numbers of threads. `best` has the ratios of each side
with its fastest number of threads, and of faiss flat with its faster way of keeping the nearest:
heap ("faiss flat") or counting ("faiss flat, counting"). All are medians and quartiles over the
rounds.

Clustered codes are 100 codewords with 5 % of the bits flipped. "exact" is the default engine;
"routed" gets the codewords of clustered codes, and learns centroids of random ones. faiss is
IndexBinaryFlat, and on clustered codes also IndexBinaryIVF with 100 lists and the fewest probes
that find all true distances. The read bandwidth is that of numpy's fastest reduction over the
same number of bytes. Threads wait passively everywhere.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import argparse
import itertools
import json
import sys
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import common
import faiss
import numpy as np
from numpy.typing import NDArray

import hadahash as hh

CODEWORDS, FLIPS = 100, 0.05
QUERIES = 256  # distinct queries, so that the cache rarely holds what the next one needs
FEWEST, TURN = 8, 0.03  # minimum queries and seconds per turn of an engine
Packed = NDArray[np.uint8]
Search = Callable[[Packed, int], NDArray[Any]]  # queries, threads -> distances (q, k)
Way = tuple[str, int]  # engine and number of threads
Times = dict[Way, list[float]]  # seconds per query, by round


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark and write the result as JSON."""
    options = parse(arguments)
    result = common.begin(options, {"faiss": faiss.__version__})
    result |= {
        "faiss_built_for": faiss.get_compile_options().strip(),
        "faiss_runs_with": faiss_instructions(),
        "k": options.k,
        "rounds": options.rounds,
        "cases": [],
        "best": [],
    }
    for bits in options.bits:
        for size in options.sizes:
            for kind in options.kinds:
                cases, best = compare(kind, size, bits, options)
                result["cases"] += cases
                result["best"] += best
                print(json.dumps(best), file=sys.stderr)
    common.finish(result, options)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Options of the command line."""
    parser = common.make_parser("search", __doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[100_000, 1_000_000, 10_000_000])
    parser.add_argument("--bits", type=int, nargs="+", default=[32, 64, 128])
    parser.add_argument(
        "--kinds", nargs="+", default=["random", "clustered"], choices=["random", "clustered"]
    )
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 64], help="queries per call")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--k", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=8)
    return common.parse(parser, arguments)


def faiss_instructions() -> str | None:
    """The instruction set that faiss selected on this processor, if it tells."""
    config: Any = getattr(faiss, "SIMDConfig", None)
    return str(config.get_level_name()) if hasattr(config, "get_level_name") else None


# ---- Measuring -----------------------------------------------------------------------------------


def compare(
    kind: str, size: int, bits: int, options: argparse.Namespace
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The cases of one collection: per batch size and number of threads, and per batch size."""
    make = maker(kind, bits)
    packed = make(size)
    engines, facts = searchers(kind, packed, bits, options.k, make)
    cases, best = [], []
    for batch in options.batches:
        case = {"kind": kind, "codes": size, "bits": bits, "batch": batch}
        queries = make(-(-QUERIES // batch) * batch)
        times, reads, right = measure(engines, packed, queries, batch, options)
        for threads in options.threads:
            chosen = {name: times[name, threads] for name in engines}
            cases.append(
                case
                | {"threads": threads}
                | facts
                | common.milliseconds(chosen)
                | common.ratios(chosen, pairs(chosen))
                | bandwidth(chosen["exact"], reads, packed)
                | {"rows_with_the_true_distances": {name: right[name, threads] for name in engines}}
            )
        best.append(case | facts | fastest(times))
    return cases, best


def measure(
    engines: dict[str, Search],
    packed: Packed,
    queries: Packed,
    batch: int,
    options: argparse.Namespace,
) -> tuple[Times, dict[str, list[float]], dict[Way, float]]:
    """Seconds per query, seconds to read all codes, and the fraction of rows that equal faiss."""
    batches = [queries[first : first + batch] for first in range(0, len(queries), batch)]
    few = -(-FEWEST // batch)
    ways = [(name, threads) for threads in options.threads for name in engines]
    calls, found = {}, {}
    for name, threads in ways:  # warm-up
        found[name, threads] = [engines[name](part, threads) for part in batches[:few]]
        start = time.perf_counter()
        engines[name](batches[0], threads)
        calls[name, threads] = max(few, int(TURN / (time.perf_counter() - start)))
    coming = {way: itertools.cycle(batches) for way in ways}  # a turn continues the last one
    times: Times = {way: [] for way in ways}
    reads: dict[str, list[float]] = {}
    for turn in range(options.rounds):
        for name, threads in ways[turn % len(ways) :] + ways[: turn % len(ways)]:
            parts = [next(coming[name, threads]) for _ in range(calls[name, threads])]
            engines[name](parts[0][:1], threads)  # starts the threads; not counted
            start = time.perf_counter()
            for part in parts:
                engines[name](part, threads)
            took = time.perf_counter() - start
            times[name, threads].append(took / (len(parts) * batch))
        read_all(packed, reads)
    true = found["faiss flat", options.threads[0]]
    return times, reads, {way: same_rows(each, true) for way, each in found.items()}


def read_all(packed: Packed, reads: dict[str, list[float]]) -> None:
    """Time each of numpy's fast reductions once."""
    words = packed.reshape(-1).view(np.uint32 if packed.size % 8 else np.uint64)
    for name, reduce in (("max", np.max), ("sum", np.sum), ("xor", np.bitwise_xor.reduce)):
        start = time.perf_counter()
        reduce(words)
        reads.setdefault(name, []).append(time.perf_counter() - start)


def same_rows(answers: list[NDArray[Any]], true: list[NDArray[Any]]) -> float:
    """Fraction of queries with the true distances."""
    return float((np.concatenate(answers) == np.concatenate(true)).all(axis=1).mean())


# ---- Summaries -----------------------------------------------------------------------------------


def pairs(engines: Sequence[str] | dict[str, Any]) -> list[tuple[str, str]]:
    """The ratios to compute: faiss to each of ours, and the flat scan to the routed search."""
    faiss_ones = [name for name in engines if name.startswith("faiss")]
    return [(peer, name) for peer in faiss_ones for name in ("exact", "routed")] + [
        ("exact", "routed")
    ]


def bandwidth(
    exact: list[float], reads: dict[str, list[float]], packed: Packed
) -> dict[str, float]:
    """The read bandwidth, and the fraction of it that the flat scan reaches."""
    read = min(median(seconds) for seconds in reads.values())
    return {
        "read_bandwidth_gb_per_s": packed.nbytes / read / 1e9,
        "exact_share_of_bandwidth": read / median(exact),
    }


def fastest(times: Times) -> dict[str, Any]:
    """Times and ratios of each side with its fastest number of threads, and faiss's faster way."""
    chosen: dict[str, Way] = {}
    for way in sorted(times, key=lambda way: median(times[way])):
        chosen.setdefault(way[0].split(",")[0], way)
    by_side = {side: times[way] for side, way in chosen.items()}
    return {
        "ways": {side: {"engine": name, "threads": n} for side, (name, n) in chosen.items()},
        **common.milliseconds(by_side),
        **common.ratios(by_side, pairs(by_side)),
    }


# ---- Engines -------------------------------------------------------------------------------------


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
    found: dict[str, Search] = {name: ours(index, k) for name, index in indexes.items()}
    found["faiss flat"] = theirs(flat, k)
    if hasattr(flat, "use_heap"):
        found["faiss flat, counting"] = theirs(flat, k, heap=False)
    if kind == "random":
        return found, {}
    inverted = faiss.IndexBinaryIVF(faiss.IndexBinaryFlat(bits), bits, CODEWORDS)
    inverted.train(packed[: 50 * CODEWORDS])
    inverted.add(packed)
    inverted.own_fields = False
    probes = fewest_probes(inverted, make(200), k, found["exact"])
    # With a heap only: in faiss 1.15.1 IndexBinaryIVF returns no results by counting.
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
    """Search by an index of hadahash."""
    return lambda queries, threads: index.search(queries, k, threads=threads).distances


def theirs(index: Any, k: int, heap: bool = True) -> Search:
    """Search by an index of faiss, which keeps the nearest in a heap or by counting."""

    def search(queries: Packed, threads: int) -> NDArray[Any]:
        faiss.omp_set_num_threads(threads)
        index.use_heap = heap
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
