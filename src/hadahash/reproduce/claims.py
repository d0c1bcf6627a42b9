"""The paper's claims and the measured evidence; docs/claims.md is generated from `results/`.

A claim is judged by paired differences: one value per seed, averaged over the code lengths. Cells
with one seed are inconclusive, and a baseline without a result does not count as beaten.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import files
from . import tuned_claims as tuned
from .collected import Record
from .evidence import Evidence, Finding, Judge, collect_evidence
from .forms import Measure
from .intervals import (
    EQUAL,
    Values,
    holm,
    judge,
    paired_differences,
    short,
    signed,
    t_interval,
)
from .names import display_name
from .recipes import Recipe

BASELINES = ("lsh", "itq", "ksh", "sdh", "ssdh", "dpsh", "dsdh", "hashnet", "mihash")
RECIPES = (
    "table1",
    "threshold",
    "lambda",
)  # recipes whose cells are evidence, in addition to the factorial
_BITS = 64
_BALANCED = 0.1


def compare(left: Callable[[Evidence], Values], right: Callable[[Evidence], Values]) -> Judge:
    """Judge a claim by the paired difference of two methods.

    Args:
        left: Selects the values of the method that is better according to the claim.
        right: Selects the values of the other.

    Returns:
        The judge; it returns None if nothing was run.
    """

    def found(evidence: Evidence) -> Finding | None:
        differences = paired_differences(left(evidence), right(evidence))
        if not differences:
            return None
        interval = t_interval(differences)
        return Finding(str(interval), interval)

    return found


def first_of(*judges: Judge) -> Judge:
    """The finding of the first judge that has evidence."""

    def found(evidence: Evidence) -> Finding | None:
        return next((own for judge in judges if (own := judge(evidence)) is not None), None)

    return found


def best_of_all(evidence: Evidence) -> Finding | None:
    """HCDH against the best of the paper's nine methods."""
    own = evidence.arm("hcdh", "paper")
    if not own:
        return None
    lengths = {bits for bits, _ in own}
    means, missing = {}, []
    for method in BASELINES:
        values = {bits: value for (bits, _), value in evidence.table(method).items()}
        if lengths <= set(values):
            means[method] = sum(values[bits] for bits in lengths) / len(lengths)
        else:
            missing.append(display_name(method))
    if not means:
        return None
    best = max(means, key=lambda method: means[method])
    gap = sum(own.values()) / len(own) - means[best]
    note = "the rivals have one seed and other seeds than HCDH"
    if missing:
        note += f"; {', '.join(missing)} without a sound result at every length"
    return Finding(f"{signed(gap)} to {display_name(best)}", note=note)


def low_bits(evidence: Evidence) -> Finding | None:
    """The loss from 64 to 16 bits, against the paper's deep methods."""
    drops = {}
    for method in ("hcdh", "ssdh", "dpsh", "dsdh", "hashnet", "mihash"):
        values = evidence.arm("hcdh", "paper") if method == "hcdh" else evidence.table(method)
        seeds = [s for bits, s in values if bits == _BITS and (16, s) in values]
        if seeds:
            drops[method] = sum(values[_BITS, s] - values[16, s] for s in seeds) / len(seeds)
    if "hcdh" not in drops or len(drops) < 2:
        return None
    own = drops.pop("hcdh")
    least = min(drops, key=lambda method: drops[method])
    text = f"loses {signed(own)[1:]}; the smallest loss of the others is {signed(drops[least])}"
    return Finding(f"{text} ({display_name(least)})", note="the rivals have one seed")


def balance(evidence: Evidence) -> Finding | None:
    """The largest deviation of a bit's fraction of ones from one half."""
    worst = evidence.arm("hcdh", "paper", lambda r: max(abs(p - 0.5) for p in r["bit_balance"]))
    found = [value for (bits, _), value in worst.items() if bits == _BITS]
    if not found:
        return None
    interval = t_interval([_BALANCED - value for value in found])
    mean = sum(found) / len(found)
    return Finding(f"largest deviation {mean:.3f} (n = {len(found)})", interval)


def against_table(method: str, group: str, key: str) -> Judge:
    """Compare a statistic of HCDH's codes with that of a method of table 1, at 64 bits.

    Args:
        method: The other method.
        group: Entry of the result.
        key: Entry of the group.

    Returns:
        The judge.
    """

    def found(evidence: Evidence) -> Finding | None:
        own = evidence.arm("hcdh", "paper", lambda record: float(record[group][key]))
        values = [value for (bits, _), value in own.items() if bits == _BITS]
        other = evidence.table(method, lambda result: float(result[group][key]))
        rivals = [value for (bits, _), value in other.items() if bits == _BITS]
        if not values:
            return None
        text = f"HCDH {sum(values) / len(values):.3f} (n = {len(values)})"
        if not rivals:
            return Finding(text, note=f"{display_name(method)} has no sound result")
        text += f", {display_name(method)} {sum(rivals) / len(rivals):.3f} (n = {len(rivals)})"
        return Finding(text, note=f"{display_name(method)} has one seed")

    return found


