"""Tables of the plan "recipe": what each change gains, what they give together, and fresh seeds."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from .collected import Record
from .forms import FORMS, Measure, markdown_table, measured, provenance, with_interval
from .intervals import short, signed
from .names import display_name
from .recipe_trials import BASE, FINAL, STAGES, Change, Trials

_RANKINGS = (  # those that trials measure, see `FORMS`
    "Hamming",
    "real-valued query",
    "P(same class), binary query",
    "P(same class), real-valued query",
    "P(same class), classifier",
)
_WITH_CONTENT = {
    "photo": ("photo, 128 content bits, mAP@all", FORMS["photo, 128 content bits"]),
    "crop_1": ("crops of 80 % found first, photo", FORMS["crops found first, photo"]),
    "crop_10": ("crops of 80 % among the first ten", FORMS["crops among the first ten, photo"]),
}


def section(trials: Trials) -> list[str]:
    """Write the section of docs/results.md.

    Args:
        trials: The recipe and its records.

    Returns:
        Lines of Markdown; empty without trials.
    """
    parts = [*_single(trials), *_together(trials), *_prefixes(trials), *_final(trials)]
    if not parts:
        return []
    return [
        "## Recipe",
        "",
        f"`hadahash reproduce {' '.join(STAGES)}`",
        "",
        _about(trials),
        "",
        *parts,
    ]


def _about(trials: Trials) -> str:
    own = trials.content
    base = ", ".join(f"{key} {value}" for key, value in own["settings"].items())
    lengths = " and ".join(str(bits) for bits in own["bits"])
    return (
        f"Which changes of {display_name(own['method'])} ({base}) raise the mAP. A trial trains on "
        f"{100 * (1 - own['share']):.0f} % of the training images of seed {own['seed']}, and the "
        "others search them; no query is used. There is one trial per length, so gains have no "
        f"interval. Gain: mAP@all by Hamming distance, mean over {lengths} bits, minus that of the "
        "base. A trial that diverged counts as 0."
    )


def _single(trials: Trials) -> list[str]:
    """The gains of all single changes, the most useful one first."""
    datasets = trials.content["datasets"]
    kept = {own.name for own in [*trials.kept(), *trials.kept("lite2")]}
    found = []
    for change in [*trials.changes(), *trials.changes("lite2")]:
        gains = trials.gains(change)
        entries = [signed(gains[own]) if own in gains else "not run" for own in datasets]
        if gains:
            mean = statistics.mean(gains.values())
            row = [change.name, change.kind, _settings(change), *entries]
            found.append((mean, [*row, _outcome(trials, change, kept)]))
    if not found:
        return []
    head = ["change", "kind", "settings", *map(display_name, datasets), "outcome"]
    rows = [row for _, row in sorted(found, key=lambda entry: -entry[0])]
    rule = (
        f"A change gains on a data set if it adds more than {short(trials.content['gain'])}. Of "
        "each kind the change with the largest mean gain is kept, if it gains on "
        f"{trials.enough} data sets or more:"
    )
    return ["### Single changes", "", rule, "", *markdown_table(head, rows), ""]


def _settings(change: Change) -> str:
    parts = [part for part in (change.method, change.backbone) if part]
    parts += [f"{key} {value}" for key, value in change.settings.items()]
    parts += [f"{key} x {value:g}" for key, value in change.scale.items()]
    return ", ".join(parts)


def _outcome(trials: Trials, change: Change, kept: set[str]) -> str:
    count, all_sets = trials.won(change), len(trials.content["datasets"])
    if change.name in kept:
        return "kept"
    if count >= trials.enough:
        return "gains, but less than another of its kind"
    if len(trials.gains(change)) < all_sets:
        return "not run on all data sets"
    return f"gains on {count} of {all_sets}" if count else "no gain"


def _together(trials: Trials) -> list[str]:
    """The mean mAP of the base, of what is kept, and of combinations."""
    best, datasets = trials.best(), trials.content["datasets"]
    rows = []
    for change in trials.candidates():
        scores = [trials.score(own, change) for own in datasets]
        if best is not None and any(score is not None for score in scores):
            entries = ["not run" if score is None else short(score) for score in scores]
            mean = trials.mean(change)
            name = f"**{change.name}**" if change.name == best.name else change.name
            rows.append([name, *entries, "" if mean is None else short(mean)])
    if not rows:
        return []
    head = ["changes", *map(display_name, datasets), "mean"]
    title = "mAP@all on held-out training images, mean over both lengths. Bold: the best of all."
    return ["### Changes together", "", title, "", *markdown_table(head, rows), ""]


def _prefixes(trials: Trials) -> list[str]:
    """The first bits of nested codes against the base, trained at their length."""
    longest, *shorter = sorted(trials.content["bits"], reverse=True)
    datasets = trials.content["datasets"]
    rows = []
    for change in trials.changes():
        for bits in shorter:
            entries = [_cut(trials, change, dataset, longest, bits) for dataset in datasets]
            if any(entries):
                rows.append([f"{change.name}, first {bits} of {longest} bits", *entries])
    if not rows:
        return []
    head = ["change", *map(display_name, datasets)]
    title = "mAP@all of the first bits of one model minus that of the base, trained at this length:"
    return [title, "", *markdown_table(head, rows), ""]


def _cut(trials: Trials, change: Change, dataset: str, longest: int, bits: int) -> str:
    own = trials.found([trials.cell(dataset, longest, change)])
    base = trials.found([trials.cell(dataset, bits, Change(BASE))])
    if not own or not base or "prefixes" not in own[0] or "maps" not in base[0]:
        return ""
    return signed(own[0]["prefixes"][str(bits)]["all"] - base[0]["maps"]["all"])


def _final(trials: Trials) -> list[str]:
    """The best candidate on fresh seeds, beside the goals."""
    cells, best = trials.stage(FINAL), trials.best()
    records = [own for own in trials.found(cells) if "map" in own]
    if best is None or not records:
        return []
    parts = []
    for dataset in trials.content["datasets"]:
        own = [record for record in records if record["dataset"] == dataset]
        if own:
            lines = _table(trials, dataset, own, best_ranking(trials, dataset))
            parts += [f"#### {display_name(dataset)}", "", *lines, "", *provenance(own)]
    text = (
        f"{best.name}: mean [95 % t interval] (number of seeds) on the queries of the protocols, "
        "with the goal and whether the mean reaches it. The ranking beside Hamming distance is the "
        "one with the best mAP in the trials of the data set."
    )
    return ["### On fresh seeds", "", text, "", *parts]


def best_ranking(trials: Trials, dataset: str) -> str:
    """The ranking with the best mean mAP in the trials of the best candidate.

    Args:
        trials: The recipe and its records.
        dataset: Name of the data set.

    Returns:
        A name of `FORMS`. Queries are not used.
    """
    best = trials.best()
    cells = [trials.cell(dataset, bits, best) for bits in trials.content["bits"]] if best else []
    found = {}
    for name in _RANKINGS:
        values = [measured(record, FORMS[name]) for record in trials.found(cells)]
        known = [value for value in values if value is not None]
        if known and len(known) == len(values):
            found[name] = statistics.mean(known)
    return max(found, key=lambda name: found[name], default="Hamming")


def _table(trials: Trials, dataset: str, records: Sequence[Record], ranking: str) -> list[str]:
    """A row per measure, a column per length."""
    lengths = sorted({record["bits"] for record in records})
    goals = trials.content.get("goals", {}).get(dataset, {})
    rows = []
    for key, (title, measure) in _measures(records[0]["depth"], ranking).items():
        own = goals.get(key, {})
        entries = (_entry(records, bits, measure, own.get(str(bits))) for bits in lengths)
        rows.append([title, *entries])
    return markdown_table(["measure", *(f"{bits} bits" for bits in lengths)], rows)


def _measures(depth: int | None, ranking: str) -> dict[str, tuple[str, Measure]]:
    """Title and measure by the name of their goal."""
    found: dict[str, tuple[str, Measure]] = {"hamming": ("Hamming, mAP@all", FORMS["Hamming"])}
    if depth is not None:
        found[f"hamming_{depth}"] = f"Hamming, mAP@{depth}", lambda record: record["map"]
    found["best"] = f"{ranking}, mAP@all", FORMS[ranking]
    return found | _WITH_CONTENT


def _entry(records: Sequence[Record], bits: int, measure: Measure, goal: float | None) -> str:
    found = (measured(own, measure) for own in records if own["bits"] == bits)
    values = [value for value in found if value is not None]
    text = with_interval(values) if values else ""
    if goal is None or not values:
        return text
    reached = "reached" if statistics.mean(values) >= goal else "missed"
    return f"{text}; goal {short(goal)} {reached}"
