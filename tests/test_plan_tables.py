"""Tables and rows of the leaderboard of the further plans on tuned settings."""

import csv
import json

import pytest
from test_factorial import record

from hadahash.reproduce import plan_tables
from hadahash.reproduce.all import write_documents


def _sweep():
    """Three seeds, two rates; λ = .1 is best at rate 1, λ = 1 at rate 3."""
    levels = {(1.0, 0.1): 0.8, (1.0, 1.0): 0.7, (3.0, 0.1): 0.5, (3.0, 1.0): 0.6}
    return [
        record("hcdh", None, seed, level + seed / 100, note=f"-lr{lr}-lam{lam}", lr=lr, lam=lam)
        for (lr, lam), level in levels.items()
        for seed in (0, 1, 2)
    ]


def _halves():
    return [
        {**record(method, None, seed, base + seed / 100, bits), "dataset": "voc2012"}
        for method, base in (("hcdh", 0.6), ("csq", 0.7))
        for bits in (16, 64)
        for seed in (0, 1, 2)
    ]


def test_plans_without_a_result_have_no_section():
    failed = {**_halves()[0], "failed": "out of memory"}
    del failed["map"]
    assert plan_tables.sections({"halves": [], "unseen": [failed]}) == []


@pytest.mark.parametrize("plan", ["halves-frozen", "unseen-frozen", "halves", "alexnet-seeds"])
def test_a_plan_has_a_section_with_intervals_and_number_of_seeds(plan):
    lines = plan_tables.sections({plan: _halves()})
    assert lines[0].startswith("## ") and f"`hadahash reproduce {plan}`" in lines
    assert lines[0].endswith(", fixed backbone") == plan.endswith("-frozen")
    assert ("tuning-frozen.md" in " ".join(lines)) == plan.endswith("-frozen")
    assert "### VOC 2012" in lines
    rows = [line for line in lines if line.startswith("| CSQ | .710 [.685, .735] (3) | .710")]
    assert rows, "16 and 64 bits"


def test_the_weight_is_a_table_of_weight_and_rate():
    lines = plan_tables.sections({"lambda-seeds-frozen": _sweep()})
    table = [line for line in lines if line.startswith("|")]
    assert table[0] == "| λ | 64 bits, lr 1, mAP@all | 64 bits, lr 3, mAP@all |"
    assert table[2] == "| 0.1 | **.810 [.785, .835] (3)** | .510 [.485, .535] (3) |"
    assert table[3] == "| 1 | .710 [.685, .735] (3) | **.610 [.585, .635] (3)** |"
    assert any("12 cells, 0 without a result" in line for line in lines)


def test_every_plan_is_in_the_page_the_leaderboard_and_the_tables(tmp_path):
    records = {"halves-frozen": _halves(), "lambda-seeds-frozen": _sweep(), "lengths": _halves()}
    for plan, own in records.items():
        (tmp_path / "results" / plan).mkdir(parents=True)
        lines = [
            json.dumps(one | {"backbone": "net", "preprocess": {"train_size": 128}}) for one in own
        ]
        path = tmp_path / "results" / plan / f"{own[0]['dataset']}.jsonl"
        path.write_text("\n".join(lines) + "\n")
    write_documents([], tmp_path / "results", tmp_path)
    page = (tmp_path / "results.md").read_text()
    assert "`hadahash reproduce halves-frozen`" in page and "| λ |" in page
    entries = json.loads((tmp_path / "tables" / "leaderboard.json").read_text())
    assert {own["source"] for own in entries} == set(records)
    first = next(own for own in entries if own["method"] == "HCDH, lr 1.0, lam 0.1")
    assert (first["mean"], first["seeds"]) == (0.81, 3)
    assert first["command"].count("lambda-seeds-frozen/cifar10/") == 3
    rows = list(csv.DictReader((tmp_path / "tables" / "lambda-seeds-frozen.csv").open()))
    assert len(rows) == 12 and rows[0]["varied"] == "lr=1.0 lam=0.1"
