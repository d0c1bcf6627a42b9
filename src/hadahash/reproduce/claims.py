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
from . import untuned_claims as untuned
from .collected import Record
from .evidence import (
    DEEP,
    Evidence,
    Finding,
    Judge,
    collect_evidence,
    correlation,
    entropy,
    imbalance,
    near_binary,
    precision,
)
from .forms import Measure
from .intervals import (
    EQUAL,
    Values,
    holm,
    judge,
    paired_differences,
    short,
    t_interval,
)
from .names import display_name
from .recipes import Recipe

RECIPES = (
    "table1",
    "threshold",
    "lambda",
)  # recipes whose cells are evidence, in addition to the factorial


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
        first_of(tuned.closest_rival(), untuned.best_rival()),
    ),
    Claim(
        "HCDH is strong at low bits",
        "loss from 64 to 16 bits, smallest of the deep rivals - HCDH",
        first_of(tuned.low_bits, untuned.low_bits),
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
        "HCDH - HCDH-H, paper's codebook, tuned; before that the factorial",
        first_of(
            compare(_tuned("hcdh"), _tuned("hcdh-h")),
            compare(_arm("hcdh", "paper"), _arm("hcdh-h", "paper")),
        ),
    ),
    Claim(
        "In most cases HCDH-H outperforms HCDH-C",
        "HCDH-H - HCDH-C, paper's codebook, tuned; before that the factorial",
        first_of(
            compare(_tuned("hcdh-h"), _tuned("hcdh-c")),
            compare(_arm("hcdh-h", "paper"), _arm("hcdh-c", None)),
        ),
    ),
    Claim(
        "One stream (HCDH) outperforms two (HCDH-2) on average",
        "HCDH - HCDH-2, tuned; before that HCDH (far) - HCDH-2 (far) of table 1",
        first_of(
            compare(_tuned("hcdh"), _tuned("hcdh-2")), compare(_table("hcdh"), _table("hcdh-2"))
        ),
    ),
    Claim("Bits are balanced", "no bit at 64 bits deviates from one half by > .1", untuned.balance),
    Claim(
        "Bits are independent",
        "mean absolute correlation of bits at 64 bits, against HashNet",
        first_of(
            tuned.statistic("hashnet", correlation, -1),
            untuned.statistic("hashnet", correlation),
        ),
    ),
    Claim(
        "Outputs are nearly binary",
        "fraction of values beyond ±.9 at 64 bits, against MIHash",
        first_of(
            tuned.statistic("mihash", near_binary, 1),
            untuned.statistic("mihash", near_binary),
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
        first_of(tuned.lambda_curve, untuned.lambda_curve),
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
    Claim(
        "Low bits: each bit carries more information",
        "mean entropy of a bit at 16 bits: HCDH - closest deep rival",
        first_of(tuned.closest_rival(entropy, 16, DEEP), untuned.best_rival(entropy, 16, DEEP)),
    ),
    Claim(
        "Independence: no class is taken for another (confusion matrix)",
        "precision of the first 100 at 64 bits: HCDH - closest of the nine",
        first_of(tuned.closest_rival(precision, 64), untuned.best_rival(precision, 64)),
    ),
    Claim(
        "Balance terms in the loss (SSDH) are weaker than a codebook",
        "mean deviation of a bit's fraction of ones from one half, 64 bits: SSDH - HCDH",
        first_of(tuned.statistic("ssdh", imbalance, -1), untuned.statistic("ssdh", imbalance)),
    ),
    Claim(
        "Pairwise methods fail because similar pairs are rare",
        "trials at 64 bits: class-balanced batches - random ones",
        tuned.balanced_batches,
    ),
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
        "*Tends*: only its own interval excludes 0. A single seed is not conclusive. A claim about",
        "several methods is undecided while one of them has no sound result (*no ...*), unless",
        "another is ahead.",
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
