"""Write docs/performance.md, and parts of other pages, from bench/results/*.json.

python bench/page.py            # write the pages
python bench/page.py --stale    # list the stored results that are older than the code they measure
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence

import common
import page_parts
from goals_section import goals
from page_text import Result, count_cores, disturbed, later_runs, paragraph
from search_section import best_cases
from sections import SECTIONS
from serve_section import OLD
from stale import HistoryError, find_stale

from hadahash import files

PAGE = common.ROOT / "docs" / "performance.md"


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the pages, or list stale results."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--stale", action="store_true", help="list stale results and stop")
    options = parser.parse_args(arguments)
    try:
        stale = find_stale(common.ROOT)
    except HistoryError as error:
        raise SystemExit(str(error)) from error
    if options.stale:
        print("\n".join(f"{path}: {reason}" for path, reason in stale.items()) or "None.")
        return
    results = read_results()
    files.write_text(PAGE, render(results, stale))
    for part in page_parts.PARTS:
        page_parts.write(part, results)


def read_results() -> dict[str, Result]:
    """The stored results by name."""
    return {path.stem: files.read_json(path) for path in sorted(common.RESULTS.glob("*.json"))}


def render(results: Mapping[str, Result], stale: Mapping[str, str]) -> str:
    """The text of docs/performance.md.

    Args:
        results: Stored results by name.
        stale: What `stale.find_stale` returned.
    """
    parts = ["# Performance", "", *summary(results, stale), *about(), *goals(results, stale)]
    parts += list_stale(stale)
    for name, section in SECTIONS.items():
        if name in results:
            old = stale.get(f"bench/results/{name}.json")
            parts += [*section(results[name]), "", *origin(results[name], old), ""]
    return "\n".join(parts)


# ---- The beginning of the page -------------------------------------------------------------------


def summary(results: Mapping[str, Result], stale: Mapping[str, str]) -> list[str]:
    """The most important figures in words."""
    sentences = ["**How many photos can I search, and how fast?**"]
    if "search" in results:
        sentences += describe_search(results["search"])
    if "serve_million" in results:
        sentences += describe_uploads(results["serve_million"])
    if any(f"bench/results/{name}.json" in stale for name in ("search", "serve_million")):
        sentences.append("These figures include [stale results](#stale-results).")
    return paragraph(*sentences)


def about() -> list[str]:
    """Where the figures come from."""
    return paragraph(
        "`python bench/page.py` writes this page from the files in `bench/results/`.",
        "`make bench` repeats the measurements that need nothing but this machine; with photos, a",
        "trained model and the sources of version 0.1, as described in the Makefile, also those",
        "that need these. The others are made by hand: codes of trained models",
        "(`bench/trained.py`, `bench/codes.py`), methods without labels (`bench/label_free.py`)",
        "and a GPU (`bench/gpu.py`, `bench/gpu_variants.py`).",
        "Square brackets hold the first and third quartile, where they were stored: of the rounds,",
        "and for the service of the requests.",
    )


def describe_search(result: Result) -> list[str]:
    """Search times of single queries, 64 bits."""
    found = {
        (case["codes"], case["kind"]): case
        for case in best_cases(result) + result.get("large", {}).get("best", [])
        if (case["bits"], case["batch"]) == (64, 1)
    }
    times = [
        f"{case['milliseconds_per_query']['exact']:.1f} ms among {codes:,}"
        for (codes, kind), case in found.items()
        if kind == "random" and codes >= 1_000_000
    ]
    if not times:
        return []
    lines = [
        f"With codes of 64 bits on {count_cores(result)} CPU cores, the {result['k']} most similar "
        f"photos are found in {listed(times)} photos.",
        "This is the search by Hamming distance alone, of one query; [ranked searches]"
        "(#ranked-search) take longer.",
        "The search is exact, and the codes take 8 MB of memory per million photos.",
    ]
    largest = max(codes for codes, _ in found)
    if case := found.get((largest, "clustered")):
        lines.append(
            "If the codes lie close to codewords, the routed engine returns the same results in "
            f"{case['milliseconds_per_query']['routed']:.2f} ms among {largest:,} photos."
        )
    return lines


def describe_uploads(result: Result) -> list[str]:
    """The time of a search with a new photo, with content bits and without."""
    took = {
        bool(case["content_bits"]): each["p50_ms"]
        for case in result["cases"]
        for each in case.get("searches", ())
        if case["version"] != OLD and (each["kind"], each["clients"]) == ("upload", 1)
    }
    if True not in took:
        return []
    plain = f" Without content bits it takes {took[False]:.1f} ms." if False in took else ""
    return [
        "A search with a new photo takes longer, because a network computes its code first: "
        f"{took[True]:.1f} ms among {result['items']:,} photos through the web service, without a "
        f"GPU, with the content bits that an index has by default.{plain}"
    ]


def listed(times: Sequence[str]) -> str:
    """Times as a list in words."""
    return ", in ".join(times[:-1]) + " and in " * (len(times) > 1) + times[-1]


def list_stale(stale: Mapping[str, str]) -> list[str]:
    """The section about stale results."""
    if not stale:
        return []
    return [
        "## Stale results",
        "",
        *paragraph(
            "These files are older than the code they measure, or it is not known which revision",
            "they measured. Treat their figures as outdated until they are measured again.",
        ),
        *(f"- `{path}`: {reason}" for path, reason in stale.items()),
        "",
    ]


def read_stale(page: str) -> dict[str, str]:
    """The stale results that a page names, with their reasons."""
    section = page.partition("## Stale results\n")[2].partition("\n## ")[0]
    return dict(re.findall(r"^- `(.+?)`: (.+)$", section, flags=re.MULTILINE))


def origin(result: Result, stale: str | None) -> list[str]:
    """How a section was measured, and what speaks against its figures."""
    revision = (result.get("revision") or "")[:10]
    loads = [
        f"{result[f'load_{when}']:.1f} {when}"
        for when in ("before", "after")
        if result.get(f"load_{when}") is not None
    ]
    facts = [
        f"`{result['command']}`",
        result["hardware"],
        result["date"][:10],
        f"revision {revision}" if revision else "revision not recorded",
        f"load {', '.join(loads) or 'not recorded'}",
        *later_runs(result),
    ]
    lines = [", ".join(facts) + "."]
    if disturbed(result):
        lines += [
            "",
            f"**Disturbed:** the load was above {common.QUIET} per core before the measurement.",
        ]
    if stale:
        lines += ["", f"**Stale:** {stale}."]
    return lines


if __name__ == "__main__":
    main()
