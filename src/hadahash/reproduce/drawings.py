"""The kinds of figures: the data and the drawing function of each."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import files
from ..errors import StorageError
from ..evaluation import analysis
from ..runs import EvaluatedRun, read_evaluated_run
from ..visuals import figures as plots
from .names import display_name
from .recipes import Cell

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Data = dict[str, Any]
BITS = 64  # code length of the paper's figures
COMPARED = ("hcdh", "mihash")  # the methods whose codes are compared
CODEBOOK = "far"  # of the cells of table 1
DEPTH = 1000  # of the confusion matrix, at most


@dataclass(frozen=True)
class Source:
    """Where the data of a figure come from: the cells of one data set, or of all.

    Attributes:
        cells: The cells.
        results: Folder of the results.
        runs: Folder of the runs.
        info: Receives messages.
    """

    cells: Sequence[Cell]
    results: Path
    runs: Path
    info: Callable[[str], object]

    def measured(self, **attributes: Any) -> Iterator[tuple[Cell, Data]]:
        """The cells with these attributes that have a result, the lowest seed first."""
        for cell in sorted(self.cells, key=lambda cell: cell.seed):
            if (
                all(getattr(cell, key) == value for key, value in attributes.items())
                and cell.path(self.results).exists()
            ):
                yield cell, files.read_json(cell.path(self.results))

    def evaluated(self, method: str) -> EvaluatedRun | None:
        """The first run of a method at 64 bits that has been evaluated."""
        for cell in sorted(self.cells, key=lambda cell: cell.seed):
            folder = cell.folder(self.runs)
            if (cell.method, cell.bits) == (method, BITS) and folder.exists():
                try:
                    return read_evaluated_run(folder)
                except StorageError as error:
                    self.info(str(error))
        return None


@dataclass(frozen=True)
class Drawing:
    """How one kind of figure is made. Its data have a `series` of named parts and a `caption`.

    Attributes:
        recipe: The recipe with its cells.
        gather: Collects the series; empty if nothing was run.
        draw: Makes the picture.
        caption: The caption, with {dataset} for the name of the data set.
        each: Whether there is one figure per data set or one for all.
        from_runs: The data come from runs, not from results.
    """

    recipe: str
    gather: Callable[[Source], dict[str, Any]]
    draw: Callable[[Data], Figure]
    caption: str
    each: bool = True
    from_runs: bool = False


# ---------------------------------------------------------------- precision and recall


def _gather_curves(source: Source) -> dict[str, Any]:
    series: dict[str, Any] = {}
    for cell, result in source.measured(bits=BITS):
        found = result["precision_recall"]
        kept = {
            "map": result["map"],
            "depth": result["depth"],
            "precision": found["precision"],
            "recall": found["recall"],
        }
        series.setdefault(cell.method, kept)
    return dict(sorted(series.items(), key=lambda item: -item[1]["map"]))


def _draw_curves(data: Data) -> Figure:
    series = data["series"]
    curves = [
        plots.Curve(
            method, f"{_short(part['map'])}  {_label(method)}", part["precision"], part["recall"]
        )
        for method, part in series.items()
    ]
    depth = next(iter(series.values()))["depth"]
    return plots.precision_recall(curves, title=_head(data), legend=_map_at(depth))


# ---------------------------------------------------------------- codes on a plane


def _gather_points(source: Source) -> dict[str, Any]:
    return _from_runs(source, COMPARED, _points)


def _points(run: EvaluatedRun) -> Data:
    numbers = analysis.only_class(run.query_labels)
    chosen = analysis.sample(numbers)
    place = np.searchsorted(chosen.shown, numbers[chosen.rows]).clip(0, len(chosen.shown) - 1)
    return {
        "xy": analysis.tsne(run.query[chosen.rows]).round(2),
        "classes": [run.classes[number] for number in chosen.shown],
        # index in the list of classes; -1: not in the list
        "class": np.where(chosen.shown[place] == numbers[chosen.rows], place, -1),
    }


def _draw_points(data: Data) -> Figure:
    return plots.scatter(
        [
            plots.Points(_title(data, method), part["xy"], part["classes"], part["class"])
            for method, part in _compared(data)
        ]
    )


# ---------------------------------------------------------------- values before sign


def _gather_values(source: Source) -> dict[str, Any]:
    return _from_runs(source, COMPARED, lambda run: analysis.histogram(run.values)._asdict())


def _draw_values(data: Data) -> Figure:
    fields = analysis.Histogram._fields
    return plots.distribution(
        [
            (method, _title(data, method), analysis.Histogram(**{key: part[key] for key in fields}))
            for method, part in _compared(data)
        ]
    )


# ---------------------------------------------------------------- confusion of classes


def _gather_confusion(source: Source) -> dict[str, Any]:
    return _from_runs(source, COMPARED[:1], _confusion)


def _confusion(run: EvaluatedRun) -> Data:
    """The depth is at most the size of the smallest class: perfect retrieval fills the diagonal."""
    labels, count = run.database_labels, len(run.classes)
    sizes = labels.sum(axis=0) if labels.ndim == 2 else np.bincount(labels, minlength=count)
    depth = int(min(DEPTH, sizes[sizes > 0].min()))
    sides = run.query, run.query_labels, run.database, labels
    return {
        "depth": depth,
        "classes": run.classes,
        "matrix": analysis.confusion(*sides, classes=count, depth=depth),
    }


def _draw_confusion(data: Data) -> Figure:
    method, part = next(_compared(data))
    below = f"class of the first {part['depth']:,} images"
    return plots.confusion_matrix(
        part["matrix"], part["classes"], title=_title(data, method), xlabel=below
    )


# ---------------------------------------------------------------- balance of bits


def _gather_balance(source: Source) -> dict[str, Any]:
    series: dict[str, Any] = {}
    for cell, result in source.measured(method="hcdh"):
        series.setdefault(str(cell.bits), result["bit_balance"])
    return dict(sorted(series.items(), key=lambda item: int(item[0])))


def _draw_balance(data: Data) -> Figure:
    shares = {int(bits): part for bits, part in data["series"].items()}
    return plots.balance(shares, title=f"{_label('hcdh')} on {display_name(data['dataset'])}")


# ---------------------------------------------------------------- lambda


def _gather_lambda(source: Source) -> dict[str, Any]:
    series: dict[str, Any] = {}
    for cell, result in source.measured(method="hcdh", bits=BITS):
        part = series.setdefault(cell.dataset, {"depth": result["depth"], "maps": {}})
        part["maps"].setdefault(f"{result['settings']['lam']:g}", []).append(result["map"])
    for part in series.values():
        part["maps"] = dict(sorted(part["maps"].items(), key=lambda item: float(item[0])))
    return series


def _draw_lambda(data: Data) -> Figure:
    sweeps = []
    for dataset, part in data["series"].items():
        maps = part["maps"].values()
        spread = [statistics.stdev(found) if len(found) > 1 else 0.0 for found in maps]
        label = display_name(dataset) + (f", {_map_at(part['depth'])}" if part["depth"] else "")
        sweeps.append(
            plots.Sweep(
                label,
                [float(lam) for lam in part["maps"]],
                [statistics.mean(found) for found in maps],
                spread,
            )
        )
    return plots.sensitivity(sweeps, xlabel="λ, the weight of the classification loss")


# ---------------------------------------------------------------- common to all


def _from_runs(
    source: Source, methods: Sequence[str], picked: Callable[[EvaluatedRun], Data]
) -> dict[str, Any]:
    runs = {method: source.evaluated(method) for method in methods}
    return {
        method: {"seed": run.record["seed"], "map": run.report["map"], **picked(run)}
        for method, run in runs.items()
        if run is not None
    }


def _compared(data: Data) -> Iterator[tuple[str, Data]]:
    """The parts of a figure's data in the order in which they are shown."""
    return ((method, data["series"][method]) for method in COMPARED if method in data["series"])


