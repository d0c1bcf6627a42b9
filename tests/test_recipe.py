"""The plan "recipe": single changes, combinations of those that gained, and fresh seeds."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from hadahash.building import make_config
from hadahash.cli.app import app
from hadahash.data import find_dataset, make_split, open_dataset
from hadahash.reproduce import recipe_trials
from hadahash.reproduce.cells import RunContext
from hadahash.reproduce.check import check_cell
from hadahash.reproduce.collected import Collected
from hadahash.reproduce.plans import read_plan
from hadahash.reproduce.recipe_trials import STAGES, Change, Trials, read_trials
from hadahash.reproduce.runner import run_plan
from hadahash.reproduce.trainer import split_of

SMALL = {
    "backbone": "test_efficientnet",
    "mark": "",
    "seed": 60,
    "share": 0.2,
    "bits": [16, 8],
    "datasets": ["digits", "digit-pairs"],
    "method": "hcdh-far",
    "settings": {"batch_size": 64, "size": 32, "epochs": 1},
    "gain": 0.002,
    "base": {"digits": {"lr": 0.1, "lam": 1.0}, "digit-pairs": {"lr": 0.3, "lam": 0.1}},
    "final": {"bits": [16], "seeds": [65]},
    "changes": [
        {"name": "plus", "kind": "loss", "method": "hcdh-plus", "settings": {"lam": 0.0}},
        {"name": "cut", "kind": "mixing", "settings": {"cutmix": 1.0, "mix_share": 0.5}},
        {
            "name": "csq",
            "kind": "loss",
            "round": 2,
            "method": "csq",
            "settings": {"codebook": "far"},
        },
        {
            "name": "semantic",
            "kind": "codebook",
            "settings": {"assignment": "semantic"},
            "round": 2,
        },
    ],
}


def _records(trials: Trials, scores: dict[str, list[float]]) -> list[dict]:
    """Records with the given mAP of each change on each data set, at both lengths."""
    changes = {own.name: own for own in [Change("base"), *trials.changes(), *trials.combinations()]}
    return [
        record
        for name, values in scores.items()
        for record in _of_change(trials, changes[name], values)
    ]


def _of_change(trials: Trials, change: Change, values: list[float]) -> list[dict]:
    """Records with the mAP of one change on each data set, at both lengths."""
    found = []
    for dataset, value in zip(trials.content["datasets"], values, strict=True):
        for bits in trials.content["bits"]:
            cell = trials.cell(dataset, bits, change)
            asked = {**cell.settings, **cell.varied}
            entry = {"dataset": dataset, "name": cell.name, "asked": asked}
            found.append({**entry, "maps": {"all": value}})
    return found


def test_every_trial_is_valid_and_has_a_name_of_its_own():
    trials = read_trials(Path("missing"))
    cells = trials.stage("recipe") + trials.stage("recipe-lite2")
    assert len({(cell.dataset, cell.name) for cell in cells}) == len(cells)
    assert Counter(cell.dataset for cell in cells) == dict.fromkeys(trials.content["datasets"], 50)
    for change in [*trials.changes(), *trials.changes("lite2")]:
        varied = trials.cell("voc2012", 64, change).varied
        assert varied.keys() == {**change.settings, **change.scale}.keys(), "no unknown setting"
        assert varied.items() >= change.settings.items()
    for cell in cells:
        settings = {**cell.settings, **cell.varied}
        make_config(cell.method, bits=cell.bits, backbone=cell.backbone, settings=settings)
        assert cell.seed == 60 and cell.validation == 0.2


def test_a_cut_off_run_has_complete_rounds_on_all_data_sets():
    trials = read_trials(Path("missing"))
    cells = trials.stage("recipe")
    first = [cell for cell in cells if cell.mark.endswith("-base")]
    assert cells[: len(first)] == first and len(first) == 6
    rounds = Counter(cell.mark for cell in cells[6:36])
    assert len(rounds) == 5 and set(rounds.values()) == {6}


def test_seeds_of_trials_and_of_the_final_stage_differ():
    content = read_trials(Path("missing")).content
    assert content["seed"] not in content["final"]["seeds"] and len(content["final"]["seeds"]) == 5


def test_trials_use_training_images_only():
    trials = Trials(SMALL)
    cell = trials.cell("digits", 16, Change("base"))
    data = open_dataset("digits")
    whole, own = make_split(data, find_dataset("digits").protocol, seed=60), split_of(cell, data)
    assert np.isin(own.query, whole.train).all() and np.isin(own.database, whole.train).all()
    assert not np.isin(own.query, own.database).any()
    final = trials.cell("digits", 16, Change("base"), seed=65)
    assert final.validation == 0 and split_of(final, data).name == whole.name


def test_changes_are_kept_that_gain_on_two_data_sets_one_of_each_kind():
    trials = Trials(SMALL)
    scores = {"base": [0.5, 0.5], "plus": [0.51, 0.51], "cut": [0.52, 0.49]}
    scores |= {"csq": [0.53, 0.53], "semantic": [0.504, 0.504]}
    known = Trials(SMALL, _records(trials, scores))
    assert known.gains(trials.changes()[0]) == pytest.approx({"digits": 0.01, "digit-pairs": 0.01})
    assert [change.name for change in known.kept()] == ["csq", "semantic"]
    names = [change.name for change in known.combinations()]
    assert names == ["csq+semantic", "csq", "semantic"]
    both = known.combinations()[0]
    assert both.method == "csq"
    cell = known.cell("digits", 16, both)
    assert cell.varied == {"codebook": "far"} and "lam" not in cell.settings, "not of csq"
    assert both.settings == {"codebook": "far", "assignment": "semantic"}
    assert len(known.stage("recipe-combined")) == 3 * 2 * 2
    assert known.best().name == "csq"
    assert {cell.method for cell in known.stage("recipe-final")} == {"csq"}


def test_the_best_is_one_that_is_kept():
    """A change that gains on one data set only is not the best, however much it gains."""
    trials = Trials(SMALL)
    scores = {"base": [0.5, 0.5], "plus": [0.51, 0.51], "cut": [0.6, 0.49]}
    known = Trials(SMALL, _records(trials, scores))
    assert [change.name for change in known.kept()] == ["plus"]
    assert known.best().name == "plus"


LITE2 = {
    "name": "lite2",
    "kind": "backbone",
    "backbone": "test_resnet",
    "mark": "big",
    "settings": {"size": 48, "encode_size": 48},
}


def test_a_larger_backbone_is_tried_with_the_best_combination_and_can_win():
    content = {**SMALL, "lite2": [LITE2]}
    trials = Trials(content)
    assert len(trials.stage("recipe-lite2")) == 4, "alone on two data sets at two lengths"
    lite2 = trials.changes("lite2")[0]
    scores = {"base": [0.5, 0.5], "plus": [0.51, 0.51]}
    records = _records(trials, scores) + _of_change(trials, lite2, [0.53, 0.49])
    lost = Trials(content, records)
    assert lost.larger() == [] and lost.best().name == "plus", "gains on one data set only"
    records = _records(trials, scores) + _of_change(trials, lite2, [0.52, 0.52])
    won = Trials(content, records)
    assert [own.name for own in won.larger()] == ["lite2", "plus+lite2"]
    assert won.best().name == "lite2"
    cells = won.stage("recipe-lite2")
    assert len(cells) == len(set(cells)) == 8
    assert {cell.backbone for cell in cells} == {"test_resnet"}, "one file of weights"
    assert "test_resnet" not in {cell.backbone for cell in won.stage("recipe-combined")}
    both = won.larger()[1]
    records += _of_change(trials, both, [0.54, 0.54])
    final = Trials(content, records)
    assert final.best().name == "plus+lite2"
    assert {(cell.backbone, cell.method, cell.mark) for cell in final.stage("recipe-final")} == {
        ("test_resnet", "hcdh-plus", "big-plus+lite2")
    }
    assert any(line.startswith("lite2: ") and line.endswith("kept") for line in won.summary())


def test_a_larger_backbone_keeps_its_size():
    content = {
        **SMALL,
        "lite2": [LITE2],
        "changes": [{"name": "wide", "kind": "size", "settings": {"encode_size": 40}}],
    }
    trials = Trials(content)
    records = _records(trials, {"base": [0.5, 0.5], "wide": [0.6, 0.6]})
    records += _of_change(trials, trials.changes("lite2")[0], [0.52, 0.52])
    _, both = Trials(content, records).larger()
    assert both.settings == {"size": 48, "encode_size": 48}


def test_a_change_scales_a_setting_of_the_base_or_of_another_change():
    up = Change("rate3", scale={"lr": 3.0})
    down = Change("rate0.33", scale={"lr": 0.3333, "unknown": 2.0})
    trials = Trials(SMALL)
    rates = [
        [trials.cell(dataset, 16, own).varied["lr"] for dataset in SMALL["datasets"]]
        for own in (up, down)
    ]
    assert rates == [[0.3, 0.9], [0.0333, 0.1]]
    cell = trials.cell("digits", 16, Change("plus", settings={"lr": 0.2}) + up)
    assert cell.varied == {"lr": 0.6} and "lr" not in cell.settings


def test_only_the_final_stage_measures_content_bits():
    trials = read_trials(Path("missing"))
    trial, final = (trials.cell("voc2012", 64, Change("base"), seed) for seed in (None, 65))
    assert (trial.content, final.content) == ("", "default")


def test_without_trials_there_is_nothing_to_combine():
    trials = Trials(SMALL)
    assert trials.kept() == [] and trials.best() is None and trials.summary() == []
    assert trials.stage("recipe-combined") == trials.stage("recipe-final") == []


def test_a_diverged_trial_has_no_gain_and_a_failed_one_is_missing():
    trials = Trials(SMALL)
    records = _records(trials, {"base": [0.5, 0.5], "plus": [0.6, 0.6]})
    for record in records:
        if record["dataset"] == "digits" and "plus" in record["name"]:
            del record["maps"]
            record["diverged"] = "loss"
    assert Trials(SMALL, records).gains(trials.changes()[0])["digits"] == pytest.approx(-0.5)
    for record in records:
        record["failed"] = "error"
    assert Trials(SMALL, records).gains(trials.changes()[0]) == {}


def test_the_stages_run_from_trials_to_fresh_seeds(tmp_path, monkeypatch):
    own = {"datasets": ["digit-pairs"], "bits": [8], "changes": SMALL["changes"][:2]}
    content = {**SMALL, **own, "final": {"bits": [8], "seeds": [65], "content": "default"}}
    monkeypatch.setattr(Trials, "kept", Trials.changes)
    monkeypatch.setattr(
        recipe_trials,
        "read_trials",
        lambda results: Trials(content, Collected(results / "recipe").records()),
    )
    context = RunContext(tmp_path, tmp_path, {}, "none", "cpu", 1, lambda text: None)
    collected = Collected(tmp_path / "recipe")
    for stage, count in (("recipe", 3), ("recipe-combined", 3), ("recipe-final", 1)):
        plan = read_plan(stage, tmp_path)
        assert plan.name == "recipe"
        missing = len(collected.missing(plan.cells))
        assert 0 < missing <= count
        assert run_plan(plan.cells, context, collected, workers=0) == missing
        assert collected.missing(plan.cells) == []
    records = collected.records()
    assert not [record for record in records if "failed" in record or "diverged" in record]
    trial = next(record for record in records if "validation_map" in record)
    (final,) = [record for record in records if "map" in record]
    assert "content" not in trial and {"hamming", "class"} <= final["content"]["rankings"].keys()
    assert {"real", "same_class_real"} <= trial["rankings"].keys()
    assert all({"all", "1000_found"} <= own.keys() for own in trial["rankings"].values())
    assert check_cell(f"recipe/{trial['dataset']}/{trial['name']}", context).name
    assert recipe_trials.read_trials(tmp_path).summary()[-1].startswith("best so far: ")


def test_the_command_shows_the_gains(tmp_path):
    arguments = ["reproduce", "recipe", "--no-run", "--results", str(tmp_path)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0 and result.output == ""
    assert STAGES[0] == "recipe"
