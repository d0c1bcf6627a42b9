"""Times of ranked searches compared with the plain scan of the class bits.

    python bench/ranking.py               # 1e7 codes of 64 class bits and 128 content bits
    python bench/ranking.py --sizes 100000 --rounds 2 --out small.json

All ways take turns in every round, in rotating order; a ratio is paired by round, so that a busy
machine slows both sides. Every way is exact, and is compared with a sort of all scores once.

- plain: the k nearest class codes by Hamming distance.
- real: real-valued query, no codewords.
- class: the probability of sharing a class, with 100 codewords.
- photo: the logarithm of this + 2 * content.
- weighted: 2 * distance of the class bits + distance of the content bits.

Queries are single. "routed" ways search lists per codeword. Clustered codes are the codewords of
the design `far` with 5 % of the bits flipped, repeated ones with 0.5 %; of random codes, all bits
are random, which is the worst case of `class` and `photo`: no query is close to one class. Content
bits are random.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import common
import numpy as np
from numpy.typing import NDArray

import hadahash as hh
from hadahash.codes import pack
from hadahash.index.engines.routed import routed_table
from hadahash.native.ranked import all_points
from hadahash.native.search import nearest
from hadahash.native.tables import Rows, Table, cache_aligned, rows_of
from hadahash.ranking import Prepared, Ranking, prepare, ranked_search

CODEWORDS = 100
FLIPS = {"clustered": 0.05, "repeated": 0.005, "random": 0.5}
QUERIES = 8
WAYS = {  # name -> the ranking, whether the query is binary, whether codewords are known
    "real": ("class", False, False),
    "class": ("class", False, True),
    "photo": ("photo", False, True),
    "weighted": ("photo", True, False),
}
Search = Callable[[int], Any]  # number of a query -> result


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark and write the result as JSON."""
    options = parse(arguments)
    result = common.begin(options)
    result |= {"k": options.k, "rounds": options.rounds, "cases": []}
    for size in options.sizes:
        for kind in options.kinds:
            case = measure_collection(kind, size, options)
            result["cases"].append(case)
            print(json.dumps(case), file=sys.stderr)
    common.finish(result, options)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Options of the command line."""
    parser = common.make_parser("ranking", __doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000_000])
    parser.add_argument("--kinds", nargs="+", default=list(FLIPS), choices=list(FLIPS))
    parser.add_argument("--bits", type=int, default=64)
    parser.add_argument("--content-bits", type=int, default=128)
    parser.add_argument("--threads", type=int, help="default: all usable cores")
    parser.add_argument("--k", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=8)
    return common.parse(parser, arguments)


def measure_collection(kind: str, size: int, options: argparse.Namespace) -> dict[str, Any]:
    """Times and ratios of all ways on one collection."""
    rng = np.random.default_rng(0)
    words = np.asarray(hh.codebook(CODEWORDS, options.bits))
    rows = cache_aligned(rows_of(make_codes(rng, kind, words, size)))
    content = cache_aligned(rows_of(random_codes(rng, size, options.content_bits)))
    queries = make_queries(rng, kind, words, options.content_bits)
    flat = Table(rows)
    routed = routed_table(rows, rows_of(pack(words)), options.bits)
    ways: dict[str, Search] = {"plain": plain(flat, queries, options)}
    for name, (rank, binary, known) in WAYS.items():
        asked = hh.Queries.from_codes(queries.codes()) if binary else queries
        arguments = asked, Ranking(words) if known else Ranking(), rank
        ways[name] = ranked(flat, content, arguments, options)
        check(ways[name], flat, content, arguments, options)
        if routed.partition is not None and kind != "random":
            ways[f"{name}, routed"] = ranked(routed, content, arguments, options)
    times = take_turns(ways, options.rounds)
    pairs = [(name, "plain") for name in ways if name != "plain"]
    facts = {"kind": kind, "codes": size, "bits": options.bits, "threads": options.threads}
    return (
        facts
        | {"content_bits": options.content_bits, "distinct_codes": count_distinct(rows)}
        | common.milliseconds(times)
        | common.ratios(times, pairs)
    )


def take_turns(ways: dict[str, Search], rounds: int) -> dict[str, list[float]]:
    """Seconds per query of each way and round."""
    names = list(ways)
    times: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(rounds):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            ways[name](0)  # starts the threads; not counted
            start = time.perf_counter()
            for number in range(QUERIES):
                ways[name](number)
            times[name].append((time.perf_counter() - start) / QUERIES)
    return times


# ---- Ways of searching ---------------------------------------------------------------------------


def plain(table: Table, queries: hh.Queries, options: argparse.Namespace) -> Search:
    """The plain scan."""
    rows = rows_of(queries.codes().packed)
    limits = np.full(1, (options.bits + 1) << 32, np.uint64)

    def search(number: int) -> Any:
        one = rows[number : number + 1]
        return nearest(table, one, k=options.k, limits=limits, threads=options.threads)

    return search


def ranked(
    table: Table,
    content: Rows,
    arguments: tuple[hh.Queries, Ranking, str],
    options: argparse.Namespace,
) -> Search:
    """A ranked search, with the preparation of the query."""
    queries, ranking, rank = arguments

    def search(number: int) -> Any:
        prepared = prepare(queries[number], ranking, rank)
        return ranked_search(prepared, table, content, k=options.k, threads=options.threads)

    return search


def check(
    search: Search,
    table: Table,
    content: Rows,
    arguments: tuple[hh.Queries, Ranking, str],
    options: argparse.Namespace,
) -> None:
    """Compare one search with a sort of all scores."""
    queries, ranking, rank = arguments
    prepared: Prepared = prepare(queries[0], ranking, rank)
    used = content if prepared.content_bits else None
    points = all_points(prepared.tables, table.rows, used, options.bits)[0]
    best = np.argsort(-points, kind="stable")[: options.k]
    if not np.array_equal(search(0).ordinals[0], best):
        raise SystemExit(f"rank={rank!r} differs from a sort of all scores.")


# ---- Codes and queries ---------------------------------------------------------------------------


def make_codes(
    rng: np.random.Generator, kind: str, words: NDArray[np.int8], count: int
) -> NDArray[np.uint8]:
    """Codewords with flipped bits, in blocks."""
    packed, bits = pack(words), words.shape[1]
    blocks = []
    for start in range(0, count, 1 << 18):
        n = min(1 << 18, count - start)
        if kind == "random":
            blocks.append(random_codes(rng, n, bits))
            continue
        flips = np.packbits(rng.random((n, bits), np.float32) < FLIPS[kind], axis=1)
        blocks.append(packed[rng.integers(0, len(words), n)] ^ flips)
    return np.concatenate(blocks)


def count_distinct(rows: Rows) -> int:
    """Number of distinct codes."""
    if rows.shape[1] > 1:
        return len(np.unique(rows, axis=0))
    ordered = np.sort(rows[:, 0])
    return int(np.count_nonzero(ordered[1:] != ordered[:-1])) + 1


def random_codes(rng: np.random.Generator, count: int, bits: int) -> NDArray[np.uint8]:
    return rng.integers(0, 256, (count, bits // 8), dtype=np.uint8)


def make_queries(
    rng: np.random.Generator, kind: str, words: NDArray[np.int8], content_bits: int
) -> hh.Queries:
    """Queries with the codes of the collection, and values of different certainty."""
    codes = hh.Codes(make_codes(rng, kind, words, QUERIES), words.shape[1])
    certainty = rng.uniform(0, 1, (QUERIES, codes.bits)) ** 0.25
    return hh.Queries(codes.signs() * certainty, content=rng.normal(size=(QUERIES, content_bits)))


if __name__ == "__main__":
    main()
