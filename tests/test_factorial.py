"""Tables of the factorial experiment."""

import csv
import io
import json
from pathlib import Path

import pytest

from hadahash.reproduce import factorial, forms, leaderboard
from hadahash.reproduce.plans import read_plan

RESULTS = Path(__file__).parents[1] / "results"


def record(method, codebook, seed, value, bits=64, note="", **varied):
    varied = ({} if codebook is None else {"codebook": codebook}) | varied
    maps = {"all": value, "1000_found": value + 0.01}
    return {
        "dataset": "cifar10",
        "name": f"{method}-{bits}-s{seed}-{codebook}{note}",
        "method": method,
        "bits": bits,
        "seed": seed,
        "varied": varied,
        "map": value,
        "depth": None,
        "maps": maps,
        "thresholds": {"mean": maps, "median": maps},
        "precision_at": {"1": 0.9, "10": 0.8},
        "precision_radius_2": 0.7,
        "nonempty_radius_2": 0.6,
        "first_ten_tie": 0.5,
        "train_map": 0.95,
        "train_seconds": 5.0,
        "queries": 1000,
        "train_images": 5000,
        "database": 54000,
        "hardware": "GPU",
        "versions": {"torch": "2"},
        "revision": {"commit": "abc"},
        "digests": {"model_sha256": f"{value}", "pixels_sha256": "p", "weights_sha256": "w"},
        "command": "hadahash",
    }


@pytest.fixture
def records():
    found = [
        record("hcdh", book, seed, base + seed / 100)
        for seed in (0, 1, 2)
        for book, base in (("paper", 0.8), ("random", 0.7))
    ]
    found += [record("hcdh", "paper", 0, 0.81, note="-repeat1")]
    found += [
        record("hcdh", "paper", 0, value, note=f"-p{number}", codebook_permutation=number)
        for number, value in ((1, 0.78), (2, 0.82))
    ]
    failed = record("csq", "paper", 0, 0.5)
    del failed["map"]
    return [*found, failed]


def test_an_arm_leaves_out_repeats_permutations_and_failures(records):
    expected = {(64, 0): 0.8, (64, 1): 0.81, (64, 2): 0.82}
    assert factorial.arm(records, "hcdh", "paper") == pytest.approx(expected)
    assert factorial.arm(records, "csq", "paper") == {}


def test_the_section_has_arms_differences_and_noise(records):
    text = "\n".join(factorial.section(records))
    assert "| HCDH | paper | .810 ±.010 (3) / .785 | .820 ±.010 (3) |" in text
    assert "| loss | bits | paper - random |\n" in text
    assert "| HCDH | mean | +.100 [+.100, +.100] (n = 3) |" in text
    assert "One cell run 2 times with the fastest kernels: mAP .800 to .810" in text
    assert "permuted over the classes 2 times, 64 bits: mAP .780 to .820" in text
    assert "1 without a result" in text
    assert text.startswith("## Codebook and loss\n")
    assert factorial.section([]) == []


def test_the_section_of_a_fixed_backbone_names_its_plan(records):
    text = "\n".join(factorial.section(records, frozen=True))
    assert text.startswith("## Codebook and loss, fixed backbone\n")
    assert "`hadahash reproduce factorial-frozen`" in text and "(tables/tuning-frozen.md)" in text
    assert "/ .785" not in text, "the paper fine-tunes its network"


def test_every_record_with_a_result_is_a_line_of_the_csv(records, tmp_path):
    (path,) = forms.write_csv(records, tmp_path / "factorial.csv")
    lines = list(csv.DictReader(io.StringIO(path.read_text())))
    assert len(lines) == 9
    assert {line["varied"] for line in lines} >= {"codebook=paper repeat=1", "codebook=random"}


def test_the_leaderboard_lists_every_arm_with_its_interval(records, tmp_path):
    for own in records:
        own |= {"backbone": "net", "preprocess": {"train_size": 128}}
    paths = leaderboard.write_leaderboard(
        [], {"factorial": records}, tmp_path / "results", tmp_path
    )
    page, entries = paths[0].read_text(), json.loads(paths[1].read_text())
    assert "/*ENTRIES*/" not in page and "http" not in page
    first = next(e for e in entries if e["method"] == "HCDH (paper)" and e["measure"] == "mAP@all")
    assert (first["mean"], first["seeds"], first["bits"]) == (0.81, 3, 64)
    assert first["low"] < 0.8 and first["high"] > 0.82
    cells = [f"factorial/cifar10/hcdh-64-s{seed}-paper" for seed in (0, 1, 2)]
    assert first["command"] == f"hadahash reproduce check {' '.join(cells)}"
    permuted = next(e for e in entries if e["method"] == "HCDH (paper), codebook_permutation 1")
    assert permuted["seeds"] == 1


@pytest.mark.parametrize("name", ["factorial", "factorial-frozen"])
def test_one_cell_of_each_data_set_is_run_ten_times(name):
    cells = read_plan(name, RESULTS).cells
    again = [own for own in cells if "repeat" in own.mark and "deterministic" not in own.varied]
    for dataset in {own.dataset for own in again}:
        own = {cell.name for cell in again if cell.dataset == dataset}
        assert len(own) == 9 and len({name.split("-repeat")[0] for name in own}) == 1
        (first,) = {name.split("-repeat")[0] for name in own}
        assert any((cell.dataset, cell.name) == (dataset, first) for cell in cells)
    assert again


def test_the_leaderboard_lists_the_seeds_of_tuned_methods(tmp_path):
    found = [record("hashnet", None, seed, 0.7 + seed / 1000) for seed in (40, 41, 42)]
    for own in found:
        own |= {"backbone": "net", "preprocess": {"train_size": 128}}
    paths = leaderboard.write_leaderboard([], {"seeds": found}, tmp_path / "results", tmp_path)
    first = next(e for e in json.loads(paths[1].read_text()) if e["measure"] == "mAP@all")
    assert (first["source"], first["method"], first["seeds"]) == ("seeds", "HashNet", 3)
    cells = [f"seeds/cifar10/hashnet-64-s{seed}-None" for seed in (40, 41, 42)]
    assert first["command"] == f"hadahash reproduce check {' '.join(cells)}"
