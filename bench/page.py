"""docs/performance.md out of bench/results/*.json: no number in it is typed by hand.

python bench/page.py
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from hadahash import files

RESULTS, PAGE = Path("bench/results"), Path("docs/performance.md")


def evaluation(result: dict[str, Any]) -> list[str]:
    sizes = result["sizes"]
    lines = [
        "## Evaluation",
        "",
        f"{sizes['queries']:,} queries x {sizes['database']:,} codes of {sizes['bits']} bits, exact expected mAP. The loop "
        "sorts the whole database for each query: *float* as DeepHash-pytorch does it, *popcount* with packed bits. All in one "
        "process, in turn; medians.",
        "",
        "| labels | whole, 2 threads | peak memory | ms a query, 1 thread | popcount loop / ours, 1 and 2 threads | float loop / ours |",
        "|---|---|---|---|---|---|",
    ]
    for name in ("single_label", "multi_label"):
        case = result[name]
        ratios = case["ratios"]
        popcount = [ratios[f"argsort loop, popcount / hadahash, {n} thread(s)"] for n in (1, 2)]
        floats = [ratios[f"argsort loop, float / hadahash, {n} thread(s)"] for n in (1, 2)]
        lines.append(
            f"| {name.replace('_', ' ')} | {case['whole']['seconds']:.1f} s | {case['whole']['peak_rss_mb']:.0f} MB "
            f"| {case['milliseconds_per_query']['hadahash, 1 thread(s)']:.2f} | {popcount[0]:.1f}, {popcount[1]:.1f} "
            f"| {floats[0]:.0f}, {floats[1]:.0f} |"
        )
    return lines


def search(result: dict[str, Any]) -> list[str]:
    lines = [
        "## Search",
        "",
        f"The {result['k']} nearest of each query, medians of {result['rounds']} rounds in which all engines take their turn; the ratios "
        "are medians of the rounds' ratios. *exact* is "
        "the default scan, *routed* goes by codewords; both give exactly what brute force gives. Clustered codes lie around "
        "100 codewords with 5 % of the bits flipped. faiss flat is IndexBinaryFlat; faiss IVF has the fewest probes that find all "
        "true distances. The last column is the scan's share of the read bandwidth that numpy reaches on the same bytes; queries that are "
        "asked at once share a pass over them.",
        "",
        *least(result.get("least", {})),
        "| codes | bits | kind | queries at once | threads | exact, ms | faiss flat / exact | exact / routed | faiss IVF / routed "
        "| bandwidth share |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for case in result["cases"]:
        ratios, inverted = case["ratios"], case["ratios"].get("faiss ivf / routed")
        lines.append(
            f"| {case['codes']:.0e} | {case['bits']} | {case['kind']} | {case['batch']} | {case['threads']} "
            f"| {case['milliseconds_per_query']['exact']:.3f} | {ratios['faiss flat / exact']:.2f} | {ratios['exact / routed']:.2f} "
            f"| {'' if inverted is None else format(inverted, '.2f')} | {case['exact_share_of_bandwidth']:.2f} |"
        )
    return lines


def least(worst: dict[str, Any]) -> list[str]:
    """A line for each promise: its worst ratio, and where."""
    lines = [
        f"- least *{name}*: {case['ratio']:.2f} ({case['codes']:.0e} {case['kind']} codes of {case['bits']} bits, "
        f"{case['batch']} at once, {case['threads']} thread(s))"
        for name, case in worst.items()
    ]
    return [*lines, ""] if lines else []


def trained(result: dict[str, Any]) -> list[str]:
    lines = [
        "## Search on codes of trained models",
        "",
        "Single queries on one thread: the codes of the database as they are, and drawn from them with repetition. cifar10: HCDH, "
        "EfficientNet-Lite0 at 224 px; tinyimagenet100: the same at 128 px (the cells of 64 bits in results/), both trained end to end. "
        "Collections of less than half a megabyte are scanned by either engine.",
        "",
        "| codes of | codes | bits | k | exact, ms | routed, ms | exact / routed | same answers | certified |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for case in result["cases"]:
        times = case["milliseconds_per_query"]
        lines.append(
            f"| {case['codes_of']} | {case['codes']:,} | {case['bits']} | {case['k']} | {times['exact']:.3f} | {times['routed']:.3f} "
            f"| {case['exact / routed']:.1f} | {'yes' if case['same_answers'] else 'NO'} | {'yes' if case['certified'] else 'NO'} |"
        )
    return lines


def serve(result: dict[str, Any]) -> list[str]:
    lines = [
        "## The service",
        "",
        f"{result['backbone']} at {result['pixels']} px on the CPU, {result['items']:,} codes of {result['bits']} bits, uploads: "
        f"{result['upload']}; the clients run on the same cores. Load before: {result['load_before']:.1f}.",
        "",
        "| search by | clients | requests/s | p50, ms | p95, ms | refused |",
        "|---|---|---|---|---|---|",
    ]
    for case in result["cases"]:
        lines.append(
            f"| {case['kind']} | {case['clients']} | {case['per_second']:.0f} | {case['p50_ms']:.0f} | {case['p95_ms']:.0f} "
            f"| {case['refused']} |"
        )
    return lines


SECTIONS: dict[str, Callable[[dict[str, Any]], list[str]]] = {
    "evaluation": evaluation,
    "search": search,
    "trained": trained,
    "serve": serve,
}


def main() -> None:
    parts = [
        "# Performance",
        "",
        "Made by `python bench/page.py` from the files in `bench/results/`. `make bench` measures all of it again, except the search on codes",
        "of trained models, which needs their runs (`bench/trained.py`).",
        "",
    ]
    for name, section in SECTIONS.items():
        path = RESULTS / f"{name}.json"
        if path.exists():
            result = files.read_json(path)
            parts += [
                *section(result),
                "",
                f"`{result['command']}`, {result['hardware']}, {result['date'][:10]}.",
                "",
            ]
    files.write_text(PAGE, "\n".join(parts))


if __name__ == "__main__":
    main()
