"""The rerun noise of each data set is that of stored runs."""

import json
import math

import pytest
from test_runner import ROOT

from hadahash.files import read_json
from hadahash.reproduce.check import Check
from hadahash.reproduce.collected import Collected
from hadahash.reproduce.factorial import repeats
from hadahash.reproduce.noise import NOISE, rerun_noise, tolerance


def _deviation(differences):
    """Standard deviation of one run, from differences of two."""
    return math.sqrt(sum(own**2 for own in differences) / (2 * len(differences)))


def _trial(record):
    asked = {
        key: value
        for key, value in record["asked"].items()
        if key not in ("frozen", "backbone_lr", "compile")
    }
    return record["dataset"], record["method"], record["bits"], json.dumps(asked, sort_keys=True)


def test_the_noise_on_cifar10_is_that_of_two_runs_of_table_1():
    name = "hcdh-64-efficientnet_lite0-s0-128px"
    maps = [
        read_json(ROOT / "results" / "cifar10" / f"{name}{mark}.json")["map"]
        for mark in ("", "-lam1")
    ]
    assert maps == pytest.approx([0.8815, 0.8717], abs=1e-4)
    assert NOISE["cifar10"] == round(_deviation([maps[0] - maps[1]]), 3)


def test_the_noise_on_voc_is_that_of_trials_on_two_kinds_of_hardware():
    fixed, trained = (
        {_trial(own): own for own in Collected(ROOT / "results" / plan).records() if kept(own)}
        for plan, kept in (
            ("tuning-frozen", lambda own: "validation_map" in own),
            (
                "tuning",
                lambda own: "validation_map" in own and own["asked"].get("backbone_lr") == 0,
            ),
        )
    )
    pairs = [(fixed[key], trained[key]) for key in fixed if key in trained and key[0] == "voc2012"]
    other = [
        one["validation_map"] - two["validation_map"]
        for one, two in pairs
        if one["hardware"] != two["hardware"]
    ]
    assert len(other) >= 44
    assert NOISE["voc2012"] == round(_deviation(other), 3)


@pytest.mark.parametrize("plan", ["factorial", "factorial-frozen"])
@pytest.mark.parametrize("deterministic", [False, True])
def test_repeats_with_the_same_kernels_are_equal_to_the_bit(plan, deterministic):
    records = Collected(ROOT / "results" / plan).records()
    for dataset in dict.fromkeys(own["dataset"] for own in records):
        own = [record for record in records if record["dataset"] == dataset]
        found = repeats(own, deterministic=deterministic)
        assert len({record["digests"]["model_sha256"] for record in found}) <= 1


def test_a_fixed_backbone_on_the_same_machine_must_agree_closely():
    stored = {"dataset": "voc2012", "settings": {"frozen": True}}
    assert tolerance(stored, same_machine=True) == 0.002
    assert tolerance(stored, same_machine=False) == pytest.approx(0.015)
    trained = {"dataset": "cifar10", "settings": {"frozen": False, "backbone_lr": 0.2}}
    assert tolerance(trained, same_machine=True) == pytest.approx(0.021)
    assert rerun_noise("photos") == max(NOISE.values())
    assert not Check("a", 0.5, 0.51, None, 0.002).passed
    assert Check("a", 0.5, 0.51, None, 0.021).passed
