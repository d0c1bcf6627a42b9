"""The routed search on codes of trained models: is it exact, and how much faster than the flat scan?

    python bench/trained.py cifar10=runs/cifar10/hcdh-64-efficientnet_lite0-s0 tinyimagenet100=runs/tiny

Each run has been evaluated, so its `codes/` holds queries and database; the codebook is made again from what hasher.json and
run.json say (method hcdh, design and seed). The codes are searched as they are, and drawn with repetition up to --size, to see
the real distribution at the size where speed matters. Every answer is compared with the flat scan's, distances and ids.
"""

from __future__ import annotations

import argparse
import datetime
import os
import shlex
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from evaluation import hardware

import hadahash as hh
from hadahash import files, native
from hadahash.codebooks import codebook


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="+", metavar="NAME=FOLDER")
    parser.add_argument(
        "--classes", type=int, nargs="+", help="of each run, where hasher.json is not at hand"
    )
    parser.add_argument("--size", type=int, default=10_000_000)
    parser.add_argument("--k", type=int, nargs="+", default=[10, 100])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--out", type=Path, default=Path("bench/results/trained.json"))
    options = parser.parse_args()
    result: dict[str, Any] = {
        "command": shlex.join(["python", "bench/trained.py", *sys.argv[1:]]),
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "hardware": hardware(),
        "scan": native.describe(),
        "load_before": os.getloadavg()[0],
        "cases": [],
    }
    for number, spec in enumerate(options.runs):
        name, folder = spec.split("=", 1)
        result["cases"] += measure_run(
            name, Path(folder), options.classes[number] if options.classes else None, options
        )
    files.write_json(options.out, result)


def measure_run(
    name: str, run: Path, classes: int | None, options: argparse.Namespace
) -> list[dict[str, Any]]:
    query, database = (
        hh.Codes.load(run / "codes" / f"{part}.npz") for part in ("query", "database")
    )
    if classes is None:
        card = files.read_json(run / "hasher.json")
        book = codebook(len(card["classes"]), card["bits"], seed=card["seed"])
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
            print(rows[-1])
    return rows


def compare(engines: dict[str, hh.Index], query: hh.Codes, k: int, rounds: int) -> dict[str, Any]:
    """Single queries, one thread: median milliseconds, median ratio, and whether all answers agree and are certified."""
    for index in engines.values():
        index.search(query[[0]], k, threads=1)  # not counted
    chosen = [query[[row]] for row in np.linspace(0, len(query) - 1, 40).astype(int)]
    times: dict[str, list[float]] = {name: [] for name in engines}
    same, certified = True, True
    for turn in range(rounds):
        found = {}
        for name, index in sorted(
            engines.items(), reverse=turn % 2 == 1
        ):  # each is as often the first
            start = time.perf_counter()
            found[name] = [index.search(one, k, threads=1) for one in chosen]
            times[name].append((time.perf_counter() - start) / len(chosen))
        for flat, routed in zip(found["exact"], found["routed"], strict=True):
            same &= bool(
                (flat.ids == routed.ids).all() and (flat.distances == routed.distances).all()
            )
            certified &= routed.exact
    return {
        "milliseconds_per_query": {name: 1000 * median(values) for name, values in times.items()},
        "exact / routed": float(np.median(np.divide(times["exact"], times["routed"]))),
        "same_answers": same,
        "certified": certified,
    }


if __name__ == "__main__":
    main()
