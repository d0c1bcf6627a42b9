"""Rankings and known-item search of a run: evaluate, its folder, the command and the page."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import numpy as np
import pytest
from test_report import _dataset
from toys import make_toy, one_line, tiny_hasher

from hadahash.cli import main
from hadahash.data.alterations import ALTERATIONS
from hadahash.errors import UsageError
from hadahash.evaluation import Report
from hadahash.runs import DataSpec, RunDir, evaluate_run, search_copies, train_run
from hadahash.visuals.report import write_report


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run of 80 toy images with 16 class bits and 32 content bits, and its report."""
    place = tmp_path_factory.mktemp("rankings")
    dataset = _dataset()
    (place / "data").mkdir()
    config = tiny_hasher("hcdh-far", epochs=1, batch_size=16, content_bits=32).config
    spec = DataSpec(str(place / "data"), protocol="holdout")
    model = train_run(config, spec, place / "run", dataset=dataset, device="cpu")
    report = evaluate_run(place / "run", model=model, dataset=dataset, known_items=30)
    return place, model, dataset, report


def test_a_run_is_measured_under_all_rankings(trained):
    place, _, _, report = trained
    assert report.rank == "hamming" and set(report.rankings) == {"class", "photo"}
    assert set(report.known_item) == {"hamming", "class", "photo"}
    assert set(report.known_item["photo"]) == set(ALTERATIONS)
    photo = report.known_item["photo"]["none"]
    assert photo.queries == 30 and photo.recall_10 > report.known_item["hamming"]["none"].recall_10
    assert report.rankings["photo"].agreement > report.agreement >= 0
    assert report.rankings["photo"].first_ten_tie <= report.first_ten_tie
    stored = Report.from_dict(RunDir(place / "run").report())
    assert stored.to_dict() == report.to_dict()


def test_other_rankings_do_not_change_the_headline(trained):
    place, model, dataset, report = trained
    alone = evaluate_run(place / "run", model=model, dataset=dataset, ranks=())
    assert alone.map == report.map and not alone.rankings and not alone.known_item
    again = evaluate_run(place / "run", model=model, dataset=dataset, known_items=30)
    assert again.to_dict() == report.to_dict()  # the draw is seeded


def test_a_report_without_rankings_is_read(trained):
    stored = trained[3].to_dict()
    for name in ("rankings", "known_item", "rank", "weight", "precision_at_most", "agreement"):
        del stored[name]
    del stored["precision_recall"]["by"]
    old = Report.from_dict(stored)
    assert old.rank == "hamming" and not old.rankings and np.isnan(old.agreement)
    assert old.map == trained[3].map


