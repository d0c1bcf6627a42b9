"""Figures from results and runs, and again from their stored data."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hadahash import files
from hadahash.codes import Codes, pack
from hadahash.errors import StorageError, UsageError
from hadahash.evaluation import evaluate
from hadahash.reproduce.drawings import FIGURES
from hadahash.reproduce.figures import draw_figure, list_figures
from hadahash.reproduce.recipes import Cell
from hadahash.runs.evaluation import _write_evaluation

CLASSES = ("ant", "bee", "cow")


def _record(cell: Cell) -> dict[str, Any]:
    """The fields of run.json that every run has."""
    sizes = {"queries": 90, "database": 90}
    return {"seed": cell.seed, "method": cell.method, "bits": cell.bits, "data": "x", **sizes}


class Study:
    """Fabricated cells with their results and runs."""

    def __init__(self, root: Path) -> None:
        self.results, self.runs, self.out = root / "results", root / "runs", root / "out"
        self.cells: list[Cell] = []
        self.messages: list[str] = []

    def cell(
        self,
        method: str = "hcdh",
        bits: int = 64,
        dataset: str = "cifar10",
        seed: int = 0,
        mark: str = "",
    ) -> Cell:
        self.cells.append(Cell(dataset, method, bits, "net", seed, dataset, mark))
        return self.cells[-1]

    def measure(
        self, cell: Cell, *, run: bool = True, several: bool = False, lam: float = 1.0
    ) -> dict[str, Any]:
        """Write a result with codes that are right for nine of ten images."""
        rng = np.random.default_rng(cell.seed + len(cell.method))
        book = np.where(rng.random((len(CLASSES), cell.bits)) < 0.5, 1, -1)
        numbers = np.arange(90) % len(CLASSES)
        values = (
            np.where(rng.random((90, 1)) < 0.9, book[numbers], rng.choice([-1, 1], (90, cell.bits)))
            * 0.95
        )
        labels = np.eye(len(CLASSES), dtype=np.int64)[numbers] if several else numbers
        if several:
            labels[:5] = 1
        codes = Codes(pack(values), cell.bits)
        report = evaluate(codes, labels, codes, labels)
        result = {**report.to_dict(), "settings": {"lam": lam}, "seed": cell.seed}
        files.write_json(cell.path(self.results), result)
        if run:
            folder = cell.folder(self.runs)
            sides = {"query": codes, "database": codes}
            _write_evaluation(
                folder / "evaluation",
                sides,
                {"query": labels, "database": labels},
                CLASSES,
                values.astype(np.float16),
            )
            files.write_json(folder / "run.json", _record(cell))
            report.to_json(folder / "evaluation" / "report.json")
        return result

    def draw(self, name: str) -> dict[str, Any]:
        """Return the data of the first figure that is written; {} if there is none."""
        self.messages.clear()
        places: Any = {"results": self.results, "runs": self.runs, "out": self.out}
        paths = draw_figure(name, self.cells, **places, info=self.messages.append)
        assert all(path.stat().st_size for path in paths)
        return json.loads(paths[0].read_text()) if paths else {}


def _record(cell: Cell) -> dict[str, Any]:
    facts = {"seed": cell.seed, "method": cell.method, "bits": cell.bits, "data": cell.dataset}
    return facts | {"queries": 90, "database": 90}


@pytest.fixture
def study(tmp_path: Path) -> Study:
    return Study(tmp_path)


def test_every_figure_is_drawn_and_drawn_again_without_runs(study: Study) -> None:
    for method in ("hcdh", "mihash"):
        study.measure(study.cell(method))
    names = {path.name for name in list_figures() for path in _drawn(study, name)}
    expected = {f"{name}-cifar10" for name in list_figures() if name != "fig-lambda"} | {
        "fig-lambda"
    }
    assert names == {f"{name}.{kind}" for name in expected for kind in ("json", "png", "svg")}
    before = {path.name: path.read_bytes() for path in study.out.iterdir()}
    shutil.rmtree(study.runs)
    shutil.rmtree(study.results)
    for path in study.out.glob("*.[ps][nv]g"):
        path.unlink()
    assert {path.name for name in list_figures() for path in _drawn(study, name)} == names
    assert {path.name: path.read_bytes() for path in study.out.iterdir()} == before
    assert (
        max(map(len, (content for name, content in before.items() if name.endswith("json"))))
        < 10_000
    )


def _drawn(study: Study, name: str) -> list[Path]:
    return draw_figure(name, study.cells, results=study.results, runs=study.runs, out=study.out)


def test_missing_results_are_reported_in_one_line(study: Study) -> None:
    study.cell(), study.cell(dataset="voc2012")
    for name in list_figures():
        assert study.draw(name) == {}
        assert len(study.messages) == (1 if name == "fig-lambda" else 2)
        assert all(
            f"reproduce {FIGURES[name].recipe}" in line and "\n" not in line
            for line in study.messages
        )
    assert not study.out.exists()


def test_a_run_without_evaluation_is_reported_and_omitted(study: Study) -> None:
    study.measure(study.cell())
    half = study.cell("mihash")
    files.write_json(half.folder(study.runs) / "run.json", _record(half))
    assert list(study.draw("fig-distribution")["series"]) == ["hcdh"]
    assert any("hadahash evaluate" in line for line in study.messages)


def test_a_part_without_its_run_keeps_its_data(study: Study) -> None:
    for method in ("hcdh", "mihash"):
        study.measure(study.cell(method))
    before = study.draw("fig-distribution")
    shutil.rmtree(study.cells[1].folder(study.runs))
    assert study.draw("fig-distribution") == before


def test_curves_equal_the_results_ordered_by_map(study: Study) -> None:
    worse, best = study.cell("lsh"), study.cell("hcdh")
    other, second = study.cell("hcdh", bits=32), study.cell("hcdh", seed=1)
    results = [study.measure(cell, run=False) for cell in (worse, best, other, second)]
    results[0]["map"] = 0.1
    files.write_json(worse.path(study.results), results[0])
    series = study.draw("fig-pr")["series"]
    assert list(series) == ["hcdh", "lsh"] and len(series["hcdh"]["recall"]) == 65
    assert series["hcdh"]["precision"] == [
        round(value, 5) for value in results[1]["precision_recall"]["precision"]
    ]


def test_multilabel_points_are_omitted(study: Study) -> None:
    study.measure(study.cell(dataset="voc2012"), several=True)
    own = study.draw("fig-tsne")["series"]["hcdh"]
    assert len(own["xy"]) == len(own["class"]) == 85 and own["classes"] == list(CLASSES)
    assert np.bincount(own["class"]).tolist() == [28, 28, 29], "of 30 each, five have all classes"


def test_values_before_binarization(study: Study) -> None:
    study.measure(study.cell())
    own = study.draw("fig-distribution")["series"]["hcdh"]
    assert (
        own["saturated"] == 1
        and sum(own["shares"]) == pytest.approx(1)
        and len(own["edges"]) == len(own["shares"]) + 1
    )


def test_confusion_depth_is_at_most_the_smallest_class(study: Study) -> None:
    study.measure(study.cell())
    own = study.draw("fig-confusion")["series"]["hcdh"]
    matrix = np.array(own["matrix"])
    assert own["depth"] == 30 and own["classes"] == list(CLASSES)
    assert np.allclose(matrix.sum(axis=1), 1, atol=1e-4) and (np.diag(matrix) > 0.8).all()


def test_balance_has_one_part_per_length(study: Study) -> None:
    for bits in (128, 16, 64):
        result = study.measure(study.cell(bits=bits), run=False)
    series = study.draw("fig-balance")["series"]
    assert list(series) == ["16", "64", "128"]
    assert series["64"] == [round(value, 5) for value in result["bit_balance"]]


def test_lambda_figure_has_all_data_sets_and_seeds(study: Study) -> None:
    maps: dict[float, list[float]] = {}
    for lam in (10, 0, 0.05):
        for seed in (0, 1):
            cell = study.cell(seed=seed, mark=f"lam{lam:g}")
            maps.setdefault(lam, []).append(study.measure(cell, run=False, lam=lam)["map"])
    study.measure(study.cell(dataset="voc2012", mark="lam0"), run=False, lam=0)
    series = study.draw("fig-lambda")["series"]
    assert list(series) == ["cifar10", "voc2012"] and list(series["cifar10"]["maps"]) == [
        "0",
        "0.05",
        "10",
    ]
    assert series["cifar10"]["maps"]["0.05"] == [round(value, 5) for value in maps[0.05]]


def test_unknown_figures_and_wrong_files_are_refused(study: Study) -> None:
    with pytest.raises(UsageError, match="fig-pr"):
        study.draw("fig-rp")
    study.cell()
    files.write_json(study.out / "fig-pr-cifar10.json", {"figure": "fig-tsne", "series": {}})
    with pytest.raises(StorageError, match="Remove it"):
        study.draw("fig-pr")
