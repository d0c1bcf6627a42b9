"""Claims judged on tuned methods: paired by seed, and no rival counts as beaten without a result."""

from __future__ import annotations

from pathlib import Path

from hadahash.reproduce import claims, tuned_claims
from hadahash.reproduce.evidence import Evidence

RIVALS = (*tuned_claims.SHALLOW, *tuned_claims.DEEP)


def record(method, bits, seed, value, **more):
    return {
        "dataset": "cifar10",
        "name": f"{method}-{bits}-s{seed}",
        "method": method,
        "bits": bits,
        "seed": seed,
        "varied": {},
        "map": value,
        "bit_correlation": {"mean": value / 10},
        "precision_recall": {"recall": [0, 0.5, 1], "precision": [value, value, 0.1]},
        **more,
    }


def evidence(records, sweep=()):
    return Evidence("cifar10", (), (), Path(), records, sweep)


def seeds_of(levels, drop=0.05):
    """Records of methods with these levels of mAP at 64 bits."""
    return [
        record(method, bits, seed, level - drop * (bits == 16) + seed / 100 + wiggle(method, seed))
        for method, level in levels.items()
        for bits in (16, 64)
        for seed in range(40, 45)
    ]


def wiggle(method, seed):
    return (len(method) * seed % 3) / 2000


LEVELS = dict.fromkeys(RIVALS, 0.5) | {"hashnet": 0.7, "hcdh": 0.8, "hcdh-2": 0.79}


def test_the_closest_rival_decides():
    finding = tuned_claims.above_best_rival(evidence(seeds_of(LEVELS)))
    assert "to HashNet" in finding.text and finding.interval.low > 0.09
    better = seeds_of(LEVELS | {"sdh": 0.9})
    finding = tuned_claims.above_best_rival(evidence(better))
    assert "to SDH" in finding.text and finding.interval.high < 0


def test_a_missing_or_diverged_rival_leaves_the_claim_undecided():
    records = [own for own in seeds_of(LEVELS) if own["method"] != "mihash"]
    diverged = {**record("mihash", 64, 40, 0), "diverged": "NaN"}
    del diverged["map"]
    finding = tuned_claims.above_best_rival(evidence([*records, diverged]))
    assert finding.interval is None and finding.note == "no MIHash"
    assert tuned_claims.above_best_rival(evidence([])) is None


def test_the_loss_at_low_bits_is_compared_with_the_smallest_of_the_deep_rivals():
    records = seeds_of({"hcdh": 0.8}, drop=0.02) + seeds_of(dict.fromkeys(RIVALS, 0.6), drop=0.05)
    assert tuned_claims.low_bits(evidence(records)).interval.low > 0.02
    records = seeds_of({"hcdh": 0.8}, drop=0.06) + seeds_of(dict.fromkeys(RIVALS, 0.6), drop=0.05)
    assert tuned_claims.low_bits(evidence(records)).interval.high < 0


def test_curves_deep_methods_margins_and_statistics():
    own = evidence(seeds_of(LEVELS))
    assert tuned_claims.curves(own).interval.high < 0.11
    assert tuned_claims.deep_above_shallow(own).interval.low > 0
    assert tuned_claims.by_a_margin("hcdh", "mihash", 0.035)(own).interval.low > 0
    assert tuned_claims.by_a_margin("hcdh", "hashnet", 0.2)(own).interval.high < 0
    less = tuned_claims.statistic("hashnet", "bit_correlation", "mean", -1)(own)
    assert less.interval.high < 0 and less.text.startswith("HCDH 0.")


def test_the_weight_is_judged_at_the_better_rate():
    levels = {0.0: 0.7, 0.1: 0.75, 1.0: 0.8, 10.0: 0.6}
    sweep = [
        record("hcdh", 64, seed, value - (lr == 0.3) * 0.1 + seed / 100 + lam * seed / 1e5)
        | {"varied": {"lam": lam, "lr": lr}}
        for lam, value in levels.items()
        for lr in (0.1, 0.3)
        for seed in (40, 41, 42)
    ]
    finding = tuned_claims.lambda_curve(evidence([], sweep))
    assert "λ = 1" in finding.text and 0.09 < finding.interval.low < finding.interval.high < 0.11
    assert tuned_claims.best_lambda(evidence([], sweep)).note == "the same"
    worse = [own for own in sweep if own["varied"]["lam"] != 1.0] + [
        own | {"map": own["map"] - 0.2} for own in sweep if own["varied"]["lam"] == 1.0
    ]
    assert tuned_claims.best_lambda(evidence([], worse)).interval.high < 0


def test_tuned_evidence_comes_before_table_1():
    claim = next(own for own in claims.CLAIMS if own.text.startswith("HCDH outperforms all"))
    rows = claims.judge_claims([claim], [evidence(seeds_of(LEVELS))])
    assert rows[0][-1] == "holds on 1"
