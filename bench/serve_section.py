"""The section of docs/performance.md about the service at a million items."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import NamedTuple

from page_text import Result, paragraph

OLD = "0.1"


class Row(NamedTuple):
    """A line of the table.

    Attributes:
        name: What is measured.
        unit: Its unit.
        value: The number of a case.
        goal: "< 50": the number itself; "x 3": at least so many times that of version 0.1; "/ 2":
            at most this part of it; "" without a goal.
        bound: What bounds the number, if the goal is missed.
    """

    name: str
    unit: str
    value: Callable[[Result], float]
    goal: str = ""
    bound: str = ""


def serve_million(result: Result) -> list[str]:
    """Start, memory, changes and searches, against version 0.1."""
    cases = {case["version"]: case for case in result["cases"]}
    lines = [
        f"## The service with {result['items']:,} items",
        "",
        *paragraph(
            "Each version serves its own collection with `hadahash serve`. The clients run on the",
            "same cores. *Ready*: median time from the start of the process until /readyz answers",
            "200; the model of 0.2 was exported before, as the first start of the service does.",
            "*Memory* is that of the server process besides mapped files. Changes are made one",
            "after the other, while another client asks for /healthz every 10 ms. The last column",
            "compares 0.2 with 0.1.",
        ),
        f"| | {' | '.join(cases)} | goal | 0.2 / 0.1 |",
        "|---|" + "---|" * (len(cases) + 2),
        *(_line(row, cases) for row in ROWS),
        "",
        *_missed(cases),
    ]
    if "note" in result:
        lines += ["", *paragraph(result["note"])]
    return lines


def _searches(kind: str, clients: int, name: str) -> Callable[[Result], float]:
    def value(case: Result) -> float:
        found = {(each["kind"], each["clients"]): each for each in case["searches"]}
        return float(found[kind, clients][name])

    return value


def _changes(kind: str, name: str) -> Callable[[Result], float]:
    return lambda case: float(case["changes"][kind][name])


_PYTHON = "HTTP, checks and JSON in Python: the scan takes 0.1 of the 1.1 ms of a request."
ROWS = (
    Row("ready", "s", lambda case: median(case["ready_seconds"]), "< 2", "Imports of packages."),
    Row("memory, ready", "MB", lambda case: float(case["memory_ready"]["server_mb"]), "< 300"),
    Row("memory, after all", "MB", lambda case: float(case["memory_after"]["server_mb"])),
    Row("add an item, median", "ms", _changes("add", "p50_ms"), "< 50", "Flushes of the disk."),
    Row("add an item, p95", "ms", _changes("add", "p95_ms")),
    Row("remove an item, median", "ms", _changes("remove", "p50_ms"), "< 50"),
    Row(
        "/healthz during changes, longest",
        "ms",
        _changes("healthz_meanwhile", "max_ms"),
        "< 50",
        "The threads of one Python process take turns.",
    ),
    Row("searches by id, 1 client", "/s", _searches("id", 1, "per_second"), "x 3", _PYTHON),
    Row("searches by id, 32 clients", "/s", _searches("id", 32, "per_second"), "x 3"),
    Row("p95 of these", "ms", _searches("id", 32, "p95_ms"), "/ 2"),
    Row("processor time of each", "ms", _searches("id", 32, "processor_ms")),
    Row("searches with a label, 32 clients", "/s", _searches("label", 32, "per_second")),
    Row("uploads, 1 client", "/s", _searches("upload", 1, "per_second"), "x 2", "The network."),
    Row("uploads, 32 clients", "/s", _searches("upload", 32, "per_second"), "x 2", "The network."),
    Row("p95 of these", "ms", _searches("upload", 32, "p95_ms"), "/ 2", "The network."),
    Row(
        "upload beside 60 thumbnails",
        "ms",
        lambda case: case["thumbnails"]["upload_beside_ms"],
    ),
)


def _line(row: Row, cases: dict[str, Result]) -> str:
    cells = [
        f"{row.value(case):,.{_digits(row.value(case))}f} {row.unit}" for case in cases.values()
    ]
    ratio = _ratio(row, cases)
    compared = "" if ratio is None else f"{ratio:.{2 if ratio < 10 else 0}f}"
    return f"| {row.name} | {' | '.join(cells)} | {goal_text(row)} | {compared} |"


def _digits(value: float) -> int:
    return 0 if value >= 100 else 1


def goal_text(row: Row) -> str:
    """The goal of a line in words; empty without a goal."""
    kind, _, number = row.goal.partition(" ")
    texts = {"": "", "<": f"< {number} {row.unit}", "x": f">= {number}", "/": f"<= 1/{number}"}
    return texts[kind]


def _ratio(row: Row, cases: dict[str, Result]) -> float | None:
    new = next((case for name, case in cases.items() if name != OLD), None)
    if OLD not in cases or new is None or not row.value(cases[OLD]):
        return None
    return row.value(new) / row.value(cases[OLD])


def _missed(cases: dict[str, Result]) -> list[str]:
    """The goals that 0.2 does not reach, with what bounds them."""
    new = next((case for name, case in cases.items() if name != OLD), None)
    if new is None:
        return []
    missed = [row for row in ROWS if row.goal and not reached(row, row.value(new), cases)]
    if not missed:
        return paragraph("All goals are reached.")
    words = [f"{row.name} ({row.bound.rstrip('.') or 'not known'})" for row in missed]
    return paragraph(f"Goals that are missed, and what bounds them: {'; '.join(words)}.")


def reached(row: Row, value: float, cases: dict[str, Result]) -> bool:
    """Whether a number reaches the goal of its line."""
    kind, _, number = row.goal.partition(" ")
    if kind == "<":
        return value < float(number)
    ratio = _ratio(row, cases)
    if ratio is None:
        return True  # there is nothing to compare with
    return ratio >= float(number) if kind == "x" else ratio <= 1 / float(number)
