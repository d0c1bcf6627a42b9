"""Render the table of docs/reliability.md from bench/results/torture.jsonl.

    python bench/reliability.py            writes the table
    python bench/reliability.py --check    fails if the page is not up to date

`make torture` adds one row per test to the file and then calls this program. A row of a run that
was not survived can be given a `note`: the cause, and what was changed.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "results" / "torture.jsonl"
PAGE = ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"
AREAS = ("index", "files", "engines", "images", "training", "service", "command line", "fuzzing")
OUTCOMES = ("tried", "survived", "lost", "wrong", "crashed")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail if it differs")
    check = parser.parse_args().check
    old = PAGE.read_text(encoding="utf-8")
    new = page(old, read_rows())
    if check:
        sys.exit(None if new == old else f"{PAGE.name} is out of date. Run bench/reliability.py")
    PAGE.write_text(new, encoding="utf-8")


def read_rows() -> list[dict[str, Any]]:
    if not RESULTS.exists():
        return []
    return [json.loads(line) for line in RESULTS.read_text(encoding="utf-8").splitlines()]


def page(old: str, rows: list[dict[str, Any]]) -> str:
    """The page with the table of these rows."""
    before, _, rest = old.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table(rows)}\n{END}{after}"


def table(rows: list[dict[str, Any]]) -> str:
    """One line per kind of trial: its last run, and how often it was tried in all runs."""
    kinds: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        kinds.setdefault((row["area"], row["what"]), []).append(row)
    lines = [
        "| area | what | tried | survived | lost | wrong | crashed | last run | all runs |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | --- | ---: |",
    ]
    for (area, what), runs in sorted(kinds.items(), key=_order):
        counts = " | ".join(f"{runs[-1][name]:,}" for name in OUTCOMES)
        total = f"{sum(row['tried'] for row in runs):,} in {len(runs)}"
        when = f"{runs[-1]['date']}, {runs[-1]['commit']}"
        lines.append(f"| {area} | {what} | {counts} | {when} | {total} |")
    failed = [row for row in rows if row["failures"]]
    lines += ["", f"Runs in which a trial was not survived: {len(failed)} of {len(rows)}."]
    for row in failed:
        counts = ", ".join(f"{row[name]:,} {name}" for name in OUTCOMES if row[name])
        note = f" {row['note']}" if "note" in row else ""
        lines.append(f"- {row['date']}, {row['commit']}, {row['what']}: {counts}.{note}")
    return "\n".join(lines)


def _order(entry: tuple[tuple[str, str], Any]) -> tuple[int, str, str]:
    (area, what), _ = entry
    return AREAS.index(area) if area in AREAS else len(AREAS), area, what


if __name__ == "__main__":
    main()
