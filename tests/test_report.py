"""The report page: grouping of runs, its contents, and that it is self-contained."""

from __future__ import annotations

import json
import re
import shutil
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toys import make_toy, one_line, tiny_hasher

import hadahash.visuals.report as report_page
from hadahash import Codes, codebook
from hadahash.cli import main
from hadahash.codes import pack
from hadahash.data import ArrayImages, LabelledImages
from hadahash.errors import StorageError, UsageError
from hadahash.evaluation import Report
from hadahash.runs import DataSpec, EvaluatedRun, evaluate_run, read_evaluated_run, train_run
from hadahash.visuals.report import read_runs, write_report
from hadahash.visuals.report.groups import compare, differing, settings_of
from hadahash.visuals.report.measures import measure, read_codebook, saturated
from hadahash.visuals.report.neighbors import Pictures, choose, neighbor_rows
from hadahash.visuals.templating import render

EVIL = "<script>alert('x')</script>&"


def _dataset(
    classes: tuple[str, ...] = ("blue", "green", "red", "yellow"), count: int = 80
) -> LabelledImages:
    pixels, labels = make_toy(count, seed=4)
    return LabelledImages(
        ArrayImages(pixels), np.array([f"{i:02d}" for i in range(count)]), labels, classes, "toys"
    )


def _several_labels() -> LabelledImages:
    """Toy images with one label, or with four (red and yellow ones)."""
    pixels, numbers = make_toy(80, seed=4)
    labels = np.stack(
        [
            numbers == 0,
            numbers == 1,
            numbers == 2,
            numbers == 3,
            numbers >= 2,
            numbers >= 2,
            numbers >= 2,
        ],
        axis=1,
    )
    names = ("blue", "green", "red", "yellow", "warm", "bright", "loud")
    return LabelledImages(
        ArrayImages(pixels),
        np.array([f"{i:02d}" for i in range(80)]),
        labels.astype(np.int64),
        names,
        "many",
    )


def _run(out: Path, dataset: LabelledImages, data: Path, **changes: Any) -> Path:
    config = tiny_hasher(**{"epochs": 2, "batch_size": 16} | changes).config
    data.mkdir(exist_ok=True)
    spec = DataSpec(str(data), protocol="holdout")
    model = train_run(config, spec, out, dataset=dataset, device="cpu")
    evaluate_run(out, model=model, dataset=dataset)
    return out


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of hcdh (three seeds, another lambda), lsh, multi-label images, and a hostile class name."""
    place = tmp_path_factory.mktemp("runs")
    toys = _dataset()
    for seed in (0, 1, 2):
        _run(place / f"s{seed}", toys, place / "toys", seed=seed)
    _run(place / "weak", toys, place / "toys", lam=0.25)
    _run(place / "lsh", toys, place / "toys", method="lsh")
    _run(place / "many", _several_labels(), place / "many-photos")
    _run(place / "evil", _dataset((EVIL, "green", "red", "yellow")), place / "evil-photos")
    return place


@pytest.fixture(autouse=True)
def images(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the images of the runs, which are not on disk."""
    known = {"toys": _dataset(), "many-photos": _several_labels(), "evil-photos": _dataset()}
    monkeypatch.setattr(
        report_page, "open_dataset", lambda data, root, *, download: known[Path(data).name]
    )