def test_unseen_classes_are_reported_apart(trained, tmp_path):
    _, _, dataset, report = trained
    assert not report.map_by_training
    (tmp_path / "data").mkdir()
    config = tiny_hasher(epochs=1, batch_size=16).config
    spec = DataSpec(str(tmp_path / "data"), protocol="unseen")
    model = train_run(config, spec, tmp_path / "run", dataset=dataset, device="cpu")
    found = evaluate_run(tmp_path / "run", model=model, dataset=dataset)
    assert found.map_by_training == {"unseen": pytest.approx(found.map)}
    assert "unseen" in str(found)
    write_report([tmp_path / "run"], tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "mAP, unseen" in page and f"<td>{found.map:.4f}</td>" in page.split("mAP, unseen")[1]


def test_a_model_without_content_bits_has_no_photo_ranking(trained):
    place, model, dataset, _ = trained
    plain = replace(model, config=replace(model.config, content_bits=0))
    with pytest.raises(UsageError, match="needs content bits"):
        evaluate_run(place / "run", model=plain, dataset=dataset, ranks=["photo"])
    with pytest.raises(UsageError, match="nearest"):
        evaluate_run(place / "run", model=model, dataset=dataset, ranks=["nearest"])


def test_a_weight_of_the_content_is_measured(trained):
    place, model, dataset, report = trained
    ranks = ["photo"]
    heavy = evaluate_run(
        place / "run", model=model, dataset=dataset, known_items=30, ranks=ranks, weight=50
    )
    photo, usual = heavy.rankings["photo"], report.rankings["photo"]
    assert photo.weight == 50 and usual.weight == model.ranking.content_weight
    assert photo.map != usual.map and heavy.map == report.map
    pixels = dataset.source
    found = search_copies(model, pixels, count=5, alterations=["crop80"], ranks=ranks, weight=0)
    kind = search_copies(model, pixels, count=5, alterations=["crop80"], ranks=["class"])
    assert found["photo"]["crop80"].recall_10 == pytest.approx(kind["class"]["crop80"].recall_10)
    for ranks in (["hamming"], ()):
        with pytest.raises(UsageError, match="weight is for the ranking photo") as caught:
            evaluate_run(place / "run", model=model, dataset=dataset, ranks=ranks, weight=2)
        one_line(caught.value)


def test_the_tables_show_every_measure(trained):
    report = trained[3]
    lines = report.table().splitlines()
    titles = ["distinct codes", "agreement", "copy first", "copy in ten", "micro AP"]
    assert all(title in lines[0] for title in titles) and len(lines) == 4
    photo = report.rankings["photo"]
    micro = report.known_item_mean("photo", "micro_ap")
    for text in (f"{photo.distinct_codes:,}", f"{photo.agreement:.3f}", f"{micro:.3f}"):
        assert text in lines[3].split()
    copies = report.copies_table().splitlines()
    assert [line.split()[0] for line in copies[1:]] == list(ALTERATIONS)
    crop = report.known_item["photo"]["crop80"]
    assert f"{crop.recall_1:.3f} / {crop.recall_10:.3f}" in copies[2]
    plain = replace(report, known_item={}, rankings={}, agreement=float("nan"))
    assert "micro AP" not in plain.table() and "agreement" not in plain.table()
    assert plain.copies_table() == ""


def test_copies_of_any_images_are_searched(trained):
    pixels, _ = make_toy(12, seed=9)
    model = trained[1]
    found = search_copies(model, pixels, count=5, alterations=["none", "mirror"], ranks=["photo"])
    assert found["photo"]["none"].queries == 5 and found["photo"]["none"].recall_10 == 1.0
    with pytest.raises(UsageError, match="count must be"):
        search_copies(model, pixels, count=0)


@pytest.fixture
def command(monkeypatch, capsys):
    """Run `hadahash evaluate ARGUMENTS`: (exit code, stdout, stderr)."""

    def call(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["hadahash", "evaluate", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        return (int(ended.value.code or 0), *capsys.readouterr())

    return call


def test_the_command_shows_hamming_first_and_the_others_in_a_table(trained, command, monkeypatch):
    place, _, dataset, report = trained
    monkeypatch.setattr(DataSpec, "open", lambda _: dataset)
    monkeypatch.setattr("hadahash.runs.evaluation._check_data", lambda *_: {})
    run = place / "run"
    code, shown, _ = command(run, "--known-item", 10, "--device", "cpu")
    assert code == 0 and shown.startswith(f"mAP@all {report.map:.4f}")
    assert "copy first" in shown and "\nphoto " in shown and "10 database images" in shown
    assert "first / in ten:" in shown and "\ncrop80 " in shown
    code, shown, _ = command(run, "--weight", 7, "--known-item", 0, "--json")
    assert json.loads(shown)["rankings"]["photo"]["weight"] == 7
    code, _, error = command(run, "--weight", 7, "--rank", "class")
    assert code == 2 and "--weight is for --rank photo, got --rank class" in error
    code, shown, _ = command(run, "--rank", "photo", "--known-item", 0, "--json")
    values = json.loads(shown)
    assert values["rank"] == "hamming" and set(values["rankings"]) == {"photo"}
    assert not values["known_item"]
    assert command(run, "--rank", "photo", "--known-item", 0)[1].startswith(
        "mAP@all by class and content"
    )
    code, _, error = command(run, "--rank", "nearest")
    assert code != 0 and "nearest" in error


def test_code_files_are_ranked_by_hamming_distance(trained, command):
    path = trained[0] / "run" / "evaluation" / "query.npz"
    code, _, error = command("--queries", path, "--database", path, "--rank", "class")
    assert code != 0 and "by Hamming distance only" in error
    code, _, error = command("--queries", path, "--database", path, "--weight", 2)
    assert code == 2 and "--weight for code files needs --rank photo" in error


def test_the_page_has_a_part_about_rankings(trained, tmp_path):
    place, model, dataset, _ = trained
    evaluate_run(place / "run", model=model, dataset=dataset, known_items=10)
    numbers = write_report([place / "run"], tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert 'id="c0-rankings"' in page and "<b>photo</b>" in page
    assert "crop80" in page and "10 database images were altered" in page
    run = numbers["comparisons"][0]["groups"][0]["runs"][0]
    assert set(run["rankings"]) == {"class", "photo"}
    assert 0 <= run["known_item"]["photo"]["recall_1"] <= 1
