"""Tables of the further plans of experiments.toml: other protocols, AlexNet, prefixes and λ."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from . import prefix_tables
from .collected import Record
from .forms import FROZEN, markdown_table, provenance, with_interval
from .names import display_name
from .plans import EXPERIMENTS
from .seed_tables import tables_of

_ABOUT = {  # title and protocol
    "unseen": (
        "Classes that were not trained on",
        "A quarter of the classes is never trained on. Queries and database are of these classes.",
    ),
    "halves": (
        "Trained on one half, searched in the other",
        "VOC 2012 with a database that holds no training image: half of the training set is "
        "trained on, the other half is searched.",
    ),
    "prefixes": (
        "Every length from one model",
        "The first bits of a code of 128 bits against the codes of a model of that length. The "
        "codebook *nested* is made for it.",
    ),
    "lambda-seeds": (
        "The weight λ with several seeds",
        "HCDH with the paper's codebook over the weight λ of the classification loss, at two "
        "learning rates; the other settings as in *Tuned methods on fresh seeds*.",
    ),
    "alexnet-seeds": (
        "Tuned methods with AlexNet",
        "The network of the paper: pretrained convolutions and fresh fully connected layers.",
    ),
}
NAMES = tuple(name for name in EXPERIMENTS if name.removesuffix(FROZEN) in _ABOUT)


def sections(plans: Mapping[str, Sequence[Record]]) -> list[str]:
    """Write the sections of docs/results.md for all further plans that have a result.

    Args:
        plans: Records by name of the plan.

    Returns:
        Lines of Markdown.
    """
    return [line for name in NAMES for line in _section(name, plans.get(name, ()))]


def _section(name: str, records: Sequence[Record]) -> list[str]:
    plan = name.removesuffix(FROZEN)
    title, about = _ABOUT[plan]
    suffix = FROZEN if name.endswith(FROZEN) else ""
    parts = []
    for dataset in dict.fromkeys(record["dataset"] for record in records):
        own = [record for record in records if record["dataset"] == dataset]
        parts += _TABLES.get(plan, tables_of)(own, display_name(dataset))
    head = [
        f"## {title}{', fixed backbone' if suffix else ''}",
        "",
        f"`hadahash reproduce {name}`",
        "",
        f"{about} Settings: [their own trials](tables/tuning{suffix}.md). Mean [95 % t interval] "
        "(number of seeds).",
        "",
    ]
    return [*head, *parts] if parts else []


def _sweep(records: Sequence[Record], title: str) -> list[str]:
    """mAP over λ, a column per code length and learning rate; the best of a column is bold."""
    found: dict[tuple[int, float], dict[float, list[float]]] = {}
    for record in records:
        if "map" in record:
            column = found.setdefault((record["bits"], record["varied"]["lr"]), {})
            column.setdefault(record["varied"]["lam"], []).append(float(record["map"]))
    if not found:
        return []
    columns = sorted(found)
    best = {key: max(own, key=lambda lam: statistics.mean(own[lam])) for key, own in found.items()}
    rows = [
        [f"{lam:g}", *(_entry(found[key].get(lam, []), bold=best[key] == lam) for key in columns)]
        for lam in sorted({lam for own in found.values() for lam in own})
    ]
    measure = f"mAP@{records[0]['depth'] or 'all'}"
    head = ["λ", *(f"{bits} bits, lr {rate:g}, {measure}" for bits, rate in columns)]
    return [f"### {title}", "", *markdown_table(head, rows), "", *provenance(records)]


def _entry(values: Sequence[float], *, bold: bool) -> str:
    text = with_interval(values)
    return f"**{text}**" if bold else text


_TABLES = {"lambda-seeds": _sweep, "prefixes": prefix_tables.tables_of}
