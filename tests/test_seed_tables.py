"""Tables of tuned methods on fresh seeds."""

import csv
import io
import json

from test_factorial import record
from test_runner import ROOT

from hadahash.reproduce import forms, seed_tables
from hadahash.reproduce.collected import Collected
from hadahash.reproduce.plans import read_plan


def _records():
    found = [
        record(method, None, seed, base + seed / 100, bits)
        for method, base in (("csq", 0.8), ("hcdh", 0.7), ("itq", 0.3))
        for seed in (0, 1, 2)
        for bits in (16, 64)
    ]
    for own in found:
        own["rankings"] = {"real": {"all": own["map"] + 0.05}}
    return found


def _rows(lines, title):
    """The cells of the table whose first column is `title`, by method."""
    start = next(place for place, line in enumerate(lines) if line.startswith(f"| {title} |"))
    rows = []
    for line in lines[start:]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def test_methods_are_listed_best_first_with_interval_and_number_of_seeds():
    rows = _rows(seed_tables.section(_records()), "method")
    assert [row[0] for row in rows[2:]] == ["CSQ", "HCDH", "ITQ"]
    assert rows[0] == ["method", "16 bits, mAP@all", "64 bits, mAP@all"]
    assert rows[2][1] == ".810 [.785, .835] (3)"  # 4.303 x .01 / sqrt(3)


def test_a_missing_length_is_named():
    lines = seed_tables.section([*_records(), record("mihash", None, 0, 0.4, 64)])
    assert ["MIHash", "not run", ".400 (1)"] in _rows(lines, "method")


def test_every_ranking_of_the_same_codes_is_listed():
    lines = seed_tables.section(_records())
    own = lines[lines.index("The same codes under every ranking, mAP@all:") :]
    rows = _rows(own, "method")
    assert rows[0][1:3] == ["16 bits, Hamming", "16 bits, real-valued query"]
    assert "P(same class)" not in str(rows[0])  # no record has it
    assert rows[2][1:3] == [".810 [.785, .835] (3)", ".860 [.835, .885] (3)"]


def test_distinct_codes_and_copies_are_listed_where_records_have_them():
    records = _records()
    for own in records[:2]:
        own["distinct_codes"] = 1234
        found = {
            name: {
                "map": 0.9,
                "known_item": {
                    "none": {"micro_ap": 1.0, "recall_1": 1.0},
                    "crop80": {"micro_ap": micro, "recall_1": 2 * micro},
                },
            }
            for name, micro in (("hamming", 0.25), ("photo-128-2", 0.375))
        }
        own["content"] = {"content_weight": 2.0, "rankings": found}
    lines = seed_tables.section(records)
    own = lines[lines.index("The same codes under every ranking, mAP@all:") :]
    ranked = {row[0]: row[-1] for row in _rows(own, "method")}
    assert ranked["method"] == "64 bits, photo"
    assert ranked["CSQ"] == ".900 (1)" and ranked["HCDH"] == ""
    assert any("cells that did not measure it" in line for line in lines)
    rows = _rows(lines[lines.index("Other measures at 64 bits (Hamming: mAP@all):") :], "method")
    found = {row[0]: dict(zip(rows[0], row, strict=True)) for row in rows[2:]}
    assert found["CSQ"]["distinct codes"] == "1,234 (1)"
    assert found["CSQ"]["micro AP of copies"] == ".250 (1)"
    assert found["CSQ"]["micro AP of copies, photo"] == ".375 (1)"
    assert found["CSQ"]["copies found first, photo"] == ".750 (1)"
    assert found["ITQ"]["distinct codes"] == found["ITQ"]["micro AP of copies"] == ""


def test_the_first_group_measures_content_and_old_records_count():
    cells = read_plan("seeds", ROOT / "results").cells
    measured = {cell.method for cell in cells if cell.content}
    assert {"hcdh", "hcdh-far", "csq"} <= measured and "dpsh" not in measured
    collected = Collected(ROOT / "results" / "seeds")
    records = [own for own in collected.records() if own["dataset"] == "cifar10"]
    old = {own["name"] for own in records if "content" not in own and "failed" not in own}
    stored = [cell for cell in cells if cell.dataset == "cifar10" and cell.name in old]
    assert any(cell.content for cell in stored)
    assert collected.missing(stored) == []


def test_nothing_is_written_without_records(tmp_path):
    assert seed_tables.section([]) == []
    assert seed_tables.load(tmp_path) == []


def test_a_fixed_backbone_has_a_section_of_its_own(tmp_path):
    (tmp_path / "seeds-frozen").mkdir()
    line = json.dumps(record("csq", None, 0, 0.5, 64))
    (tmp_path / "seeds-frozen" / "cifar10.jsonl").write_text(line + "\n")
    assert seed_tables.load(tmp_path) == []
    found = seed_tables.load(tmp_path, frozen=True)
    text = "\n".join(seed_tables.section(found, frozen=True))
    assert text.startswith("## Tuned methods on fresh seeds, fixed backbone\n")
    assert "`hadahash reproduce seeds-frozen lengths-frozen`" in text
    assert "(tables/tuning-frozen.md)" in text


def test_both_plans_are_read_and_failures_left_out(tmp_path):
    for plan, bits in (("seeds", 64), ("lengths", 32)):
        failed = {**record("csq", None, 9, 0.5, bits), "failed": "out of memory"}
        del failed["map"]
        (tmp_path / plan).mkdir()
        lines = [json.dumps(own) for own in (record("csq", None, 0, 0.5, bits), failed)]
        (tmp_path / plan / "cifar10.jsonl").write_text("\n".join(lines) + "\n")
    found = seed_tables.load(tmp_path)
    assert sorted(own["bits"] for own in found if "map" in own) == [32, 64]
    assert "4 cells, 2 without a result." in "\n".join(seed_tables.section(found))
    (path,) = forms.write_csv(found, tmp_path / "seeds.csv")
    rows = list(csv.DictReader(io.StringIO(path.read_text())))
    assert [(row["bits"], row["map"]) for row in rows] == [("32", "0.5"), ("64", "0.5")]


def test_the_line_below_a_table_says_what_was_trained_on_and_the_denominator():
    own = record("csq", None, 0, 0.5, 64) | {"backbone": "net", "weights": "imagenet"}
    sizes = {"database": 40_000, "train_images": 10_000, "protocol": "tinyimagenet100"}
    text = " ".join(forms.provenance([own | sizes]))
    assert "database of 40,000, of which 10,000 were trained on (25 %)" in text
    assert "pretrained on ImageNet, whose classes overlap with those of the data set" in text
    assert "mAP@1000 divides by the relevant items found" in text
    for protocol, expected in (
        ("cifar10", "54,000, none of them trained on"),
        ("voc2012-halves", "54,000, none of them trained on"),
        ("voc2012", "54,000, all of them trained on"),
    ):
        trained = 54_000 if protocol == "voc2012" else 5_000
        other = {"protocol": protocol, "weights": "none", "train_images": trained}
        text = " ".join(forms.provenance([own | other]))
        assert expected in text and "ImageNet" not in text
