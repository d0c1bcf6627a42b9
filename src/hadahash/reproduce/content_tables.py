"""Tables of the plans "content" and "content-frozen": mAP and known-item search by ranking."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from .. import files
from ..data.alterations import ALTERATIONS
from .collected import Record
from .content import WEIGHTS
from .forms import counted, summary
from .intervals import short
from .names import display_name

TITLES = {"content": "Content bits", "content-frozen": "Content bits, frozen backbone"}
LOSS = 0.005  # of class mAP that a weight may cost on the validation part
_ALTERATIONS = tuple(name for name in ALTERATIONS if name != "none")
_FIXED = (
    "hamming",
    "class",
    "content-128",
    "content-real-64",
    "content-real-128",
    "weighted-64-2",
    "weighted-128-2",
    "features",
)

_RECALLS = ("recall_1", "recall_10")

Measured = Mapping[str, Any]
Key = tuple[str, str, int]  # data set, method, bits


def choose_weight(trials: Sequence[Record], content_bits: int) -> float | None:
    """Choose the weight of the content on validation parts.

    Args:
        trials: Records of trials; their queries are held-out training images.
        content_bits: Number of content bits.

    Returns:
        The largest weight whose mean class mAP is at most half a point below that of `class`; the
        smallest one if there is none; None without trials.
    """
    found = [record["content"]["rankings"] for record in trials if "content" in record]
    if not found:
        return None
    least = mean(own["class"]["map"] for own in found) - LOSS
    names = {weight: f"photo-{content_bits}-{weight:g}" for weight in WEIGHTS}
    good = [
        weight
        for weight, name in names.items()
        if all(name in own for own in found) and mean(own[name]["map"] for own in found) >= least
    ]
    return max(good, default=min(WEIGHTS))


def choices(records: Sequence[Record], content_bits: int) -> dict[tuple[str, str], float]:
    """The chosen weight of each data set and method, from the trials of all lengths.

    Args:
        records: Records of the plan.
        content_bits: Number of content bits.

    Returns:
        Weights by data set and method; those without trials are left out.
    """
    trials: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        if record.get("validation"):
            trials.setdefault((record["dataset"], record["method"]), []).append(record)
    found = {key: choose_weight(own, content_bits) for key, own in trials.items()}
    return {key: weight for key, weight in found.items() if weight is not None}


def write_content(records: Sequence[Record], docs: Path, plan: str = "content") -> list[Path]:
    """Write docs/tables/PLAN.md and PLAN.csv.

    Args:
        records: Records of the plan.
        docs: Folder of the documents.
        plan: A name of `TITLES`.

    Returns:
        The files that were written; none without records.
    """
    if not records:
        return []
    weights = {bits: choices(records, bits) for bits in (64, 128)}
    groups: dict[tuple[str, Key], list[Record]] = {}
    for record in records:
        if "content" in record and not record.get("validation"):
            key = (record["dataset"], record["method"], record["bits"])
            groups.setdefault((record["protocol"], key), []).append(record)
    lines = [f"# {TITLES[plan]}", "", f"`hadahash reproduce {plan}`", "", *_NOTES, ""]
    lines += [*_FROZEN, ""] if plan == "content-frozen" else []
    for (protocol, key), own in groups.items():
        dataset, method, bits = key
        title = f"{display_name(dataset)}, {display_name(method)}, {bits} bits"
        lines += [f"## {title}{', unseen classes' if protocol == 'unseen' else ''}", ""]
        lines += [*_table(_rows(own, _shown(weights, dataset, method))), "", *_distinct(own)]
    text, table = (docs / "tables" / f"{plan}.{kind}" for kind in ("md", "csv"))
    files.write_text(text, "\n".join(lines))
    files.write_text(table, _csv(records))
    return [text, table]


_NOTES = (
    "Mean ± standard deviation (seeds). `photo-K2-w`: K2 content bits, weight w, chosen on the",
    "validation part; `content-real-K2`: its limit for large weights, the content alone with a",
    "real-valued query. Copies: 500 database images, altered and searched; recall@1 / recall@10,",
    "expected over ties; the mean is over six alterations.",
)
_FROZEN = (
    "The backbone was frozen: it has its initial weights, and only the hash layer was trained. The",
    "numbers are not those of the fine-tuned models elsewhere.",
)


def _shown(weights: Mapping[int, Mapping[tuple[str, str], float]], *key: str) -> list[str]:
    """The rankings of a table: the fixed ones, and photo with the chosen weight."""
    dataset, method = key
    chosen = [
        f"photo-{bits}-{own[dataset, method]:g}"
        for bits, own in weights.items()
        if (dataset, method) in own
    ]
    return [*_FIXED[:2], *chosen, *_FIXED[2:]]


def _distinct(records: Sequence[Record]) -> list[str]:
    """How many codes of the class bits there are in the database."""
    found = [record["distinct_codes"] for record in records if "distinct_codes" in record]
    if not found:
        return []
    images = f" of {records[0]['database']:,} images" if "database" in records[0] else ""
    return [f"Distinct class codes: {counted(found)}{images}.", ""]


def _rows(records: Sequence[Record], shown: Sequence[str]) -> Iterator[list[str]]:
    head = ["ranking", "mAP@all", "mAP@1000", "P@10", "first ten tie", "agreement"]
    yield [*head, "crop 80 %", "mean of copies", "micro AP"]
    for name in shown:
        found = [own for record in records if (own := record["content"]["rankings"].get(name))]
        if not found:
            continue
        values = (
            summary([own[key] for own in found])
            for key in ("map", "map_1000", "precision_10", "first_ten_tie", "agreement_10")
        )
        crops, all_copies = (_pair(found, kinds) for kinds in (("crop80",), _ALTERATIONS))
        micro = mean(_over(own, _ALTERATIONS, "micro_ap") for own in found)
        yield [name, *values, crops, all_copies, short(micro)]


def _pair(found: Sequence[Measured], kinds: Sequence[str]) -> str:
    first, ten = (
        mean(_over(own, kinds, key) for own in found) for key in ("recall_1", "recall_10")
    )
    return f"{short(first)} / {short(ten)}"


def _over(own: Measured, kinds: Sequence[str], key: str) -> float:
    return float(mean(own["known_item"][kind][key] for kind in kinds))


def _table(rows: Iterator[list[str]]) -> Iterator[str]:
    head = next(rows)
    for row in (head, ["---"] * len(head), *rows):
        yield "| " + " | ".join(row) + " |"


def _csv(records: Sequence[Record]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    columns = ("dataset", "protocol", "method", "bits", "seed")
    measures = ("map", "map_1000", "precision_1", "precision_10", "first_ten_tie", "agreement_10")
    copies = [f"{kind}_{place}" for kind in _ALTERATIONS for place in ("recall_1", "recall_10")]
    writer.writerow(
        [*columns, "validation", "ranking", *measures, *copies, "micro_ap", "distinct_codes"]
    )
    measured = [record for record in records if "content" in record]
    for record in sorted(measured, key=lambda own: (own["dataset"], own["seed"], own["name"])):
        for name, own in record["content"]["rankings"].items():
            recalls = [own["known_item"][kind][key] for kind in _ALTERATIONS for key in _RECALLS]
            writer.writerow(
                [
                    *(record[key] for key in columns),
                    record.get("validation", 0),
                    name,
                    *(own[key] for key in measures),
                    *recalls,
                    round(_over(own, _ALTERATIONS, "micro_ap"), 5),
                    record.get("distinct_codes", ""),
                ]
            )
    return text.getvalue()