def lambda_curve(evidence: Evidence) -> Finding | None:
    """Whether a weight between 0 and the largest is better than both."""
    values: dict[float, list[float]] = {}
    for cell in evidence.cells:
        if cell.method == "hcdh" and "lam" in cell.varied:
            found = evidence.table("hcdh", **cell.varied)
            values[cell.varied["lam"]] = [v for (bits, _), v in found.items() if bits == _BITS]
    means = {lam: sum(own) / len(own) for lam, own in values.items() if own}
    if len(means) < 3:
        return None
    first, *between, last = sorted(means)
    best = max(between, key=lambda lam: means[lam])
    ends = f"{short(means[first])} at {first}, {short(means[last])} at {last}"
    return Finding(f"best {short(means[best])} at λ = {best:g}; {ends}", note="one seed")


@dataclass(frozen=True)
class Claim:
    """A claim of the paper.

    Attributes:
        text: The claim.
        rule: What is compared.
        judge: Finds the evidence on a data set; None: not tested.
    """

    text: str
    rule: str
    judge: Judge | None = None


def _arm(method: str, codebook: str | None, measure: Measure | None = None) -> Any:
    return lambda evidence: evidence.arm(method, codebook, measure)


def _tuned(method: str, measure: Measure | None = None) -> Any:
    return lambda evidence: evidence.tuned(method, measure)


def _table(method: str, **varied: Any) -> Any:
    return lambda evidence: evidence.table(method, **varied)


def _all(record: Record) -> float:
    return float(record["maps"]["all"])


def _thresholds(kind: str) -> Measure:
    return lambda record: float(record["thresholds"][kind]["all"])


CLAIMS = (
    Claim(
        "HCDH outperforms all compared methods",
        "HCDH - best of the nine, mean over 16 and 64 bits",
        first_of(tuned.above_best_rival, best_of_all),
    ),
    Claim(
        "HCDH is strong at low bits",
        "loss from 64 to 16 bits, smallest of the deep rivals - HCDH",
        first_of(tuned.low_bits, low_bits),
    ),
    Claim(
        "A Hadamard codebook helps",
        "HCDH-H: paper's codebook - random codewords, mAP@all",
        compare(_arm("hcdh-h", "paper", _all), _arm("hcdh-h", "random", _all)),
    ),
    Claim(
        "A Hadamard codebook helps, with the classifier",
        "HCDH: paper's codebook - random codewords, mAP@all",
        compare(_arm("hcdh", "paper", _all), _arm("hcdh", "random", _all)),
    ),
    Claim(
        "(ours) Codewords far apart are better than the paper's",
        "HCDH: far - paper, mAP@all",
        compare(_arm("hcdh", "far", _all), _arm("hcdh", "paper", _all)),
    ),
    Claim(
        "HCDH outperforms HCDH-H on average (both losses)",
        "HCDH - HCDH-H, paper's codebook",
        compare(_arm("hcdh", "paper"), _arm("hcdh-h", "paper")),
    ),
    Claim(
        "In most cases HCDH-H outperforms HCDH-C",
        "HCDH-H - HCDH-C, paper's codebook",
        compare(_arm("hcdh-h", "paper"), _arm("hcdh-c", None)),
    ),
    Claim(
        "One stream (HCDH) outperforms two (HCDH-2) on average",
        "HCDH - HCDH-2, tuned; before that HCDH (far) - HCDH-2 (far) of table 1",
        first_of(
            compare(_tuned("hcdh"), _tuned("hcdh-2")), compare(_table("hcdh"), _table("hcdh-2"))
        ),
    ),
    Claim("Bits are balanced", "no bit at 64 bits deviates from one half by > .1", balance),
    Claim(
        "Bits are independent",
        "mean |correlation| of bits at 64 bits, against HashNet",
        first_of(
            tuned.statistic("hashnet", "bit_correlation", "mean", -1),
            against_table("hashnet", "bit_correlation", "mean"),
        ),
    ),
    Claim(
        "Outputs are nearly binary",
        "fraction of values beyond ±.9 at 64 bits, against MIHash",
        first_of(
            tuned.statistic("mihash", "binarised", "beyond_0.9", 1),
            against_table("mihash", "binarised", "beyond_0.9"),
        ),
    ),
    Claim(
        "sgn(x - mean) instead of sgn(x) gains on HashNet",
        "mean - zero threshold on the same networks, mAP@all; before that table 1",
        first_of(
            compare(_tuned("hashnet", _thresholds("mean")), _tuned("hashnet", _thresholds("zero"))),
            compare(_table("hashnet", threshold="mean"), _table("hashnet")),
        ),
    ),
    Claim(
        "(the same for HCDH)",
        "HCDH: mean - zero threshold on the same networks, mAP@all",
        compare(
            _arm("hcdh", "paper", _thresholds("mean")), _arm("hcdh", "paper", _thresholds("zero"))
        ),
    ),
    Claim(
        "mAP rises with λ and then falls",
        "64 bits, better rate of two: best λ - the better end",
        first_of(tuned.lambda_curve, lambda_curve),
    ),
    Claim(
        "The precision-recall curve lies above all others",
        "64 bits: smallest gap in precision at recall .1 to .9 to any of the nine",
        tuned.curves,
    ),
    Claim(
        "Deep methods are above shallow ones in most cases",
        "mean of the paper's deep methods - best shallow method",
        tuned.deep_above_shallow,
    ),
    Claim(
        "HCDH is 3.5 to 4.2 points above MIHash",
        "HCDH - MIHash - .035",
        tuned.by_a_margin("hcdh", "mihash", 0.035),
    ),
    Claim("The best λ is 1, .1 and .01", "best λ - the paper's", tuned.best_lambda),
)


