"""Tables of the plan "prefixes": the first bits of one model against a model of each length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .collected import Record
from .forms import markdown_table, provenance, with_interval
from .intervals import Interval, short, t_interval
from .names import display_name
from .tables import listed

LENGTHS = (16, 32, 64, 128)  # models are trained at each; the last one is cut to the others
LOSS = 0.005  # the goal: at no length further below the model of that length
GOAL = (
    f"The goal is that no length is more than {short(LOSS)} below. *Met*: all intervals are above "
    "that. *Met by the means*: all means are."
)

Values = Mapping[int, float]  # mAP by seed


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
    tables = [
        line
        for measure, key in _measures(own)
        for line in (*_differences(own, measure, key), *_levels(own, measure, key))
    ]
    return [f"### {title}", "", *tables, *provenance(records)]


def _measures(records: Sequence[Record]) -> list[tuple[str, str]]:
    """Title and key: the whole ranking, and the reported depth if it is another one."""
    depth = records[0]["depth"]
    reported = f"{depth}_found"
    found = [(f"mAP@{depth}", reported)] if reported in records[0]["maps"] else []
    return [*found, ("mAP@all", "all")]


def _differences(records: Sequence[Record], measure: str, key: str) -> list[str]:
    """The longest models at every length, minus the models of that length."""
    rows = []
    for name, own in _models(records).items():
        lengths = LENGTHS if own[0]["varied"] else LENGTHS[:-1]  # not a model minus itself
        found = [_paired(_cut(own, bits, key), _of_length(records, bits, key)) for bits in lengths]
        entries = ["not run" if one is None else str(one) for one in found]
        rows.append([name, *entries, *[""] * (len(LENGTHS) - len(entries)), _verdict(found)])
    if not rows:
        return []
    head = [f"one model of {LENGTHS[-1]} bits", *(f"{bits} bits" for bits in LENGTHS), "goal"]
    title = f"{measure} of the first bits minus that of a model of this length, by seed. {GOAL}"
    return [title, "", *markdown_table(head, rows), ""]


def _levels(records: Sequence[Record], measure: str, key: str) -> list[str]:
    """mAP at every length that was measured."""
    models = _models(records)
    cut = {int(bits) for own in models.values() for one in own for bits in one["prefixes"]}
    lengths = sorted({*LENGTHS, *cut})
    rows = [
        ["a model of each length", *(_entry(_of_length(records, bits, key)) for bits in lengths)],
        *(
            [name, *(_entry(_cut(own, bits, key)) for bits in lengths)]
            for name, own in models.items()
        ),
    ]
    head = ["", *(f"{bits} bits" for bits in lengths)]
    return [f"The same as {measure}:", "", *markdown_table(head, rows), ""]


def _models(records: Sequence[Record]) -> dict[str, list[Record]]:
    """The longest models by name."""
    found: dict[str, list[Record]] = {}
    for record in records:
        if record["bits"] == LENGTHS[-1]:
            changed = {key: own for key, own in record["varied"].items() if own != "design"}
            name = ", ".join(filter(None, [display_name(record["method"]), listed(changed)]))
            found.setdefault(name, []).append(record)
    return found


def _of_length(records: Sequence[Record], bits: int, key: str) -> Values:
    """mAP of the models that were trained at a length."""
    own = (record for record in records if record["bits"] == bits and not record["varied"])
    return {record["seed"]: record["maps"][key] for record in own}


def _cut(records: Sequence[Record], bits: int, key: str) -> Values:
    """mAP of the first bits of the longest models."""
    whole = bits == LENGTHS[-1]
    maps = {
        own["seed"]: own["maps"] if whole else own["prefixes"].get(str(bits)) for own in records
    }
    return {seed: found[key] for seed, found in maps.items() if found}


def _paired(left: Values, right: Values) -> Interval | None:
    differences = [left[seed] - right[seed] for seed in sorted(left.keys() & right.keys())]
    return t_interval(differences) if differences else None


def _verdict(found: Sequence[Interval | None]) -> str:
    compared = [one for one in found if one is not None]
    if any(one.mean < -LOSS for one in compared):
        return "missed"
    if len(compared) < len(found):
        return "not all run"
    return "met" if all(one.low >= -LOSS for one in compared) else "met by the means"


def _entry(values: Values) -> str:
    return with_interval(list(values.values())) if values else ""
