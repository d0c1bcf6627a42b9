"""What the tables of plans share: the measures of a record, its line of CSV, and Markdown."""

from __future__ import annotations

import csv
import io
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from .. import files
from .collected import Record
from .intervals import short, t_interval

Measure = Callable[[Record], float]

_SEARCHED = {  # whether the database of a protocol holds training images
    "cifar10": False,
    "tinyimagenet100": True,
    "voc2012": True,
    "voc2012-halves": False,
    "unseen": False,
}

FROZEN = "-frozen"  # ends the name of a plan with a fixed backbone, for a CPU

# A model measured in several ways. All mAP values are of the whole ranking.
FORMS: dict[str, Measure] = {
    "Hamming": lambda r: r["maps"]["all"],
    "real-valued query": lambda r: r["rankings"]["real"]["all"],
    "P(same class), real-valued query": lambda r: r["rankings"]["same_class_real"]["all"],
    "P(same class), binary query": lambda r: r["rankings"]["same_class_binary"]["all"],
    "P(same class), classifier": lambda r: r["rankings"]["same_class_classifier"]["all"],
    "Hamming, threshold mean": lambda r: r["thresholds"]["mean"]["all"],
    "Hamming, threshold median": lambda r: r["thresholds"]["median"]["all"],
    "Hamming, first 16 bits": lambda r: r["prefixes"]["16"]["all"],
    "Hamming, first 32 bits": lambda r: r["prefixes"]["32"]["all"],
    "Hamming, second database": lambda r: r["second_database"]["all"],
    "precision at 1": lambda r: r["precision_at"]["1"],
    "precision at 10": lambda r: r["precision_at"]["10"],
    "precision within radius 2": lambda r: r["precision_radius_2"],
    "queries with an item within radius 2": lambda r: r["nonempty_radius_2"],
    "queries whose first ten tie": lambda r: r["first_ten_tie"],
    # Records of cells that measured content bits:
    "photo, 128 content bits": lambda r: _under(r, _photo(r))["map"],
    "copies found first": lambda r: _copies(r, "hamming", "recall_1"),
    "copies found first, photo": lambda r: _copies(r, _photo(r), "recall_1"),
    "crops found first, photo": lambda r: _copy(r, _photo(r), "crop80", "recall_1"),
    "crops among the first ten, photo": lambda r: _copy(r, _photo(r), "crop80", "recall_10"),
    "micro AP of copies": lambda r: _copies(r, "hamming", "micro_ap"),
    "micro AP of copies, photo": lambda r: _copies(r, _photo(r), "micro_ap"),
}


def _photo(record: Record) -> str:
    """The ranking "photo" with the default weight of the content."""
    return f"photo-128-{record['content']['content_weight']:g}"


def _under(record: Record, ranking: str) -> dict[str, Any]:
    found: dict[str, Any] = record["content"]["rankings"][ranking]
    return found


def _copies(record: Record, ranking: str, measure: str) -> float:
    """Known-item search, the mean over all alterations except "none"."""
    found = _under(record, ranking)["known_item"]
    return float(statistics.mean(own[measure] for name, own in found.items() if name != "none"))


def _copy(record: Record, ranking: str, alteration: str, measure: str) -> float:
    """Known-item search for one alteration."""
    return float(_under(record, ranking)["known_item"][alteration][measure])


def measured(record: Record, measure: Measure) -> float | None:
    """The value of a measure, or None if the record does not have it.

    Args:
        record: Record of a cell.
        measure: Selects the value.

    Returns:
        The value.
    """
    try:
        return float(measure(record))
    except KeyError:
        return None


def summary(values: Sequence[float]) -> str:
    """Mean ± standard deviation (number of values).

    Example:
        >>> summary([0.5, 0.7]), summary([0.5]), summary([])
        ('.600 ±.141 (2)', '.500 (1)', 'not run')
    """
    if not values:
        return "not run"
    spread = f" ±{short(statistics.stdev(values))}" if len(values) > 1 else ""
    return f"{short(statistics.mean(values))}{spread} ({len(values)})"


def counted(values: Sequence[float]) -> str:
    """The mean of counts, and how many there are.

    Example:
        >>> counted([1500, 1601]), counted([])
        ('1,550 (2)', '')
    """
    return f"{statistics.mean(values):,.0f} ({len(values)})" if values else ""


