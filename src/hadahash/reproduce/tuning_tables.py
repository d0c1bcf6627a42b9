"""The tables of tuning: chosen points, edges of grids, and further trials that were not run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from .. import files
from .forms import markdown_table
from .intervals import short
from .names import display_name
from .tuning import Choice, Tuning, point_text

_TITLES = {
    "tuning": "Tuning",
    "tuning-frozen": "Tuning with a fixed backbone",
    "tuning-alexnet": "Tuning with AlexNet",
}


def write_tuning(tuning: Tuning, choices: Sequence[Choice], docs: Path) -> list[Path]:
    """Write the tables of a plan.

    Args:
        tuning: The grids.
        choices: The choices.
        docs: Folder of the documents; the file is written to its folder `tables`.

    Returns:
        The files that were written.
    """
    lengths = tuning.content["bits"]
    head = ["data set", "method", "trials", "diverged", "chosen"]
    head += [f"mAP, {bits} bits" for bits in lengths]
    head += ["best frozen", "more epochs", "extend", "missing", "further"]
    rows = [_row(choice, lengths) for choice in choices]
    lines = [
        f"# {_TITLES[tuning.name]}",
        "",
        *markdown_table(head, rows),
        *_untried(tuning, choices),
    ]
    path = docs / "tables" / f"{tuning.name}.md"
    files.write_text(path, "\n".join(lines) + "\n")
    return [path]


def _row(choice: Choice, lengths: Sequence[int]) -> list[str]:
    others = [choice.best_frozen, choice.longer]
    return [
        display_name(choice.dataset),
        display_name(choice.method),
        str(choice.trials),
        str(choice.diverged),
        choice.text,
        *(short(choice.scores[bits]) if bits in choice.scores else "" for bits in lengths),
        *("" if value is None else short(value) for value in others),
        ", ".join(choice.extend),
        str(len(choice.missing) or ""),
        str(len(choice.untried) or ""),
    ]


def _untried(tuning: Tuning, choices: Sequence[Choice]) -> list[str]:
    """The trials of further points without a result."""
    common = tuning.content["settings"]
    rows = [
        [
            display_name(cell.dataset),
            display_name(cell.method),
            str(cell.bits),
            point_text({key: own for key, own in cell.settings.items() if key not in common}),
        ]
        for choice in choices
        for cell in choice.untried
    ]
    if not rows:
        return []
    about = (
        "`missing` counts trials that a choice waits for, `further` those that may still replace "
        "it. The latter are:"
    )
    return ["", about, "", *markdown_table(["data set", "method", "bits", "point"], rows)]
