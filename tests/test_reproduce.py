"""Recipes, cells and the page of results."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from toys import make_toy

import hadahash.reproduce.cells as cells
from hadahash.data import ArrayImages, LabelledImages
from hadahash.errors import UsageError
from hadahash.reproduce import read_recipe, recipes, run_cells, write_page
from hadahash.reproduce.tables import entries, paper_values, read_results

ROOT = Path(__file__).parents[1]


@pytest.fixture
def toy_cells(monkeypatch: pytest.MonkeyPatch) -> list[cells.Cell]:
    pixels, labels = make_toy(80, seed=0)
    data = LabelledImages(ArrayImages(pixels), np.array([f"{i:03d}" for i in range(80)]), labels, tuple("abcd"), "cifar10")
    monkeypatch.setattr(cells, "open_dataset", lambda *a, **k: data)
    small = {"epochs": 1, "size": 32, "batch": 32}
    chosen = [cell for cell in read_recipe("table2") if cell.method == "hcdh" and cell.bits == 16]
    return [replace(cell, backbone="test_efficientnet", protocol="holdout", settings=small) for cell in chosen]


def test_missing_cells_are_run_and_present_ones_are_not(toy_cells: list[cells.Cell], tmp_path: Path) -> None:
    results, said = tmp_path / "results", []  # type: ignore[var-annotated]
    options = {"results": results, "runs": tmp_path / "runs", "roots": {}, "weights": "none", "device": "cpu"}
    run_cells(toy_cells[:2], **options, say=said.append)  # type: ignore[arg-type]
    assert len(said) == 2
    run_cells(toy_cells, **options, say=said.append)  # type: ignore[arg-type]
    assert len(said) == 3, "only the third was missing"
    result = json.loads(toy_cells[0].path(results).read_text())
    schema = (
        "dataset protocol method bits backbone seed map depth queries database train_images epochs train_seconds "
        "images_per_second hardware versions command date"
    )
    assert set(schema.split()) <= set(result) and result["depth"] is None and "root" not in result
    entry = entries(toy_cells, results)["cifar10", "hcdh", 16]
    assert len(entry.maps) == 3 and entry.paper == 0.769 and "±" in entry.text and "/ .769" in entry.text


def test_recipes_cover_the_paper_and_unknown_ones_are_refused() -> None:
    found = {(cell.method, cell.bits) for cell in read_recipe("table2") if cell.dataset == "cifar10"}
    assert found == {(m, k) for m in ("hcdh", "hcdh-h", "hcdh-c", "hcdh-2") for k in (16, 32, 64, 128)}
    assert all(len(values) == 4 for rows in paper_values().values() for values in rows.values())
    with pytest.raises(UsageError, match="table2"):
        read_recipe("tabel2")


def test_the_page_in_the_documents_is_made_from_the_results(tmp_path: Path) -> None:
    page = tmp_path / "results.md"
    tables = {name: read_recipe(name) for name in recipes()}
    write_page(page, tables, ROOT / "results", ROOT / "docs" / "results-notes.md")
    assert page.read_text() == (ROOT / "docs" / "results.md").read_text(), "run: hadahash reproduce table2 --no-run"


def test_every_stored_result_is_whole_and_speaks_of_no_machine() -> None:
    results = read_results(ROOT / "results")
    assert len(results) >= 24
    for result in results:
        assert 0 < result["map"] < 1 and result["versions"]["torch"] and result["hardware"]
        assert "/root" not in json.dumps(result) and "/work" not in json.dumps(result)
    ours = {
        bits: np.mean([r["map"] for r in results if (r["method"], r["bits"]) == ("hcdh", bits)]) for bits in (16, 32, 64, 128)
    }
    assert all(ours[bits] >= floor for bits, floor in zip((16, 32, 64, 128), (0.80, 0.81, 0.82, 0.82), strict=True))
