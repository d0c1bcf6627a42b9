"""Search times compared with faiss: flat scan and routed search, on random and on clustered codes.

    python bench/search.py               # 1e5, 1e6 and 1e7 codes of 32, 64 and 128 bits; 1e8 of 64
    python bench/search.py --sizes 100000 --bits 64 --large 0 --rounds 4 --out small.json

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

`large` has the search of one large collection, with add and remove; see search_large.py. With
--old, version 0.1 (see bench/serve_million.py) then searches and changes the same collection.

`numpy` is the search without the compiled library. `before` is version 0.1 beside faiss, in the
case of its smallest ratio: single queries among 10,000,000 random codes of 128 bits.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

import common
import search_large
import versions
from search_codes import Maker
from search_turns import (
    QUERIES,
    bandwidth,
    faiss,
    faiss_instructions,
    fastest,
    measure,
    pairs,
    searchers,
)

ENGINES = ("exact", "routed")


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
    result["numpy"] = alone(
        versions.Version(common.ROOT, HADAHASH_NATIVE="0"), 1_000_000, 64, options
    )
    if options.old:
        result["before"] = alone(versions.Version(options.old), 10_000_000, 128, options)
    if options.large:
        result["large"] = search_large.in_a_process(options)
        if options.old:
            result["large"]["before"] = before(options)
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
    parser.add_argument("--large", type=int, default=100_000_000, help="codes; 0 for none")
    parser.add_argument("--large-rounds", type=int, default=3)
    versions.add_option(parser)
    return common.parse(parser, arguments)


def alone(
    version: versions.Version, most: int, bits: int, options: argparse.Namespace
) -> dict[str, Any]:
    """Single queries among random codes of a version, or without the compiled library."""
    size = min(most, max(options.sizes))
    found = version.step(
        "random codes", "random", size, bits, options.k, options.rounds, *options.threads
    )
    times = {(name, threads): seconds for name, threads, seconds in found.pop("turns")}
    case = {"kind": "random", "codes": size, "bits": bits, "batch": 1}
    right = found["rows_with_the_true_distances"]
    return case | fastest(times) | {"rows_with_the_true_distances": right}


def before(options: argparse.Namespace) -> list[dict[str, Any]]:
    """The search of the large collection by each engine of version 0.1."""
    old = versions.Version(options.old)
    return [old.step(f"{name}, large", "large", options.large, name) for name in ENGINES]


def compare(
    kind: str, size: int, bits: int, options: argparse.Namespace
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The cases of one collection: per batch size and number of threads, and per batch size."""
    make = Maker(kind, bits)
    packed = make(size)
    engines, facts = searchers(kind, packed, bits, options.k, make)
    cases, best = [], []
    for batch in options.batches:
        case = {"kind": kind, "codes": size, "bits": bits, "batch": batch}
        queries = make(-(-QUERIES // batch) * batch)
        times, reads, right = measure(engines, queries, batch, options, packed, "faiss flat")
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


if __name__ == "__main__":
    main()
