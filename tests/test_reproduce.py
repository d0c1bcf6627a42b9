"""Recipes, cells and the page of results."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toys import make_toy

import hadahash.reproduce.cells as cells
from hadahash import files
from hadahash.building import make_config
from hadahash.data import ArrayImages, LabelledImages
from hadahash.errors import DataError, HadaHashError, TrainingDivergedError, UsageError
from hadahash.reproduce import (
    Cell,
    Recipe,
    RunContext,
    claims,
    intervals,
    list_recipes,
    list_targets,
    page,
    read_recipe,
    run_all,
    run_recipes,
    tables,
    untuned_claims,
)
from hadahash.reproduce.all import write_documents
from hadahash.reproduce.check import cell_of
from hadahash.reproduce.collected import Collected
from hadahash.reproduce.drawings import FIGURES
from hadahash.reproduce.evidence import RIVALS
from hadahash.reproduce.figures import draw_figure
from hadahash.reproduce.measures import decode_ap
from hadahash.reproduce.smoke import shrink
from hadahash.runs import read_evaluated_run

ROOT = Path(__file__).parents[1]


SMALL = {"epochs": 1, "size": 32, "batch_size": 32}


@pytest.fixture
def toy_recipe(monkeypatch: pytest.MonkeyPatch) -> Recipe:
    """One method, one length, three seeds on a toy, and a grid of two points."""
    pixels, labels = make_toy(80, seed=0)
    data = LabelledImages(
        ArrayImages(pixels),
        np.array([f"{i:03d}" for i in range(80)]),
        labels,
        tuple("abcd"),
        "cifar10",
    )
    monkeypatch.setattr(cells, "open_dataset", lambda *a, **k: data)
    cell = Cell(
        "cifar10", "hcdh", 16, "test_efficientnet", 0, "holdout", settings=SMALL, depths=(5,)
    )
    points = [{"lam": 1.0}, {"lam": 0.5}]
    trials = [
        replace(cell, mark=f"point{n}", settings={**SMALL, **point}, validation=0.25)
        for n, point in enumerate(points)
    ]
    key = ("cifar10", "hcdh")
    return Recipe(
        "toy", [replace(cell, seed=seed) for seed in range(3)], {key: trials}, {key: points}
    )


def _context(folder: Path, messages: list[str], **changes: object) -> RunContext:
    return RunContext(
        folder / "results",
        folder / "runs",
        weights="none",
        device="cpu",
        info=messages.append,
        **changes,
    )  # type: ignore[arg-type]


def test_trials_choose_and_missing_cells_are_run_once(toy_recipe: Recipe, tmp_path: Path) -> None:
    messages: list[str] = []
    context, recipe = _context(tmp_path, messages), toy_recipe
    run_recipes([(recipe, recipe.cells[:2])], context)
    assert len(messages) == 4, "two trials, two cells"
    run_recipes([(recipe, recipe.cells)], context)
    assert len(messages) == 5, "only the third was missing"
    result = json.loads(recipe.cells[0].path(context.results).read_text())
    schema = (
        "dataset protocol method bits backbone seed map depth queries database train_images epochs train_seconds "
        "images_per_second hardware versions command date"
    )
    assert set(schema.split()) <= set(result) and result["depth"] is None and "root" not in result
    assert 0 < result["map_at"]["5"] <= 1
    scores = [
        json.loads(t.path(context.results).read_text())["validation_map"]
        for t in recipe.trials["cifar10", "hcdh"]
    ]
    best = recipe.points["cifar10", "hcdh"][int(np.argmax(scores))]
    assert result["settings"]["lam"] == best["lam"] and recipe.ranking(
        "cifar10", "hcdh", context.results
    )[0] == (
        best,
        max(scores),
    )
    entry = tables.tables(recipe.cells, context.results)[0].entries["HCDH", 16]
    assert (
        len(entry.maps) == 3
        and entry.paper == 0.769
        and "±" in entry.text()
        and "(3) / .769" in entry.text()
    )
    assert read_evaluated_run(recipe.cells[0].folder(context.runs)).report["map"] == result["map"]


def test_a_result_made_with_other_settings_counts_as_missing(
    toy_recipe: Recipe, tmp_path: Path
) -> None:
    messages: list[str] = []
    context, recipe = _context(tmp_path, messages), replace(toy_recipe, trials={}, points={})
    run_recipes([(recipe, recipe.cells[:1])], context)
    other = replace(recipe.cells[0], settings={**SMALL, "lam": 0.25})
    assert recipe.cells[0].done(context.results) and not other.done(context.results)
    run_recipes([(recipe, [other])], context)
    assert len(messages) == 2 and other.done(context.results)


def test_a_trial_uses_no_query(toy_recipe: Recipe, tmp_path: Path) -> None:
    context = _context(tmp_path, [])
    trial = toy_recipe.trials["cifar10", "hcdh"][0]
    run_recipes([(toy_recipe, toy_recipe.cells[:1])], context)
    about = json.loads(trial.path(context.results).read_text())
    assert about["validation"] == 0.25 and about["train_images"] == 56 and "map" not in about
    assert not (trial.folder(context.runs) / "evaluation").exists()


def test_a_failed_cell_is_reported_and_the_others_run(toy_recipe: Recipe, tmp_path: Path) -> None:
    context, messages = _context(tmp_path, []), []  # type: ignore[var-annotated]
    bad = replace(toy_recipe.cells[0], settings={**SMALL, "lam": -1.0})
    recipe = replace(toy_recipe, trials={}, points={})
    with pytest.raises(
        HadaHashError, match=r"1 cells failed: cifar10 hcdh-16-test_efficientnet-s0.*lam must be"
    ):
        run_recipes([(recipe, [bad, recipe.cells[1]])], replace(context, info=messages.append))
    assert recipe.cells[1].path(context.results).exists() and not bad.path(context.results).exists()


def test_a_trial_that_fails_is_not_chosen(toy_recipe: Recipe, tmp_path: Path) -> None:
    key = ("cifar10", "hcdh")
    first = replace(toy_recipe.trials[key][0], settings={**SMALL, "lam": -1.0})
    recipe = replace(toy_recipe, trials={key: [first, toy_recipe.trials[key][1]]})
    context = _context(tmp_path, [])
    with pytest.raises(HadaHashError, match="point0"):
        run_recipes([(recipe, recipe.cells[:1])], context)
    assert (
        recipe.ranking(*key, context.results)[0][0] == recipe.points[key][1]
        and recipe.cells[0].path(context.results).exists()
    )


def test_a_degenerate_cell_is_run_with_the_next_best_settings(
    toy_recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages: list[str] = []
    context, recipe, cell = _context(tmp_path, messages), toy_recipe, toy_recipe.cells[0]
    run_recipes([(recipe, [])], context)
    for lam, trial in zip((1.0, 0.5), recipe.trials["cifar10", "hcdh"], strict=True):
        files.write_json(
            trial.path(context.results), {"validation_map": lam, "settings": trial.settings}
        )  # lam = 1 did best
    monkeypatch.setattr(cells, "train_map", lambda *args: 0.4)
    run_recipes([(recipe, [cell, recipe.cells[1]])], context)
    failed = cell.failed_runs(context.results)
    assert [m["settings"]["lam"] for m in failed] == [
        1.0
    ] and "mAP 0.400 is below the minimum of 0.500" in failed[0]["reason"]
    result = json.loads(cell.path(context.results).read_text())
    assert (
        result["settings"]["lam"] == 0.5
        and result["train_map"] == 0.4
        and recipe.resolve_settings(cell, context.results).done(context.results)
    )
    assert page.choices(recipe, "cifar10", context.results).splitlines()[-2] == (
        "- HCDH, 16 bits, seed 0: diverged with lam 1.0; run with lam 0.5"
    )
    varied = recipe.resolve_settings(replace(cell, varied={"lam": 1.0}), context.results)
    assert varied.settings["lam"] == 1.0 and varied.least == 0, (
        "a sweep of one setting keeps the others"
    )

    monkeypatch.setattr(cells, "train_map", lambda *args: 0.1)  # too low for both
    run_recipes([(recipe, recipe.cells)], context)
    last = recipe.cells[2]
    assert [m["train_map"] for m in last.failed_runs(context.results)] == [
        0.1,
        0.1,
    ] and last.is_degenerate(context.results)
    assert json.loads(last.path(context.results).read_text())["settings"]["lam"] == 1.0, (
        "the better one is kept"
    )
    assert (
        page.choices(recipe, "cifar10", context.results)
        .splitlines()[-1]
        .endswith("with lam 1.0; lam 0.5; kept with lam 1.0")
    )
    entry = tables.tables([last], context.results)[0].entries["HCDH", 16]
    assert entry.diverged and "†" in entry.text() and not cell.is_degenerate(context.results)
    messages.clear()
    run_recipes([(recipe, recipe.cells)], context)
    assert not messages, "nothing is missing"
    longer = replace(last, settings={**last.settings, "epochs": 2})
    assert recipe.resolve_settings(longer, context.results).least == 0.5, (
        "a degenerate run with other settings of the recipe does not count"
    )


def test_a_loss_that_is_not_finite_leaves_no_result(
    toy_recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def diverge(*args: object, **options: object) -> None:
        raise TrainingDivergedError("The loss is nan.")

    context, cell = _context(tmp_path, []), toy_recipe.cells[0]
    run_recipes([(toy_recipe, [cell])], context)
    cell.path(context.results).unlink()
    monkeypatch.setattr(cells, "train_run", diverge)
    messages: list[str] = []
    for _ in range(2):
        with pytest.raises(
            HadaHashError,
            match=r"1 cells failed: cifar10 .*s0-holdout: diverged; remove .*s0-holdout\.json",
        ):
            run_recipes([(toy_recipe, [cell])], replace(context, info=messages.append))
        assert len(messages) == 2, "each of its two points is tried once"
    assert len(cell.failed_runs(context.results)) == 2 and not cell.path(context.results).exists()
    table = tables.tables([cell], context.results)[0]
    assert table.entries["HCDH", 16].text() == "diverged / .769" and not table.missing
    assert "no point left after" in page.choices(toy_recipe, "cifar10", context.results)
    bare = replace(toy_recipe, trials={}, points={})
    assert page.skipped_points(bare, "cifar10", context.results) == []


def test_a_degenerate_run_is_kept_after_a_diverged_one(
    toy_recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context, cell = _context(tmp_path, []), toy_recipe.cells[0]
    run_recipes([(toy_recipe, [cell])], context)
    (best, _), (other, _) = toy_recipe.ranking("cifar10", "hcdh", context.results)
    cell.path(context.results).unlink()
    failed = {"settings": cell.settings | best, "reason": "The loss is nan.", "train_map": None}
    files.write_json(cell.failed_runs_path(context.results), [failed])
    monkeypatch.setattr(cells, "train_map", lambda *args: 0.0)
    run_recipes([(toy_recipe, [cell])], context)
    assert (
        cell.is_degenerate(context.results)
        and json.loads(cell.path(context.results).read_text())["settings"]["lam"] == other["lam"]
    )


def test_missing_data_do_not_invalidate_trials(
    toy_recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nowhere(*args: object, **options: object) -> None:
        raise DataError("No such folder.")

    context = _context(tmp_path, [])
    with monkeypatch.context() as patch:
        patch.setattr(cells, "open_dataset", nowhere)
        with pytest.raises(HadaHashError, match=r"2 cells failed.*No such folder"):
            run_recipes([(toy_recipe, toy_recipe.cells[:1])], context)
    assert not list(context.results.rglob("*.json"))
    run_recipes([(toy_recipe, toy_recipe.cells[:1])], context)
    assert toy_recipe.cells[0].path(context.results).exists()


def test_all_points_of_a_grid_name_the_same_settings() -> None:
    for key, points in read_recipe("table1").points.items():
        assert len({frozenset(point) for point in points}) == 1, (
            f"{key}: otherwise results of points are confused"
        )


def test_varied_settings_are_in_the_name_and_no_grid_changes_them() -> None:
    recipe = read_recipe("lambda")
    found = {cell.varied["lam"]: cell.name for cell in recipe.cells if cell.dataset == "cifar10"}
    assert sorted(found) == [0, 0.01, 0.05, 0.1, 0.5, 1, 5, 10] and found[0.05].endswith("-lam0.05")
    assert recipe.trials == read_recipe("table1").trials


def test_all_names_are_distinct() -> None:
    for name in list_recipes():
        recipe = read_recipe(name)
        paths = [
            cell.path(Path())
            for cell in [*recipe.cells, *(t for trials in recipe.trials.values() for t in trials)]
        ]
        assert len(set(paths)) == len(paths)


def test_recipes_cover_the_paper_and_unknown_ones_are_refused() -> None:
    found = {
        (cell.method, cell.bits)
        for cell in read_recipe("table2").cells
        if cell.dataset == "cifar10"
    }
    assert found == {
        (m, k) for m in ("hcdh", "hcdh-h", "hcdh-c", "hcdh-2") for k in (16, 32, 64, 128)
    }
    assert all(
        len(values) == 4 for rows in tables.paper_values().values() for values in rows.values()
    )
    with pytest.raises(UsageError, match="table2"):
        read_recipe("tabel2")


def test_the_documents_are_generated_from_the_results(tmp_path: Path) -> None:
    known = [read_recipe(name) for name in list_recipes()]
    notes = (ROOT / "docs" / "results-notes.md").read_text()
    (tmp_path / "results-notes.md").write_text(notes)
    write_documents(known, ROOT / "results", tmp_path)
    claims.write_claims(
        tmp_path / "claims.md", known, ROOT / "results", ROOT / "docs" / "claims-notes.md"
    )
    made = {
        path.relative_to(tmp_path): path.read_text()
        for path in tmp_path.rglob("*")
        if path.is_file()
    }
    for path, text in made.items():
        assert text == (ROOT / "docs" / path).read_text(), (
            "run: hadahash reproduce table1 claims --no-run"
        )


def test_the_figures_are_drawn_from_the_results(tmp_path: Path) -> None:
    kept, places = (
        ROOT / "docs" / "figures",
        {"results": ROOT / "results", "runs": tmp_path / "none"},
    )
    for name, drawing in FIGURES.items():
        if drawing.from_runs:
            found = [json.loads(path.read_text()) for path in kept.glob(f"{name}-*.json")]
            assert len(found) == 3, "three data sets"
            for data in found:
                for method, own in data["series"].items():
                    cell = next(
                        cell
                        for cell in read_recipe("table1").cells
                        if (cell.dataset, cell.method, cell.bits, cell.seed)
                        == (data["dataset"], method, 64, own["seed"])
                    )
                    assert own["map"] == pytest.approx(
                        files.read_json(cell.path(ROOT / "results"))["map"], abs=1e-5
                    )
        else:
            paths = draw_figure(name, read_recipe(drawing.recipe).cells, out=tmp_path, **places)
            drawn = [path for path in paths if path.suffix == ".json"]
            assert drawn and all(
                path.read_text() == (kept / path.name).read_text() for path in drawn
            ), f"run: hadahash reproduce {name}"


def _table() -> tables.Table:
    entry = tables.Entry
    return tables.Table(
        "cifar10",
        None,
        {
            ("LSH", 16): entry((0.2,), 0.13),
            ("LSH", 32): entry(()),
            ("A_B", 16): entry((0.5, 0.7)),
            ("A_B", 32): entry((0.25,)),
        },
    )


def test_a_table_has_status_seeds_and_best_values() -> None:
    lines = tables.markdown(_table()).splitlines()
    assert lines[0] == "| method | 16 bits | 32 bits |"
    assert lines[2:] == [
        "| LSH | .200 (1) / .130 | not run |",
        "| A_B | **.600** ±.141 (2) | .250 (1) |",
    ]
    assert _table().missing == 1 and _table().measure == "mAP@all"


def test_tables_as_csv_and_latex() -> None:
    lines = list(csv.DictReader(io.StringIO(tables.comma_separated([_table()]))))
    assert [line["status"] for line in lines] == ["run", "not run", "run", "run"]
    assert (lines[2]["map"], lines[2]["standard_deviation"], lines[2]["seeds"]) == (
        "0.60000",
        "0.14142",
        "2",
    )
    assert lines[0]["paper"] == "0.13" and lines[1]["map"] == ""
    text = tables.latex(_table(), "100 %")
    assert (
        r"A\_B & \textbf{.600} $\pm$.141 (2) & .250 (1) \\" in text and r"\caption{100 \%}" in text
    )
    assert text.count(r"\begin{tabular}{lcc}") == text.count(r"\end{tabular}") == 1


def test_the_smoke_version_has_every_method_of_every_recipe() -> None:
    for name in list_recipes():
        whole, small = read_recipe(name), shrink(read_recipe(name))
        assert {cell.method for cell in small.cells} == {cell.method for cell in whole.cells}
        assert {cell.dataset for cell in small.cells} <= {"digits", "digit-pairs"}
        assert len({cell.path(Path()) for cell in small.cells}) == len(small.cells) <= 34
        keys = {(cell.dataset, cell.method) for cell in small.cells if cell.choose}
        assert all(
            len(small.trials[key]) == 2
            for key in keys
            if key[1] not in ("lsh", "itq") and small.trials
        )


def test_part_of_the_smoke_version_end_to_end(tmp_path: Path) -> None:
    context = RunContext(tmp_path / "results", tmp_path / "runs", weights="none", device="cpu")
    written = run_all(
        ["table1", "fig-pr", "fig-balance"],
        context,
        tmp_path / "docs",
        smoke=True,
        is_selected=lambda cell: cell.method in ("lsh", "hcdh") and cell.dataset == "digits",
    )
    names = {path.name for path in written}
    assert {
        "results.md",
        "table1.csv",
        "table1.tex",
        "fig-pr-digits.png",
        "fig-balance-digits.svg",
    } <= names
    assert all(path.stat().st_size for path in written)
    page = (tmp_path / "docs" / "results.md").read_text()
    assert "not run" in page and "Settings chosen" in page
    with pytest.raises(UsageError, match="Did you mean 'table1'"):
        run_all(["tabel1"], context, tmp_path)
    assert {"table1", "table2", "fig-pr", "fig-tsne", "fig-lambda"} <= set(list_targets())


def test_every_stored_result_was_made_with_the_settings_that_its_recipe_chooses() -> None:
    results = ROOT / "results"
    for recipe in map(read_recipe, list_recipes()):
        for cell in recipe.cells:
            if cell.path(results).exists() and recipe.ready(cell, results):
                assert recipe.resolve_settings(cell, results).done(results), (
                    f"{cell.dataset} {cell.name} is out of date"
                )


def _record(method: str, bits: int, seed: int, value: float, codebook: str | None) -> dict:
    varied = {} if codebook is None else {"codebook": codebook}
    return {
        "dataset": "cifar10",
        "name": f"{method}-{bits}-s{seed}-{codebook}",
        "method": method,
        "bits": bits,
        "seed": seed,
        "varied": varied,
        "map": value,
        "maps": {"all": value},
        "bit_balance": [0.5, 0.45],
    }


def _evidence(records: list[dict], cells: tuple[Cell, ...] = (), results: Path = Path()) -> Any:
    return claims.Evidence("cifar10", cells, records, results)


def _verdict(claim: claims.Claim, evidence: Any) -> str:
    return claims.judge_claims([claim], [evidence])[0][-1]


BOTH = next(claim for claim in claims.CLAIMS if "HCDH-H on average" in claim.text)


def test_a_claim_is_judged_by_the_mean_over_lengths_paired_by_seed() -> None:
    """HCDH loses at 16 bits and wins more at 64: on average it is better."""
    records = [
        _record(method, bits, seed, 0.8 + gap + seed / 50, "paper")
        for seed in range(5)
        for method, gaps in (
            ("hcdh", {16: -0.01, 64: 0.04 + seed / 1000}),
            ("hcdh-h", {16: 0, 64: 0}),
        )
        for bits, gap in gaps.items()
    ]
    assert _verdict(BOTH, _evidence(records)) == "holds on 1"
    swapped = {"hcdh": "hcdh-h", "hcdh-h": "hcdh"}
    turned = [record | {"method": swapped[record["method"]]} for record in records]
    assert _verdict(BOTH, _evidence(turned)) == "fails on 1"


def test_equal_methods_are_called_equal() -> None:
    records = [
        _record(
            method,
            64,
            seed,
            0.8 + seed / 50 + (seed % 2 - 0.5) / 1000 * (method == "hcdh"),
            "paper",
        )
        for seed in range(5)
        for method in ("hcdh", "hcdh-h")
    ]
    assert _verdict(BOTH, _evidence(records)) == "equal on 1"


def test_one_seed_decides_nothing() -> None:
    records = [_record("hcdh", 64, 0, 0.9, "paper"), _record("hcdh-h", 64, 0, 0.5, "paper")]
    assert _verdict(BOTH, _evidence(records)) == "undecided on 1"
    assert _verdict(BOTH, _evidence([])) == "not run"


def test_other_seeds_are_not_paired() -> None:
    left, right = {(16, 0): 0.5, (16, 1): 0.6}, {(16, 1): 0.5, (16, 2): 0.1}
    assert intervals.paired_differences(left, right) == pytest.approx([0.1])


def test_a_rival_without_a_result_does_not_count_as_beaten(tmp_path: Path) -> None:
    found = []
    for method in RIVALS:
        cell = Cell("cifar10", method, 64, "b", 0, "cifar10", settings={"lr": 1})
        files.write_json(cell.path(tmp_path), {"map": 0.5, "settings": {"lr": 1}})
        found.append(cell)
    failed = [{"settings": {"lr": 1}, "train_map": 0.1, "reason": "degenerate"}]
    files.write_json(found[-1].failed_runs_path(tmp_path), failed)
    records = [_record("hcdh", 64, seed, 0.6, "paper") for seed in range(5)]
    finding = untuned_claims.best_rival()(_evidence(records, tuple(found), tmp_path))
    assert finding is not None and finding.interval is None
    assert finding.text == "+.100 to LSH" and "MIHash without a sound result" in finding.note


def test_balance_is_judged_over_seeds() -> None:
    records = [_record("hcdh", 64, seed, 0.6, "paper") for seed in range(3)]
    claim = next(claim for claim in claims.CLAIMS if claim.text == "Bits are balanced")
    assert _verdict(claim, _evidence(records)) == "holds on 1"
    skewed = [record | {"bit_balance": [0.5, 1.0]} for record in records]
    assert _verdict(claim, _evidence(skewed)) == "fails on 1"


def test_two_equal_methods_rarely_fail_a_claim() -> None:
    """With five seeds, at most one in ten pages of 30 equal comparisons has a false verdict."""
    rng = np.random.default_rng(0)
    wrong = 0
    for _ in range(100):
        found = [intervals.t_interval(rng.normal(0, 0.006, 5).tolist()) for _ in range(30)]
        answers = intervals.holm([interval.p_value for interval in found])
        verdicts = [intervals.judge(i, r) for i, r in zip(found, answers, strict=True)]
        wrong += bool({"holds", "fails"} & set(verdicts))
    assert wrong <= 10


def test_an_unexpected_error_ends_no_reproduction(
    toy_recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []

    def fail(*args: object, **options: object) -> None:
        calls.append(1)
        raise RuntimeError("out of memory")

    recipe = replace(toy_recipe, trials={}, points={})
    monkeypatch.setattr(cells, "train_run", fail)
    context = _context(tmp_path, [])
    with pytest.raises(HadaHashError, match=r"2 cells failed: .*RuntimeError: out of memory"):
        run_recipes([(recipe, recipe.cells[:2])], context)
    assert len(calls) == 2
    path = context.results / "failed" / "cifar10" / f"{recipe.cells[0].name}.txt"
    assert "in fail" in path.read_text()


def test_values_at_an_edge_of_a_grid_are_marked() -> None:
    text = page.choices(read_recipe("table1"), "cifar10", ROOT / "results")
    row = next(line for line in text.splitlines() if line.startswith("| HCDH-C "))
    assert row.split("|")[4].strip() == "lr"


def test_hcdh_means_the_codebook_of_the_paper_in_tables() -> None:
    cell = next(cell for cell in read_recipe("table1").cells if cell.method == "hcdh")
    assert tables.row_name(cell) == "HCDH (far)"
    settings = {**cell.settings, "codebook": "paper"}
    assert tables.row_name(replace(cell, settings=settings)) == "HCDH"


def test_every_stored_result_can_be_repeated() -> None:
    """Its settings are valid in the current version."""
    found = [files.read_json(path) for path in (ROOT / "results").glob("*/*-s[0-9]*.json")]
    found = [own for own in found if isinstance(own, dict)]
    found += Collected(ROOT / "results" / "factorial").records()
    assert len(found) > 300
    for own in found:
        cell = cell_of(own)
        config = make_config(cell.method, bits=cell.bits, seed=cell.seed, settings=cell.settings)
        assert config.settings()["size"] == own["settings"]["size"]


def test_stored_records_of_the_factorial_identify_what_ran() -> None:
    records = Collected(ROOT / "results" / "factorial").records()
    assert records
    for own in records:
        assert len(own["revision"]["commit"]) == 40 and own["revision"]["clean"]
        assert all(len(own["digests"][key]) == 64 for key in own["digests"])
        assert len(own["log"]) == own["settings"]["epochs"]
        assert len(decode_ap(own["ap"])) == own["queries"]
        assert own["method"] != "hcdh-h" or own["settings"]["lam"] == 0


def test_every_withdrawn_result_is_listed() -> None:
    text = (ROOT / "results" / "README.md").read_text()
    withdrawn = ROOT / "results" / "withdrawn"
    for path in withdrawn.rglob("*.json"):
        name = path.relative_to(withdrawn).as_posix().split("-efficientnet")[0]
        first, bits = name.rsplit("-", 1)
        rows = [line for line in text.splitlines() if f"`{first}-" in line]
        assert any(f"-{bits}`" in line for line in rows), name


def test_every_stored_result_is_complete_and_names_no_machine() -> None:
    results = [json.loads(path.read_text()) for path in (ROOT / "results").glob("*/*.json")]
    assert len(results) >= 24
    for result in results:
        assert 0 < result["map"] < 1 and result["versions"]["torch"] and result["hardware"]
        assert "/root" not in json.dumps(result) and "/work" not in json.dumps(result)
    ours = {
        bits: np.mean(
            [
                r["map"]
                for r in results
                if (r["method"], r["bits"], r["preprocess"]["size"]) == ("hcdh", bits, 256)
            ]
        )
        for bits in (16, 32, 64, 128)
    }
    assert all(
        ours[bits] >= floor
        for bits, floor in zip((16, 32, 64, 128), (0.80, 0.81, 0.82, 0.82), strict=True)
    )
