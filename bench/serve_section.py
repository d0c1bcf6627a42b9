"""The section of docs/performance.md about the service at a million items."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import NamedTuple

from page_text import Result, paragraph

OLD, NEW = "0.1", "0.2"


class Row(NamedTuple):
    """A line of the table.

    Attributes:
        name: What is measured.
        unit: Its unit.
        value: The number of a case.
        goal: "< 50": the number itself; "x 3": at least so many times that of version 0.1; "/ 2":
            at most this part of it; "" without a goal.
        bound: What bounds the number of a case, if the goal is missed; of this case and of the one
            without content bits.
        content: Whether it is measured only with content bits.
    """

    name: str
    unit: str
    value: Callable[[Result], float]
    goal: str = ""
    bound: Callable[[Result, Result], str] = lambda case, plain: ""
    content: bool = False


class Judged(NamedTuple):
    """A goal, and what a version reaches of it.

    Attributes:
        row: The line of the table.
        name: Its name in words, with that of the version.
        before: The number of version 0.1; None if it was not measured.
        now: The number of the version; None if it was not measured.
        met: Whether the goal is met; None if that is not known.
        bound: What bounds the number.
    """

    row: Row
    name: str
    before: float | None
    now: float | None
    met: bool | None
    bound: str


def serve_million(result: Result) -> list[str]:
    """Start, memory, changes and searches, against version 0.1."""
    cases = by_version(result)
    compared = [f"{name} / {OLD}" for name in cases if name != OLD]
    lines = [
        f"## The service with {result['items']:,} items",
        "",
        *paragraph(
            "Each version serves its own collection with `hadahash serve`. The clients run on the",
            "same cores. *Ready*: median time from the start of the process until /readyz answers",
            "200; the model of 0.2 was exported before, as the first start of the service does.",
            "*With content bits* is what 0.2 builds by default; version 0.1 has none.",
            "*Memory* is that of the server process besides mapped files, and that of its",
            "decoders. Changes are made one after the other. During changes, searches and uploads",
            "of 32 clients, thumbnails, and a search for duplicates with pages of its result and",
            "dismissals, another client asks for /healthz every 10 ms; the searches and uploads of",
            "the other lines are without it. Another process adds an item to the index; until the",
            "service looks for changes, up to 2 s pass. Duplicates are searched last, only with",
            "content bits: without them the groups would be classes, and 0.1 does not search for",
            "them. The last columns compare with 0.1.",
        ),
        f"| | {' | '.join([*cases, 'goal', *compared])} |",
        "|---|" + "---|" * (len(cases) + 1 + len(compared)),
        *(_line(row, name, cases) for row, name in named_rows()),
        "",
        *_missed(result),
    ]
    if "note" in result:
        lines += ["", *paragraph(result["note"])]
    return lines


def by_version(result: Result | None) -> dict[str, Result]:
    """The cases of a result."""
    return {} if result is None else {case["version"]: case for case in result["cases"]}


def _searches(kind: str, clients: int, name: str) -> Callable[[Result], float]:
    def value(case: Result) -> float:
        found = {(each["kind"], each["clients"]): each for each in case["searches"]}
        return float(found[kind, clients][name])

    return value


def _at(*path: str) -> Callable[[Result], float]:
    def value(case: Result) -> float:
        found = case
        for part in path:
            found = found[part]
        return float(found)  # type: ignore[arg-type]

    return value


def _said(text: str) -> Callable[[Result, Result], str]:
    return lambda case, plain: text


def _python(case: Result, plain: Result) -> str:
    took, without = (_searches("id", 1, "p50_ms")(each) for each in (case, plain))
    request = f"a request of one client takes {took:.2f} ms"
    if case.get("content_bits"):
        return (
            "HTTP, checks and JSON in Python, and the ranked search of class and content bits, "
            f"which are random here: {request}, {without:.2f} ms without content bits. Version 0.1 "
            "has no content bits."
        )
    return (
        f"HTTP, checks and JSON in Python: {request}; the scan alone is the time of one query "
        "among 1,000,000 codes under [Search](#search)."
    )


def _upload(clients: int) -> Callable[[Result, Result], str]:
    def bound(case: Result, plain: Result) -> str:
        value = _searches("upload", clients, "processor_ms")
        used, without = round(value(case), 1), round(value(plain), 1)
        text = f"{used:.1f} ms of processor time for each request"
        if not case.get("content_bits"):
            return f"{text}: HTTP, decoding, the network and the search."
        return (
            f"{text}: {without:.1f} ms without content bits, for HTTP, decoding, the network and "
            f"the search, and {used - without:.1f} ms more for content bits, looks and the ranked "
            "search. Version 0.1 has none of these."
        )

    return bound


_FLUSH = "Flushes of the disk."
_TURNS = "The threads of one Python process take turns."
_WATCHED: dict[str, tuple[str, ...]] = {
    "changes": ("changes", "healthz_meanwhile", "max_ms"),
    "changes by another process": ("reload", "healthz_meanwhile", "max_ms"),
    "searches by id": ("healthz", "id", "max_ms"),
    "searches with a label": ("healthz", "label", "max_ms"),
    "uploads": ("healthz", "upload", "max_ms"),
    "thumbnails": ("thumbnails", "healthz_meanwhile", "max_ms"),
}
_SEARCHED = ("duplicates", "healthz_meanwhile", "max_ms")


def _health(when: str, *path: str) -> Row:
    return Row(f"/healthz during {when}, longest", "ms", _at(*path), "< 50", _said(_TURNS))


ROWS = (
    Row("ready", "s", lambda case: median(case["ready_seconds"]), "< 2", _said("Imports.")),
    Row("memory, ready", "MB", _at("memory_ready", "server_mb"), "< 300"),
    Row("memory of the decoders, ready", "MB", _at("memory_ready", "decoders_mb")),
    Row("memory, after all", "MB", _at("memory_after", "server_mb")),
    Row("memory of the decoders, after all", "MB", _at("memory_after", "decoders_mb")),
    Row("first search", "ms", _at("first", "search")),
    Row("first search with a label", "ms", _at("first", "label")),
    Row("changes of each kind", "", _at("changes", "count")),
    Row("add an item, median", "ms", _at("changes", "add", "p50_ms"), "< 50", _said(_FLUSH)),
    Row("add an item, p95", "ms", _at("changes", "add", "p95_ms")),
    Row("remove an item, median", "ms", _at("changes", "remove", "p50_ms"), "< 50", _said(_FLUSH)),
    Row("a search beside changes, longest", "ms", _at("searches_beside_changes", "max_ms")),
    Row("found what another process added, after", "ms", _at("reload", "found_after_ms")),
    *(_health(when, *path) for when, path in _WATCHED.items()),
    _health("a search for duplicates", *_SEARCHED)._replace(content=True),
    Row("searches by id, 1 client", "/s", _searches("id", 1, "per_second"), "x 3", _python),
    Row("searches by id, 32 clients", "/s", _searches("id", 32, "per_second"), "x 3", _python),
    Row("p95 of these", "ms", _searches("id", 32, "p95_ms"), "/ 2", _python),
    Row("processor time of each search by id", "ms", _searches("id", 32, "processor_ms")),
    Row("searches with a label, 32 clients", "/s", _searches("label", 32, "per_second")),
    Row("uploads, 1 client", "/s", _searches("upload", 1, "per_second"), "x 2", _upload(1)),
    Row("uploads, 32 clients", "/s", _searches("upload", 32, "per_second"), "x 2", _upload(32)),
    Row("p95 of these", "ms", _searches("upload", 32, "p95_ms"), "/ 2", _upload(32)),
    Row("thumbnails of 12 megapixels", "", _at("thumbnails", "thumbnails")),
    Row("until all thumbnails are there", "ms", _at("thumbnails", "all_ms")),
    Row("an upload beside the thumbnails", "ms", _at("thumbnails", "upload_beside_ms")),
    Row("items that are copies of others", "", _at("duplicates", "copies")),
    Row("first search for duplicates", "s", _at("duplicates", "first_seconds")),
    Row("100 groups of duplicates, p95", "ms", _at("duplicates", "pages", "p95_ms")),
    Row("dismiss a group, longest", "ms", _at("duplicates", "dismiss", "max_ms")),
    Row("memory, after the search for duplicates", "MB", _at("duplicates", "memory", "server_mb")),
)


def named_rows() -> list[tuple[Row, str]]:
    """The lines; "these" in a name is the line before."""
    found, previous = [], ""
    for row in ROWS:
        found.append((row, row.name.replace("these", previous)))
        previous = row.name if "these" not in row.name else previous
    return found


def judged(result: Result | None) -> list[Judged]:
    """Every goal with each version after 0.1.

    Args:
        result: The stored result; None: nothing was measured.
    """
    cases = by_version(result)
    versions = [name for name in cases if name != OLD] or [NEW]
    return [
        _judge(row, name, version, cases)
        for version in versions
        for row, name in named_rows()
        if row.goal and (not row.content or _has_content(cases, version))
    ]


def _has_content(cases: dict[str, Result], version: str) -> bool:
    """Whether a version has content bits, as far as it is known."""
    return version not in cases or bool(cases[version].get("content_bits"))


def _judge(row: Row, name: str, version: str, cases: dict[str, Result]) -> Judged:
    before, now = (_number(row, cases.get(each)) for each in (OLD, version))
    known = now is not None and (row.goal.startswith("<") or before is not None)
    met = _reached(row.goal, now or 0.0, before or 0.0) if known else None
    more = version.removeprefix(NEW).strip()
    plain = cases.get(NEW, cases.get(version, {}))
    bound = row.bound(cases[version], plain) if met is False else ""
    return Judged(row, f"{name}, {more}" if more else name, before, now, met, bound)


def _reached(goal: str, now: float, before: float) -> bool:
    kind, _, number = goal.partition(" ")
    if kind == "<":
        return now < float(number)
    limit = before * float(number) if kind == "x" else before / float(number)
    return now >= limit if kind == "x" else now <= limit


def _number(row: Row, case: Result | None) -> float | None:
    try:
        return None if case is None else row.value(case)
    except (KeyError, TypeError):
        return None


def _line(row: Row, name: str, cases: dict[str, Result]) -> str:
    numbers = {version: _number(row, case) for version, case in cases.items()}
    before = numbers.get(OLD) if row.unit else None
    ratios = [_ratio(now, before) for each, now in numbers.items() if each != OLD]
    cells = [in_words(row, number) for number in numbers.values()]
    return f"| {' | '.join([name, *cells, goal_text(row), *ratios])} |"


def in_words(row: Row, number: float | None) -> str:
    """A number with its unit, empty if it was not measured."""
    if number is None:
        return ""
    digits = 0 if number >= 100 or not row.unit else 1
    return f"{number:,.{digits}f} {row.unit}".rstrip()


def _ratio(now: float | None, before: float | None) -> str:
    if now is None or not before:
        return ""
    ratio = now / before
    return f"{ratio:.{2 if ratio < 10 else 0}f}" if ratio >= 0.1 else f"{ratio:.1g}"


def goal_text(row: Row) -> str:
    """The goal of a line in words; empty without a goal."""
    kind, _, number = row.goal.partition(" ")
    texts = {"": "", "<": f"< {number} {row.unit}", "x": f">= {number}", "/": f"<= 1/{number}"}
    return texts[kind]


def _missed(result: Result) -> list[str]:
    """The goals that a version after 0.1 does not reach, with what bounds them."""
    found = list(judged(result))
    missed = [each for each in found if each.met is False]
    if not missed:
        measured = "" if all(each.met for each in found) else " that were measured"
        return paragraph(f"All goals{measured} are reached.")
    lines = ["Goals that are missed, and what bounds them:", ""]
    for each in missed:
        ratio = _ratio(each.now, each.before)
        compared = f", {ratio} times version {OLD}" if ratio else ""
        number, goal = in_words(each.row, each.now), goal_text(each.row)
        bound = each.bound or "Not known."
        lines.append(f"- {each.name}: {number}{compared}, goal {goal}. {bound}")
    return lines


def serve_blocked(result: Result) -> list[str]:
    """The service while Milvus, changes or slow clients block."""
    cases = {each["case"]: each for each in result["cases"]}
    some = next(iter(cases.values()))
    return [
        "## The service while something blocks",
        "",
        *paragraph(
            f"The Milvus server of an index is stopped (SIGSTOP); {some['writers']['writers']}",
            f"clients add an item each at the same time to a local index of {result['items']:,}",
            f"items; {some['slow_clients']['clients']} clients send a body byte by byte. Beside",
            "them, one client searches by id, again where it is refused; its wait ends with an",
            f"answer. No part takes longer than {result['limit']:.0f} s.",
        ),
        f"| | {' | '.join(cases)} |",
        "|---|" + "---|" * len(cases),
        *(_blocked_line(row, list(cases.values())) for row in BLOCKED),
    ]


def _blocked_line(row: Row, cases: list[Result]) -> str:
    return f"| {' | '.join([row.name, *(in_words(row, _number(row, each)) for each in cases)])} |"


BLOCKED = (
    Row("Milvus stopped: /healthz, longest", "ms", _at("milvus", "healthz", "max_ms")),
    Row("Milvus stopped: /healthz failed", "", _at("milvus", "healthz", "failed")),
    Row("Milvus stopped: answer to /metrics after", "ms", _at("milvus", "metrics_ms")),
    Row("many changes: longest wait for a search", "ms", _at("writers", "longest_ms")),
    Row("many changes: searches refused", "", _at("writers", "refused_searches")),
    Row("many changes: items added", "", _at("writers", "added")),
    Row("slow clients: longest wait for a search", "ms", _at("slow_clients", "longest_ms")),
    Row("slow clients: searches refused", "", _at("slow_clients", "refused_searches")),
)
