"""The paper's claims, each beside what was measured. docs/claims.md is made of `results/`: no verdict outlives its numbers."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import files
from .names import written
from .recipes import Cell, Recipe
from .tables import short

Result = dict[str, Any]
_BITS = 64
_CLEAR = 0.01  # smaller differences decide nothing: a cell that is run again may move by as much
_BASELINES = (
    "lsh",
    "itq",
    "ksh",
    "sdh",
    "ssdh",
    "dpsh",
    "dsdh",
    "hashnet",
    "mihash",
)  # those of the paper


@dataclass(frozen=True)
class Finding:
    """What one data set says of a claim."""

    text: str
    holds: bool | None  # None: too close to call


class Evidence:
    """The results of all recipes on one data set, without those of methods that fell apart."""

    def __init__(self, dataset: str, cells: Sequence[Cell], results: Path) -> None:
        self.cells = [cell for cell in cells if cell.dataset == dataset]
        self._results = results

    def found(
        self, method: str, *, bits: int | None = None, varied: dict[str, Any] | None = None
    ) -> Iterator[tuple[Cell, Result]]:
        for cell in self.cells:
            path = cell.path(self._results)
            same = (
                cell.method == method
                and bits in (None, cell.bits)
                and (varied is None) == (not cell.varied)
            )
            if (
                same
                and (varied is None or varied.items() <= cell.varied.items())
                and path.exists()
                and not cell.hopeless(self._results)
            ):
                yield cell, files.read_json(path)

    def maps(self, method: str) -> dict[int, float]:
        """bits: mean mAP over seeds"""
        lists: dict[int, list[float]] = {}
        for cell, result in self.found(method):
            lists.setdefault(cell.bits, []).append(result["map"])
        return {bits: statistics.mean(values) for bits, values in sorted(lists.items())}

    def fell_apart(self, method: str, bits: int = _BITS) -> bool:
        own = [
            cell
            for cell in self.cells
            if (cell.method, cell.bits) == (method, bits) and not cell.varied
        ]
        return any(cell.mishaps(self._results) for cell in own) and not any(
            self.found(method, bits=bits)
        )

    def one(self, method: str, **wanted: Any) -> Result | None:
        """The result of the lowest seed at 64 bits."""
        return next((result for _, result in self.found(method, bits=_BITS, **wanted)), None)


Judge = Callable[[Evidence], "Finding | None"]


def balance(evidence: Evidence) -> Finding | None:
    result = evidence.one("hcdh")
    if result is None:
        return None
    off = [abs(share - 0.5) for share in result["bit_balance"]]
    return Finding(
        f"share of +1 off one half by {statistics.mean(off):.3f} on average, {max(off):.3f} at most",
        max(off) <= 0.1,
    )


def independence(evidence: Evidence) -> Finding | None:
    own, other = (
        _figure(evidence.one(method), "bit_correlation", "mean") for method in ("hcdh", "hashnet")
    )
    if own is None or other is None:
        return None
    return Finding(
        f"mean correlation of two bits {own:.3f}, of HashNet {other:.3f}", _clear(other - own)
    )


def binarisation(evidence: Evidence) -> Finding | None:
    own, other = (
        _figure(evidence.one(method), "binarised", "beyond_0.9") for method in ("hcdh", "mihash")
    )
    if own is None or (other is None and not evidence.fell_apart("mihash")):
        return None
    text = f"{100 * own:.0f} % of the values beyond ±.9"
    if other is None:
        return Finding(f"{text}; MIHash fell apart", None)
    return Finding(f"{text}, of MIHash {100 * other:.0f} %", own > other)


def above(method: str, other: str) -> Judge:
    """Is one method above another at every length?"""

    def judge(evidence: Evidence) -> Finding | None:
        left, right = evidence.maps(method), evidence.maps(other)
        gaps = {bits: left[bits] - right[bits] for bits in left if bits in right}
        return Finding(_gaps(gaps), _all_clear(gaps)) if gaps else None

    return judge


def best_of_all(evidence: Evidence) -> Finding | None:
    own = evidence.maps("hcdh")
    others = {method: evidence.maps(method) for method in _BASELINES}
    gaps = {}
    for bits, value in own.items():
        rivals = {method: found[bits] for method, found in others.items() if bits in found}
        if rivals and all(
            method in rivals or evidence.fell_apart(method, bits) for method in _BASELINES
        ):
            gaps[bits] = value - max(rivals.values())
    text = f"{_gaps(gaps)} to the best of the paper's methods"
    return Finding(text, _all_clear(gaps)) if gaps else None


def low_bits(evidence: Evidence) -> Finding | None:
    """Does HCDH lose less from 64 to 16 bits than the paper's deep methods?"""
    drops = {}
    for method in ("hcdh", "ssdh", "dpsh", "dsdh", "hashnet", "mihash"):
        maps = evidence.maps(method)
        if {16, _BITS} <= set(maps):
            drops[method] = maps[_BITS] - maps[16]
    if "hcdh" not in drops or len(drops) < 2:
        return None
    others = {method: drop for method, drop in drops.items() if method != "hcdh"}
    least = min(others, key=lambda method: others[method])
    text = f"loses {short(drops['hcdh'])} from 64 to 16 bits; the least of the others {short(others[least])} ({written(least)})"
    return Finding(text, _clear(others[least] - drops["hcdh"]))


