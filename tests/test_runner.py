"""Plans of many cells: run in one process, collected in one file, resumed, stopped in time."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from hadahash.codes import Codes, pack
from hadahash.errors import UsageError
from hadahash.evaluation import evaluate, metrics
from hadahash.reproduce import rankings, trainer
from hadahash.reproduce.cells import RunContext
from hadahash.reproduce.check import check_cell, find_result
from hadahash.reproduce.collected import Collected
from hadahash.reproduce.measures import Coded, decode_ap, measure, training_map
from hadahash.reproduce.plans import read_plan, take_shard
from hadahash.reproduce.runner import run_plan
from hadahash.runtime.torch import TorchRuntime

SETTINGS = {"epochs": 1, "batch_size": 64, "size": 32}
ROOT = Path(__file__).parents[1]


def plan(folder: Path, *entries: dict) -> Path:
    common = {"backbone": "test_efficientnet", "seed": 0, "settings": SETTINGS}
    path = folder / "small.json"
    cells = [common | entry for entry in entries]
    path.write_text(json.dumps({"name": "small", "cells": cells}))
    return path


def context(folder: Path, **options) -> RunContext:
    return RunContext(folder / "results", folder / "runs", weights="none", device="cpu", **options)


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """Two cells of a plan, run one after the other in two calls."""
    folder = tmp_path_factory.mktemp("plan")
    path = plan(
        folder,
        {"dataset": "digits", "method": "hcdh", "bits": 64, "varied": {"codebook": "paper"}},
        {"dataset": "digits", "method": "hcdh-h", "bits": 16, "varied": {"codebook": "random"}},
    )
    cells = read_plan(path, folder / "results").cells
    collected = Collected(folder / "results" / "small")
    counts = [
        run_plan(some, context(folder), collected, workers=0, revision="abc+changes")
        for some in (cells[:1], cells, cells)
    ]
    return cells, collected, counts


def test_cells_with_a_result_are_not_run_again(ran):
    _, collected, counts = ran
    assert counts == [1, 1, 0]
    assert len(collected.records()) == 2


def test_a_record_says_what_ran_and_on_what(ran):
    record, other = ran[1].records()
    assert record["revision"]["commit"] == "abc" and record["revision"]["clean"] is False
    assert record["settings"]["lam"] == 1.0 and other["settings"]["lam"] == 0.0
    assert other["asked"] == SETTINGS | {"codebook": "random"}
    digests = record["digests"]
    assert digests["weights_sha256"] is None
    assert all(len(digests[key]) == 64 for key in digests if key != "weights_sha256")
    assert digests["model_sha256"] != other["digests"]["model_sha256"]
    assert [line["epoch"] for line in record["log"]] == [1]
    assert record["command"].startswith("hadahash reproduce check ")
    assert record["command"].endswith("digits/hcdh-64-test_efficientnet-s0-codebookpaper")


def test_a_record_holds_every_measure(ran):
    record, other = ran[1].records()
    ap = decode_ap(record["ap"])
    assert len(ap) == record["queries"] and abs(float(ap.mean()) - record["map"]) < 1e-3
    assert set(record["maps"]) == {"all", "1000_found", "1000_possible"}
    assert record["thresholds"]["zero"] == record["maps"]
    assert set(record["prefixes"]) == {"16", "32"} and not other["prefixes"]
    assert {"real", "same_class_real", "same_class_binary", "same_class_classifier"} == set(
        record["rankings"]
    )
    assert 0 < record["train_map"] <= 1 and record["distinct_codes"] > 1
    assert len(record["bit_balance"]) == 64
    assert 0 <= record["nonempty_radius_2"] <= 1


def test_features_of_a_fixed_backbone_are_computed_once_on_the_cpu(tmp_path, monkeypatch):
    """Cells of several plans share them through the cache on disk, and have the same codes."""
    path = plan(
        tmp_path,
        {"dataset": "digits", "method": "sdh", "bits": 16, "varied": {}},
        {"dataset": "digits", "method": "itq", "bits": 16, "varied": {}},
    )
    cells = read_plan(path, tmp_path / "results").cells
    maps, seen = [], []
    run = TorchRuntime._run

    def counted(self, backbone, view):
        seen.append(len(view))
        return run(self, backbone, view)

    for limit, run_cells in (("off", cells), ("100MB", cells[:1]), ("100MB", cells)):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        monkeypatch.setenv("HADAHASH_FEATURE_CACHE", limit)
        monkeypatch.setattr(TorchRuntime, "_run", counted)
        seen.clear()
        collected = Collected(tmp_path / str(len(maps)))
        run_plan(run_cells, context(tmp_path), collected, workers=0)
        maps.append([record["maps"]["all"] for record in collected.records()])
    assert maps[1] == maps[0][:1] and maps[2] == maps[0]
    assert sum(seen) == 0


def test_a_half_written_line_is_dropped(tmp_path):
    collected = Collected(tmp_path)
    collected.append({"dataset": "a", "name": "x", "asked": {}})
    path = tmp_path / "a.jsonl"
    path.write_text(path.read_text() + '{"dataset": "a", "na')
    collected.append({"dataset": "a", "name": "y", "asked": {}})
    assert [record["name"] for record in collected.records()] == ["x", "y"]
    assert len(path.read_text().splitlines()) == 2


def test_no_cell_is_started_that_would_end_too_late(ran, tmp_path):
    said = []
    collected = Collected(tmp_path / "none")
    count = run_plan(ran[0], context(tmp_path, info=said.append), collected, workers=0, seconds=1.0)
    assert count == 0 and "time budget is used up" in said[0]


def test_an_unexpected_error_is_recorded_and_ends_no_plan(ran, tmp_path, monkeypatch):
    calls = []

    def fail(*args, **kwargs):
        calls.append(1)
        raise RuntimeError("device lost")

    monkeypatch.setattr(trainer, "fit_model", fail)
    collected = Collected(tmp_path / "out")
    assert run_plan(ran[0], context(tmp_path), collected, workers=0) == 2
    assert len(calls) == 2
    record = collected.records()[0]
    assert "device lost" in record["failed"] and "in fail" in record["traceback"]
    assert collected.missing(ran[0]) == ran[0]


def test_the_factorial_pairs_all_arms_of_a_seed():
    cells = read_plan("factorial", ROOT / "results").cells
    assert len({(cell.dataset, cell.name) for cell in cells}) == len(cells) == 3 * (5 * 34 + 21)
    first = cells[:34]
    assert {cell.seed for cell in first} == {20} and {cell.dataset for cell in first} == {"cifar10"}
    arms = {(cell.method, cell.varied.get("codebook"), cell.bits) for cell in first}
    assert len(arms) == 34 and ("csq", "paper", 16) in arms and ("hcdh-c", None, 64) in arms
    chosen = {cell.method: cell.settings["lr"] for cell in first}
    assert chosen["hcdh"] == 0.1 and chosen["hcdh-h"] == 0.3


def test_shards_partition_a_plan():
    assert sorted(take_shard([1, 2, 3], (1, 2)) + take_shard([1, 2, 3], (2, 2))) == [1, 2, 3]
    with pytest.raises(UsageError, match="shard must be"):
        take_shard([1], (3, 2))


def scene(multilabel: bool, bits: int = 12, classes: int = 7) -> rankings.RankingInputs:
    generator = torch.Generator().manual_seed(int(multilabel))
    words = torch.randint(0, 2, (classes, bits), generator=generator) * 2.0 - 1

    def part(count: int) -> tuple[torch.Tensor, torch.Tensor]:
        if multilabel:
            targets = (torch.rand(count, classes, generator=generator) < 0.25).float()
        else:
            numbers = torch.randint(0, classes, (count,), generator=generator)
            targets = torch.nn.functional.one_hot(numbers, classes).float()
        noise = 0.7 * torch.randn(count, bits, generator=generator)
        mean = targets @ words / targets.sum(1, keepdim=True).clamp(min=1)
        return targets, (mean + noise).clamp(-1, 1)

    (query_targets, query), (targets, database), (train_targets, train) = map(part, (80, 2000, 300))
    signs = torch.where(database >= 0, 1.0, -1.0)
    return rankings.RankingInputs(
        query, signs, train, query_targets, targets, train_targets, multilabel, words, None
    )


@pytest.mark.parametrize("multilabel", [False, True])
def test_ranking_by_score_measures_ties_exactly(multilabel):
    own = scene(multilabel)
    binary = replace(own, query=torch.where(own.query >= 0, 1.0, -1.0))
    ranked = rankings.rank_all(binary)["real"]  # of binary queries: the Hamming ranking

    def labels(targets):
        return targets.numpy().astype(int) if multilabel else targets.argmax(1).numpy()

    sides = [Codes(pack(values.numpy()), 12) for values in (own.query, own.database)]
    for depth in (None, 1000):
        report = evaluate(
            sides[0], labels(own.query_targets), sides[1], labels(own.database_targets), depth=depth
        )
        found = ranked.ap.numpy()
        if depth is not None:
            found = metrics.average_precision(
                ranked.ties.astype(np.int64), ranked.hits.astype(np.int64), depth=depth
            )
        np.testing.assert_allclose(np.nan_to_num(found), report.average_precision, atol=1e-12)


@pytest.mark.parametrize("multilabel", [False, True])
def test_the_probability_of_a_shared_class_ranks_better_than_distance(multilabel):
    found = rankings.rank_all(scene(multilabel))
    assert found["same_class_real"].ap.mean() > found["real"].ap.mean()


def test_no_image_is_among_its_own_results_in_train_map():
    """Two images per class with random codes: an image would find itself first."""
    bits = np.random.default_rng(0).integers(0, 2, (40, 32))
    rows = np.arange(40)
    coded = Coded(
        bits=32,
        codes={"zero": np.packbits(bits, axis=1)},
        labels=np.repeat(np.arange(20), 2),
        query=rows[:10],
        database=rows[10:],
        train=rows,
    )
    found = training_map(coded.part(rows), coded.labels)
    assert found < 0.4
    assert measure(coded)["train_map"] == found


def test_check_trains_a_stored_cell_again(ran, tmp_path):
    record = ran[1].records()[1]
    path = tmp_path / "results" / "digits" / f"{record['name']}.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(record | {"settings": record["settings"] | {"batch": 64}}))
    found = check_cell(f"digits/{record['name']}", context(tmp_path))
    assert found.passed and found.same_model and not found.differences
    path.write_text(json.dumps(record | {"map": record["map"] + 0.5, "split_sha256": "other"}))
    found = check_cell(f"digits/{record['name']}", context(tmp_path))
    assert not found.passed and found.differences == ("split_sha256",)
    assert "DIFFERS" in str(found)


def test_an_unknown_cell_is_refused(tmp_path):
    with pytest.raises(UsageError, match="Unknown cell"):
        find_result("digits/nothing", tmp_path)
    with pytest.raises(UsageError, match="Unknown cell"):
        find_result("factorial/digits/nothing", tmp_path)