class Page(HTMLParser):
    """Tags, loaded resources, anchors and text of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.sources: list[str] = []
        self.anchors: list[str] = []
        self.text = ""
        self.html = path.read_text("utf-8")
        self.feed(self.html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.sources += [
            value or ""
            for name, value in attrs
            if name in ("src", "href", "xlink:href", "data", "srcset", "action")
        ]
        self.anchors += [value or "" for name, value in attrs if name == "id"]
        self.text += (
            "\n" if tag in ("h2", "h3", "h4", "tr", "p") else " | " if tag in ("td", "th") else ""
        )

    def handle_data(self, data: str) -> None:
        self.text += data

    def row(self, *words: str) -> str:
        """The first line that contains all these words."""
        return next(line for line in self.text.splitlines() if all(word in line for word in words))


# ------------------------------------------------------------------ groups


def test_runs_that_differ_only_in_their_seed_form_a_group(runs):
    (found,) = compare(
        [read_evaluated_run(runs / name) for name in ("lsh", "s2", "weak", "s0", "s1")]
    )
    groups = {group.name: group for group in found.groups}
    assert set(groups) == {"hcdh, 16 bits, lam 1", "hcdh, 16 bits, lam 0.25", "lsh, 16 bits"}
    own = groups["hcdh, 16 bits, lam 1"]
    assert own.seeds == [0, 1, 2] and [run.folder.name for run in own.runs] == ["s0", "s1", "s2"]
    maps = [
        json.loads((runs / f"s{seed}" / "evaluation" / "report.json").read_text())["map"]
        for seed in (0, 1, 2)
    ]
    assert own.map_text() == f"{np.mean(maps):.4f} ± {np.std(maps, ddof=1):.4f} (3)"
    assert (
        groups["lsh, 16 bits"].map_text().endswith(" (1)")
        and "±" not in groups["lsh, 16 bits"].map_text()
    )
    means = [group.mean_map for group in found.groups]
    assert means == sorted(means, reverse=True)


def test_a_group_name_has_only_the_settings_that_distinguish_it(runs):
    from dataclasses import replace

    first, weak, lsh = (read_evaluated_run(runs / name) for name in ("s0", "weak", "lsh"))
    faster = replace(lsh, record=lsh.record | {"backbone": "other"})
    weak = replace(weak, record=weak.record | {"settings": weak.record["settings"] | {"lr": 0.5}})
    (found,) = compare([first, faster])
    assert {group.name for group in found.groups} == {"hcdh, 16 bits", "lsh, 16 bits"}
    (found,) = compare([first, weak, faster])
    assert {group.name for group in found.groups} == {
        "hcdh, 16 bits, lr 0.1",
        "hcdh, 16 bits, lr 0.5",
        "lsh, 16 bits",
    }


def test_runs_on_other_images_or_with_another_depth_are_not_compared(runs, tmp_path):
    shutil.copytree(runs / "s1", tmp_path / "deep")
    report = json.loads((tmp_path / "deep" / "evaluation" / "report.json").read_text())
    (tmp_path / "deep" / "evaluation" / "report.json").write_text(json.dumps(report | {"depth": 5}))
    found = compare(
        [read_evaluated_run(path) for path in (runs / "s0", tmp_path / "deep", runs / "many")]
    )
    assert [len(comparison.groups) for comparison in found] == [1, 1, 1]
    assert [comparison.first.folder.name for comparison in found] == ["s0", "deep", "many"]


def test_settings_that_a_method_does_not_use_are_ignored(runs):
    hcdh, lsh = (settings_of(read_evaluated_run(runs / name)) for name in ("s0", "lsh"))
    assert (
        "lr" in hcdh and "lam" in hcdh and not {"lr", "lam", "epochs", "flip", "frozen"} & set(lsh)
    )
    assert differing([hcdh, lsh]) == ["method"] and differing([hcdh]) == []


# ------------------------------------------------------------------ figures


def ap_of(run: EvaluatedRun) -> Any:
    return Report.from_dict(run.report).average_precision


def _evaluated(
    database: Codes, labels: list[Any], classes: tuple[str, ...], folder: Path
) -> EvaluatedRun:
    query = database[:1]
    values = query.signs().astype(np.float16)
    array = np.array(labels, np.int64)
    report = {"map": 0.5, "depth": None}
    return EvaluatedRun(
        folder, {"seed": 0}, report, query, database, array[:1], array, classes, values
    )


def test_correlations_and_majority_codes_equal_slow_sums(tmp_path):
    random = np.random.default_rng(0)
    signs = np.where(random.normal(size=(40, 9)) + random.normal(size=(40, 1)) > 0, 1, -1)
    signs[:, 4] = 1
    labels = random.integers(0, 3, 40)
    found = measure(
        _evaluated(Codes(pack(signs), 9), labels.tolist(), ("a", "b", "c", "nobody"), tmp_path)
    )
    with np.errstate(invalid="ignore", divide="ignore"):
        slow = np.nan_to_num(np.abs(np.corrcoef(signs.T)))
    assert np.allclose(found.correlation, slow) and found.pairs.shape == (36,)
    assert found.present.tolist() == [0, 1, 2] and found.book is None and found.met is None
    majority = np.array([np.where(signs[labels == c].mean(axis=0) >= 0, 1, -1) for c in range(3)])
    assert np.array_equal(found.majority, majority)
    distances = [(majority[a] != majority[b]).sum() for a in range(3) for b in range(a)]
    assert found.observed.minimum_distance == min(
        distances
    ) and found.observed.mean_distance == pytest.approx(np.mean(distances))


def test_majority_codes_of_multilabel_images_use_every_image_of_a_label(tmp_path):
    signs = np.array([[1] * 8, [-1] * 8, [1] * 4 + [-1] * 4])
    labels = [[1, 0], [0, 1], [1, 1]]
    found = measure(_evaluated(Codes(pack(signs), 8), labels, ("a", "b"), tmp_path))
    assert found.majority.tolist() == [[1] * 8, [1] * 4 + [-1] * 4]  # ties count as +1


def test_codebook_is_read_from_the_saved_model(runs, tmp_path):
    book = read_codebook(runs / "s1")
    assert np.array_equal(book, codebook(4, 16, design="paper", seed=1))
    figures = measure(read_evaluated_run(runs / "s1"))
    assert figures.book.minimum_distance == min(
        (book[a] != book[b]).sum() for a in range(4) for b in range(a)
    )
    assert read_codebook(runs / "lsh") is None and read_codebook(tmp_path) is None
    shutil.copytree(runs / "s1", tmp_path / "broken")
    next((tmp_path / "broken").glob("model-*")).write_bytes(b"no tensors")
    assert read_codebook(tmp_path / "broken") is None


def test_saturation_is_defined_for_bounded_outputs_only():
    values = np.array([[0.95, -1.0], [0.2, 0.5]], np.float16)
    assert saturated(values) == 0.5 and saturated(values * 3) is None


# ------------------------------------------------------------------ queries


def test_hardest_queries_come_first_and_others_depend_on_the_seed():
    ap = [0.9, 0.05, np.nan, 0.5, 0.7, 0.01] + [0.95] * 30
    hard, drawn = choose(ap, hardest=3, random=4, seed=1)
    assert hard == [5, 1, 3] and len(set(drawn)) == 4 and not set(drawn) & {5, 1, 3, 2}
    assert (
        choose(ap, hardest=3, random=4, seed=1)[1]
        == drawn
        != choose(ap, hardest=3, random=4, seed=2)[1]
    )
    assert choose([0.5, np.nan]) == ([0], [])


def test_neighbors_are_ordered_by_distance_then_id(runs):
    run = read_evaluated_run(runs / "s0")
    (row,) = neighbor_rows(run, Pictures(_dataset()), [3], ap_of(run))
    distances = (run.query.signs()[3] != run.database.signs()).sum(axis=1)
    order = sorted(range(len(distances)), key=lambda i: (distances[i], run.database.ids[i]))[:10]
    labels = run.database_labels[order]
    assert row[0].relevant is None and row[0].caption.startswith(run.classes[run.query_labels[3]])
    assert [shown.relevant for shown in row[1:]] == (labels == run.query_labels[3]).tolist()
    marks = ["✓" if label == run.query_labels[3] else "✗" for label in labels]
    expected = [
        f"{run.classes[c]}\n{m} {distances[i]}"
        for m, c, i in zip(marks, labels, order, strict=True)
    ]
    assert [shown.caption for shown in row[1:]] == expected
    ids = _dataset().ids.tolist()
    assert np.array_equal(row[1].pixels, _dataset().images[ids.index(run.database.ids[order[0]])])


def test_multilabel_images_are_relevant_if_they_share_a_label(runs):
    run = read_evaluated_run(runs / "many")
    place = int(np.flatnonzero(run.query_labels[:, 2])[0])
    (row,) = neighbor_rows(run, Pictures(_several_labels()), [place], ap_of(run))
    assert row[0].caption.startswith("red, warm, bright +1\n")
    for shown in row[1:]:
        assert shown.relevant == ("warm" in shown.caption)


def test_shared_labels_are_named_first(tmp_path):
    labels = [[0, 0, 0, 0, 1], [1, 1, 1, 0, 1], [1, 1, 1, 1, 0]]
    codes = Codes(pack(np.ones((3, 8), np.int8)), 8, np.array(["a", "b", "c"]))
    run = _evaluated(codes, labels, ("u", "v", "w", "x", "y"), tmp_path)
    (row,) = neighbor_rows(run, Pictures(_dataset()), [0], np.array([0.5]))
    assert [shown.caption for shown in row[1:]] == ["y\n✓ 0", "y, u, v +1\n✓ 0", "u, v, w +1\n✗ 0"]


def test_a_missing_image_is_a_gray_square():
    assert (Pictures(_dataset()).get("no such image") == 128).all()


# ------------------------------------------------------------------ the page


@pytest.fixture(scope="module")
def written(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Page, dict[str, Any]]:
    out = tmp_path_factory.mktemp("page") / "report.html"
    known = {"toys": _dataset(), "many-photos": _several_labels(), "evil-photos": _dataset()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            report_page, "open_dataset", lambda data, root, *, download: known[Path(data).name]
        )
        figures = write_report(
            [runs / name for name in ("s0", "s1", "s2", "weak", "lsh", "many", "evil")], out
        )
    return Page(out), figures


def test_page_is_self_contained(written):
    page, _ = written
    assert not {"script", "link", "iframe", "object", "embed"} & set(page.tags)
    assert all(source.startswith(("data:image/", "#")) for source in page.sources)
    assert "http:" not in page.html and "https:" not in page.html and "@import" not in page.html
    assert re.findall(r"url\((?!#m)", page.html) == []
    assert {source[1:] for source in page.sources if source.startswith("#")} <= set(page.anchors)
    assert len(page.html) < 3_000_000


def test_names_are_escaped(written):
    page, _ = written
    assert "<script" not in page.html and "&lt;script&gt;" in page.html
    assert EVIL in page.text


def test_differing_settings_are_shown_and_equal_ones_folded(written):
    page, _ = written
    head = page.row("dataset", "seeds")
    assert "lam" in head and "method" in head and "lr" not in head and "backbone" not in head
    assert "0, 1, 2" in page.row("hcdh, 16 bits, lam 1", "toys")
    folded = page.html.split("<details>", 1)[1]
    assert "<td>backbone</td><td>test_efficientnet</td>" in folded
    assert "<td>lr</td><td>0.1 (only: hcdh)</td>" in folded


def test_each_comparison_has_its_own_curves(written):
    page, figures = written
    assert [len(comparison["groups"]) for comparison in figures["comparisons"]] == [3, 1, 1]
    curves = re.findall(r'aria-label="precision over recall: (.*?)"', page.html)
    assert [len(re.findall(r"bits", names)) for names in curves] == [3, 1, 1]
    for part in (
        "Mean average precision",
        "Classes",
        "Outputs before binarization",
        "Queries and their nearest images",
    ):
        assert page.html.count(f">{part}</h3>") == 3


def test_numbers_are_those_of_the_runs(written, runs):
    page, figures = written
    group = next(own for own in figures["comparisons"][0]["groups"] if own["map"]["n"] == 3)
    maps = [
        json.loads((runs / f"s{seed}" / "evaluation" / "report.json").read_text())["map"]
        for seed in (0, 1, 2)
    ]
    assert group["map"]["mean"] == pytest.approx(np.mean(maps)) and group["map"][
        "sd"
    ] == pytest.approx(np.std(maps, ddof=1))
    assert [run["map"] for run in group["runs"]] == maps
    assert f"{np.mean(maps):.4f} ± {np.std(maps, ddof=1):.4f} (3)" in page.row(group["name"], "±")
    assert group["runs"][0]["codebook_distance"]["minimum"] >= 8
    json.dumps(figures)


def test_of_many_classes_the_hardest_and_easiest_are_shown(runs):
    from dataclasses import replace

    from hadahash.visuals.report.sections import class_content

    run = read_evaluated_run(runs / "s0")
    names = tuple(f"c{number:02d}" for number in range(30))
    run = replace(
        run, classes=names, report=run.report | {"per_class": {str(n): n / 30 for n in range(30)}}
    )
    (comparison,) = compare([run])
    text = render("report/classes.html.j2", part=class_content(comparison.groups))
    assert (
        text.count("<td>c00<") == 2 and text.count("<td>c29<") == 2 and text.count("<td>c15<") == 1
    )
    assert text.index("c00") < text.index("c29") < text.index("<details>") < text.index("c15")


def test_only_the_best_of_many_groups_have_pictures(runs, tmp_path, monkeypatch):
    monkeypatch.setattr("hadahash.visuals.report.sections.SHEETS", 1)
    write_report([runs / "s0", runs / "weak", runs / "lsh"], tmp_path / "r.html")
    page = Page(tmp_path / "r.html")
    assert page.text.count(
        "hardest queries"
    ) == 1 and "for the best 1 groups. For the other 2" in page.text.replace("\n", " ")


def test_further_equally_close_classes_are_counted(runs, tmp_path):
    from hadahash.visuals.report.code_sections import distance_card

    signs = np.array([[1] * 8, [1] * 8, [1] * 8, [-1] * 8, [1] * 8])
    run = _evaluated(Codes(pack(signs), 8), [0, 1, 2, 3, 4], ("a", "b", "c", "d", "e"), tmp_path)
    pairs = distance_card(run, measure(run))["pairs"]
    assert [bits for _, bits in pairs] == [0] * 6 and pairs[-1] == ("and 1 more", 0)


def test_codebook_columns_need_a_codebook(runs, tmp_path):
    write_report([runs / "lsh"], tmp_path / "without.html")
    write_report([runs / "lsh", runs / "s0"], tmp_path / "with.html")
    assert "smallest in the codebook" not in Page(tmp_path / "without.html").text
    assert "smallest in the codebook" in Page(tmp_path / "with.html").text


def test_report_without_images_lacks_only_the_pictures(runs, tmp_path, monkeypatch):
    from hadahash.data import open_dataset

    monkeypatch.setattr(report_page, "open_dataset", open_dataset)  # the folder exists and is empty
    write_report([runs / "s0"], tmp_path / "r.html")
    page = Page(tmp_path / "r.html")
    assert "contains no images" in page.row("The images could not be opened")
    assert (
        "figure" not in page.tags
        and "Outputs before binarization" in page.text
        and "hardest class" in page.text
    )


def test_moved_images_are_found_with_data(runs, tmp_path, monkeypatch):
    opened = []

    def open_dataset(data, root, *, download):
        opened.append(data)
        return _dataset()

    monkeypatch.setattr(report_page, "open_dataset", open_dataset)
    write_report([runs / "s0"], tmp_path / "r.html", data=tmp_path / "moved")
    assert opened == [tmp_path / "moved"] and "figure" in Page(tmp_path / "r.html").tags


def test_page_is_deterministic(runs, tmp_path):
    for name in ("a.html", "b.html"):
        write_report([runs / "s0", runs / "lsh", runs / "s0"], tmp_path / name)
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()
    assert "report: 2 runs" in (tmp_path / "a.html").read_text("utf-8")


def test_reports_of_version_0_1_are_read(runs, tmp_path):
    shutil.copytree(runs / "s0", tmp_path / "old")
    path = tmp_path / "old" / "evaluation" / "report.json"
    report = json.loads(path.read_text())
    old = {"ap": report["average_precision"], "empty": report["empty_queries"]} | {
        name: report[name]
        for name in (
            *("map", "depth", "denominator", "queries", "database", "bits", "bit_balance"),
            *("queries_without_relevant", "per_class", "precision_recall"),
        )
    }
    old["precision_at"] = report["precision_at"] | {"1000": 0.25}
    path.write_text(json.dumps(old))
    write_report([tmp_path / "old"], tmp_path / "r.html")
    text = Page(tmp_path / "r.html").text
    assert f"{report['map']:.4f}" in text and "random ranking" not in text
    assert "P@1000" not in text and "P@10" in text, "only k up to the size of the database"


def test_page_has_a_plain_summary_and_the_chance_level(written, runs):
    page, _ = written
    report = Report.load(runs / "many" / "evaluation" / "report.json")
    assert report.summary() in page.text and "by chance" in report.summary()
    assert page.text.count("random ranking") == 3
    assert f"{report.chance:.4f}" in page.text and "distinct codes" in page.text


# ------------------------------------------------------------------ errors


def test_all_runs_without_an_evaluation_are_named(runs, tmp_path):
    for name in ("a", "b"):
        shutil.copytree(runs / "s0", tmp_path / name)
        (tmp_path / name / "evaluation" / "report.json").unlink()
    with pytest.raises(
        StorageError, match=r"a has not been evaluated. Do it with: hadahash evaluate .*a$"
    ) as caught:
        read_runs([runs / "s0", tmp_path / "a"])
    one_line(caught.value)
    with pytest.raises(StorageError) as caught:
        read_runs([tmp_path / "a", runs / "s0", tmp_path / "b", tmp_path / "none"])
    text = one_line(caught.value)
    assert (
        all(f"hadahash evaluate {tmp_path / name}" in text for name in ("a", "b"))
        and f"{tmp_path / 'none'} does not exist" in text
    )
    with pytest.raises(UsageError, match="at least one run"):
        read_runs([])


@pytest.mark.parametrize("damage", ["report", "labels"])
def test_a_damaged_evaluation_is_a_one_line_error(runs, tmp_path, damage):
    shutil.copytree(runs / "s0", tmp_path / "run")
    if damage == "report":
        (tmp_path / "run" / "evaluation" / "report.json").write_text('{"map": 1}')
    else:
        np.savez(
            tmp_path / "run" / "evaluation" / "labels.npz",
            query=np.zeros(1, int),
            database=np.zeros(1, int),
            classes=["a"],
        )
    with pytest.raises(StorageError, match="Repeat it: hadahash evaluate") as caught:
        read_runs([tmp_path / "run"])
    one_line(caught.value)


# ------------------------------------------------------------------ the command


def _call(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: object
) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["hadahash", "report", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        main()
    captured = capsys.readouterr()
    return int(ended.value.code or 0), captured.out, captured.err


def test_command_writes_the_page_and_prints_its_address(runs, tmp_path, monkeypatch, capsys):
    out = tmp_path / "deep" / "r.html"
    code, text, _ = _call(monkeypatch, capsys, runs / "s0", runs / "s1", "--out", out)
    assert code == 0 and out.exists() and out.as_uri() in text and " (2)  hcdh, 16 bits" in text
    code, text, _ = _call(monkeypatch, capsys, runs / "s0", "--out", out, "--json")
    assert code == 0 and json.loads(text)["comparisons"][0]["groups"][0]["map"]["sd"] is None
    code, text, error = _call(monkeypatch, capsys, tmp_path)
    assert (
        code == 1
        and text == ""
        and error.startswith("error: ")
        and error.count("\n") == 1
        and "hadahash train" in error
    )
    code, text, _ = _call(monkeypatch, capsys, "--help")
    assert code == 0 and "Example: hadahash report" in " ".join(text.split())
