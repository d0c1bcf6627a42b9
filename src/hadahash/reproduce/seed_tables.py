"""Tables of the plans "seeds" and "lengths": tuned methods on fresh seeds, in every measure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

from .collected import Collected, Record
from .forms import (
    FORMS,
    FROZEN,
    Measure,
    counted,
    markdown_table,
    measured,
    provenance,
    with_interval,
)
from .names import display_name

PLANS = ("seeds", "lengths")
_RANKINGS = {
    "Hamming": "Hamming",
    "real-valued query": "real-valued query",
    "P(same class)": "P(same class), real-valued query",
    "P(same class), classifier": "P(same class), classifier",
    "photo": "photo, 128 content bits",
}
_OTHERS = (
    "Hamming, second database",
    "Hamming, threshold mean",
    "Hamming, threshold median",
    "precision at 1",
    "precision at 10",
    "precision within radius 2",
    "queries with an item within radius 2",
    "queries whose first ten tie",
    "copies found first",
    "copies found first, photo",
    "micro AP of copies",
    "micro AP of copies, photo",
)


_NOTE = (
    "`photo`: class bits and 128 content bits with the default weight; "
    "cells that did not measure it have an empty field.",
)


def load(results: Path, *, frozen: bool = False) -> list[Record]:
    """The records of both plans in a folder of results.

    Args:
        results: Folder of the results.
        frozen: Load those of the plans with a fixed backbone.

    Returns:
        The records, also of cells without a result.
    """
    names = [f"{plan}{FROZEN}" if frozen else plan for plan in PLANS]
    return [record for name in names for record in Collected(results / name).records()]


def section(records: Sequence[Record], *, frozen: bool = False) -> list[str]:
    """Write the section of docs/results.md.

    Args:
        records: Records of the plans.
        frozen: Whether the plans have a fixed backbone.

    Returns:
        Lines of Markdown; empty without records.
    """
    if not records:
        return []
    title, suffix = (", fixed backbone", FROZEN) if frozen else ("", "")
    parts = [
        f"## Tuned methods on fresh seeds{title}",
        "",
        f"`hadahash reproduce {' '.join(f'{plan}{suffix}' for plan in PLANS)}`",
        "",
        f"Every method with the settings that [its own trials](tables/tuning{suffix}.md) chose: "
        "twelve points for each, and further ones where the best was at an edge. Mean [95 % t "
        "interval] (number of seeds), best first. HCDH has the paper's codebook, HCDH (far) ours.",
        "",
    ]
    for dataset in dict.fromkeys(record["dataset"] for record in records):
        own = [record for record in records if record["dataset"] == dataset]
        parts += tables_of(own, display_name(dataset))
    return parts


def tables_of(records: Sequence[Record], title: str) -> list[str]:
    """Write the tables of one data set.

    Args:
        records: Its records.
        title: Title of the tables.

    Returns:
        Lines of Markdown; empty without a result.
    """
    own = [record for record in records if "map" in record]
    if not own:
        return []
    tables = [*_by_length(own), *_by_ranking(own), *_others(own)]
    return [f"### {title}", "", *tables, *provenance(records)]


def _by_length(records: Sequence[Record]) -> list[str]:
    """The reported measure at every length."""
    lengths = _lengths(records)
    measure = f"mAP@{records[0]['depth'] or 'all'}"
    head = ["method", *(f"{bits} bits, {measure}" for bits in lengths)]
    rows = [
        [display_name(method), *(_entry(records, method, bits, _map) for bits in lengths)]
        for method in _best_first(records)
    ]
    return [*markdown_table(head, rows), ""]


def _by_ranking(records: Sequence[Record]) -> list[str]:
    """The same codes under every ranking."""
    lengths = [bits for bits in _lengths(records) if bits in (16, 64)]
    columns = [(bits, name) for bits in lengths for name in _RANKINGS]
    head = ["method", *(f"{bits} bits, {name}" for bits, name in columns)]
    rows = [
        [
            display_name(method),
            *(_entry(records, method, bits, FORMS[_RANKINGS[name]], "") for bits, name in columns),
        ]
        for method in _best_first(records)
    ]
    lines = ["The same codes under every ranking, mAP@all:", "", *markdown_table(head, rows), ""]
    return [*lines, *_NOTE, ""] if any("content" in record for record in records) else lines


def _others(records: Sequence[Record]) -> list[str]:
    """Further measures of the longest codes that most methods have."""
    bits = 64 if 64 in _lengths(records) else _lengths(records)[-1]
    head = ["method", *_OTHERS, "distinct codes"]
    rows = [
        [
            display_name(method),
            *(_entry(records, method, bits, FORMS[name], "") for name in _OTHERS),
            counted(_values(records, method, bits, _distinct)),
        ]
        for method in _best_first(records)
    ]
    title = f"Other measures at {bits} bits (Hamming: mAP@all):"
    return [title, "", *markdown_table(head, rows), ""]


def _map(record: Record) -> float:
    return float(record["map"])


def _distinct(record: Record) -> float:
    return float(record["distinct_codes"])


def _lengths(records: Sequence[Record]) -> list[int]:
    return sorted({record["bits"] for record in records})


def _entry(
    records: Sequence[Record], method: str, bits: int, measure: Measure, missing: str = "not run"
) -> str:
    values = _values(records, method, bits, measure)
    return with_interval(values) if values else missing


def _values(records: Sequence[Record], method: str, bits: int, measure: Measure) -> list[float]:
    own = (own for own in records if (own["method"], own["bits"]) == (method, bits))
    return [value for record in own if (value := measured(record, measure)) is not None]


def _best_first(records: Sequence[Record]) -> list[str]:
    """Methods by their mean over 16 and 64 bits, each with equal weight."""

    def score(method: str) -> float:
        found = [_values(records, method, bits, _map) for bits in (16, 64)]
        return statistics.mean([statistics.mean(own) for own in found if own] or [0.0])

    return sorted(sorted({record["method"] for record in records}), key=score, reverse=True)
