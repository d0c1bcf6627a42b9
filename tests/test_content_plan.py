"""The plan "content": content bits beside class bits, measured under every ranking."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from test_runner import ROOT, SETTINGS

from hadahash.codes import Codes, pack
from hadahash.content import fit_content
from hadahash.encoding import Encoder
from hadahash.errors import DataError
from hadahash.evaluation import evaluate
from hadahash.reproduce import content, content_tables, originals, trainer
from hadahash.reproduce import inputs as cell_inputs
from hadahash.reproduce.cells import RunContext
from hadahash.reproduce.collected import Collected
from hadahash.reproduce.plans import read_plan
from hadahash.reproduce.rankings import RankingInputs
from hadahash.reproduce.runner import run_plan


def part(count: int, bits: int, features: int, generator: torch.Generator) -> content.Encoded:
    values = torch.randn(count, bits, generator=generator).clamp(-1, 1)
    return content.Encoded(values, torch.randn(count, features, generator=generator))


@pytest.fixture(scope="module")
def inputs() -> content.ContentInputs:
    """40 queries and 1,500 items with 6 class bits, so that there are large ties."""
    generator = torch.Generator().manual_seed(0)
    query, database, train = (part(n, 6, 70, generator) for n in (40, 1500, 300))
    labels = [torch.randint(0, 5, (len(own),), generator=generator) for own in (query, database)]
    targets = [torch.nn.functional.one_hot(own, 5).float() for own in labels]
    signs = torch.where(database.real >= 0, 1.0, -1.0)
    ranking = RankingInputs(
        query.real, signs, train.real, *targets, torch.zeros(300, 5), False, None, None
    )
    items = torch.arange(0, 1500, 50)
    copies = content.Encoded(database.real[items], database.features[items] + 0.1)
    projections = (fit_content(train.features, 64, 0),)
    return content.ContentInputs(ranking, query, database, {"none": copies}, items, projections)


@pytest.fixture(scope="module")
def measured(inputs):
    return content.measure_content(inputs)["rankings"]


def combined(own: content.Encoded, inputs: content.ContentInputs, weight: int) -> Codes:
    """Class bits, stored `weight` times, and content bits."""
    projection = inputs.projections[0]
    values = [own.real] * weight + [projection.values(own.features)]
    return Codes(pack(torch.cat(values, 1).numpy()), 6 * weight + 64)


@pytest.mark.parametrize(
    ("name", "weight"), [("hamming", None), ("weighted-64-1", 1), ("weighted-64-2", 2)]
)
def test_class_measures_are_those_of_evaluate(inputs, measured, name, weight):
    if weight is None:
        sides = [Codes(pack(own.real.numpy()), 6) for own in (inputs.query, inputs.database)]
    else:
        sides = [combined(own, inputs, weight) for own in (inputs.query, inputs.database)]
    labels = [
        own.argmax(1).numpy()
        for own in (inputs.ranking.query_targets, inputs.ranking.database_targets)
    ]
    for key, depth in (("map", None), ("map_1000", 1000)):
        report = evaluate(sides[0], labels[0], sides[1], labels[1], depth=depth)
        assert measured[name][key] == pytest.approx(report.map, abs=1e-5)
    assert measured[name]["precision_1"] == pytest.approx(report.precision_at[1], abs=1e-5)
    assert measured[name]["precision_10"] == pytest.approx(report.precision_at[10], abs=1e-5)


def test_without_a_sweep_fewer_rankings_have_the_same_measures(inputs, measured):
    found = content.measure_content(inputs, sweep=False)["rankings"]
    assert found == {name: measured[name] for name in found}
    assert set(found) == {"hamming", "class", "content-real-64", "photo-64-1"}  # no codewords


def test_agreement_and_known_items_see_content(measured):
    assert measured["features"]["agreement_10"] == 1.0
    assert measured["features"]["known_item"]["none"]["recall_1"] == 1.0
    assert measured["hamming"]["first_ten_tie"] > 0.9
    assert measured["hamming"]["known_item"]["none"]["recall_10"] < 0.6
    assert measured["photo-64-4"]["known_item"]["none"]["recall_1"] > 0.9
    assert measured["content-64"]["agreement_10"] > measured["hamming"]["agreement_10"] + 0.1


def test_known_items_equal_a_count_over_all_pairs(inputs, measured):
    """Hamming distances again, by loops: expected recall, and the micro average precision."""
    copies = (inputs.altered["none"].real >= 0).numpy()
    database = (inputs.database.real >= 0).numpy()
    scores = -(copies[:, None] != database[None]).sum(2)
    recall, pairs = [], []
    for row, item in enumerate(inputs.items.tolist()):
        above, equal = ((scores[row] > scores[row, item]).sum(), (scores[row] == 0).sum())
        recall.append(min(1.0, max(0.0, (10 - above) / equal)))
        pairs += [(-score, place == item) for place, score in enumerate(scores[row])]
    hits, total = 0, 0.0
    for rank, (_, right) in enumerate(sorted(pairs), start=1):  # wrong pairs first among ties
        hits += right
        total += right * hits / rank
    found = measured["hamming"]["known_item"]["none"]
    assert found["recall_10"] == pytest.approx(np.mean(recall), abs=1e-5)
    assert found["micro_ap"] == pytest.approx(total / len(recall), abs=1e-5)


def test_a_classifier_without_codewords_does_not_rank(inputs, measured):
    """HCDH-C and SSDH have class probabilities, but none of a code."""
    copies = {"none": replace(inputs.altered["none"], classes=torch.rand(30, 5))}
    query = replace(inputs.query, classes=torch.rand(40, 5))
    found = content.measure_content(replace(inputs, query=query, altered=copies))
    assert found["rankings"] == measured


def test_content_bits_are_balanced_and_of_unit_variance():
    features = torch.randn(400, 30, generator=torch.Generator().manual_seed(1)).relu()
    projection = fit_content(features, 16, 0)
    values = projection.values(features)
    assert torch.allclose(values.std(0, correction=0), torch.ones(16), atol=1e-4)
    assert (values >= 0).float().mean(0).sub(0.5).abs().max() < 0.1


def test_the_plan_has_trials_and_fresh_seeds():
    cells = read_plan("content", ROOT / "results").cells
    trials = [cell for cell in cells if cell.validation]
    assert len(trials) == 12 and len(cells) == 12 + 60 + 6
    assert {cell.seed for cell in trials} == {49}
    assert {cell.seed for cell in cells if not cell.validation} == set(range(50, 55))
    assert len({(cell.dataset, cell.name) for cell in cells}) == len(cells)
    assert all(cell.content == "sweep" and cell.settings["lr"] in (0.1, 0.3) for cell in cells)
    others = [
        cell
        for name in ("factorial", "tuning", "seeds")
        for cell in read_plan(name, ROOT / "results").cells
    ]
    assert not {cell.seed for cell in others} & {cell.seed for cell in cells}


def test_the_real_valued_content_is_the_limit_of_photo(inputs, measured):
    alone, heavy = measured["content-real-64"], measured["photo-64-64"]
    for key in ("map", "agreement_10"):
        assert heavy[key] == pytest.approx(alone[key], abs=5e-3)
    assert alone["agreement_10"] > measured["content-64"]["agreement_10"]
    assert alone["known_item"]["none"]["recall_1"] == 1.0


def test_the_frozen_plan_has_its_own_names():
    cells = read_plan("content-frozen", ROOT / "results").cells
    trials = [cell for cell in cells if cell.validation]
    assert len(trials) == 3 and len(cells) == 12 and {cell.seed for cell in trials} == {49}
    assert {cell.dataset for cell in cells} == {"voc2012", "cifar10", "tinyimagenet100"}
    assert all(cell.content == "sweep" and cell.settings["frozen"] for cell in cells)
    assert all(cell.name.endswith("-frozen") for cell in cells)
    tuned = {cell.name for cell in read_plan("content", ROOT / "results").cells}
    assert not tuned & {cell.name for cell in cells}


def test_a_frozen_cell_shares_its_features(tmp_path, monkeypatch):
    monkeypatch.setattr(originals, "SAMPLE", 20)
    copies = []
    for module in (trainer, cell_inputs):
        monkeypatch.setattr(module, "encode_all", lambda *_, **__: copies.append(1))
    settings = {**SETTINGS, "frozen": True, "size": 32}
    cell = {"dataset": "digits", "bits": 16, "backbone": "test_efficientnet", "settings": settings}
    cells = [
        {**cell, "method": name, "seed": 3, "content": "sweep"} for name in ("hcdh", "hcdh-far")
    ]
    path = tmp_path / "frozen.json"
    path.write_text(json.dumps({"name": "frozen", "cells": cells}))
    sizes = []
    monkeypatch.setattr(Encoder, "features", _counting(Encoder.features, sizes))
    context = RunContext(tmp_path / "results", tmp_path / "runs", weights="none", device="cpu")
    collected = Collected(tmp_path / "results" / "frozen")
    run_plan(read_plan(path, tmp_path / "results").cells, context, collected, workers=0)
    for record in collected.records():
        assert "failed" not in record, record.get("traceback")
        found = record["content"]["rankings"]
        assert found["features"]["known_item"]["none"]["recall_1"] > 0.9
        assert found["hamming"]["map"] == pytest.approx(record["maps"]["all"], abs=1e-4)
    assert not copies and len(sizes) == 2  # the training part, and the whole data set: once each
    assert max(sizes) == 1797


def _counting(function, sizes: list[int]):
    def call(encoder, images, *rest, **options):
        sizes.append(len(images))
        return function(encoder, images, *rest, **options)

    return call


def test_a_cell_records_content(tmp_path, monkeypatch):
    monkeypatch.setattr(originals, "SAMPLE", 20)
    entry = {
        "dataset": "digit-pairs",
        "method": "hcdh",
        "bits": 16,
        "backbone": "test_efficientnet",
        "seed": 0,
        "settings": SETTINGS,
        "content": "sweep",
    }
    trial = entry | {"dataset": "digits", "seed": 1, "protocol": "unseen", "validation": 0.2}
    path = tmp_path / "small.json"
    path.write_text(json.dumps({"name": "small", "cells": [entry, trial]}))
    context = RunContext(tmp_path / "results", tmp_path / "runs", weights="none", device="cpu")
    collected = Collected(tmp_path / "results" / "small")
    run_plan(read_plan(path, tmp_path / "results").cells, context, collected, workers=0)
    whole, tried = collected.records()
    for record in (whole, tried):
        found = record["content"]
        assert found["known_items"] == 20 and found["bits"] == [64, 128]
        assert set(found["rankings"]["photo-128-1"]["known_item"]) == set(originals.ALTERATIONS)
        assert found["rankings"]["features"]["known_item"]["none"]["recall_1"] > 0.9
    hamming = whole["content"]["rankings"]["hamming"]
    assert hamming["map"] == pytest.approx(whole["maps"]["all"], abs=1e-4)
    assert hamming["first_ten_tie"] == whole["first_ten_tie"]
    expected = whole["rankings"]["same_class_real"]["all"]
    assert whole["content"]["rankings"]["class"]["map"] == pytest.approx(expected, abs=1e-4)


def _record(seed: int, validation: float, maps: dict[str, float]) -> dict:
    recalls = {"recall_1": 0.5, "recall_10": 0.75, "micro_ap": 0.25}
    copies = dict.fromkeys(originals.ALTERATIONS, recalls)
    measures = {
        name: {
            **dict.fromkeys(("map_1000", "precision_1", "precision_10"), 0.5),
            **{"map": value, "first_ten_tie": 0.1, "agreement_10": 0.2, "known_item": copies},
        }
        for name, value in maps.items()
    }
    cell = {"dataset": "digits", "method": "hcdh", "bits": 16, "protocol": "holdout"}
    extra = {"validation": validation} if validation else {}
    return cell | extra | {"seed": seed, "name": f"s{seed}", "content": {"rankings": measures}}


def test_the_weight_is_chosen_on_trials_alone(tmp_path):
    weights = {f"photo-128-{weight:g}": 0.9 for weight in content.WEIGHTS}
    trial = _record(49, 0.2, {"class": 0.8, **weights, "photo-128-2": 0.796, "photo-128-4": 0.7})
    cell = _record(50, 0.0, {"hamming": 0.6, "class": 0.95, **weights})
    tried = trial["content"]["rankings"]
    for weight in (4, 8, 16, 32, 64):
        tried[f"photo-128-{weight}"] = {**tried[f"photo-128-{weight}"], "map": 0.7}
    assert content_tables.choose_weight([trial], 128) == 2
    assert content_tables.choose_weight([], 128) is None
    trial["content"]["rankings"] |= {
        name.replace("128", "64"): own for name, own in trial["content"]["rankings"].items()
    }
    assert content_tables.choices([trial, cell], 128) == {("digits", "hcdh"): 2}
    page, table = content_tables.write_content([trial, cell], tmp_path)
    text = page.read_text()
    assert "| photo-128-2 | .900 (1) |" in text and ".500 / .750" in text
    assert "photo-128-4" not in text and "frozen" not in text
    frozen, _ = content_tables.write_content([trial, cell], tmp_path, "content-frozen")
    assert frozen.name == "content-frozen.md"
    assert frozen.read_text().startswith("# Content bits, frozen backbone")
    assert content_tables.write_content([], tmp_path, "content-frozen") == []
    assert len(table.read_text().splitlines()) == 3 + len(trial["content"]["rankings"]) + len(
        content.WEIGHTS
    )


@pytest.mark.parametrize("given", [True, "Sweep", None])
def test_a_file_of_cells_says_how_content_bits_are_measured(tmp_path, given):
    cell = {"dataset": "cifar10", "method": "hcdh", "bits": 16, "backbone": "alexnet", "seed": 0}
    stored = {"name": "own", "cells": [cell | {"settings": {}, "content": given}]}
    path = tmp_path / "own.json"
    path.write_text(json.dumps(stored))
    with pytest.raises(DataError, match='content must be "", "default" or "sweep", got'):
        read_plan(str(path), tmp_path)
    stored["cells"][0]["content"] = "default"
    path.write_text(json.dumps(stored))
    assert read_plan(str(path), tmp_path).cells[0].content == "default"
