"""The sections of docs/performance.md, each from one stored result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from decode_section import decode, overlap
from gpu_section import gpu, gpu_variants
from page_text import Result, paragraph, ratio_of, time_of, with_quartiles
from search_section import search
from serve_section import serve_blocked, serve_million

# The models of the result that does not name them.
FIRST_MODELS = (
    "cifar10: HCDH with codebook `far`, EfficientNet-Lite0 at 224 pixels; tinyimagenet100: the "
    "same at 128 pixels; both trained end to end"
)


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
            "Clustered codes are codewords with 5 % of the bits flipped.",
            "Repeated codes are codewords with 0.5 % of the bits flipped."
            if any(case["kind"] == "repeated" for case in result["cases"])
            else "",
            "Random codes are the worst case: no query is close to one class.",
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


def allocator(result: Result) -> list[str]:
    """Memory that is kept or returned while a network runs on a CPU."""
    encode, train = (quartiles_of(result["ratios"][name]) for name in ("encode", "train"))
    lines = [
        "## Networks on a CPU",
        "",
        *paragraph(
            "On a CPU the activations of a network are blocks of many megabytes. By default glibc",
            "returns each of them to the system when it is freed, and new pages cost time. When",
            "torch runs on a CPU, HadaHash lets glibc reuse up to 1 GiB of freed memory instead;",
            f"results do not change. {result['backbone']} with random weights, {result['images']}",
            "images, encoding at 224 pixels and training at 128; each measurement in a process of",
            f"its own, medians of {result['rounds']} rounds. *kept / default*, by round: encoding",
            f"{encode}, training {train}. How much it gains depends on the system: here the",
            "processor time of the system itself is in the table.",
        ),
        "| freed memory | encode, images/s | train, images/s | processor time of the system, s "
        "| peak memory, MB |",
        "|---|---|---|---|---|",
    ]
    for way, found in result["ways"].items():
        lines.append(
            f"| {way} | {found['encode']:.0f} | {found['train']:.0f} "
            f"| {found['system_seconds']:.1f} | {found['peak_mb']:,.0f} |"
        )
    return lines


def quartiles_of(values: Sequence[float]) -> str:
    """Median and quartiles."""
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
    return f"{middle:.2f} [{low:.2f}, {high:.2f}]"


SECTIONS: dict[str, Callable[[Result], list[str]]] = {
    "search": search,
    "ranking": ranking,
    "trained": trained,
    "evaluation": evaluation,
    "serve": serve,
    "serve_million": serve_million,
    "serve_blocked": serve_blocked,
    "decode": decode,
    "overlap": overlap,
    "allocator": allocator,
    "gpu": gpu,
    "gpu_variants": gpu_variants,
    "duplicates": duplicates,
    "embeddings": embeddings,
}
