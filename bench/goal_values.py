"""Where the numbers of the goals are in the stored results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from decode_section import share_of_network
from page_text import Result
from search_section import best_cases

Value = Callable[[Result], float]


def at(*path: Any) -> Value:
    """The number at a place of a result."""

    def value(result: Result) -> float:
        found: Any = result
        for part in path:
            found = found[part]
        return float(found)

    return value


def percent(*path: Any) -> Value:
    """The fraction at a place of a result, in percent."""
    return lambda result: 100 * at(*path)(result)


def step(name: str, field: str, version: str = "steps") -> Value:
    """A field of a step of `hadahash bench scale`; with version="before", of version 0.1."""
    return lambda result: float(
        next(each for each in result[version] if each["step"] == name)[field]
    )


def case(name: str, *path: Any) -> Value:
    """A field of a case with a name."""
    return lambda result: at(*path)(next(each for each in result["cases"] if each["case"] == name))


def indexing_before(name: str) -> Value:
    """Images per second of `index build` of version 0.1."""
    return case(name, "before", "images_per_second")


def indexing(name: str, field: str) -> Value:
    """A field of a case of `index build`; fractions and "share", of the network alone, in %."""

    def value(result: Result) -> float:
        found = next(each for each in result["cases"] if each["case"] == name)
        if field == "share":
            return share_of_network(result, found)
        return float(found[field]) * (100 if field == "network_busy" else 1)

    return value


def lower_quartile(verb: str, size: str) -> Value:
    """The lower quartile of the images per second of the fastest batch."""

    def value(result: Result) -> float:
        batches = result[verb][size]["batches"].values()
        return float(max(batches, key=lambda each: each["images_per_second"])["quartiles"][0])

    return value


def least_ratio(result: Result) -> float:
    """The smallest ratio of faiss flat to the scan, of each side with its best threads."""
    cases = best_cases(result) + result.get("large", {}).get("best", [])
    name = "faiss flat / exact"
    return min(float(each["ratios"][name]) for each in cases if name in each["ratios"])


def large(engine: str, kind: str) -> Value:
    """Milliseconds of one query in the large collection."""

    def value(result: Result) -> float:
        if result["large"]["codes"] < 100_000_000:
            raise KeyError("large")
        times = [
            each["milliseconds_per_query"][engine]
            for each in result["large"]["best"]
            if (each["kind"], each["batch"]) == (kind, 1) and engine in each["ways"]
        ]
        return float(times[0])

    return value


def large_before(engine: str, *path: str) -> Value:
    """A number of version 0.1 in the large collection."""

    def value(result: Result) -> float:
        found = {each["engine"]: each for each in result["large"]["before"]}
        return at(engine, *path)(found)

    return value


def large_change(engine: str, name: str) -> Value:
    """Milliseconds of a change of the large collection."""

    def value(result: Result) -> float:
        found = {each["engine"]: each["milliseconds"] for each in result["large"]["changes"]}
        return float(found[engine][name])

    return value
