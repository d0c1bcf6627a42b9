"""Cells: one trained and measured model each, described by a recipe, written to `results/` as it finishes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from .. import files
from ..data import LabelledImages, find_dataset, open_dataset
from ..errors import unknown
from ..hasher import Hasher
from ..runs import Source, evaluate_run, train_run


@dataclass(frozen=True)
class Cell:
    """One number of a table: a method at a length on a data set, with one seed."""

    dataset: str
    method: str
    bits: int
    backbone: str
    seed: int
    protocol: str
    settings: dict[str, Any] = field(default_factory=dict, compare=False)

    def path(self, results: Path) -> Path:
        """<dataset>/<method>-<bits>-<backbone>-s<seed>.json; a protocol that is not the data set's own is in the name."""
        own = find_dataset(self.dataset).protocol == self.protocol
        name = f"{self.method}-{self.bits}-{self.backbone}-s{self.seed}" + ("" if own else f"-{self.protocol}")
        return results / self.dataset / f"{name}.json"


def recipes() -> list[str]:
    return sorted(path.name[:-5] for path in _folder().iterdir() if path.name.endswith(".toml"))


def read_recipe(name: str) -> list[Cell]:
    """All cells of a recipe, those of the first seed first, so that an interrupted table has all its rows."""
    if name not in recipes():
        raise unknown("recipe", name, recipes())
    content = files.read_toml(_folder() / f"{name}.toml")
    cells = [cell for dataset, table in content.items() for cell in _cells(dataset, table)]
    return sorted(cells, key=lambda cell: cell.seed)


def _cells(dataset: str, table: dict[str, Any]) -> Iterator[Cell]:
    protocol = table.get("protocol") or find_dataset(dataset).protocol
    for method, seeds in table["methods"].items():
        settings = {**table.get("settings", {}), **table.get("for", {}).get(method, {})}
        for bits in table["bits"]:
            for seed in seeds:
                yield Cell(dataset, method, bits, table["backbone"], seed, protocol, settings)


def run_cells(
    cells: list[Cell], *, results: Path, runs: Path, roots: dict[str, str], weights: str = "imagenet", device: str = "auto",
    say: Callable[[str], object] = lambda text: None, again: bool = False,
) -> None:  # fmt: skip
    """Run the cells that have no result yet; each is written as soon as it is measured."""
    opened: dict[str, LabelledImages] = {}
    for cell in cells:
        path = cell.path(results)
        if path.exists() and not again:
            continue
        if cell.dataset not in opened:
            opened[cell.dataset] = open_dataset(cell.dataset, roots.get(cell.dataset), say=say)
        result = _run(cell, opened[cell.dataset], runs / cell.dataset / path.stem, weights, device)
        files.write_json(path, result)
        say(f"{cell.dataset} {cell.method} {cell.bits} bits seed {cell.seed}: mAP {result['map']:.4f}")


def _run(cell: Cell, dataset: LabelledImages, out: Path, weights: str, device: str) -> dict[str, Any]:
    hasher = Hasher(
        cell.method, bits=cell.bits, backbone=cell.backbone, seed=cell.seed, weights=weights, device=device, **cell.settings
    )
    train_run(hasher, Source(cell.dataset, protocol=cell.protocol), out, dataset=dataset)
    report = evaluate_run(out, hasher=hasher, dataset=dataset)
    about = files.read_json(out / "run.json")
    for private in ("data", "root"):
        del about[private]
    measured = {
        "map": report.map,
        "depth": report.depth,
        "denominator": report.denominator,
        "precision_at": {str(k): value for k, value in report.precision_at.items()},
        "precision_recall": report.to_dict()["precision_recall"],
        "per_class": {str(c): value for c, value in report.per_class.items()},
        "bit_balance": report.to_dict()["bit_balance"],
    }
    return {**about, **measured}


def _folder() -> Any:
    return resources.files(__package__) / "recipes"
