"""Tables of the factorial experiment: codebook x loss, permutations, and rerun noise."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

from .collected import Record
from .forms import FORMS, FROZEN, Measure, markdown_table, measured, provenance, summary
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


def section(records: Sequence[Record], *, frozen: bool = False) -> list[str]:
    """Write the section of docs/results.md.

    Args:
        records: Records of the experiment.
        frozen: Whether it has a fixed backbone.

    Returns:
        Lines of Markdown; empty without records.
    """
    if not records:
        return []
    about = "Mean ± standard deviation (seeds) / the paper's value (AlexNet)."
    if frozen:
        about = (
            "Only the head is trained, on features of the original backbone, with the settings of "
            f"[trials of its own](tables/tuning{FROZEN}.md). Mean ± standard deviation (seeds)."
        )
    parts = [
        f"## Codebook and loss{', fixed backbone' if frozen else ''}",
        "",
        f"`hadahash reproduce factorial{FROZEN if frozen else ''}`",
        "",
        "Codebook x loss on fresh seeds. All arms of a seed share the split, the initial head and "
        f"the order of the images. {about}",
        "",
    ]
    for dataset in dict.fromkeys(record["dataset"] for record in records):
        own = [record for record in records if record["dataset"] == dataset]
        parts += [
            f"### {display_name(dataset)}",
            "",
            *_arms(own, printed=not frozen),
            *_contrasts(own),
        ]
        parts += [*_forms(own), *_noise(own), *provenance(own)]
    return parts


def _arms(records: Sequence[Record], *, printed: bool) -> list[str]:
    """The mean of each arm, with the values that the paper printed."""
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
            + (_printed(records[0], loss, book, bits, name) if printed else "")
            for bits in lengths
            for name in _MEASURES
        ]
        rows.append([display_name(loss), book or "none", *cells])
    return [*markdown_table(head, rows), ""]


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
            lines += [*markdown_table(head, rows), ""]
    return lines


def _difference(left: Values, right: Values, bits: int | None) -> str:
    own, other = (
        {key: value for key, value in side.items() if bits in (None, key[0])}
        for side in (left, right)
    )
    found = paired_differences(own, other)
    return str(t_interval(found)) if found else ""


_PAIRS = (("paper", "random"), ("far", "paper"), ("far", "random"), ("csq", "paper"))


def _forms(records: Sequence[Record]) -> list[str]:
    """The same models measured in other ways; all mAP values are @all."""
    arms = [("hcdh", "paper"), ("hcdh", "far"), ("csq", "far"), ("orthohash", "far")]
    lengths = sorted({record["bits"] for record in records})
    columns = [(*own, bits) for own in arms for bits in lengths]
    head = ["measure", *(f"{display_name(m)}, {book}, {bits}" for m, book, bits in columns)]
    rows = []
    for name, form in FORMS.items():
        cells = []
        for method, book, bits in columns:
            having = [own for own in records if measured(own, form) is not None]
            found = arm(having, method, book, form)
            values = [value for (own, _), value in found.items() if own == bits]
            cells.append(summary(values) if values else "")
        if any(cells):
            rows.append([name, *cells])
    lines = markdown_table(head, rows)
    return ["The same models measured in other ways (mAP@all):", "", *lines, ""]


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
