"""Tables of the factorial experiment: codebook x loss, permutations, and rerun noise."""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from .. import files
from .collected import Record
from .intervals import Values, paired_differences, short, t_interval
from .names import display_name
from .tables import PAPER_BITS, paper_values

CODEBOOKS = ("paper", "far", "random", "csq")
LOSSES = ("hcdh-h", "hcdh", "csq", "orthohash")
_MEASURES = {
    "mAP@all": lambda record: record["maps"]["all"],
    "mAP@1000": lambda record: record["maps"]["1000_found"],
}
_ARM = {"codebook"}  # the varied settings of an arm

Measure = Callable[[Record], float]


def arm(
    records: Iterable[Record],
    method: str,
    codebook: str | None,
    measure: Measure = lambda record: float(record["map"]),
    dataset: str | None = None,
) -> Values:
    """Select one arm of the experiment.

    Args:
        records: Records of the experiment.
        method: Name of the method.
        codebook: Codebook design; None for a method without one.
        measure: Selects the value of a record; by default the mAP of the data set.
        dataset: Name of the data set; None: the records are of one.

    Returns:
        Values by (bits, seed).
    """
    return {
        (record["bits"], record["seed"]): measure(record)
        for record in records
        if record["method"] == method
        and dataset in (None, record["dataset"])
        and record["varied"].get("codebook") == codebook
        and set(record["varied"]) <= _ARM
        and "repeat" not in record["name"]
        and "map" in record
    }


def permutations(records: Iterable[Record], bits: int) -> list[float]:
    """mAP under each permutation of the codewords over the classes."""
    return [
        float(record["map"])
        for record in records
        if record["bits"] == bits and "codebook_permutation" in record["varied"] and "map" in record
    ]


def repeats(records: Iterable[Record], *, deterministic: bool) -> list[Record]:
    """The repeated runs of one cell, the first run among them."""
    found = [record for record in records if "map" in record]
    again = [
        record
        for record in found
        if "-repeat" in record["name"]
        and bool(record["varied"].get("deterministic")) == deterministic
    ]
    names = {record["name"].split("-repeat")[0] for record in again}
    return [*again, *(record for record in found if record["name"] in names)]


def write_factorial(records: Sequence[Record], docs: Path) -> list[Path]:
    """Write all arms as CSV.

    Args:
        records: Records of the experiment.
        docs: Folder of the documents.

    Returns:
        The files that were written.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    columns = ("dataset", "method", "bits", "seed", "varied", "map", "depth", "map_all")
    extra = ("map_1000", "precision_at_1", "precision_at_10", "precision_radius_2")
    last = ("nonempty_radius_2", "first_ten_tie", "train_map", "model_sha256", "command")
    writer.writerow([*columns, *extra, *last])
    for record in sorted(records, key=lambda own: (own["dataset"], own["seed"], own["name"])):
        if "map" in record:
            writer.writerow(_csv_row(record))
    path = docs / "tables" / "factorial.csv"
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
        record["maps"]["1000_found"],
        record["precision_at"]["1"],
        record["precision_at"]["10"],
        *(record[k] for k in ("precision_radius_2", "nonempty_radius_2", "first_ten_tie")),
        record["train_map"],
        record["digests"]["model_sha256"],
        record["command"],
    ]


def section(records: Sequence[Record]) -> list[str]:
    """Write the section of docs/results.md.

    Args:
        records: Records of the experiment.

    Returns:
        Lines of Markdown; empty without records.
    """
    if not records:
        return []
    parts = [
        "## Codebook and loss",
        "",
        "`hadahash reproduce factorial`",
        "",
        "Codebook x loss on fresh seeds. All arms of a seed share the split, the initial head and "
        "the order of the images. Mean ± standard deviation (seeds) / the paper's value (AlexNet).",
        "",
    ]
    for dataset in dict.fromkeys(record["dataset"] for record in records):
        own = [record for record in records if record["dataset"] == dataset]
        parts += [f"### {display_name(dataset)}", "", *_arms(own), *_contrasts(own)]
        parts += [*_forms(own), *_noise(own), *_provenance(own)]
    return parts


def _arms(records: Sequence[Record]) -> list[str]:
    lengths = sorted({record["bits"] for record in records})
    head = ["loss", "codebook"]
    head += [f"{bits} bits, {name}" for bits in lengths for name in _MEASURES]
    rows = []
    pairs = [(loss, book) for loss in LOSSES for book in CODEBOOKS] + [("hcdh-c", None)]
    for loss, book in pairs:
        values = {name: arm(records, loss, book, measure) for name, measure in _MEASURES.items()}
        if not values["mAP@all"]:
            continue
        cells = [
            summary([v for (own, _), v in values[name].items() if own == bits])
            + _printed(records[0], loss, book, bits, name)
            for bits in lengths
            for name in _MEASURES
        ]
        rows.append([display_name(loss), book or "none", *cells])
    return [*_table(head, rows), ""]


def _printed(record: Record, loss: str, book: str | None, bits: int, measure: str) -> str:
    """The paper's value for its own codebook and measure."""
    own = f"mAP@{record['depth'] or 'all'}"
    values = paper_values().get(record["dataset"], {}).get(loss)
    if values is None or book not in (None, "paper") or own != measure:
        return ""
    return f" / {short(dict(zip(PAPER_BITS, values, strict=True))[bits])}"


