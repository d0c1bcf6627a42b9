"""Tables out of `results/`, as Markdown, CSV and LaTeX: no number in them is typed by hand."""

from __future__ import annotations

import csv
import io
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from .. import files
from ..data import find_dataset
from .names import written
from .recipes import Cell, Recipe

_PAPER_BITS = (16, 32, 64, 128)
_TITLES = {
    "table1": "Table 1: all methods",
    "table2": "Table 2: HCDH and its variants",
    "lambda": "The weight λ of the classification loss",
    "threshold": "The mean instead of 0 as threshold",
    "alexnet": "HCDH with AlexNet",
}


@dataclass(frozen=True)
class Entry:
    """What the results say of one place in a table."""

    maps: tuple[float, ...]  # one for each seed
    paper: float | None = None
    fell_apart: bool = False  # in one of them at least

    @property
    def status(self) -> str:
        return "fell apart" if self.fell_apart else "run" if self.maps else "not run"

    @property
    def mean(self) -> float | None:
        return statistics.mean(self.maps) if self.maps else None

    @property
    def spread(self) -> float | None:
        """The standard deviation over seeds."""
        return statistics.stdev(self.maps) if len(self.maps) > 1 else None

    def text(
        self, *, best: bool = False, bold: str = "**{}**", plus_minus: str = "±", dagger: str = "†"
    ) -> str:
        """.812 ±.003 (3) / .790: the mean, the spread, the number of seeds and the paper's value"""
        if self.mean is None:
            ours = self.status
        else:
            shown = short(self.mean)
            spread = "" if self.spread is None else f" {plus_minus}{short(self.spread)}"
            mark = dagger if self.fell_apart else ""
            ours = f"{bold.format(shown) if best else shown}{mark}{spread} ({len(self.maps)})"
        return ours if self.paper is None else f"{ours} / {short(self.paper)}"


@dataclass(frozen=True)
class Table:
    """The results of a recipe on one data set: rows of methods, columns of lengths."""

    dataset: str
    depth: int | None  # of the mean average precision; None: all
    entries: dict[tuple[str, int], Entry]  # (row, bits)

    @property
    def rows(self) -> list[str]:
        return list(dict.fromkeys(row for row, _ in self.entries))

    @property
    def bits(self) -> list[int]:
        return sorted({bits for _, bits in self.entries})

    @property
    def measure(self) -> str:
        return f"mAP@{self.depth or 'all'}"

    def best(self, bits: int) -> str | None:
        """The row with the largest mean."""
        run = {
            row: e.mean
            for (row, own), e in self.entries.items()
            if own == bits and e.mean is not None
        }
        return max(run, key=lambda row: run[row]) if len(run) > 1 else None

    def cells(self, row: str, **style: str) -> list[str]:
        """The texts of a row, one for each length."""
        return [
            self.entries[row, bits].text(best=self.best(bits) == row, **style)
            if (row, bits) in self.entries
            else ""
            for bits in self.bits
        ]

    @property
    def missing(self) -> int:
        return sum(entry.status == "not run" for entry in self.entries.values())


def paper_values() -> dict[str, dict[str, list[float]]]:
    return files.read_toml(resources.files(__package__) / "paper.toml")


def tables(cells: Sequence[Cell], results: Path) -> list[Table]:
    """One table for each data set, and one more for each further depth that mAP is taken at."""
    found = []
    for dataset in dict.fromkeys(cell.dataset for cell in cells):
        own = [cell for cell in cells if cell.dataset == dataset]
        found += [_table(own, results, depth) for depth in (None, *own[0].depths)]
    return found


def _table(cells: Sequence[Cell], results: Path, depth: int | None) -> Table:
    """`depth`: one of the further depths, or None for the data set's own."""
    printed = paper_values().get(cells[0].dataset, {})
    maps: dict[tuple[str, int], list[float]] = defaultdict(list)
    papers, broken, own_depth = {}, set(), depth or find_dataset(cells[0].dataset).depth
    for cell in cells:
        key = (row_name(cell), cell.bits)
        values = printed.get(cell.method, []) if depth is None and not cell.varied else []
        papers[key] = dict(zip(_PAPER_BITS, values, strict=False)).get(cell.bits)
        path = cell.path(results)
        if path.exists():
            result = files.read_json(path)
            maps[key].append(
                float(result["map"] if depth is None else result["map_at"][str(depth)])
            )
        if cell.hopeless(results) if path.exists() else cell.mishaps(results):
            broken.add(key)
    entries = {key: Entry(tuple(maps[key]), paper, key in broken) for key, paper in papers.items()}
    return Table(cells[0].dataset, own_depth, entries)


