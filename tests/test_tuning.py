"""Tuning: trials inside the training part, the choice of settings, and the seeds that follow it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial
from operator import attrgetter
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from hadahash.building import make_config
from hadahash.cli.app import app
from hadahash.data import make_split, open_dataset
from hadahash.methods import METHODS, DeepMethod
from hadahash.reproduce import list_recipes, read_recipe, tuning
from hadahash.reproduce.all import run_all
from hadahash.reproduce.cells import RunContext
from hadahash.reproduce.check import check_cell
from hadahash.reproduce.collected import Collected
from hadahash.reproduce.grid_edges import edges_to_extend
from hadahash.reproduce.measures import Coded, measure
from hadahash.reproduce.plans import EXPERIMENTS, PLANS, read_plan
from hadahash.reproduce.runner import run_plan
from hadahash.reproduce.trainer import split_of
from hadahash.reproduce.tuning import Tuning, choose, read_tuning, trials
from hadahash.reproduce.tuning_tables import write_tuning

RESULTS = Path(__file__).parents[1] / "results"
SMALL = {
    "backbone": "test_efficientnet",
    "mark": "",
    "seed": 30,
    "share": 0.2,
    "bits": [64, 16],
    "finalists": 2,
    "datasets": ["digits"],
    "settings": {"batch_size": 64, "size": 32},
    "points": {
        "hcdh": {
            "settings": ["lr", "backbone_lr", "epochs", "lam"],
            "rows": [[0.1, 0, 1, 0.1], [0.3, 0, 1, 0.1], [0.1, 0.2, 1, 1.0], [1e20, 0.2, 1, 1.0]],
        },
        "hashnet": {
            "settings": ["lr", "backbone_lr", "epochs", "hashnet_beta", "sampler"],
            "rows": [[0.1, 0, 1, 7.0, "random"], [0.1, 0, 1, 7.0, "balanced"]],
        },
    },
}


# ------------------------------------------------------------------ the grids


def test_every_method_has_the_same_number_of_points_on_every_data_set():
    grids = read_tuning()
    counts = Counter(len(grids.points(*key)) for key in grids.keys)
    extended = grids.content.get("more", {})
    assert counts == {12: 3 * 16} or extended
    assert len(grids.methods) == 16


def test_every_deep_method_has_the_same_number_of_points_with_a_fixed_backbone():
    grids = read_tuning("tuning-frozen")
    more = grids.content.get("more", {})
    counts = {key: len(grids.points(*key)) for key in grids.keys}
    assert {counts[data, own] - len(more.get(data, {}).get(own, [])) for data, own in counts} == {
        12
    }
    assert all(issubclass(METHODS.get(name), DeepMethod) for name in grids.methods)
    assert grids.content["settings"]["frozen"]
    assert set(grids.methods) == {
        name for name in read_tuning().methods if issubclass(METHODS.get(name), DeepMethod)
    }


POINTS = [(name, *key) for name in tuning.NAMES for key in read_tuning(name).keys]


@pytest.mark.parametrize(("plan", "dataset", "method"), POINTS)
def test_the_points_of_a_method_are_valid_and_have_the_same_kinds_of_settings(
    plan, dataset, method
):
    grids, key = read_tuning(plan), (dataset, method)
    points = grids.points(*key)
    later = [point for point in grids.further(*key) if point not in points]
    cells = [grids.trial(*key, 64, point) for point in [*points, *later]]
    assert len({cell.name for cell in cells}) == len(cells)
    for cell in cells:
        make_config(cell.method, bits=cell.bits, backbone=cell.backbone, settings=cell.settings)
    assert len(points) >= (5 if plan == "tuning-alexnet" else 12)
    if plan != "tuning-alexnet" and issubclass(METHODS.get(method), DeepMethod):
        fixed = [point for point in points if point.get("backbone_lr", 0) == 0]
        assert len(fixed) >= 3
        assert {point["epochs"] for point in points} >= {18, 60}
    for name in points[0]:
        values = {point[name] for point in points}
        assert len(values) > 1, name
        if name not in (*grids.content["unordered"], "epochs") and not isinstance(
            points[0][name], str
        ):
            assert len(values) > 2, f"{name}: each value is at an edge"


def test_the_seeds_were_used_nowhere_else():
    used = {cell.seed for name in list_recipes() for cell in read_recipe(name).cells}
    used |= {cell.seed for cell in read_plan("factorial", RESULTS).cells}
    assert read_tuning().content["seed"] not in used
    assert not used & set(range(40, 45))


def test_edges_name_where_a_grid_must_be_extended():
    points = [
        {"lr": lr, "backbone_lr": rate, "lam": lam, "epochs": 18}
        for lr, rate, lam in [(1, 0, 1), (3, 0, 1), (10, 0, 1), (0.1, 0.2, 1), (0.3, 0.2, 0)]
    ]
    assert list(edges_to_extend(points, points[0])) == ["lr below 1", "lam with a fixed backbone"]
    assert list(edges_to_extend(points, points[1])) == ["lam with a fixed backbone"]
    assert list(edges_to_extend(points, points[4])) == ["lr above 0.3", "backbone_lr above 0.2"]
    trained = edges_to_extend(points, points[3], unordered=["lam"])
    assert list(trained) == ["lr below 0.1", "backbone_lr above 0.2"]
    assert list(edges_to_extend(points, points[3]))[-1] == "lam above 1"


def test_a_setting_with_one_value_among_the_points_with_a_fixed_backbone_is_named():
    points = [
        {"lr": lr, "backbone_lr": rate, "eta": eta, "clip": clip, "sampler": sampler}
        for lr, rate, eta, clip, sampler in [
            (0.1, 0, 0.1, 1.0, "random"),
            (0.3, 0, 0.1, 1.0, "random"),
            (1.0, 0, 0.1, 1.0, "random"),
            (0.1, 0.2, 0.01, 0.0, "random"),
            (0.3, 0.05, 1.0, 1.0, "balanced"),
        ]
    ]
    found = list(edges_to_extend(points, points[1], unordered=["clip"]))
    assert found == [f"{key} with a fixed backbone" for key in ("eta", "clip", "sampler")]
    points += [{**points[1], "eta": eta} for eta in (0.01, 1.0)]
    points += [{**points[1], "clip": 0.0}, {**points[1], "sampler": "balanced"}]
    assert list(edges_to_extend(points, points[1], unordered=["clip"])) == []
    assert "eta above 1" in edges_to_extend(points, points[-3])


def test_rates_of_points_with_other_options_do_not_hide_an_edge():
    points = [{"lr": lr, "loss": "sum"} for lr in (0.1, 0.3, 1.0)] + [{"lr": 3.0, "loss": "mean"}]
    assert list(edges_to_extend(points, points[2])) == ["lr above 1"]
    assert list(edges_to_extend(points, points[1])) == []
    assert list(edges_to_extend(points, points[3])) == ["lr above 3"]


def test_points_can_be_added_for_one_data_set():
    row = [0.5, 0.2, 1, 0.1]
    grids = Tuning({**SMALL, "more": {"digits": {"hcdh": [row]}}})
    assert len(grids.points("digits", "hcdh")) == 5
    assert grids.points("digits", "hcdh")[-1]["lr"] == 0.5
    assert len(grids.points("digit-pairs", "hcdh")) == 4


def test_a_row_may_name_settings_that_the_others_leave_at_their_defaults():
    row = [0.1, 0.2, 1, 0.1, {"batch_size": 256}]
    grids = Tuning({**SMALL, "more": {"digits": {"hcdh": [row]}}})
    *usual, last = grids.points("digits", "hcdh")
    assert last == {"lr": 0.1, "backbone_lr": 0.2, "epochs": 1, "lam": 0.1, "batch_size": 256}
    assert all("batch_size" not in point for point in usual)
    cell = grids.trial("digits", "hcdh", 64, last)
    assert cell.settings["batch_size"] == 256 and cell.mark.endswith("batch_size256")
    assert not any("batch_size" in text for text in edges_to_extend([*usual, last], last))
    assert list(edges_to_extend([*usual, last], usual[0])) == list(edges_to_extend(usual, usual[0]))


@pytest.mark.parametrize(
    ("dataset", "method", "wanted"),
    [
        (data, method, wanted)
        for data in ("cifar10", "voc2012", "tinyimagenet100")
        for method, wanted in [
            ("mihash", {"batch_size": 256}),
            ("mihash", {"mihash_slope": 30.0, "mihash_bins": 16}),
            ("mihash", {"mihash_slope": 10.0, "mihash_bins": 0}),
            ("mihash", {"backbone_lr": 0, "sampler": "balanced"}),
            ("dpsh", {"backbone_lr": 0, "dpsh_eta": 0.01}),
            ("dpsh", {"backbone_lr": 0, "dpsh_eta": 1.0}),
            ("dsdh", {"backbone_lr": 0, "dsdh_mu": 10.0, "dsdh_eta": 0.1}),
            ("dsdh", {"backbone_lr": 0, "dsdh_mu": 1.0, "dsdh_eta": 0.01}),
            ("hcdh-c", {"lr": 3.0, "backbone_lr": 0.2}),
            ("orthohash", {"codebook": "random"}),
            ("orthohash", {"orthohash_scale": 8.0, "orthohash_margin": 0.1}),
            ("orthohash", {"orthohash_scale": 16.0, "orthohash_margin": 0.2}),
            ("hcdh", {"lr": 0.5}),
            ("hcdh-2", {"lr": 0.5}),
            ("hcdh-h", {"lr": 0.5}),
        ]
    ]
    + [
        ("voc2012", "hashnet", {"batch_size": 256}),
        ("tinyimagenet100", "hashnet", {"batch_size": 256}),
        ("voc2012", "hashnet", {"backbone_lr": 0, "sampler": "balanced"}),
        ("voc2012", "ssdh", {"lr": 1.0, "multilabel_loss": "mean"}),
        ("voc2012", "ssdh", {"backbone_lr": 0, "multilabel_loss": "mean"}),
        ("voc2012", "ssdh", {"epochs": 40}),
        ("voc2012", "hcdh-c", {"backbone_lr": 0, "multilabel_loss": "mean"}),
        ("voc2012", "classify", {"lr": 1.0, "multilabel_loss": "mean"}),
    ],
)
def test_what_the_authors_of_a_baseline_would_try_is_tried(dataset, method, wanted):
    grids = read_tuning()
    points = [*grids.points(dataset, method), *grids.further(dataset, method)]
    assert any(wanted.items() <= point.items() for point in points)


# ------------------------------------------------------------------ the choice


def _records(grids, scores, bits=64, method="hcdh"):
    points = grids.points("digits", method)
    for point, score in zip(points, scores, strict=False):
        if score is None:
            continue
        cell = grids.trial("digits", method, bits, point)
        found = {"diverged": "loss"} if score == "diverged" else {"validation_map": score}
        yield {"dataset": "digits", "name": cell.name, "asked": cell.settings, **found}


def test_the_best_mean_over_both_lengths_of_the_best_two_is_chosen():
    grids = Tuning(SMALL)
    first = list(_records(grids, [0.5, 0.8, 0.79, "diverged"]))
    some = choose(grids, first[:3])[0]
    assert not some.complete and len(some.missing) == 1 and some.point["lr"] == 0.3
    own = choose(grids, first)[0]
    assert [cell.bits for cell in own.missing] == [16, 16] and not own.complete
    assert [cell.bits for cell in trials(grids, first)] == [64] * 6 + [16] * 2
    own = choose(grids, [*first, *_records(grids, [None, 0.6, 0.7], bits=16)])[0]
    assert own.complete and own.point["lam"] == 1.0 and own.scores == {64: 0.79, 16: 0.7}
    assert (own.trials, own.diverged, own.best_frozen) == (6, 1, 0.8)
    assert "lam with a trained backbone" in own.extend and "EDGE: extend" in str(own)


FURTHER = {**SMALL, "further": {"digits": {"hcdh": [[0.5, 0.2, 1, 0.1]]}}}


def _record(grids, bits, point, score):
    cell = grids.trial("digits", "hcdh", bits, point)
    asked = {"name": cell.name, "asked": cell.settings, "validation_map": score}
    return {"dataset": "digits", **asked}


def test_a_choice_does_not_wait_for_further_points():
    grids = Tuning(FURTHER)
    (point,) = grids.further("digits", "hcdh")
    records = list(_records(grids, [0.5, 0.8, 0.79, 0.1]))
    records += _records(grids, [None, 0.6, 0.7], bits=16)
    own = choose(grids, records)[0]
    assert own.complete and own.point["lam"] == 1.0
    assert [(cell.bits, cell.settings["lr"]) for cell in own.untried] == [(64, 0.5)]
    assert "1 further trials not run" in str(own)
    assert trials(grids, records)[-1] == own.untried[0]
    records.append(_record(grids, 64, point, 0.9))  # among the best: tried at 16 bits
    own = choose(grids, records)[0]
    assert own.complete and own.point["lam"] == 1.0
    assert [cell.bits for cell in own.untried] == [16]
    better = choose(grids, [*records, _record(grids, 16, point, 0.65)])[0]
    assert better.point == point and better.scores == {64: 0.9, 16: 0.65} and not better.untried
    worse = choose(grids, [*records, _record(grids, 16, point, 0.1)])[0]
    assert worse.point["lam"] == 1.0 and worse.trials == 8


def test_a_further_point_that_is_not_among_the_best_is_not_tried_at_the_second_length():
    grids = Tuning(FURTHER)
    (point,) = grids.further("digits", "hcdh")
    records = list(_records(grids, [0.5, 0.8, 0.79, 0.1]))
    records += [*_records(grids, [None, 0.6, 0.7], bits=16), _record(grids, 64, point, 0.7)]
    own = choose(grids, records)[0]
    assert own.complete and not own.untried and own.trials == 7


def test_the_earlier_choice_is_shown_until_added_points_have_been_tried():
    grids = Tuning(SMALL)
    records = list(_records(grids, [0.5, 0.8, 0.79, 0.1]))
    records += _records(grids, [None, 0.6, 0.7], bits=16)
    before = choose(grids, records)[0]
    added = Tuning({**SMALL, "more": {"digits": {"hcdh": [[0.5, 0, 1, 0.1]]}}})
    after = choose(added, records)[0]
    assert before.complete and not after.complete and len(after.missing) == 1
    assert (after.point, after.scores, after.trials) == (before.point, before.scores, 6)


def test_lengths_can_be_tuned_apart():
    grids = Tuning({**FURTHER, "apart": ["hcdh"]})
    (point,) = grids.further("digits", "hcdh")
    first = list(_records(grids, [0.5, 0.6, 0.9, 0.8]))
    own = choose(grids, first)[0]
    assert len(own.missing) == 4  # the best two, and both with a fixed backbone
    assert [cell.bits for cell in own.untried] == [64, 16]
    records = [*first, *_records(grids, [0.7, 0.2, 0.3, 0.4], bits=16)]
    own = choose(grids, records)[0]
    assert own.complete and own.scores == {64: 0.9, 16: 0.7}
    points = grids.points("digits", "hcdh")
    assert own.by_length == {64: points[2], 16: points[0]} and own.point == points[2]
    assert own.at(64) == own.at(128) == points[2] and own.at(16) == own.at(32) == points[0]
    assert "64 bits: lr 0.1, backbone_lr 0.2" in str(own) and "16 bits: lr 0.1" in str(own)
    short = choose(grids, [*records, _record(grids, 16, point, 0.75)])[0]
    assert short.by_length == {64: points[2], 16: point}
    assert not choose(Tuning(SMALL), records)[0].by_length


def test_a_further_row_may_repeat_a_point_to_try_it_at_the_second_length():
    row = SMALL["points"]["hcdh"]["rows"][2]
    grids = Tuning({**SMALL, "apart": ["hcdh"], "further": {"digits": {"hcdh": [row]}}})
    own = choose(grids, [])[0]
    assert [cell.bits for cell in own.untried] == [16]
    cells = trials(grids, [])
    assert len(cells) == len(set(cells)) == 7


def test_a_method_whose_trials_all_diverged_is_not_complete():
    grids = Tuning(SMALL)
    failed = [*_records(grids, ["diverged"] * 4), *_records(grids, ["diverged"] * 2, bits=16)]
    own = choose(grids, failed)[0]
    assert not own.missing and not own.complete


def test_a_failed_trial_is_missing_and_one_with_other_settings_too():
    grids = Tuning(SMALL)
    records = list(_records(grids, [0.5, 0.8, 0.7, 0.6]))
    records[0] |= {"failed": "device lost"}
    records[1]["asked"] = records[1]["asked"] | {"batch_size": 32}
    assert len(choose(grids, records)[0].missing) == 2


# ------------------------------------------------------------------ small trials, end to end


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """All trials of the small grids, run by the command line in two calls."""
    folder = tmp_path_factory.mktemp("tuning")
    command = ["reproduce", "tuning", "--results", str(folder), "--weights", "none"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuning, "read_tuning", lambda name="tuning": Tuning(SMALL, name))
        patch.setattr("hadahash.cli.reproduce.run_plan", partial(run_plan, workers=0))
        before = read_plan("seeds", folder)
        outputs = [
            CliRunner().invoke(app, [*command, "--device", "cpu", *options])
            for options in (["--only", "hcdh"], [], [], ["--no-run"])
        ]
        after = read_plan("seeds", folder)
    assert all(own.exit_code == 0 for own in outputs), outputs[0].output
    records = Collected(folder / "tuning").records()
    return folder, records, [own.output for own in outputs], (before, after)


def test_trials_at_the_second_length_follow_in_the_same_call(ran):
    _, records, outputs, _ = ran
    counts = Counter((record["method"], record["bits"]) for record in records)
    expected = {("hcdh", 64): 4, ("hcdh", 16): 2, ("hashnet", 64): 2, ("hashnet", 16): 2}
    assert counts == expected
    ends = ("6 cells run, 0 missing", "4 cells run, 0 missing", "0 cells run, 0 missing")
    assert all(end in text for end, text in zip(ends, outputs, strict=False))
    assert "digits hcdh: lr" in outputs[3] and "cells run" not in outputs[3]


def test_a_trial_has_what_a_choice_needs(ran):
    for record in ran[1]:
        assert record["seconds"]["total"] > 0 and record["validation"] == 0.2
        if record["asked"]["lr"] == 1e20:
            assert "diverged" in record and "validation_map" not in record
            continue
        assert 0 < record["validation_map"] <= 1 and 0 < record["train_map"] <= 1
        assert record["maps"]["all"] == record["validation_map"] and record["depth"] is None
        assert "map" not in record and "ap" not in record
        assert [line["epoch"] for line in record["log"]] == [1]
        settings = record["settings"]
        assert settings["frozen"] == (record["asked"]["backbone_lr"] == 0)
        assert settings["sampler"] == record["asked"].get("sampler", "random")


@pytest.mark.parametrize("name", ["digits", "digit-pairs"])
def test_a_trial_stays_inside_the_training_part(name):
    data = open_dataset(name)
    cell = Tuning(SMALL).trial(name, "hcdh", 64, {"lr": 0.1})
    whole, own = make_split(data, cell.protocol, seed=30), split_of(cell, data)
    assert np.array_equal(np.union1d(own.query, own.train), whole.train)
    assert not len(np.intersect1d(own.query, own.database))
    assert np.array_equal(own.train, own.database)
    assert len(own.query) / len(whole.train) == pytest.approx(0.2, abs=0.01)


@pytest.mark.parametrize("depth", [None, 1000])
def test_a_trial_is_measured_as_the_data_set_is_reported(depth):
    rng = np.random.default_rng(0)
    coded = Coded(
        bits=16,
        codes={"zero": rng.integers(0, 256, (2600, 2), dtype=np.uint8)},
        labels=rng.integers(0, 5, 2600),
        query=np.arange(100),
        database=np.arange(100, 2600),
        train=np.arange(100, 2600),
        depth=depth,
        trial=True,
    )
    found, whole = measure(coded), measure(replace(coded, trial=False))
    assert found["validation_map"] == whole["map"] and found["depth"] == depth
    assert found["validation_map"] == found["maps"]["1000_found" if depth else "all"]
    assert found["maps"] == whole["maps"] and found["train_map"] == whole["train_map"]


def test_seeds_wait_for_tuning_and_take_its_choice(ran):
    _, records, _, (before, after) = ran
    assert {cell.method for cell in before.cells} == {"itq", "lsh"} and len(before.notes) == 2
    assert "digits hcdh waits for tuning: 4 trials missing." in before.notes
    assert len(after.notes) == 1 and "digits hcdh: the chosen point is at an edge" in after.notes[0]
    chosen = {own.method: own.point for own in choose(Tuning(SMALL), records)}
    tuned = [cell for cell in after.cells if cell.method in chosen]
    assert len(tuned) == 5 * 2 * 2
    assert {cell.method for cell in after.cells} == {*chosen, "itq", "lsh"}
    for cell in tuned:
        assert cell.settings == SMALL["settings"] | chosen[cell.method]
        assert cell.seed in range(40, 45) and not cell.validation and not cell.varied


@pytest.mark.parametrize("method", ["hcdh-c", "mihash", "dsdh"])
def test_trials_of_multi_label_images(method, tmp_path):
    point = {"epochs": 1, "lr": 0.1, "backbone_lr": 0.2, "sampler": "balanced", "clip_grad": 1.0}
    cell = Tuning(SMALL).trial("digit-pairs", method, 16, point)
    collected = Collected(tmp_path / "tuning")
    context = RunContext(tmp_path, tmp_path / "runs", weights="none", device="cpu")
    assert run_plan([cell], context, collected, workers=0) == 1
    (record,) = collected.records()
    assert 0 < record["validation_map"] <= 1 and record["settings"]["clip_grad"] == 1.0


def test_a_trial_can_be_repeated(ran):
    folder, records, *_ = ran
    context = RunContext(folder, folder / "runs", weights="none", device="cpu")
    record = next(own for own in records if "validation_map" in own)
    found = check_cell(f"tuning/digits/{record['name']}", context)
    assert found.passed and found.same_model and not found.differences
    assert record["command"] == f"hadahash reproduce check tuning/digits/{record['name']}"


def test_the_page_of_tuning_lists_choices_and_edges(ran, tmp_path, monkeypatch):
    monkeypatch.setattr("hadahash.reproduce.all.read_tuning", lambda name: Tuning(SMALL, name))
    context = RunContext(ran[0], tmp_path / "runs")
    assert tmp_path / "tables" / "tuning.md" in run_all(["table2"], context, tmp_path, run=False)
    text = (tmp_path / "tables" / "tuning.md").read_text("utf-8")
    assert "| digits | HCDH | 6 | 1 | lr" in text and "lam" in text
    assert "further" not in text
    grids = Tuning(FURTHER)
    write_tuning(grids, choose(grids, ran[1]), tmp_path)
    text = (tmp_path / "tables" / "tuning.md").read_text("utf-8")
    assert "| digits | HCDH | 64 | lr 0.5, backbone_lr 0.2, epochs 1, lam 0.1 |" in text


def _all_complete(results, name="tuning"):
    grids = read_tuning(name)
    return [
        tuning.Choice(*key, point=grids.points(*key)[3], scores={64: 0.5}) for key in grids.keys
    ]


def test_plans_with_a_fixed_backbone_have_the_cells_of_the_others(monkeypatch):
    monkeypatch.setattr("hadahash.reproduce.tuning.load_choices", _all_complete)
    deep = set(read_tuning("tuning-frozen").methods)
    for name in (*EXPERIMENTS, "factorial"):
        if f"{name}-frozen" not in PLANS:
            continue
        cells, fixed = (read_plan(own, RESULTS).cells for own in (name, f"{name}-frozen"))
        key = attrgetter("dataset", "method", "bits", "seed", "protocol")
        assert Counter(map(key, fixed)) == Counter(key(own) for own in cells if own.method in deep)
        assert all(own.settings["frozen"] and not own.content for own in fixed)
        assert all("128px-frozen" in own.mark and own.recipe == f"{name}-frozen" for own in fixed)


def test_settings_of_a_plan_follow_the_code_length(monkeypatch):
    def apart(results, name="tuning"):
        return [
            replace(own, by_length={64: {"lr": 0.3}, 16: {"lr": 0.7}})
            for own in _all_complete(results, name)
        ]

    monkeypatch.setattr("hadahash.reproduce.tuning.load_choices", apart)
    cells = [*read_plan("seeds", RESULTS).cells, *read_plan("factorial-frozen", RESULTS).cells]
    tuned = {(cell.bits, cell.settings.get("lr")) for cell in cells if cell.method == "hcdh"}
    assert tuned == {(64, 0.3), (16, 0.7)}


def test_hcdh_as_printed_waits_for_no_trial(tmp_path):
    for name in ("as-printed", "as-printed-frozen"):
        plan = read_plan(name, tmp_path)
        assert len(plan.cells) == 3 * (2 + 4 + 2) and not plan.notes
        for cell in plan.cells:
            asked = {**cell.settings, **cell.varied}
            assert asked["reduction"] == "sum" and asked["schedule"] == "paper"
            assert asked["multilabel_target"] in ("sum", "masked")
            config = make_config("hcdh", bits=64, backbone=cell.backbone, settings=asked)
            assert config.method_settings.codebook == "paper"


def test_alexnet_has_trials_of_its_own(tmp_path, monkeypatch):
    asked = []

    def complete(results, name="tuning"):
        asked.append(name)
        return _all_complete(results, name)

    monkeypatch.setattr("hadahash.reproduce.tuning.load_choices", complete)
    cells = read_plan("alexnet-seeds", tmp_path).cells
    assert asked == ["tuning-alexnet"] and len(cells) == 36
    for cell in cells:
        assert cell.backbone == "alexnet" and cell.mark == "224px" and cell.dataset == "cifar10"
        assert cell.settings["backbone_lr"] == 0.5 and cell.settings["partial_weights"]


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_experiments_use_fresh_seeds_and_valid_settings(name, tmp_path, monkeypatch):
    monkeypatch.setattr("hadahash.reproduce.tuning.load_choices", _all_complete)
    cells = read_plan(name, tmp_path).cells
    assert cells and len({(cell.dataset, cell.name) for cell in cells}) == len(cells)
    assert {cell.seed for cell in cells} <= set(range(40, 45))
    for cell in cells:
        make_config(
            cell.method,
            bits=cell.bits,
            backbone=cell.backbone,
            settings={**cell.settings, **cell.varied},
        )


def test_points_beyond_the_budget_of_epochs_are_compared_but_not_chosen(ran):
    _, records, *_ = ran
    content = {**SMALL, "epochs": 18, "points": {"hcdh": {**SMALL["points"]["hcdh"]}}}
    rows = [*content["points"]["hcdh"]["rows"], [0.1, 0.2, 60, 1.0]]
    content["points"]["hcdh"]["rows"] = rows
    long = Tuning(content).trial(
        "digits",
        "hcdh",
        64,
        dict(zip(("lr", "backbone_lr", "epochs", "lam"), rows[-1], strict=True)),
    )
    record = {
        "dataset": "digits",
        "name": long.name,
        "asked": long.settings,
        "validation_map": 0.99,
    }
    (choice,) = choose(Tuning(content), [*records, record])
    assert choice.point["epochs"] == 1 and choice.longer == 0.99
    assert not any(text.startswith("epochs") for text in choice.extend)
