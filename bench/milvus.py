"""Speed of the Milvus engine beside the local engines: items and queries per second.

    python bench/milvus.py                          # 1e5 and 1e6 codes of 64 bits
    python bench/milvus.py --page docs/scale.md     # and write the table to the page
    python bench/milvus.py --uri http://host:19530  # your server (token in HADAHASH_MILVUS_TOKEN)
    python bench/milvus.py --lite                   # milvus-lite

The server is that of the package `milvus`, with its default settings, on this machine. Codes are
100 centroids with 15 % of the bits flipped, and have one label. Every result is compared with that
of the default engine. Search times are medians over rounds in which all engines take turns.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import argparse
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import common
import numpy as np
from evaluation import clustered
from page_text import disturbed

import hadahash as hh
from hadahash import files

FAST = "Eventually"  # consistency of reads that need not see the latest writes


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark and write the result as JSON."""
    options = parse(arguments)
    result = common.begin(options, {"pymilvus": metadata.version("pymilvus")})
    with tempfile.TemporaryDirectory() as folder, server(Path(folder), options) as (name, about):
        result |= {
            "server": name,
            "bits": options.bits,
            "k": options.k,
            "rounds": options.rounds,
            "settle": options.settle,
            "cases": [],
        }
        warm = hh.Codes(packed=np.zeros((1, options.bits // 8), np.uint8), bits=options.bits)
        hh.Index.build(warm, engine="milvus").drop()  # type: ignore[attr-defined]
        for size in options.sizes:
            result["cases"].append(measure(size, options, about))
            print(json.dumps(result["cases"][-1]), file=sys.stderr)
    common.finish(result, options)
    if options.page:
        write_page(options.page, result)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Options of the command line."""
    parser = common.make_parser("milvus", __doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--bits", type=int, default=64)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 64], help="queries per call")
    parser.add_argument("--k", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument(
        "--settle",
        type=float,
        default=60.0,
        help="seconds before the searches: a server works on after inserts (default: 60)",
    )
    parser.add_argument("--uri", help="address of a server")
    parser.add_argument("--lite", action="store_true", help="milvus-lite instead of a server")
    parser.add_argument(
        "--page", type=Path, help="write the table between the marks of this page (docs/scale.md)"
    )
    return common.parse(parser, arguments)


@contextlib.contextmanager
def server(folder: Path, options: argparse.Namespace) -> Iterator[tuple[str, Any]]:
    """The server as the default of the engine: its name, and what it uses of the machine."""
    variable = "HADAHASH_MILVUS_URI"
    if options.uri or options.lite:
        lite = f"milvus-lite {metadata.version('milvus-lite')}"
        os.environ[variable] = options.uri or str(folder / "bench.db")
        yield options.uri or lite, dict
        return
    with running_server(folder / "server") as process:
        yield f"Milvus {metadata.version('milvus')} on the same machine", process.usage


@contextlib.contextmanager
def running_server(folder: Path) -> Iterator[Any]:
    """A Milvus server of the package `milvus` in an empty folder, as the default of the engine."""
    sys.path.append(str(common.ROOT / "tests"))
    import milvus_process

    process = milvus_process.MilvusProcess(folder, options={})
    process.start()
    os.environ["HADAHASH_MILVUS_URI"] = process.uri
    os.environ["HADAHASH_MILVUS_TOKEN"] = milvus_process.TOKEN
    try:
        yield process
    finally:
        process.kill()


def measure(size: int, options: argparse.Namespace, about: Any) -> dict[str, Any]:
    """One size: insert, insert again, search by all engines, remove; and what the server uses."""
    make = clustered(np.random.default_rng(0), options.bits, 100, False)
    codes, labels = make(size)
    words = np.random.default_rng(0).choice([-1, 1], (100, options.bits))  # the centroids
    timed: dict[str, float] = {}
    index = seconds(
        timed,
        "inserted",
        lambda: hh.Index.build(codes, labels, engine="milvus", timeout=120, deadline=300),
    )
    few = codes[: min(size, 10_000)]
    seconds(timed, "updated", lambda: index.update(few, labels[: len(few)]))
    fast = hh.Index.build(
        codes[:0],
        engine="milvus",
        collection=index.settings.collection,
        consistency=FAST,
        deadline=300,
    )
    engines = {
        "milvus": index,
        "milvus, eventual": fast,
        "exact": hh.Index.build(codes, labels),
        "routed": hh.Index.build(codes, labels, engine="routed", codewords=words),
    }
    queries = make(max(options.batches))[0]
    searched = [{"fresh": True} | search(engines, queries[:1], {}, options)]
    time.sleep(options.settle)
    searched += searches(engines, queries, options)
    seconds(timed, "removed", lambda: index.remove(few.ids))
    used: dict[str, Any] = about()
    index.drop()
    return used | {
        "codes": size,
        "inserted_per_second": size / timed["inserted"],
        "updated_per_second": len(few) / timed["updated"],
        "removed_per_second": len(few) / timed["removed"],
        "searches": searched,
    }


def seconds(timed: dict[str, float], name: str, action: Any) -> Any:
    """Run an action and store its time under a name."""
    start = time.perf_counter()
    result = action()
    timed[name] = time.perf_counter() - start
    return result


def searches(
    engines: dict[str, Any], queries: hh.Codes, options: argparse.Namespace
) -> list[dict[str, Any]]:
    """All sizes of a batch, with and without a filter."""
    filters: tuple[dict[str, Any], ...] = ({}, {"labels": 3})
    return [
        search(engines, queries[:batch], label_filter, options)
        for batch in options.batches
        for label_filter in filters
    ]


def search(
    engines: dict[str, Any],
    queries: hh.Codes,
    label_filter: dict[str, Any],
    options: argparse.Namespace,
) -> dict[str, Any]:
    """Milliseconds per query, and whether all engines agree."""
    same = []
    times: dict[str, list[float]] = {name: [] for name in engines}
    for _ in range(options.rounds + 1):  # the first is a warm-up
        found = []
        for name, engine in engines.items():
            start = time.perf_counter()
            found.append(engine.search(queries, options.k, **label_filter))
            times[name].append((time.perf_counter() - start) / len(queries))
        same.append(all(np.array_equal(found[0].ids, each.ids) for each in found))
    counted = common.milliseconds({name: each[1:] for name, each in times.items()})
    return {"batch": len(queries)} | label_filter | counted | {"same_answers": all(same)}


def write_page(page: Path, result: dict[str, Any]) -> None:
    """Replace the text between the marks."""
    before, rest = page.read_text().split("<!-- measured -->\n", 1)
    after = rest.split("<!-- end of measured -->\n", 1)[1]
    files.write_text(
        page, before + "<!-- measured -->\n" + table(result) + "<!-- end of measured -->\n" + after
    )


def table(result: dict[str, Any]) -> str:
    """The tables of docs/scale.md, and how they were measured."""
    lines = [
        "| codes | stored / s | replaced / s | removed / s | memory of the server, its files |",
        "|---|---|---|---|---|",
        *map(rates_row, result["cases"]),
        "",
        "| codes | search, ms per query | Milvus, strong | Milvus, eventual | `exact` | `routed` |",
        "|---|---|---|---|---|---|",
        *(search_row(case, row) for case in result["cases"] for row in case["searches"]),
    ]
    same = all(row["same_answers"] for case in result["cases"] for row in case["searches"])
    revision = (result.get("revision") or "")[:10]
    facts = [
        f"`{result['command']}`",
        result["server"],
        f"pymilvus {result['versions']['pymilvus']}",
        result["hardware"],
        f"revision {revision}" if revision else "revision not recorded",
        f"load {result['load_before']:.1f} before and {result['load_after']:.1f} after",
        result["date"][:10],
    ]
    sentences = [
        f"{', '.join(facts)}.",
        f"{result['bits']} bits, k = {result['k']}, medians of {result['rounds']} rounds with",
        "quartiles.",
        f"{result['settle']:.0f} s passed between inserts and searches, except in the first row of",
        "each size.",
        "All results were equal." if same else "Some results differed.",
    ]
    if disturbed(result):
        sentences.append(
            f"The load was above {common.QUIET} per core when the measurement began: compare the "
            "columns, not the absolute times."
        )
    return "\n".join([*lines, "", " ".join(sentences)]) + "\n"


def rates_row(case: dict[str, Any]) -> str:
    """Items per second of one size, and what the server uses."""
    cells = [f"{case[f'{kind}_per_second']:,.0f}" for kind in ("inserted", "updated", "removed")]
    names = ("peak_memory_gb", "files_gb")
    used = [f"{case[name]:.2f} GB" for name in names if name in case]
    cells.append(", ".join(used) or "not measured")
    return f"| {case['codes']:,} | {' | '.join(cells)} |"


def search_row(case: dict[str, Any], row: dict[str, Any]) -> str:
    """One kind of search by all engines."""
    kind = f"{row['batch']} per call" if row["batch"] > 1 else "1 query"
    kind += ", with a label" if "labels" in row else ""
    kind += ", right after the inserts" if row.get("fresh") else ""
    times, spread = row["milliseconds_per_query"], row["milliseconds_quartiles"]
    cells = [f"{times[name]:.2f} [{spread[name][0]:.2f}, {spread[name][1]:.2f}]" for name in times]
    return f"| {case['codes']:,} | {kind} | {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