def _contrasts(records: Sequence[Record]) -> list[str]:
    """Paired differences of codebooks for each loss, per length and averaged over lengths."""
    lengths = sorted({record["bits"] for record in records})
    lines = []
    for name, measure in _MEASURES.items():
        rows = []
        for loss in LOSSES:
            arms = {book: arm(records, loss, book, measure) for book in CODEBOOKS}
            for bits in [*lengths, None]:
                found = [_difference(arms[a], arms[b], bits) for a, b in _PAIRS]
                if any(found):
                    rows.append([display_name(loss), f"{bits or 'mean'}", *found])
        head = ["loss", "bits", *(f"{a} - {b}" for a, b in _PAIRS)]
        if rows:
            lines += [f"Differences in {name}, paired by seed, 95 % t interval:", ""]
            lines += [*_table(*_without_empty(head, rows)), ""]
    return lines


def _difference(left: Values, right: Values, bits: int | None) -> str:
    own, other = (
        {key: value for key, value in side.items() if bits in (None, key[0])}
        for side in (left, right)
    )
    found = paired_differences(own, other)
    return str(t_interval(found)) if found else ""


def _without_empty(head: list[str], rows: list[list[str]]) -> tuple[list[str], list[list[str]]]:
    """Drop columns without an entry."""
    kept = [place for place in range(len(head)) if any(row[place] for row in rows)]
    return [head[place] for place in kept], [[row[place] for place in kept] for row in rows]


_PAIRS = (("paper", "random"), ("far", "paper"), ("far", "random"), ("csq", "paper"))
_FORMS = {
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
}


def _forms(records: Sequence[Record]) -> list[str]:
    """The same models measured in other ways; all mAP values are @all."""
    arms = [("hcdh", "paper"), ("hcdh", "far"), ("csq", "far"), ("orthohash", "far")]
    lengths = sorted({record["bits"] for record in records})
    columns = [(*own, bits) for own in arms for bits in lengths]
    head = ["measure", *(f"{display_name(m)}, {book}, {bits}" for m, book, bits in columns)]
    rows = []
    for name, form in _FORMS.items():
        cells = []
        for method, book, bits in columns:
            found = arm(records, method, book, _optional(form))
            values = [v for (own, _), v in found.items() if own == bits and v == v]
            cells.append(summary(values) if values else "")
        if any(cells):
            rows.append([name, *cells])
    lines = _table(*_without_empty(head, rows))
    return ["The same models measured in other ways (mAP@all):", "", *lines, ""]


def _optional(form: Measure) -> Measure:
    def value(record: Record) -> float:
        try:
            return float(form(record))
        except KeyError:
            return float("nan")

    return value


def _noise(records: Sequence[Record]) -> list[str]:
    lines = []
    for deterministic, name in ((False, "fastest"), (True, "deterministic")):
        found = repeats(records, deterministic=deterministic)
        if len(found) < 2:
            continue
        maps = [own["map"] for own in found]
        models = len({own["digests"]["model_sha256"] for own in found})
        equal = "equal to the bit" if models == 1 else f"{models} different models"
        seconds = min(own["train_seconds"] for own in found)
        lines.append(
            f"- One cell run {len(found)} times with the {name} kernels: mAP "
            f"{short(min(maps))} to {short(max(maps))}, standard deviation "
            f"{statistics.stdev(maps):.4f}, {equal}; {seconds:.1f} s of training."
        )
    for bits in sorted({record["bits"] for record in records}):
        maps = permutations(records, bits)
        if len(maps) > 1:
            lines.append(
                f"- Codewords of the paper's codebook permuted over the classes {len(maps)} times, "
                f"{bits} bits: mAP {short(min(maps))} to {short(max(maps))}, standard deviation "
                f"{statistics.stdev(maps):.4f}."
            )
    return [*lines, ""] if lines else []


def _provenance(records: Sequence[Record]) -> list[str]:
    first = records[0]
    commits = sorted({str(own["revision"]["commit"])[:12] for own in records})
    failed = [own["name"] for own in records if "map" not in own]
    text = (
        f"{first['queries']:,} queries, {first['train_images']:,} training images, database of "
        f"{first['database']:,}. {first['hardware']}, torch {first['versions']['torch']}, source "
        f"{', '.join(commits)}; pixels {str(first['digests']['pixels_sha256'])[:12]}, weights "
        f"{str(first['digests']['weights_sha256'])[:12]}. {len(records)} cells"
    )
    return [f"{text}, {len(failed)} without a result.", ""]


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


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return ["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows)]
