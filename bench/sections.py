"""The sections of docs/performance.md, each from one stored result."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from common import QUIET
from decode_section import decode
from serve_section import serve_million

Result = dict[str, Any]
# The models of the result that does not name them.
FIRST_MODELS = (
    "cifar10: HCDH with codebook `far`, EfficientNet-Lite0 at 224 pixels; tinyimagenet100: the "
    "same at 128 pixels; both trained end to end"
)


def count_cores(result: Result) -> int:
    """Cores of the machine of a result."""
    return int(re.findall(r"(\d+) cores", result["hardware"])[0])


def disturbed(result: Result) -> bool:
    """Whether the machine was busy when the measurement began."""
    return bool(result["load_before"] > QUIET * count_cores(result))


def paragraph(*sentences: str) -> list[str]:
    """Sentences as lines of at most 100 columns, and an empty line."""
    text = " ".join(sentences)
    return [*textwrap.wrap(text, 100, break_long_words=False, break_on_hyphens=False), ""]


def with_quartiles(value: float, quartiles: Sequence[float] | None, digits: int) -> str:
    """A number, followed by its quartiles if they are known."""
    text = f"{value:.{digits}f}"
    if quartiles is None:
        return text
    low, high = quartiles
    return f"{text} [{low:.{digits}f}, {high:.{digits}f}]"


def time_of(case: Result, way: str, digits: int = 3) -> str:
    """Milliseconds of one way."""
    quartiles = case.get("milliseconds_quartiles", {}).get(way)
    return with_quartiles(case["milliseconds_per_query"][way], quartiles, digits)


def ratio_of(case: Result, name: str, digits: int = 2) -> str:
    """A ratio, empty if it was not measured."""
    if name not in case["ratios"]:
        return ""
    return with_quartiles(case["ratios"][name], case.get("quartiles", {}).get(name), digits)


# ---- Sections ------------------------------------------------------------------------------------


def evaluation(result: Result) -> list[str]:
    """Time and memory of an evaluation."""
    sizes, paired = result["sizes"], "best" in result["single_label"]
    lines = [
        "## Evaluation",
        "",
        *paragraph(
            f"{sizes['queries']:,} queries x {sizes['database']:,} codes of {sizes['bits']} bits,",
            "exact expected mAP. The loop sorts the whole database for each query: *float* as",
            "DeepHash-pytorch does it, *popcount* with packed bits. All ways take turns in one",
            "process.",
            "The ratios compare each side with its best number of threads."
            if paired
            else "The loops used one thread, hadahash its best number of threads.",
        ),
        f"| labels | full evaluation, {sizes['threads']} threads | peak memory "
        "| ms per query, 1 thread | popcount loop / hadahash | float loop / hadahash |",
        "|---|---|---|---|---|---|",
    ]
    for name in ("single_label", "multi_label"):
        case = result[name]
        best = case["best"] if paired else best_loops(case["milliseconds_per_query"])
        lines.append(
            f"| {name.replace('_', ' ')} | {case['whole']['seconds']:.1f} s "
            f"| {case['whole']['peak_rss_mb']:.0f} MB "
            f"| {time_of(case, 'hadahash, 1 thread(s)', 2)} "
            f"| {ratio_of(best, 'argsort loop, popcount / hadahash', 1)} "
            f"| {ratio_of(best, 'argsort loop, float / hadahash', 1)} |"
        )
    return lines


def best_loops(medians: Mapping[str, float]) -> Result:
    """Ratios of the medians, for results without paired ones."""
    least = {
        side: min(value for way, value in medians.items() if way.startswith(side))
        for side in ("hadahash", "argsort loop, float", "argsort loop, popcount")
    }
    ours = least.pop("hadahash")
    return {"ratios": {f"{side} / hadahash": value / ours for side, value in least.items()}}


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
        *least(best),
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
    ]


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


def least(best: Sequence[Result]) -> list[str]:
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
            lines.append(
                f"- Smallest *{name}*: {ratio_of(case, ratio)} ({case['codes']:,} {case['kind']} "
                f"codes of {case['bits']} bits, batch of {case['batch']})"
            )
    return [*lines, ""]


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


def trained(result: Result) -> list[str]:
    """Routed search on codes of trained models."""
    models = [
        f"{name}: {facts['method']}, {facts['backbone']}"
        for name, facts in result.get("models", {}).items()
    ]
    lines = [
        "## Search on codes of trained models",
        "",
        *paragraph(
            "Single queries on one thread, on the database codes of each model as they are and",
            f"drawn from them with repetition. {'; '.join(models) if models else FIRST_MODELS}.",
            "Both engines scan collections of less than half a megabyte.",
        ),
        "| codes of | codes | bits | k | exact, ms | routed, ms | exact / routed | same results "
        "| certified |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for case in result["cases"]:
        flags = ["yes" if case[name] else "NO" for name in ("same_answers", "certified")]
        ratios = case if "ratios" in case else {"ratios": case}
        lines.append(
            f"| {case['codes_of']} | {case['codes']:,} | {case['bits']} | {case['k']} "
            f"| {time_of(case, 'exact')} | {time_of(case, 'routed')} "
            f"| {ratio_of(ratios, 'exact / routed', 1)} | {' | '.join(flags)} |"
        )
    return lines


def ranking(result: Result) -> list[str]:
    """Ranked searches compared with the plain scan."""
    ways = ("real", "class", "photo", "weighted")
    lines = [
        "## Ranked search",
        "",
        *paragraph(
            f"The {result['k']} best items of single queries, as a multiple of the time of the",
            "plain scan of the class bits, which is the default search. Medians of",
            f"{result['rounds']} rounds in which all ways take turns. *real*: real-valued query;",
            "*class*: probability of sharing one of 100 classes; *photo*: this and content;",
            "*weighted*: weighted Hamming distance of class and content bits. All are exact.",
            "Clustered codes are codewords with 5 % of the bits flipped, repeated ones with 0.5 %.",
            "Random codes are the worst case: no query is sure of a class.",
        ),
        "| codes | kind | distinct | bits | plain, ms | "
        + " | ".join(f"{way} / plain" for way in ways)
        + " | class, routed / plain | photo, routed / plain |",
        "|" + "---|" * 11,
    ]
    for case in result["cases"]:
        named = [*ways, "class, routed", "photo, routed"]
        lines.append(
            f"| {case['codes']:,} | {case['kind']} | {case['distinct_codes']:,} "
            f"| {case['bits']} + {case['content_bits']} | {time_of(case, 'plain', 2)} | "
            + " | ".join(ratio_of(case, f"{way} / plain", 2) for way in named)
            + " |"
        )
    return lines


def serve(result: Result) -> list[str]:
    """Throughput and response time of the service."""
    lines = [
        "## The service",
        "",
        *paragraph(
            f"{result['backbone']} at {result['pixels']} pixels on the CPU, {result['items']:,}",
            f"codes of {result['bits']} bits, uploads: {result['upload']}. The clients run on the",
            "same cores.",
        ),
        "| search by | clients | requests per second | median, ms | 95th percentile, ms "
        "| refused |",
        "|---|---|---|---|---|---|",
    ]
    for case in result["cases"]:
        middle = with_quartiles(case["p50_ms"], case.get("quartiles_ms"), 0)
        lines.append(
            f"| {case['kind']} | {case['clients']} | {case['per_second']:.0f} | {middle} "
            f"| {case['p95_ms']:.0f} | {case['refused']} |"
        )
    return lines


def duplicates(result: Result) -> list[str]:
    """Duplicates among altered copies, compared with imagededup."""
    files = result["set"]
    names = files["alterations"]
    lines = [
        "## Duplicates",
        "",
        *paragraph(
            f"{files['files']:,} files: {files['originals']:,} photos with one copy per",
            f"alteration, and {files['others']:,} other photos. *found* is the fraction of",
            "originals whose copy is found; *wrong pairs* show two different photos. CNN is",
            "imagededup's, with the backbone of hadahash. The time includes reading the files.",
        ),
        f"| method | threshold | pairs | wrong pairs | {' | '.join(names)} | seconds |",
        "|---|---|---|---|" + "---|" * len(names) + "---|",
    ]
    for method, case in result["methods"].items():
        seconds = case["encode_seconds"] + case["compare_seconds"]
        for row in case["thresholds"]:
            recall = " | ".join(f"{row['recall'][name]:.2f}" for name in names)
            lines.append(
                f"| {method} | {row['threshold']} | {row['pairs']:,} | {row['false_pairs']:,} "
                f"| {recall} | {seconds:.0f} |"
            )
    return lines


def embeddings(result: Result) -> list[str]:
    """Time and memory of a file of embeddings."""
    lines = [
        "## Embeddings",
        "",
        *paragraph(
            f"A file of {result['rows']:,} vectors of {result['width']} floats. A .npy file is",
            "memory-mapped; a table is copied to a temporary file when it is opened.",
            "ITQ is fitted on a sample of its rows, all rows are encoded to a code file, and the",
            "index is searched for 10 results by Hamming distance (codes) and by real-valued",
            "queries (values). Peak: resident memory of the process up to the end of the step.",
        ),
        "| format | type | bits | file | step | seconds | peak memory |",
        "|---|---|---|---|---|---|---|",
    ]
    names = {
        "imports": "imports",
        "open": "open",
        "fit": "fit on {fitted_on:,} rows",
        "encode": "encode",
        "index": "index and save",
        "search hamming": "{queries} queries, codes",
        "search class": "{queries} queries, values",
    }
    for case in result["cases"]:
        for step, name in names.items():
            if (found := case["steps"].get(step)) is None:
                continue
            form = case.get("format", "npy")
            lines.append(
                f"| {form} | {case['type']} | {case['bits']} | {case['file_mb']:,} MB "
                f"| {name.format(**case)} | {found.get('seconds', '')} "
                f"| {found['peak_mb']:,} MB |"
            )
    return lines


SECTIONS: dict[str, Callable[[Result], list[str]]] = {
    "search": search,
    "ranking": ranking,
    "trained": trained,
    "evaluation": evaluation,
    "serve": serve,
    "serve_million": serve_million,
    "decode": decode,
    "duplicates": duplicates,
    "embeddings": embeddings,
}
