"""The section of docs/performance.md about search."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from page_text import Result, paragraph, ratio_of, time_of, with_quartiles


def search(result: Result) -> list[str]:
    """Search compared with faiss."""
    paired = "best" in result
    best = best_cases(result)
    return [
        "## Search",
        "",
        *paragraph(
            f"The {result['k']} nearest codes of each query, medians of {result['rounds']} rounds",
            "in which all engines take turns. *exact* is the default scan, *routed* searches by",
            "codewords; both return exactly what brute force returns. Clustered codes are 100",
            "codewords with 5 % of the bits flipped. faiss flat is IndexBinaryFlat; faiss IVF is",
            "IndexBinaryIVF with the fewest probes that find all true distances.",
        ),
        *instructions(result),
        "### Each side with its best number of threads",
        "",
        *paragraph(
            "The ratios are medians over the rounds. faiss keeps the nearest codes in a heap or by "
            "counting, whichever is faster."
            if paired
            else "The ratios are ratios of medians. faiss kept the nearest codes in a heap only."
        ),
        *least(best, result.get("before")),
        *without_library(best, result.get("numpy")),
        "| codes | bits | kind | batch | exact, ms | faiss flat, ms | threads, exact and faiss "
        "| faiss flat / exact | exact / routed | faiss IVF / routed |",
        "|---|---|---|---|---|---|---|---|---|---|",
        *map(best_row, best),
        "",
        "### By number of threads",
        "",
        *paragraph(
            "The last column is the bandwidth of the scan divided by the read bandwidth of numpy",
            "on the same bytes; the queries of a batch share a pass over them.",
        ),
        "| codes | bits | kind | batch | threads | exact, ms | faiss flat / exact | exact / routed "
        "| faiss IVF / routed | fraction of bandwidth |",
        "|---|---|---|---|---|---|---|---|---|---|",
        *map(thread_row, result["cases"]),
        *(large(result["large"]) if "large" in result else []),
    ]


def large(result: Result) -> list[str]:
    """One large collection, and its changes."""
    size = f"{result['codes']:,} codes of {result['bits']} bits"
    return [
        "",
        f"### {result['codes']:,} codes",
        "",
        *paragraph(
            f"{size}, {result['codes'] * result['bits'] / 8e6:,.0f} MB: medians of",
            f"{result['rounds']} rounds, each side with its best number of threads. At most two",
            f"engines are in memory at a time; the peak was {result['peak_mb']:,} MB, and all of",
            f"it took {result['seconds']:,} s.",
        ),
        "| kind | batch | exact, ms | routed, ms | faiss flat, ms | faiss IVF, ms "
        "| threads, in this order | faiss flat / exact | exact / routed | faiss IVF / routed |",
        "|---|---|---|---|---|---|---|---|---|---|",
        *map(large_row, result["best"]),
        "",
        *paragraph(
            "Items are added to this index, and the same number of older ones is removed. Median",
            "milliseconds of 8 changes. The first search after a removal makes the bitmap of the",
            "items that are left.",
        ),
        "| engine | build, s | change | change, ms | first search, ms | next search, ms |",
        "|---|---|---|---|---|---|",
        *(row for case in result["changes"] for row in change_rows(case)),
    ]


def large_row(case: Result) -> str:
    """A row of the table of a large collection; empty where an engine did not take part."""
    sides = [
        side for side in ("exact", "routed", "faiss flat", "faiss ivf") if side in case["ways"]
    ]
    times = [
        time_of(case, side, 2) if side in sides else ""
        for side in ("exact", "routed", "faiss flat", "faiss ivf")
    ]
    names = ("faiss flat / exact", "exact / routed", "faiss ivf / routed")
    cells = [
        case["kind"],
        str(case["batch"]),
        *times,
        ", ".join(str(case["ways"][side]["threads"]) for side in sides),
        *(ratio_of(case, name) for name in names),
    ]
    return f"| {' | '.join(cells)} |"


def change_rows(case: Result) -> list[str]:
    """The rows of one engine: what was changed, and the searches after it."""

    def cell(name: str) -> str:
        if name not in case["milliseconds"]:
            return ""
        quartiles = case["milliseconds_quartiles"][name]
        return with_quartiles(case["milliseconds"][name], quartiles, 2)

    rows = []
    for change in [name for name in case["milliseconds"] if name.startswith(("add", "remove"))]:
        first = cell(f"search after {change}") or cell(f"first search after {change}")
        rows.append(
            f"| {case['engine']}, {case['kind']} codes | {case['build_s']:.0f} | {change} "
            f"| {cell(change)} | {first} | {cell(f'next search after {change}')} |"
        )
    return rows


def instructions(result: Result) -> list[str]:
    """The instruction sets of both sides."""
    if "faiss_built_for" not in result:
        return []
    used = result["faiss_runs_with"]
    return [
        f"Instruction sets: hadahash {result['native']}; faiss was built with "
        f"{result['faiss_built_for']}" + (f" and uses {used}." if used else "."),
        "",
    ]


def best_cases(result: Result) -> list[Result]:
    """The cases with the best number of threads of each engine."""
    if "best" in result:
        found: list[Result] = result["best"]
        return found
    groups: dict[tuple[Any, ...], list[Result]] = {}
    for case in result["cases"]:
        key = tuple(case[part] for part in ("kind", "codes", "bits", "batch"))
        groups.setdefault(key, []).append(case)
    return [best_of_medians(cases) for cases in groups.values()]


def best_of_medians(cases: Sequence[Result]) -> Result:
    """The fastest number of threads of each engine, for results without paired ratios."""
    times, ways = {}, {}
    for engine in cases[0]["milliseconds_per_query"]:
        fastest = min(cases, key=lambda case: case["milliseconds_per_query"][engine])
        times[engine] = fastest["milliseconds_per_query"][engine]
        ways[engine] = {"engine": engine, "threads": fastest["threads"]}
    pairs = [name.split(" / ") for name in cases[0]["ratios"]]
    return {
        **{key: cases[0][key] for key in ("kind", "codes", "bits", "batch")},
        "ways": ways,
        "milliseconds_per_query": times,
        "ratios": {f"{over} / {under}": times[over] / times[under] for over, under in pairs},
    }


def least(best: Sequence[Result], before: Result | None) -> list[str]:
    """The smallest ratio of each comparison, and where it occurs."""
    largest = max(case["codes"] for case in best)
    groups = {
        "faiss flat / exact": best,
        "exact / routed, random codes": [case for case in best if case["kind"] == "random"],
        "exact / routed, clustered codes, largest collection": [
            case for case in best if case["kind"] == "clustered" and case["codes"] == largest
        ],
    }
    lines = []
    for name, among in groups.items():
        ratio = name.split(",")[0]
        if among:
            case = min(among, key=lambda case: case["ratios"][ratio])
            lines.append(f"- Smallest *{name}*: {ratio_of(case, ratio)} ({_collection(case)})")
    if before:
        ratio = ratio_of(before, "faiss flat / exact")
        lines.append(f"- *faiss flat / exact* of version 0.1: {ratio} ({_collection(before)})")
    return [*lines, ""]


def _collection(case: Result) -> str:
    codes = f"{case['codes']:,} {case['kind']} codes of {case['bits']} bits"
    return f"{codes}, batch of {case['batch']}"


def without_library(best: Sequence[Result], numpy: Result | None) -> list[str]:
    """The scan in numpy, where no library could be built at install time."""
    same = ("kind", "codes", "bits", "batch")
    compiled = [each for each in best if numpy and all(each[part] == numpy[part] for part in same)]
    if not numpy or not compiled:
        return []
    slow, fast = (case["milliseconds_per_query"]["exact"] for case in (numpy, compiled[0]))
    return paragraph(
        f"Without a C compiler at install time, numpy takes {slow:.1f} ms ({_collection(numpy)}),",
        f"{slow / fast:.0f} times as long.",
    )


def best_row(case: Result) -> str:
    """A row of the table of best threads."""
    threads = ", ".join(str(case["ways"][name]["threads"]) for name in ("exact", "faiss flat"))
    cells = [
        f"{case['codes']:,}",
        str(case["bits"]),
        case["kind"],
        str(case["batch"]),
        time_of(case, "exact"),
        time_of(case, "faiss flat"),
        threads,
        *(
            ratio_of(case, name)
            for name in ("faiss flat / exact", "exact / routed", "faiss ivf / routed")
        ),
    ]
    return f"| {' | '.join(cells)} |"


def thread_row(case: Result) -> str:
    """A row of the table by number of threads."""
    cells = [
        f"{case['codes']:,}",
        str(case["bits"]),
        case["kind"],
        str(case["batch"]),
        str(case["threads"]),
        time_of(case, "exact"),
        *(
            ratio_of(case, name)
            for name in ("faiss flat / exact", "exact / routed", "faiss ivf / routed")
        ),
        f"{case['exact_share_of_bandwidth']:.2f}",
    ]
    return f"| {' | '.join(cells)} |"
