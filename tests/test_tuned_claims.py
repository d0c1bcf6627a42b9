"""Claims judged on tuned methods: paired by seed, and no rival counts as beaten without a result."""

from __future__ import annotations

from pathlib import Path

from hadahash import files
from hadahash.reproduce import Cell, claims, tuned_claims
from hadahash.reproduce.evidence import RIVALS, Evidence, correlation, entropy, imbalance


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
    finding = tuned_claims.closest_rival()(evidence(seeds_of(LEVELS)))
    assert "to HashNet" in finding.text and finding.interval.low > 0.09
    better = seeds_of(LEVELS | {"sdh": 0.9})
    finding = tuned_claims.closest_rival()(evidence(better))
    assert "to SDH" in finding.text and finding.interval.high < 0


def test_a_missing_or_diverged_rival_leaves_the_claim_undecided():
    records = [own for own in seeds_of(LEVELS) if own["method"] != "mihash"]
    diverged = {**record("mihash", 64, 40, 0), "diverged": "NaN"}
    del diverged["map"]
    finding = tuned_claims.closest_rival()(evidence([*records, diverged]))
    assert finding.interval is None and finding.note == "no MIHash"
    assert tuned_claims.closest_rival()(evidence([])) is None


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
    less = tuned_claims.statistic("hashnet", correlation, -1)(own)
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


def test_variants_are_compared_with_the_settings_of_each_where_they_are_tuned():
    """Untuned HCDH-C is below HCDH-H, tuned above it."""
    factorial = [
        record(method, 64, seed, value + wiggle(method, seed))
        | {"varied": {"codebook": "paper"} if method == "hcdh-h" else {}}
        for method, value in (("hcdh-h", 0.7), ("hcdh-c", 0.6))
        for seed in (20, 21, 22)
    ]
    claim = next(own for own in claims.CLAIMS if "HCDH-H outperforms HCDH-C" in own.text)
    before = Evidence("cifar10", (), factorial, Path())
    assert claims.judge_claims([claim], [before])[0][-1] == "holds on 1"
    tuned = seeds_of({"hcdh-h": 0.7, "hcdh-c": 0.75})
    now = Evidence("cifar10", (), factorial, Path(), tuned)
    assert claims.judge_claims([claim], [now])[0][-1] == "fails on 1"


def test_tuned_evidence_comes_before_table_1():
    claim = next(own for own in claims.CLAIMS if own.text.startswith("HCDH outperforms all"))
    rows = claims.judge_claims([claim], [evidence(seeds_of(LEVELS))])
    assert rows[0][-1] == "holds on 1"


def test_a_missing_method_leaves_deep_against_shallow_undecided():
    records = [own for own in seeds_of(LEVELS) if own["method"] not in ("hcdh", "dpsh")]
    finding = tuned_claims.deep_above_shallow(evidence(records))
    assert finding.interval is None and finding.note == "no HCDH, DPSH"
    assert tuned_claims.deep_above_shallow(evidence([])) is None


def test_the_tuned_rows_of_rivals_come_before_table_1(tmp_path):
    """HCDH has the factorial only; SDH has tuned runs, the others one seed of table 1."""
    cells = [Cell("cifar10", rival, 64, "b", 0, "cifar10") for rival in RIVALS]
    for cell in cells:
        files.write_json(cell.path(tmp_path), {"map": 0.4})
    own = [
        record("hcdh", 64, seed, 0.7) | {"varied": {"codebook": "paper"}} for seed in range(20, 25)
    ]
    tuned = [record("sdh", 64, seed, 0.6) for seed in (40, 41, 42)]
    claim = next(own for own in claims.CLAIMS if own.text.startswith("HCDH outperforms all"))
    row = claims.judge_claims([claim], [Evidence("cifar10", cells, own, tmp_path, tuned)])[0]
    assert row[2].startswith("+.100 to SDH") and row[-1] == "undecided on 1"


def test_statistics_of_bits():
    assert entropy({"bit_balance": [0.5, 1.0]}) == 0.5
    assert imbalance({"bit_balance": [0.5, 1.0]}) == 0.25


def test_a_rival_whose_bits_carry_more_information_refutes_the_claim():
    def own(method, seed, share):
        return record(method, 16, seed, 0.5) | {"bit_balance": [share - seed / 1000]}

    shares = dict.fromkeys(RIVALS, 0.3) | {"hashnet": 0.5, "hcdh": 0.4}
    records = [own(method, seed, share) for method, share in shares.items() for seed in (0, 1, 2)]
    judge = next(own.judge for own in claims.CLAIMS if "more information" in own.text)
    finding = judge(evidence(records))
    assert "to HashNet" in finding.text and finding.interval.high < 0


def test_balanced_batches_are_compared_with_the_same_trial_with_random_ones():
    def trial(sampler, value, lr=0.1):
        asked = {"lr": lr, "sampler": sampler}
        own = {"dataset": "cifar10", "method": "hashnet", "bits": 64}
        return own | {"asked": asked, "validation_map": value}

    trials = [trial("random", 0.5), trial("balanced", 0.52), trial("random", 0.9, lr=0.3)]
    finding = tuned_claims.balanced_batches(Evidence("cifar10", (), (), Path(), trials=trials))
    assert finding.text == "HashNet +.020" and finding.interval is None
    assert tuned_claims.balanced_batches(evidence([])) is None


def test_one_rival_ahead_refutes_a_claim_about_all_even_if_others_are_missing():
    records = [own for own in seeds_of(LEVELS | {"sdh": 0.9}) if own["method"] != "mihash"]
    finding = tuned_claims.closest_rival()(evidence(records))
    assert "to SDH" in finding.text and finding.interval.high < 0 and finding.note == "no MIHash"
