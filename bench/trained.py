"""The routed search on codes of trained models: whether it is exact, and its speed.

    python bench/trained.py cifar10=runs/cifar10/hcdh-64 tinyimagenet100=runs/tiny

Each run has been evaluated, so its folder holds the codes of queries and database; the codewords
are those of its model. The codes are searched as they are, and drawn with repetition up to
--size, to have the real distribution at a size where speed matters. Every result is compared with
that of the flat scan, distances and ids.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import Any

import common
import numpy as np

import hadahash as hh
from hadahash.codebooks import codebook
from hadahash.runs import EvaluatedRun, read_evaluated_run


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark and write the result as JSON."""
    parser = common.make_parser("trained", __doc__)
    parser.add_argument("runs", nargs="+", metavar="NAME=FOLDER")
    parser.add_argument(
        "--classes",
        type=int,
        nargs="+",
        help="classes of each run, to make the codebook if the folder has no model",
    )
    parser.add_argument("--size", type=int, default=10_000_000)
    parser.add_argument("--k", type=int, nargs="+", default=[10, 100])
    parser.add_argument("--rounds", type=int, default=8)
    options = common.parse(parser, arguments)
    result = common.begin(options)
    result |= {"models": {}, "cases": []}
    for number, spec in enumerate(options.runs):
        name, folder = spec.split("=", 1)
        classes = options.classes[number] if options.classes else None
        run = read_evaluated_run(folder)
        result["models"][name] = {key: run.record.get(key) for key in ("method", "backbone")}
        result["cases"] += measure_run(name, run, classes, options)
    common.finish(result, options)


def measure_run(
    name: str, run: EvaluatedRun, classes: int | None, options: argparse.Namespace
) -> list[dict[str, Any]]:
    """The codes of one run: as they are, and drawn with repetition."""
    query, database = run.query, run.database
    if classes is None:
        book = hh.HashModel.load(run.folder, device="cpu").codewords()
    else:
        book = codebook(classes, query.bits)
    rng = np.random.default_rng(0)
    drawn = database.packed[rng.integers(0, len(database), options.size)]
    rows = []
    for packed in (database.packed, drawn):
        codes = hh.Codes(packed=packed, bits=query.bits)
        engines = {
            "exact": hh.Index.build(codes),
            "routed": hh.Index.build(codes, engine="routed", codewords=book),
        }
        for k in options.k:
            rows.append(
                {"codes_of": name, "codes": len(codes), "bits": query.bits, "k": k}
                | compare(engines, query, k, options.rounds)
            )
    return rows


def compare(engines: dict[str, hh.Index], query: hh.Codes, k: int, rounds: int) -> dict[str, Any]:
    """Single queries on one thread: times, their ratio, and whether all results agree."""
    for index in engines.values():
        index.search(query[[0]], k, threads=1)  # not counted
    chosen = [query[[row]] for row in np.linspace(0, len(query) - 1, 40).astype(int)]
    times: dict[str, list[float]] = {name: [] for name in engines}
    same, certified = True, True
    for turn in range(rounds):
        found = {}
        # Each engine is the first equally often.
        for name, index in sorted(engines.items(), reverse=turn % 2 == 1):
            start = time.perf_counter()
            found[name] = [index.search(one, k, threads=1) for one in chosen]
            times[name].append((time.perf_counter() - start) / len(chosen))
        for flat, routed in zip(found["exact"], found["routed"], strict=True):
            same &= bool(
                (flat.ids == routed.ids).all() and (flat.distances == routed.distances).all()
            )
            certified &= routed.exact
    return {
        **common.milliseconds(times),
        **common.ratios(times, [("exact", "routed")]),
        "same_answers": same,
        "certified": certified,
    }


if __name__ == "__main__":
    main()