def write_claims(path: Path, recipes: Sequence[Recipe], results: Path, notes: Path) -> None:
    """Write docs/claims.md: a table of all claims, and the notes about them.

    Args:
        path: The file.
        recipes: All recipes.
        results: Folder of the results.
        notes: Text that is appended.
    """
    cells = [cell for recipe in recipes if recipe.name in RECIPES for cell in recipe.cells]
    names = list(dict.fromkeys(cell.dataset for cell in cells))
    evidence = collect_evidence(names, cells, results)
    head = ["claim", "compared", *map(display_name, names), "verdict"]
    rows = judge_claims(CLAIMS, evidence)
    lines = ["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows)]
    parts = [
        "# The paper's claims, tested",
        "",
        "Generated by `hadahash reproduce claims` from `results/`; edit `docs/claims-notes.md`",
        "instead. Differences are in mAP, averaged over the code lengths and paired by seed, with",
        f"95 % t intervals. *Equal*: the interval lies within ±{short(EQUAL)}. *Holds*, *fails*:",
        "the difference is significant after Holm's correction over all intervals of this page.",
        "*Tends*: only its own interval excludes 0. A single seed is not conclusive.",
        "",
        *lines,
        "",
    ]
    if notes.exists():
        parts += [notes.read_text("utf-8").rstrip(), ""]
    files.write_text(path, "\n".join(parts))


def judge_claims(claims: Sequence[Claim], evidence: Sequence[Evidence]) -> list[list[str]]:
    """Judge all claims on all data sets, with one correction for all of them.

    Args:
        claims: The claims.
        evidence: The evidence, one per data set.

    Returns:
        Rows of text: claim, rule, one finding per data set, verdict.
    """
    findings = [[own.judge(each) if own.judge else None for each in evidence] for own in claims]
    tested = [
        found.interval
        for row in findings
        for found in row
        if found is not None and found.interval is not None and found.interval.count > 1
    ]
    rejected = {
        id(interval): answer
        for interval, answer in zip(tested, holm([i.p_value for i in tested]), strict=True)
    }
    rows = []
    for claim, found in zip(claims, findings, strict=True):
        verdicts = [_verdict(own, rejected) for own in found]
        texts = [_text(own) for own in found]
        counts = {word: verdicts.count(word) for word in dict.fromkeys(filter(None, verdicts))}
        total = ", ".join(f"{word} on {count}" for word, count in counts.items())
        rows.append(
            [claim.text, claim.rule, *texts, total or ("open" if not claim.judge else "not run")]
        )
    return rows


def _verdict(finding: Finding | None, rejected: dict[int, bool]) -> str:
    if finding is None:
        return ""
    if finding.interval is None:
        return "undecided"
    return judge(finding.interval, rejected.get(id(finding.interval), False))


def _text(finding: Finding | None) -> str:
    if finding is None:
        return "not run"
    return f"{finding.text} ({finding.note})" if finding.note else finding.text