def _head(data: Data) -> str:
    return f"{display_name(data['dataset'])}, {BITS} bits"


def _title(data: Data, method: str) -> str:
    """The title names the mAP: degenerate codes can look good."""
    found = data["series"][method].get("map")
    return f"{_label(method)}, {_head(data)}" + ("" if found is None else f", mAP {_short(found)}")


def _label(method: str) -> str:
    return display_name(method, CODEBOOK)


def _map_at(depth: int | None) -> str:
    return "mAP" if depth is None else f"mAP@{depth}"


def _short(value: float) -> str:
    return f"{value:.3f}".removeprefix("0")


_HCDH = _label("hcdh")

FIGURES = {
    "fig-pr": Drawing(
        "table1",
        _gather_curves,
        _draw_curves,
        f"Precision and recall within a Hamming radius from 0 to {BITS}, on {{dataset}}, {BITS} "
        "bits: means over queries; a query without an item within the radius counts with precision "
        "0. The dot marks the smallest radius at which a query finds a relevant item. Methods are "
        "ordered by mAP.",
    ),
    "fig-tsne": Drawing(
        "table1",
        _gather_points,
        _draw_points,
        f"t-SNE of the {BITS}-bit codes of at most 1,000 queries of {{dataset}} with exactly one "
        "class, by Hamming distance, with normal noise worth one bit to separate equal codes. At "
        "most ten classes, those with most queries, are in color.",
        from_runs=True,
    ),
    "fig-distribution": Drawing(
        "table1",
        _gather_values,
        _draw_values,
        f"Values before binarization of the queries of {{dataset}} at {BITS} bits, as the loss of "
        "the method sees them.",
        from_runs=True,
    ),
    "fig-confusion": Drawing(
        "table1",
        _gather_confusion,
        _draw_confusion,
        f"Classes that the {BITS}-bit codes of {_HCDH} retrieve (columns, percent) for queries of "
        f"a class (rows) on {{dataset}}: the first {DEPTH:,} items, or the size of the smallest "
        "class, the item at rank r with weight 1/log2(1 + r), averaged over ties. Rows sum to 100; "
        "a blank is less than 0.5.",
        from_runs=True,
    ),
    "fig-balance": Drawing(
        "table1",
        _gather_balance,
        _draw_balance,
        f"Fractions of +1 and -1 in each bit of the codes of {_HCDH} of the database of "
        "{dataset}, at each length.",
    ),
    "fig-lambda": Drawing(
        "lambda",
        _gather_lambda,
        _draw_lambda,
        f"mAP of {_HCDH} at {BITS} bits over the weight λ of the classification loss; the ring "
        "marks the best value, bars the standard deviation over seeds if there are several.",
        each=False,
    ),
}