def mean_threshold(evidence: Evidence) -> Finding | None:
    plain, centred = evidence.one("hashnet"), evidence.one("hashnet", varied={"threshold": "mean"})
    if plain is None or centred is None:
        return None
    gain = centred["map"] - plain["map"]
    return Finding(f"HashNet changes by {_signed(gain)}", _clear(gain))


def lambda_curve(evidence: Evidence) -> Finding | None:
    """Is there a weight between 0 and the largest that is better than both?"""
    found = evidence.found("hcdh", bits=_BITS, varied={})
    maps = {cell.varied["lam"]: result["map"] for cell, result in found if "lam" in cell.varied}
    if len(maps) < 3:
        return None
    first, *between, last = sorted(maps)
    best = max(between, key=lambda lam: maps[lam])
    text = f"best {short(maps[best])} at λ = {best}; {short(maps[first])} at {first}, {short(maps[last])} at {last}"
    return Finding(text, _clear(maps[best] - max(maps[first], maps[last])))


@dataclass(frozen=True)
class Claim:
    text: str
    rule: str  # when it counts as holding
    judge: Judge


CLAIMS = (
    Claim(
        "HCDH outperforms all compared methods",
        "above the best of the nine at every length",
        best_of_all,
    ),
    Claim(
        "HCDH is strong at low bits",
        "loses less from 64 to 16 bits than any deep method of the paper",
        low_bits,
    ),
    Claim("Bits are balanced", "no bit at 64 bits is off one half by more than .1", balance),
    Claim(
        "Bits are independent",
        "the mean correlation of two bits is below HashNet's, at 64 bits",
        independence,
    ),
    Claim(
        "Outputs are nearly binary", "more values beyond ±.9 than MIHash, at 64 bits", binarisation
    ),
    Claim(
        "The codebook alone (HCDH-H) is above the classifier alone (HCDH-C)",
        "at every length",
        above("hcdh-h", "hcdh-c"),
    ),
    Claim("One stream (HCDH) is above two (HCDH-2)", "at every length", above("hcdh", "hcdh-2")),
    Claim(
        "Both losses (HCDH) are above the codebook alone (HCDH-H)",
        "at every length",
        above("hcdh", "hcdh-h"),
    ),
    Claim("sgn(x - mean) instead of sgn(x) gains on HashNet", "a gain at 64 bits", mean_threshold),
    Claim(
        "mAP rises with λ and then falls",
        "some λ is better than 0 and 10, at 64 bits",
        lambda_curve,
    ),
)


RECIPES = ("table1", "threshold", "lambda")  # whose cells the claims are judged by


def write_claims(path: Path, recipes: Sequence[Recipe], results: Path, notes: Path) -> None:
    """docs/claims.md: a table of all claims, and the notes that people wrote about them."""
    cells = [cell for recipe in recipes if recipe.name in RECIPES for cell in recipe.cells]
    evidence = {
        name: Evidence(name, cells, results)
        for name in dict.fromkeys(cell.dataset for cell in cells)
    }
    head = ["claim of the paper", "counts as holding when", *map(written, evidence), "verdict"]
    rows = []
    for claim in CLAIMS:
        findings = [claim.judge(own) for own in evidence.values()]
        texts = ["not run" if finding is None else finding.text for finding in findings]
        rows.append([claim.text, claim.rule, *texts, verdict(findings)])
    lines = ["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows)]
    parts = [
        "# The paper's claims, tested",
        "",
        "Made by `hadahash reproduce claims` from the files in `results/` (table 1, its settings and its seeds); edit",
        "`docs/claims-notes.md` instead. Differences are in mAP, at the lengths named; those below a point (.01) decide",
        "nothing. Methods that fell apart in training (marked † in docs/results.md) are left out.",
        "",
        *lines,
        "",
    ]
    if notes.exists():
        parts += [notes.read_text("utf-8").rstrip(), ""]
    files.write_text(path, "\n".join(parts))


def verdict(findings: Sequence[Finding | None]) -> str:
    """
    >>> verdict([Finding("", True), Finding("", None), Finding("", True)]), verdict([Finding("", False), None]), verdict([None])
    ('holds on 2, undecided on 1', 'fails on 1', 'not run')
    """
    known = [finding.holds for finding in findings if finding is not None]
    counts = {
        "holds": known.count(True),
        "fails": known.count(False),
        "undecided": known.count(None),
    }
    return ", ".join(f"{word} on {count}" for word, count in counts.items() if count) or "not run"


def _clear(gain: float) -> bool | None:
    """
    >>> _clear(0.02), _clear(-0.02), _clear(0.009)
    (True, False, None)
    """
    return gain > 0 if abs(gain) >= _CLEAR else None


def _all_clear(gaps: dict[int, float]) -> bool | None:
    """Are all of them clear gains? One clear loss is enough to say no.

    >>> _all_clear({16: 0.02, 64: 0.03}), _all_clear({16: -0.02, 64: 0.03}), _all_clear({16: 0.001, 64: 0.03})
    (True, False, None)
    """
    return _clear(min(gaps.values()))


def _figure(result: Result | None, group: str, key: str) -> float | None:
    return None if result is None or group not in result else float(result[group][key])


def _gaps(gaps: dict[int, float]) -> str:
    return ", ".join(f"{_signed(gap)} at {bits}" for bits, gap in gaps.items())


def _signed(value: float) -> str:
    """
    >>> _signed(-0.0123), _signed(0.5), _signed(-0.0001)
    ('-.012', '+.500', '+.000')
    """
    return f"{round(value, 3) + 0.0:+.3f}".replace("0.", ".", 1)
