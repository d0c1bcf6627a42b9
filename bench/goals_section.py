"""The section of docs/performance.md about the goals: before, now, met or not."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import serve_section
from goals import GOALS, Goal, Value
from page_text import Result, disturbed, later_runs, paragraph

COMPARISONS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
NOT_MEASURED = "not measured"
EARLIER = (
    "A number with * is from another run, before the work on 0.2 began; those of the GPU are from "
    "another machine with one H200."
)


class Line(NamedTuple):
    """A goal with what the stored results say about it.

    Attributes:
        name: What is measured.
        source: Name of the stored result.
        goal: The goal in words.
        before: Version 0.1.
        now: The number of version 0.2.
        met: Whether the goal is met; None if it is not measured or has no threshold.
        bound: What bounds the number.
        low: The lower quartile, if the goal is met by the median only.
        slower: Whether a number without a goal is no better than that of version 0.1.
    """

    name: str
    source: str
    goal: str
    before: str
    now: str
    met: bool | None
    bound: str
    low: str = ""
    slower: bool = False


def goals(results: Mapping[str, Result], stale: Mapping[str, str]) -> list[str]:
    """The table of all goals, and those that are missed.

    Args:
        results: Stored results by name.
        stale: What `stale.find_stale` returned.
    """
    areas = {"The service": list(service_lines(results.get("serve_million")))}
    areas |= {name: [line_of(goal, results) for goal in each] for name, each in GOALS.items()}
    everything = [each for found in areas.values() for each in found]
    lines = [
        "## Goals of version 0.2",
        "",
        *paragraph(
            "Version 0.1 was measured in the same run where the benchmark can do so. In brackets:",
            "the way of version 0.1, measured with version 0.2.",
            EARLIER if any(each.before.endswith("*") for each in everything) else "",
            "*not measured*: there is no stored result. The last column names the file in",
            "`bench/results/`. Where the steps of both versions differ, the sections and",
            "[A million photos](scale.md#a-million-photos) say how.",
        ),
        "| | goal | version 0.1 | now | met | result |",
        "|---|---|---|---|---|---|",
    ]
    for area, found in areas.items():
        lines.append(f"| **{area}** | | | | | |")
        lines += [
            f"| {each.name} | {each.goal} | {each.before} | {each.now} | {in_words(each)} "
            f"| {each.source} |"
            for each in found
        ]
    return [*lines, "", *missed(everything, results), *origins(everything, results, stale)]


def line_of(goal: Goal, results: Mapping[str, Result]) -> Line:
    """A goal with its number."""
    result = results.get(goal.source)
    now = number_of(goal.value, result)
    before, old = goal.before, None
    if callable(before):
        old = number_of(before, result)
        before = (goal.earlier or NOT_MEASURED) if old is None else goal.form.format(old)
    if goal.way and before != NOT_MEASURED:
        before += f" ({goal.way})"
    sign, _, threshold = goal.goal.partition(" ")
    met = reaches(now, goal.goal)
    wanted = f"{sign} {float(threshold):,g}{goal.form.rpartition('}')[2]}" if sign else ""
    shown = NOT_MEASURED if now is None else goal.form.format(now)
    quartile = None if goal.low is None else number_of(goal.low, result)
    only_median = met and reaches(quartile, goal.goal) is False
    low = goal.form.format(quartile) if only_median else ""
    bound = bound_of(goal, result)
    slower = bool(bound and not sign and now is not None and old is not None and now >= old)
    return Line(goal.name, goal.source, wanted, before, shown, met, bound, low, slower)


def reaches(number: float | None, goal: str) -> bool | None:
    """Whether a number reaches a goal; None if there is no number or no goal."""
    sign, _, threshold = goal.partition(" ")
    return None if number is None or not sign else COMPARISONS[sign](number, float(threshold))


def bound_of(goal: Goal, result: Result | None) -> str:
    """What bounds a number, in words; "" if the result does not tell."""
    if isinstance(goal.bound, str):
        return goal.bound
    try:
        return "" if result is None else goal.bound(result)
    except (KeyError, StopIteration):
        return ""


def number_of(value: Value, result: Result | None) -> float | None:
    """A number of a result, None if it was not measured."""
    try:
        return None if result is None else value(result)
    except (KeyError, IndexError, StopIteration, TypeError, ValueError):
        return None


def service_lines(result: Result | None) -> Iterator[Line]:
    """The goals of the service, whose section has all of its numbers, for each version."""
    for each in serve_section.judged(result):
        row, numbers = each.row, (each.before, each.now)
        shown = [serve_section.in_words(row, number) or NOT_MEASURED for number in numbers]
        wanted = serve_section.goal_text(row)
        wanted += {"<": "", "x": " times version 0.1", "/": " of version 0.1"}[row.goal[0]]
        yield Line(each.name, "serve_million", wanted, *shown, each.met, each.bound)


def in_words(line: Line) -> str:
    """Whether a goal is met."""
    if line.met is None:
        return ""
    if line.low:
        return "median only"
    return "yes" if line.met else "**no**"


def missed(lines: list[Line], results: Mapping[str, Result]) -> list[str]:
    """The goals that are missed, with what bounds them, and those without a number."""
    found = []
    busy = {name for name, result in results.items() if is_disturbed(result)}
    failed = [line for line in lines if line.met is False]
    if failed:
        found += ["Goals that are missed, and what bounds them:", ""]
        found += [
            f"- {line.name}: {line.now}, goal {line.goal}. {line.bound or 'Not known.'}"
            + (" Other processes kept the machine busy." if line.source in busy else "")
            for line in failed
        ]
        found.append("")
    barely = [line for line in lines if line.low]
    if barely:
        found += ["Goals that the median of the rounds meets, but not their lower quartile:", ""]
        found += [
            f"- {each.name}: median {each.now}, lower quartile {each.low}, goal {each.goal}."
            for each in barely
        ]
        found.append("")
    slower = [line for line in lines if line.slower]
    if slower:
        found += ["No better than version 0.1, and what bounds it:", ""]
        found += [f"- {each.name}: {each.before}, now {each.now}. {each.bound}" for each in slower]
        found.append("")
    absent = [line.name for line in lines if line.now == NOT_MEASURED]
    return [*found, *(paragraph(f"Not measured: {'; '.join(absent)}.") if absent else [])]


def is_disturbed(result: Result) -> bool:
    """Whether the machine was busy, as far as it was recorded."""
    return {"load_before", "hardware"} <= set(result) and disturbed(result)


def origins(
    lines: list[Line], results: Mapping[str, Result], stale: Mapping[str, str]
) -> list[str]:
    """How the results of the table were measured."""
    found = []
    for name in dict.fromkeys(line.source for line in lines):
        if name not in results:
            continue
        result = results[name]
        facts = [f"`{result.get('command', 'command not recorded')}`"]
        facts += [result["hardware"]] if "hardware" in result else []
        facts += [result["date"][:10]] if "date" in result else []
        revision = result.get("revision")
        facts.append(f"revision {revision[:10]}" if revision else "revision not recorded")
        facts += later_runs(result)
        facts += ["disturbed by other processes"] if is_disturbed(result) else []
        reason = stale.get(f"bench/results/{name}.json")
        facts += [f"stale: {reason}"] if reason else []
        found.append(f"- {name}: {', '.join(facts)}")
    return ["Measured by:", "", *found, ""] if found else []
