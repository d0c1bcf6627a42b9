"""The plan "prefixes": the first bits of one model against a model of each length."""

from __future__ import annotations

from collections import Counter

import pytest
from test_factorial import record
from test_runner import ROOT

from hadahash.methods.hcdh import prefixes_of
from hadahash.reproduce import plan_tables, prefix_tables
from hadahash.reproduce.plans import read_plan
from hadahash.reproduce.prefix_tables import LENGTHS
from hadahash.reproduce.recipes import Cell
from hadahash.reproduce.trainer import measured_prefixes

NESTED = {"codebook": "nested", "prefixes": "powers"}
SEMANTIC = {**NESTED, "assignment": "semantic"}


def _models(lost, spread=0.0, **varied):
    """Three models of 128 bits, `lost` below a model of each length; dedicated ones without."""
    found = []
    for seed in (0, 1, 2):
        level = {bits: 0.7 + bits / 1000 + seed / 100 for bits in LENGTHS}
        own = {bits: level[bits] - lost + (seed - 1) * spread for bits in LENGTHS}
        one = record("hcdh-far", None, seed, own[128], 128, note=str(varied))
        one["varied"] = varied
        one["prefixes"] = {str(bits): {"all": own[bits]} for bits in LENGTHS[:-1]}
        found.append(one)
        if not varied:
            one["maps"] = {"all": level[128]}
            for bits in LENGTHS[:-1]:
                shorter = record("hcdh-far", None, seed, level[bits], bits)
                found.append({**shorter, "prefixes": {}})
    return found


def _row(lines, name):
    return next(line for line in lines if line.startswith(f"| {name} |"))


def test_the_first_bits_are_compared_with_models_of_each_length_by_seed():
    lines = prefix_tables.tables_of([*_models(0.05), *_models(0.004, **NESTED)], "CIFAR-10")
    assert lines[0] == "### CIFAR-10"
    head = "| one model of 128 bits | 16 bits | 32 bits | 64 bits | 128 bits | goal |"
    assert head in lines
    one = "-.004 [-.004, -.004] (n = 3)"
    row = _row(lines, "HCDH (far), codebook nested, prefixes powers")
    assert (
        row == f"| HCDH (far), codebook nested, prefixes powers | {' | '.join([one] * 4)} | met |"
    )
    far = _row(lines, "HCDH (far)")
    assert far.count("-.050 [-.050, -.050] (n = 3)") == 3, "not a model minus itself"
    assert far.endswith("|  | missed |")
    levels = lines[lines.index("The same as mAP@all:") :]
    assert _row(levels, "a model of each length").startswith("| a model of each length | .726 [")


@pytest.mark.parametrize(
    ("lost", "spread", "verdict"),
    [(0.006, 0.0, "missed"), (0.004, 0.0, "met"), (0.004, 0.01, "met by the means")],
)
def test_the_goal_is_half_a_point_at_every_length(lost, spread, verdict):
    records = [*_models(0.0), *_models(lost, spread, **SEMANTIC)]
    row = _row(prefix_tables.tables_of(records, ""), "HCDH (far), " + _listed(SEMANTIC))
    assert row.endswith(f"| {verdict} |")


def _listed(settings):
    return ", ".join(f"{key} {value}" for key, value in settings.items())


def test_a_length_that_was_not_run_leaves_the_goal_open():
    records = [own for own in _models(0.0) if own["bits"] != 32] + _models(0.0, **NESTED)
    row = _row(prefix_tables.tables_of(records, ""), "HCDH (far), " + _listed(NESTED))
    assert "| not run |" in row and row.endswith("| not all run |")
    assert prefix_tables.tables_of([], "") == []


def test_the_design_of_the_assignment_is_not_named():
    own = _models(0.0, **NESTED, assignment="design")
    lines = prefix_tables.tables_of([*_models(0.0), *own], "")
    assert _row(lines, "HCDH (far), codebook nested, prefixes powers")


def test_the_reported_depth_has_tables_of_its_own():
    records = [*_models(0.0), *_models(0.001, **NESTED)]
    for own in records:
        own["depth"] = 1000
        for maps in (own["maps"], *own["prefixes"].values()):
            maps["1000_found"] = maps["all"] + 0.1
    lines = prefix_tables.tables_of(records, "")
    assert [own for own in lines if own.startswith("The same as")] == [
        "The same as mAP@1000:",
        "The same as mAP@all:",
    ]


def test_the_plan_has_a_section():
    for name in ("prefixes", "prefixes-frozen"):
        lines = plan_tables.sections({name: [*_models(0.05), *_models(0.0, **NESTED)]})
        assert lines[0].startswith("## Every length from one model")
        assert f"`hadahash reproduce {name}`" in lines and "### CIFAR-10" in lines


def test_the_plan_has_five_seeds_of_six_models():
    cells = read_plan("prefixes-frozen", ROOT / "results").cells
    for dataset in {cell.dataset for cell in cells}:
        own = [cell for cell in cells if cell.dataset == dataset]
        assert len(own) == 30 and Counter(cell.seed for cell in own) == dict.fromkeys(
            range(40, 45), 6
        )
        nested = [cell for cell in own if cell.codebook == "nested"]
        assert {cell.bits for cell in nested} == {128}
        assert {cell.varied["assignment"] for cell in nested} == {"design", "semantic"}
        assert {cell.varied["prefixes"] for cell in nested} == {"powers"}
        assert {cell.bits for cell in own if not cell.varied} == set(LENGTHS)
    assert prefixes_of(128, "powers") == list(LENGTHS)


def test_nested_codes_are_measured_at_more_lengths_also_in_trials():
    def cell(bits, codebook, validation=0.0):
        settings = {"codebook": codebook}
        own = ("digits", "hcdh-far", bits, "test_efficientnet", 0, "digits")
        return Cell(*own, settings=settings, validation=validation)

    assert measured_prefixes(cell(128, "far")) == (16, 32, 64)
    assert measured_prefixes(cell(128, "nested")) == (8, 16, 24, 32, 48, 64)
    assert measured_prefixes(cell(64, "nested", 0.2)) == (8, 16, 24, 32, 48)
    assert measured_prefixes(cell(64, "far", 0.2)) == ()
