"""Speed of the Milvus engine on this machine, with milvus-lite: items and queries per second.

    python bench/milvus.py                          # 1e4, 1e5 and 1e6 codes of 64 bits, milvus-lite
    python bench/milvus.py --page docs/scale.md     # and write the table to the page
    python bench/milvus.py --uri http://host:19530  # a server (token in HADAHASH_MILVUS_TOKEN)

Codes are 100 centroids with 15 % of the bits flipped. Every result is compared with that of the
default engine, which is measured on the same codes. Search times are medians over rounds in which
both engines take turns.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import argparse
import datetime
import json
import platform
import shlex
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from evaluation import clustered, hardware

import hadahash as hh
from hadahash import files


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    with tempfile.TemporaryDirectory() as folder:
        uri = options.uri or f"{folder}/bench.db"
        result: dict[str, Any] = {
            "command": shlex.join(
                ["python", "bench/milvus.py", *(sys.argv[1:] if arguments is None else arguments)]
            ),
            "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "hardware": hardware(),
            "server": options.uri or f"milvus-lite {metadata.version('milvus-lite')}",
            "versions": {
                "python": platform.python_version(),
                "numpy": np.__version__,
                "pymilvus": metadata.version("pymilvus"),
                "hadahash": hh.__version__,
            },
            "bits": options.bits,
            "k": options.k,
            "rounds": options.rounds,
            "load_before": os.getloadavg()[0],
            "cases": [],
        }
        warm = hh.Codes(packed=np.zeros((1, options.bits // 8), np.uint8), bits=options.bits)
        hh.Index.build(warm, engine="milvus", uri=uri).drop()  # type: ignore[attr-defined]  # starts milvus-lite
        for size in options.sizes:
            result["cases"].append(measure(size, uri, options))
            print(json.dumps(result["cases"][-1]), file=sys.stderr)
    files.write_json(options.out, result)
    if options.page:
        write_page(options.page, result)
    print(json.dumps(result, indent=2))


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--bits", type=int, default=64)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 64], help="queries per call")
    parser.add_argument("--k", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--uri", help="a server instead of milvus-lite")
    parser.add_argument(
        "--page", type=Path, help="write the table between the marks of this page (docs/scale.md)"
    )
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).parent / "results" / "milvus.json"
    )
    return parser.parse_args(arguments)


def measure(size: int, uri: str, options: argparse.Namespace) -> dict[str, Any]:
    """One size: insert, insert again, search by both engines, remove."""
    make = clustered(np.random.default_rng(0), options.bits, 100, False)
    codes, labels = make(size)
    start = time.perf_counter()
    index = hh.Index.build(codes, labels, engine="milvus", uri=uri, timeout=120)
    inserted = time.perf_counter() - start
    few = codes[: min(size, 10_000)]
    start = time.perf_counter()
    index.update(few, labels[: len(few)])
    updated = time.perf_counter() - start
    searched = searches(
        index, hh.Index.build(codes, labels), make(max(options.batches))[0], options
    )
    start = time.perf_counter()
    index.remove(few.ids)
    removed = time.perf_counter() - start
    index.drop()  # type: ignore[attr-defined]
    return {
        "codes": size,
        "inserted_per_second": size / inserted,
        "updated_per_second": len(few) / updated,
        "removed_per_second": len(few) / removed,
        "searches": searched,
    }


def searches(
    index: hh.Index, exact: hh.Index, queries: hh.Codes, options: argparse.Namespace
) -> list[dict[str, Any]]:
    """Milliseconds per query of both engines, with and without a filter, and whether they agree."""
    rows = []
    for batch in options.batches:
        for label_filter in ({}, {"labels": 3}):
            asked, times, same = queries[:batch], {"milvus": [], "exact": []}, []  # type: ignore[var-annotated]
            for _ in range(options.rounds + 1):  # the first is a warm-up
                found = []
                for name, engine in (("milvus", index), ("exact", exact)):
                    start = time.perf_counter()
                    found.append(engine.search(asked, options.k, **label_filter))  # type: ignore[arg-type]
                    times[name].append(1000 * (time.perf_counter() - start) / batch)
                same.append(np.array_equal(found[0].ids, found[1].ids))
            medians = {name: median(each[1:]) for name, each in times.items()}
            rows.append(
                {
                    "batch": batch,
                    **label_filter,
                    "milliseconds_per_query": medians,
                    "same_answers": all(same),
                }
            )
    return rows


def write_page(page: Path, result: dict[str, Any]) -> None:
    """Replace the text between the marks."""
    before, rest = page.read_text().split("<!-- measured -->\n", 1)
    after = rest.split("<!-- end of measured -->\n", 1)[1]
    files.write_text(
        page, before + "<!-- measured -->\n" + table(result) + "<!-- end of measured -->\n" + after
    )


def table(result: dict[str, Any]) -> str:
    lines = [
        "| codes | stored / s | replaced / s | removed / s | 1 query, ms | batch of 64, ms per query | with a label, ms per query |",
        "|---|---|---|---|---|---|---|",
    ]
    for case in result["cases"]:
        found = {
            (row["batch"], "labels" in row): row["milliseconds_per_query"]
            for row in case["searches"]
        }
        times = " | ".join(
            f"{found[key]['milvus']:.2f} ({found[key]['exact']:.2f})"
            for key in ((1, False), (64, False), (64, True))
        )
        rates = " | ".join(
            f"{case[f'{kind}_per_second']:,.0f}" for kind in ("inserted", "updated", "removed")
        )
        lines.append(f"| {case['codes']:,} | {rates} | {times} |")
    same = all(row["same_answers"] for case in result["cases"] for row in case["searches"])
    lines += [
        "",
        f"`{result['command']}`, {result['server']}, pymilvus {result['versions']['pymilvus']}, {result['hardware']}, load "
        f"{result['load_before']:.1f} before, {result['date'][:10]}. {result['bits']} bits, k = {result['k']}, medians of "
        f"{result['rounds']} rounds; in parentheses the default engine on the same codes. "
        + ("All results were equal." if same else "Some results differed."),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