def with_interval(values: Sequence[float]) -> str:
    """Mean with its 95 % t interval and the number of values.

    Example:
        >>> with_interval([0.50, 0.51, 0.52]), with_interval([0.5]), with_interval([])
        ('.510 [.485, .535] (3)', '.500 (1)', 'not run')
    """
    if len(values) < 2:
        return summary(values)
    found = t_interval(values)
    return f"{short(found.mean)} [{short(found.low)}, {short(found.high)}] ({found.count})"


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table; columns without an entry are left out.

    Args:
        head: Titles of the columns.
        rows: The rows.

    Returns:
        Lines of Markdown.
    """
    kept = [place for place in range(len(head)) if any(row[place] for row in rows)]
    lines = (head, ["---"] * len(head), *rows)
    return ["| " + " | ".join(row[place] for place in kept) + " |" for row in lines]


def describe_database(record: Record) -> str:
    """The size of the database, and how much of it was trained on.

    Example:
        >>> describe_database({"database": 5717, "train_images": 5717, "protocol": "voc2012"})
        '5,717, all of them trained on'
    """
    size, trained, searched = record["database"], record["train_images"], record.get("protocol")
    if searched not in _SEARCHED:
        return f"{size:,}"
    if not _SEARCHED[searched]:
        return f"{size:,}, none of them trained on"
    if trained == size:
        return f"{size:,}, all of them trained on"
    return f"{size:,}, of which {trained:,} were trained on ({trained / size:.0%})".replace(
        "%", " %"
    )


def _backbones(records: Iterable[Record]) -> str:
    names = {own["backbone"] for own in records if own.get("weights", "none") != "none"}
    if not names:
        return ""
    shown = ", ".join(sorted(names))
    return (
        f"Backbone {shown}, pretrained on ImageNet, whose classes overlap with those of the data "
        "set. "
    )


def provenance(records: Sequence[Record]) -> list[str]:
    """Data, hardware and source of the records of a data set, as a paragraph."""
    first = records[0]
    machines = Counter(f"{own['hardware']}, torch {own['versions']['torch']}" for own in records)
    ran = "; ".join(f"{name} ({count} cells)" for name, count in machines.items())
    digests = [
        f"{kind} {_digests(own['digests'].get(f'{kind}_sha256') for own in records)}"
        for kind in ("pixels", "weights")
    ]
    failed = [own["name"] for own in records if "map" not in own]
    text = (
        f"{first['queries']:,} queries, {first['train_images']:,} training images, database of "
        f"{describe_database(first)}. {_backbones(records)}mAP@1000 divides by the relevant items "
        f"found among the first 1,000. {ran if len(machines) > 1 else next(iter(machines))}. "
        f"Source {_digests(own['revision']['commit'] for own in records)}; {', '.join(digests)}. "
        f"{len(records)} cells, {len(failed)} without a result."
    )
    return [text, ""]


def _digests(values: Iterable[object]) -> str:
    """The beginnings of distinct digests."""
    return ", ".join(sorted({"not recorded" if own is None else str(own)[:12] for own in values}))


def write_csv(records: Sequence[Record], path: Path) -> list[Path]:
    """Write all measured records as CSV.

    Args:
        records: Records of a plan.
        path: The file.

    Returns:
        The files that were written: none without measured records.
    """
    own = [record for record in records if "map" in record]
    if not own:
        return []
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    columns = ("dataset", "method", "bits", "seed", "varied", "map", "depth", "map_all")
    extra = (
        "map_1000",
        "map_1000_possible",
        "precision_at_1",
        "precision_at_10",
        "precision_radius_2",
    )
    last = ("nonempty_radius_2", "first_ten_tie", "train_map", "model_sha256", "command")
    writer.writerow([*columns, *extra, *last])
    for record in sorted(own, key=lambda own: (own["dataset"], own["seed"], own["name"])):
        writer.writerow(_csv_row(record))
    files.write_text(path, text.getvalue())
    return [path]


def _csv_row(record: Record) -> list[Any]:
    varied = " ".join(f"{key}={value}" for key, value in record["varied"].items())
    if "-repeat" in record["name"]:
        varied += f" repeat={record['name'].rsplit('-repeat')[1]}"
    return [
        *(record[key] for key in ("dataset", "method", "bits", "seed")),
        varied,
        record["map"],
        record["depth"] or "all",
        record["maps"]["all"],
        *(record["maps"].get(f"1000_{name}", "") for name in ("found", "possible")),
        record["precision_at"]["1"],
        record["precision_at"]["10"],
        *(record[k] for k in ("precision_radius_2", "nonempty_radius_2", "first_ten_tie")),
        record["train_map"],
        record["digests"]["model_sha256"],
        record["command"],
    ]