def row_name(cell: Cell) -> str:
    return ", ".join(filter(None, [written(cell.method), _listed(cell.varied)]))


def _listed(settings: dict[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in settings.items())


def markdown(table: Table) -> str:
    head = ["method", *(f"{bits} bits" for bits in table.bits)]
    rows = [head, ["---"] * len(head), *([row, *table.cells(row)] for row in table.rows)]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def latex(table: Table, caption: str) -> str:
    columns = " & ".join(["method", *(f"{bits} bits" for bits in table.bits)])
    rows = [
        " & ".join(
            [
                _escape(row),
                *table.cells(row, bold=r"\textbf{{{}}}", plus_minus=r"$\pm$", dagger=r"$\dagger$"),
            ]
        )
        + r" \\"
        for row in table.rows
    ]
    body = "\n".join([r"\toprule", columns + r" \\", r"\midrule", *rows, r"\bottomrule"])
    columns_spec = "l" + "c" * len(table.bits)
    top = f"\\begin{{table}}\n\\centering\n\\caption{{{_escape(caption)}}}\n\\begin{{tabular}}{{{columns_spec}}}\n"
    return f"{top}{body}\n\\end{{tabular}}\n\\end{{table}}\n"


def comma_separated(found: Sequence[Table]) -> str:
    """All tables in one: a line for each place."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        [
            "dataset",
            "measure",
            "method",
            "bits",
            "status",
            "map",
            "standard_deviation",
            "seeds",
            "paper",
        ]
    )
    for table in found:
        for (row, bits), entry in table.entries.items():
            numbers = [
                "" if value is None else f"{value:.5f}" for value in (entry.mean, entry.spread)
            ]
            printed = "" if entry.paper is None else entry.paper
            writer.writerow(
                [
                    table.dataset,
                    table.measure,
                    row,
                    bits,
                    entry.status,
                    *numbers,
                    len(entry.maps),
                    printed,
                ]
            )
    return text.getvalue()


def setting(cells: Sequence[Cell], results: Path) -> str:
    """One paragraph of what all results of these cells have in common, and the range of what they do not."""
    found = [
        files.read_json(path)
        for path in dict.fromkeys(cell.path(results) for cell in cells)
        if path.exists()
    ]
    if not found:
        return "No result yet."

    def common(*keys: str) -> str:
        return ", ".join(sorted({str(_at(result, keys)) for result in found} - {"None"})) or "none"

    alone = [
        result for result in found if result["images_per_second"] and result.get("jobs", 1) == 1
    ]
    rates = sorted(result["images_per_second"] for result in alone)
    ends = dict.fromkeys(f"{rate:,.0f}" for rate in (rates[0], rates[-1])) if rates else {}
    speed = f"; {' to '.join(ends)} training images a second" if rates else ""
    return (
        f"{found[0]['queries']:,} queries, {found[0]['train_images']:,} training images, database of "
        f"{found[0]['database']:,}; backbone {common('backbone')}, trained at "
        f"{common('preprocess', 'train_size')} px, encoding at {common('preprocess', 'size')} px; "
        f"{common('epochs')} epochs, last epoch, codebook {common('settings', 'codebook')}; exact expectation "
        f"over ties, average precision over the relevant items {common('denominator')} within the depth. "
        f"{common('hardware')}, torch {common('versions', 'torch')}{speed}. Dates: {common('date')}."
    )


def choices(recipe: Recipe, dataset: str, results: Path) -> str:
    """What each method chose in its trials, as a table; empty where there was nothing to choose."""
    rows = []
    for (own, method), trials in recipe.trials.items():
        if own != dataset or recipe.untried(own, method, results):
            continue
        (point, best), *_, (_, worst) = recipe.ranking(dataset, method, results)
        rows.append(
            f"| {written(method)} | {len(trials)} | {_listed(point)} | {short(best)} | {short(worst)} |"
        )
    head = "| method | points | chosen | its validation mAP | the worst point's |\n|---|---|---|---|---|\n"
    return head + "\n".join([*rows, *passed_over(recipe, dataset, results)]) if rows else ""


def passed_over(recipe: Recipe, dataset: str, results: Path) -> list[str]:
    """Where a cell fell apart with the settings its method chose, so that the next best were used: a list."""
    lines = []
    for cell in recipe.cells:
        if cell.dataset != dataset or not cell.mishaps(results) or not recipe.ready(cell, results):
            continue
        mishaps = [mishap["settings"] for mishap in cell.mishaps(results)]
        points = [point for point, _ in recipe.ranking(dataset, cell.method, results)]
        broken = [_listed(point) for point in points if cell.settings | point in mishaps]
        used = recipe.settle(cell, results)
        now = [_listed(point) for point in points if cell.settings | point == used.settings]
        if broken:
            where = f"{written(cell.method)}, {cell.bits} bits, seed {cell.seed}"
            lines.append(
                f"- {where}: fell apart with {'; '.join(broken)}; {_outcome(cell, used, results)} {now[0]}"
            )
    return ["", *lines] if lines else []


def _outcome(cell: Cell, used: Cell, results: Path) -> str:
    if cell.hopeless(results):
        return "stands with"
    return (
        "run with"
        if used.done(results)
        else "nothing is left after"
        if used.lost(results)
        else "still to be tried with"
    )


def write_tables(recipe: Recipe, results: Path, folder: Path) -> list[Path]:
    """The tables of a recipe as CSV and LaTeX."""
    found = tables(recipe.cells, results)
    texts = {
        "csv": comma_separated(found),
        "tex": "\n".join(
            latex(table, f"{_title(recipe.name)}, {written(table.dataset)}, {table.measure}")
            for table in found
        ),
    }
    paths = []
    for ending, text in texts.items():
        paths.append(folder / f"{recipe.name}.{ending}")
        files.write_text(paths[-1], text)
    return paths


def write_page(path: Path, recipes: Sequence[Recipe], results: Path, notes: Path) -> None:
    """docs/results.md: the tables, the settings, and the notes that people wrote about them."""
    parts = [
        "# Results",
        "",
        "This page is generated by `hadahash reproduce` from the files in `results/`; edit `docs/results-notes.md` instead.",
        "The same tables as CSV and LaTeX are in `docs/tables/`.",
        "",
        "A cell reads: ours ± standard deviation over seeds (number of seeds) / the paper's value, which is for AlexNet. The",
        "best of a column is bold; † marks what fell apart in training (see *Settings chosen* below the table).",
        "",
    ]
    if notes.exists():
        parts += [notes.read_text("utf-8").rstrip(), ""]
    order = {name: place for place, name in enumerate(_TITLES)}
    for recipe in sorted(recipes, key=lambda recipe: order.get(recipe.name, len(order))):
        parts += [f"## {_title(recipe.name)}", "", f"`hadahash reproduce {recipe.name}`", ""]
        parts += [
            text
            for table in tables(recipe.cells, results)
            for text in _section(recipe, table, results)
        ]
    files.write_text(path, "\n".join(parts))


def _section(recipe: Recipe, table: Table, results: Path) -> list[str]:
    own = [cell for cell in recipe.cells if cell.dataset == table.dataset]
    parts = [f"### {written(table.dataset)}, {table.measure}", "", markdown(table), ""]
    if table.depth in own[0].depths:
        return parts
    parts += [setting(own, results), ""]
    if table.missing:
        parts += [f"Not run: {table.missing} of {len(table.entries)} cells.", ""]
    grid = choices(recipe, table.dataset, results) if recipe.owns_grid else ""
    return parts + (
        [f"<details><summary>Settings chosen</summary>\n\n{grid}\n\n</details>", ""] if grid else []
    )


def _title(name: str) -> str:
    return _TITLES.get(name, name)


def _at(value: Any, keys: tuple[str, ...]) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def short(value: float) -> str:
    """
    >>> short(0.8125), short(-0.01)
    ('.812', '-.010')
    """
    return f"{value:.3f}".replace("0.", ".", 1)


def _escape(text: str) -> str:
    return (
        text.replace("%", r"\%").replace("&", r"\&").replace("_", r"\_").replace("λ", r"$\lambda$")
    )
