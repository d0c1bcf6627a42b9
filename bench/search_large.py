"""One large collection: exact and routed search, faiss, add and remove, in bounded memory.

bench/search.py runs this in a process of its own and stores its answer. By itself:

    python bench/search_large.py --large 1000000

Codes have 64 bits. They are made in blocks, and at most two engines exist at a time:

- random codes: the exact engine and faiss flat;
- clustered codes: the exact and the routed engine;
- the same clustered codes: the routed engine and faiss IVF.

Then the index of hadahash is changed: one item and 999 items are added, and the same number of
older ones is removed. Queries find what was added and do not find what was removed. The first
search after a removal makes the bitmap of the items that are left.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import common
import numpy as np
from search_codes import CODEWORDS, Maker, codeword_signs
from search_turns import (
    QUERIES,
    Search,
    fastest,
    fewest_probes,
    flat_scans,
    inverted_lists,
    measure,
    ours,
    theirs,
)

import hadahash as hh

BITS = 64
SOME = 1000  # items that are added and removed: one, then the rest
REPEATED = 8  # changes of each kind


def main() -> None:
    """Measure, and print the result as JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--large", type=int, default=100_000_000)
    parser.add_argument("--large-rounds", type=int, default=3)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 64])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--k", type=int, default=10)
    options = parser.parse_args()
    options.rounds = options.large_rounds
    print(json.dumps(measure_large(options)))


def in_a_process(options: argparse.Namespace) -> dict[str, Any]:
    """Run this program and return its result, so that its memory is its own."""
    command = [sys.executable, str(Path(__file__)), "--large", str(options.large)]
    command += ["--large-rounds", str(options.large_rounds), "--k", str(options.k)]
    for name in ("batches", "threads"):
        command += [f"--{name}", *map(str, getattr(options, name))]
    environment = os.environ | {"PYTHONPATH": str(Path(hh.__file__).parents[1])}  # the same package
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def measure_large(options: argparse.Namespace) -> dict[str, Any]:
    """The result for one size."""
    start = time.perf_counter()
    best, changes = [], []
    for part in (random_part, clustered_part):
        cases, changed = part(options)
        best += cases
        changes += changed
    return {
        "codes": options.large,
        "bits": BITS,
        "rounds": options.rounds,
        "best": best,
        "changes": changes,
        "peak_mb": round(common.peak_megabytes()),
        "seconds": round(time.perf_counter() - start),
    }


# ---- The parts -----------------------------------------------------------------------------------

Part = tuple[list[dict[str, Any]], list[dict[str, Any]]]  # cases and changes


def random_part(options: argparse.Namespace) -> Part:
    """The exact engine and faiss flat."""
    make = Maker("random", BITS)
    packed = make(options.large)
    index, seconds = timed(hh.Index.build, hh.Codes(packed=packed, bits=BITS))
    engines: dict[str, Search] = {"exact": ours(index, options.k)}
    engines |= flat_scans(packed, BITS, options.k)
    del packed
    cases = take_turns("random", engines, make, options, "faiss flat")
    del engines
    return cases, [{"kind": "random", "build_s": seconds} | change(index, make, options)]


def clustered_part(options: argparse.Namespace) -> Part:
    """The routed engine beside the exact one, then beside faiss IVF."""
    make = Maker("clustered", BITS)
    packed = make(options.large)
    codes = hh.Codes(packed=packed, bits=BITS)
    exact = hh.Index.build(codes)
    words = codeword_signs(BITS)
    routed, seconds = timed(hh.Index.build, codes, engine="routed", codewords=words)
    sample = packed[: 50 * CODEWORDS].copy()
    del packed, codes
    engines: dict[str, Search] = {
        "exact": ours(exact, options.k),
        "routed": ours(routed, options.k),
    }
    cases = take_turns("clustered", engines, make, options, "exact")
    del exact, engines
    inverted = inverted_lists(BITS, sample)
    for block in Maker("clustered", BITS).blocks(options.large):
        inverted.add(block)
    engines = {"routed": ours(routed, options.k), "faiss ivf": theirs(inverted, options.k)}
    probes = fewest_probes(inverted, make(200), options.k, engines["routed"])
    more = take_turns("clustered", engines, make, options, "routed")
    cases += [case | {"ivf_probes": probes} for case in more]
    del inverted, engines
    return cases, [{"kind": "clustered", "build_s": seconds} | change(routed, make, options)]


def take_turns(
    kind: str, engines: dict[str, Search], make: Maker, options: argparse.Namespace, reference: str
) -> list[dict[str, Any]]:
    """Each side with its fastest number of threads, per batch size."""
    cases = []
    for batch in options.batches:
        queries = make(-(-QUERIES // batch) * batch)
        times, _, right = measure(engines, queries, batch, options, None, reference)
        case = {"kind": kind, "codes": options.large, "bits": BITS, "batch": batch}
        case["rows_with_the_true_distances"] = min(right.values())
        cases.append(case | fastest(times))
        print(json.dumps(cases[-1]), file=sys.stderr)
    return cases


# ---- Add and remove ------------------------------------------------------------------------------


def change(index: hh.Index, make: Maker, options: argparse.Namespace) -> dict[str, Any]:
    """Median and quartiles of the milliseconds of changes and of the searches after them."""
    found: dict[str, list[float]] = {}

    def time_step(name: str, step: Callable[..., Any], *arguments: Any) -> Any:
        answer, seconds = timed(step, *arguments)
        found.setdefault(name, []).append(1000 * seconds)
        return answer

    spread = np.random.default_rng(2).permutation(options.large // SOME)[:REPEATED] * SOME
    next_id = options.large
    for first in spread.tolist():
        for count, start in ((1, first), (SOME - 1, first + 1)):
            new = hh.Codes(packed=make(count), bits=BITS, ids=np.arange(next_id, next_id + count))
            next_id += count
            time_step(f"add {count}", index.add, new)
            hits = time_step(f"search after add {count}", index.search, new.packed[:1], 1)
            require(hits.distances[0, 0] == 0, "An item that was added is not found.")
            old = np.arange(start, start + count)
            query = index.codes(old[:1]).packed
            time_step(f"remove {count}", index.remove, old)
            for order in ("first", "next"):
                name = f"{order} search after remove {count}"
                hits = time_step(name, index.search, query, options.k)
                require(old[0] not in hits.ids, "An item that was removed is found.")
    return {
        "engine": index.engine,
        "milliseconds": {name: float(np.median(each)) for name, each in found.items()},
        "milliseconds_quartiles": {name: common.quartiles(each) for name, each in found.items()},
    }


def require(condition: bool, otherwise: str) -> None:
    if not condition:
        raise SystemExit(otherwise)


def timed(action: Callable[..., Any], *arguments: Any, **options: Any) -> tuple[Any, float]:
    """What the action returns, and the seconds it took."""
    start = time.perf_counter()
    found = action(*arguments, **options)
    return found, time.perf_counter() - start


if __name__ == "__main__":
    main()
