"""The engines that bench/search.py and bench/search_large.py compare, and how they take turns."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import argparse
import itertools
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray
from search_codes import CODEWORDS, Maker, Packed, codeword_signs

import hadahash as hh

QUERIES = 256  # distinct queries, so that the cache rarely holds what the next one needs
FEWEST, TURN = 8, 0.03  # minimum queries and seconds per turn of an engine
Search = Callable[[Packed, int], NDArray[Any]]  # queries, threads -> distances (q, k)
Way = tuple[str, int]  # engine and number of threads
Times = dict[Way, list[float]]  # seconds per query, by round

# ---- Measuring -----------------------------------------------------------------------------------


def measure(
    engines: dict[str, Search],
    queries: Packed,
    batch: int,
    options: argparse.Namespace,
    packed: Packed | None,
    reference: str,
) -> tuple[Times, dict[str, list[float]], dict[Way, float]]:
    """Seconds per query, seconds to read all codes, and the fraction of rows that are right.

    Args:
        engines: The searches to time.
        queries: Distinct queries.
        batch: Queries per call.
        options: Of the command line: rounds and numbers of threads.
        packed: Codes to read, for the bandwidth; None to read nothing.
        reference: The engine whose distances are right.
    """
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
        if packed is not None:
            read_all(packed, reads)
    true = found[reference, options.threads[0]]
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
    ours_ones = [name for name in ("exact", "routed") if name in engines]
    faiss_ones = [name for name in engines if name.startswith("faiss")]
    both = [("exact", "routed")] if len(ours_ones) == 2 else []
    return [(peer, name) for peer in faiss_ones for name in ours_ones] + both


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
    import common  # not above: version 0.1, which takes turns too, lacks what it imports

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
    kind: str, packed: Packed, bits: int, k: int, make: Maker
) -> tuple[dict[str, Search], dict[str, Any]]:
    """The engines, and facts about them."""
    codes = hh.Codes(packed=packed, bits=bits)
    words = codeword_signs(bits) if kind == "clustered" else None
    indexes = {
        "exact": hh.Index.build(codes),
        "routed": hh.Index.build(codes, engine="routed", codewords=words),
    }
    found: dict[str, Search] = {name: ours(index, k) for name, index in indexes.items()}
    found |= flat_scans(packed, bits, k)
    if kind == "random":
        return found, {}
    inverted = inverted_lists(bits, packed[: 50 * CODEWORDS])
    inverted.add(packed)
    probes = fewest_probes(inverted, make(200), k, found["exact"])
    # With a heap only: in faiss 1.15.1 IndexBinaryIVF returns no results by counting.
    return found | {"faiss ivf": theirs(inverted, k)}, {"ivf_probes": probes}


def flat_scans(packed: Packed, bits: int, k: int) -> dict[str, Search]:
    """The flat scan of faiss, with each of its ways to keep the nearest."""
    flat = faiss.IndexBinaryFlat(bits)
    flat.add(packed)
    found = {"faiss flat": theirs(flat, k)}
    if hasattr(flat, "use_heap"):
        found["faiss flat, counting"] = theirs(flat, k, heap=False)
    return found


def inverted_lists(bits: int, sample: Packed) -> Any:
    """An empty IndexBinaryIVF, trained on a sample."""
    inverted = faiss.IndexBinaryIVF(faiss.IndexBinaryFlat(bits), bits, CODEWORDS)
    inverted.train(sample)
    inverted.own_fields = False
    return inverted


def fewest_probes(inverted: Any, queries: Packed, k: int, exact: Search) -> int:
    """Set and return the smallest number of probes with which IVF finds all true distances."""
    true, probes = exact(queries, 1), 1
    while True:
        inverted.nprobe = probes
        if probes >= CODEWORDS or np.array_equal(inverted.search(queries, k)[0], true):
            return probes
        probes = min(2 * probes, CODEWORDS)


def faiss_instructions() -> str | None:
    """The instruction set that faiss selected on this processor, if it tells."""
    config: Any = getattr(faiss, "SIMDConfig", None)
    return str(config.get_level_name()) if hasattr(config, "get_level_name") else None


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
