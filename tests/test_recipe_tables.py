"""The section "Recipe" of docs/results.md, and the rows of the leaderboard."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from test_factorial import record

from hadahash.reproduce import recipe_tables
from hadahash.reproduce.all import write_documents
from hadahash.reproduce.recipe_trials import Change, Trials, read_trials

CONTENT = read_trials(Path("missing")).content
LEVELS = {  # on CIFAR-10, VOC 2012 and Tiny-ImageNet-100
    "base": (0.80, 0.70, 0.60),
    "plus": (0.82, 0.72, 0.61),
    "mirror": (0.81, 0.71, 0.60),
    "cutmix": (0.90, 0.70, 0.50),
    "nested": (0.81, 0.71, 0.60),
    "semantic": (0.805, 0.705, 0.60),
    "plus+mirror+nested": (0.85, 0.75, 0.65),
}


def _trials():
    """Trials of one round, and of all kept changes together."""
    empty = Trials(CONTENT)
    known = {own.name: own for own in [Change("base"), *empty.changes()]}
    records = [
        trial for name in LEVELS if name in known for trial in _of_change(empty, known[name])
    ]
    together = Trials(CONTENT, records).combinations()[0]
    assert together.name == "plus+mirror+nested"
    return [*records, *_of_change(empty, together)]


def _of_change(trials, change):
    for dataset, level in zip(CONTENT["datasets"], LEVELS[change.name], strict=True):
        for bits in CONTENT["bits"]:
            cell = trials.cell(dataset, bits, change)
            value = level + bits / 10_000
            rankings = {"real": value - 0.01, "same_class_real": value + 0.02}
            yield {
                "dataset": dataset,
                "name": cell.name,
                "seed": cell.seed,
                "asked": {**cell.settings, **cell.varied},
                "validation_map": value,
                "maps": {"all": value},
                "rankings": {name: {"all": own} for name, own in rankings.items()},
                **({"prefixes": {"16": {"all": value - 0.03}}} if "nested" in cell.mark else {}),
            }


def _finals(records, bits=64):
    """All seeds of the final stage at one length; 90 % of copies are found by photo."""
    found = []
    for cell in Trials(CONTENT, records).stage("recipe-final"):
        if cell.bits == bits:
            value = {"cifar10": 0.925, "voc2012": 0.82, "tinyimagenet100": 0.66}[cell.dataset]
            value += (cell.seed - 67) / 1000
            copies = {"crop80": {"recall_1": 0.96, "recall_10": 0.98, "micro_ap": 0.5}}
            photo = {"map": value + 0.01, "known_item": copies}
            found.append(
                record(cell.method, None, cell.seed, value, bits)
                | {
                    "dataset": cell.dataset,
                    "name": cell.name,
                    "varied": cell.varied,
                    "asked": {**cell.settings, **cell.varied},
                    "depth": 1000 if cell.dataset == "tinyimagenet100" else None,
                    "maps": {"all": value - 0.05, "1000_found": value}
                    if cell.dataset == "tinyimagenet100"
                    else {"all": value},
                    "rankings": {
                        "real": {"all": value + 0.05},
                        "same_class_real": {"all": value + 0.02},
                    },
                    "content": {"content_weight": 2.0, "rankings": {"photo-128-2": photo}},
                    "backbone": "net",
                    "preprocess": {"train_size": 128},
                }
            )
    return found


@pytest.fixture(scope="module")
def records():
    trials = _trials()
    return [*trials, *_finals(trials)]


@pytest.fixture(scope="module")
def lines(records):
    return recipe_tables.section(Trials(CONTENT, records))


def _part(lines, title):
    """The rows of the table below a heading, by their first column."""
    rows = {}
    for line in lines[lines.index(title) + 1 :]:
        if line.startswith("#"):
            break
        if line.startswith("| "):
            row = [entry.strip() for entry in line.strip("|").split("|")]
            rows.setdefault(row[0], row[1:])
    return rows


def test_without_trials_there_is_no_section():
    assert recipe_tables.section(Trials(CONTENT)) == []


def test_every_change_has_its_gains_and_what_became_of_it(lines):
    assert lines[:3] == [
        "## Recipe",
        "",
        "`hadahash reproduce recipe recipe-combined recipe-lite2 recipe-final`",
    ]
    rows = _part(lines, "### Single changes")
    datasets = ["CIFAR-10", "VOC 2012", "Tiny-ImageNet-100"]
    assert rows["change"] == ["kind", "settings", *datasets, "outcome"]
    assert rows["plus"][2:] == ["+.020", "+.020", "+.010", "kept"]
    assert rows["plus"][1] == "hcdh-plus, lr 0.3, lam 0.0"
    assert rows["cutmix"][2:] == ["+.100", "+.000", "-.100", "gains on 1 of 3"]
    assert rows["semantic"][-1] == "gains, but less than another of its kind"
    assert list(rows)[2:4] == ["plus", "mirror"], "the most useful one first"
    assert "batch64" not in rows, "not tried yet"


def test_combinations_are_listed_with_the_best_one(lines):
    rows = _part(lines, "### Changes together")
    assert rows["**plus+mirror+nested**"] == [".854", ".754", ".654", ".754"]
    assert rows["base"][0] == ".804"
    assert "plus+mirror" not in rows, "not tried yet"


def test_the_first_bits_of_nested_codes_are_compared_with_the_base(lines):
    rows = _part(lines, "### Changes together")
    # .81 + .0064 - .03 against .80 + .0016
    assert rows["nested, first 16 of 64 bits"] == ["-.015", "-.015", "-.025"]
    assert "plus, first 16 of 64 bits" not in rows


def test_fresh_seeds_are_beside_the_goals(lines):
    rows = _part(lines, "#### CIFAR-10")
    assert rows["measure"] == ["64 bits"]
    assert rows["Hamming, mAP@all"] == [".925 [.923, .927] (5); goal .920 reached"]
    best = "P(same class), real-valued query, mAP@all"
    assert rows[best] == [".945 [.943, .947] (5); goal .935 reached"]
    rows = _part(lines, "#### VOC 2012")
    assert rows["Hamming, mAP@all"] == [".820 [.818, .822] (5); goal .830 missed"]
    assert rows["crops of 80 % found first, photo"][0].endswith("goal .950 reached")
    assert rows["crops of 80 % among the first ten"][0].endswith("goal .990 missed")
    assert rows["photo, 128 content bits, mAP@all"] == [".830 [.828, .832] (5)"]
    rows = _part(lines, "#### Tiny-ImageNet-100")
    assert rows["Hamming, mAP@1000"] == [".660 [.658, .662] (5); goal .730 missed"]
    assert rows["Hamming, mAP@all"] == [".610 [.608, .612] (5); goal .670 missed"]


def test_the_ranking_is_chosen_in_the_trials(records):
    """On fresh seeds "real" is better, but the trials say "same class"."""
    trials = Trials(CONTENT, records)
    assert recipe_tables.best_ranking(trials, "voc2012") == "P(same class), real-valued query"
    assert recipe_tables.best_ranking(Trials(CONTENT), "voc2012") == "Hamming"


def test_results_of_an_earlier_best_are_not_shown(records):
    """Other seeds of another recipe stay in the records."""
    finals = [own for own in records if "map" in own]
    trials = [
        own for own in records if "map" not in own and "plus+mirror+nested" not in own["name"]
    ]
    assert Trials(CONTENT, trials).best().name == "plus"
    lines = recipe_tables.section(Trials(CONTENT, [*trials, *finals]))
    assert "### On fresh seeds" not in lines


def test_the_page_the_leaderboard_and_the_tables_have_the_recipe(tmp_path, records):
    folder = tmp_path / "results" / "recipe"
    folder.mkdir(parents=True)
    for dataset in CONTENT["datasets"]:
        own = [json.dumps(one) for one in records if one["dataset"] == dataset]
        (folder / f"{dataset}.jsonl").write_text("\n".join(own) + "\n")
    write_documents([], tmp_path / "results", tmp_path)
    assert "## Recipe" in (tmp_path / "results.md").read_text().splitlines()
    entries = json.loads((tmp_path / "tables" / "leaderboard.json").read_text())
    assert len(entries) == 4 and {own["source"] for own in entries} == {"recipe"}
    assert all(own["method"].startswith("recipe: HCDH-plus (nested), ") for own in entries)
    assert all(own["seeds"] == 5 and "recipe/" in own["command"] for own in entries)
    rows = list(csv.DictReader((tmp_path / "tables" / "recipe.csv").open()))
    assert len(rows) == 15, "trials are no results"


def test_trials_alone_make_no_table(tmp_path):
    folder = tmp_path / "results" / "recipe"
    folder.mkdir(parents=True)
    text = "\n".join(json.dumps(own) for own in _trials() if own["dataset"] == "cifar10")
    (folder / "cifar10.jsonl").write_text(text + "\n")
    write_documents([], tmp_path / "results", tmp_path)
    assert "## Recipe" in (tmp_path / "results.md").read_text().splitlines()
    assert not (tmp_path / "tables" / "recipe.csv").exists()
