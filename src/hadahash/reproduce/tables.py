"""Tables generated from `results/`, as Markdown, CSV and LaTeX."""

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
from .intervals import short
from .names import CODEBOOK_METHODS, display_name
from .noise import rerun_noise
from .recipes import Cell, Recipe

PAPER_BITS = (16, 32, 64, 128)
TITLES = {
    "table1": "Table 1: all methods",
    "table2": "Table 2: HCDH (far) and its variants",
    "lambda": "The weight λ of the classification loss",
    "threshold": "The mean instead of 0 as threshold",
    "alexnet": "HCDH (far) with AlexNet",
}


@dataclass(frozen=True)
class Entry:
    """One entry of a table.

    Attributes:
        maps: One mAP per seed.
        paper: The paper's value.
        diverged: Whether a run diverged or was degenerate.
    """

    maps: tuple[float, ...]
    paper: float | None = None
    diverged: bool = False

    @property
    def status(self) -> str:
        """One of "run", "not run" and "diverged"."""
        return "diverged" if self.diverged else "run" if self.maps else "not run"

    @property
    def mean(self) -> float | None:
        """Mean over seeds."""
        return statistics.mean(self.maps) if self.maps else None

    @property
    def spread(self) -> float | None:
        """Standard deviation over seeds."""
        return statistics.stdev(self.maps) if len(self.maps) > 1 else None

    def text(
        self, *, best: bool = False, bold: str = "**{}**", plus_minus: str = "±", dagger: str = "†"
    ) -> str:
        """Format the entry, for example .812 ±.003 (3) / .790.

        Args:
            best: Print the mean in bold.
            bold: Format of bold text.
            plus_minus: The sign before the standard deviation.
            dagger: The mark of a degenerate run.

        Returns:
            Mean, standard deviation, number of seeds, and the paper's value.
        """
        if self.mean is None:
            ours = self.status
        else:
            shown = short(self.mean)
            spread = "" if self.spread is None else f" {plus_minus}{short(self.spread)}"
            mark = dagger if self.diverged else ""
            ours = f"{bold.format(shown) if best else shown}{mark}{spread} ({len(self.maps)})"
        return ours if self.paper is None else f"{ours} / {short(self.paper)}"


@dataclass(frozen=True)
class Table:
    """The results of a recipe on one data set: rows of methods, columns of lengths.

    Attributes:
        dataset: Name of the data set.
        depth: Depth of mAP; None: all.
        entries: Entries by (row, bits).
    """

    dataset: str
    depth: int | None
    entries: dict[tuple[str, int], Entry]

    @property
    def rows(self) -> list[str]:
        """Names of the rows."""
        return list(dict.fromkeys(row for row, _ in self.entries))

    @property
    def bits(self) -> list[int]:
        """Code lengths, ascending."""
        return sorted({bits for _, bits in self.entries})

    @property
    def measure(self) -> str:
        """Name of the measure."""
        return f"mAP@{self.depth or 'all'}"

    def best(self, bits: int) -> set[str]:
        """Rows within twice the rerun noise of the best of a column.

        Args:
            bits: Code length.

        Returns:
            Names of the rows; empty if the column has fewer than two.
        """
        means = {
            row: e.mean
            for (row, own), e in self.entries.items()
            if own == bits and e.mean is not None
        }
        if len(means) < 2:
            return set()
        least = max(means.values()) - 2 * rerun_noise(self.dataset)
        return {row for row, mean in means.items() if mean >= least}

    def cells(self, row: str, **style: str) -> list[str]:
        """Format a row.

        Args:
            row: Name of the row.
            **style: Options of `Entry.text`.

        Returns:
            One text per length.
        """
        return [
            self.entries[row, bits].text(best=row in self.best(bits), **style)
            if (row, bits) in self.entries
            else ""
            for bits in self.bits
        ]

    @property
    def missing(self) -> int:
        """Number of entries without a run."""
        return sum(entry.status == "not run" for entry in self.entries.values())


def paper_values() -> dict[str, dict[str, list[float]]]:
    """mAP as printed in the paper: data set, method, values at 16, 32, 64 and 128 bits."""
    return files.read_toml(resources.files(__package__) / "paper.toml")


def tables(cells: Sequence[Cell], results: Path) -> list[Table]:
    """Make one table per data set, and one more per further depth of mAP.

    Args:
        cells: Cells of a recipe.
        results: Folder of the results.

    Returns:
        The tables.
    """
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
        same = cell.method not in CODEBOOK_METHODS or cell.codebook in (None, "paper")
        values = printed.get(cell.method, []) if depth is None and not cell.varied and same else []
        papers[key] = dict(zip(PAPER_BITS, values, strict=False)).get(cell.bits)
        path = cell.path(results)
        if path.exists():
            result = files.read_json(path)
            maps[key].append(
                float(result["map"] if depth is None else result["map_at"][str(depth)])
            )
        if cell.is_degenerate(results) if path.exists() else cell.failed_runs(results):
            broken.add(key)
    entries = {key: Entry(tuple(maps[key]), paper, key in broken) for key, paper in papers.items()}
    return Table(cells[0].dataset, own_depth, entries)


def row_name(cell: Cell) -> str:
    """Name of the row of a cell: the method, and the settings that vary."""
    shown = display_name(cell.method, cell.codebook)
    return ", ".join(filter(None, [shown, listed(cell.varied)]))


def listed(settings: dict[str, Any]) -> str:
    """Settings as text, for example "lr 0.1, lam 1.0"."""
    return ", ".join(f"{key} {value}" for key, value in settings.items())


def markdown(table: Table) -> str:
    """Format a table as Markdown."""
    head = ["method", *(f"{bits} bits" for bits in table.bits)]
    rows = [head, ["---"] * len(head), *([row, *table.cells(row)] for row in table.rows)]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def latex(table: Table, caption: str) -> str:
    """Format a table as LaTeX."""
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
    top = (
        f"\\begin{{table}}\n\\centering\n\\caption{{{_escape(caption)}}}\n"
        f"\\begin{{tabular}}{{{columns_spec}}}\n"
    )
    return f"{top}{body}\n\\end{{tabular}}\n\\end{{table}}\n"


def comma_separated(found: Sequence[Table]) -> str:
    """Format tables as CSV, one line per entry."""
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


def write_tables(recipe: Recipe, results: Path, folder: Path) -> list[Path]:
    """Write the tables of a recipe as CSV and LaTeX.

    Args:
        recipe: The recipe.
        results: Folder of the results.
        folder: Folder of the tables.

    Returns:
        The files that were written.
    """
    found = tables(recipe.cells, results)
    texts = {
        "csv": comma_separated(found),
        "tex": "\n".join(
            latex(table, f"{title(recipe.name)}, {display_name(table.dataset)}, {table.measure}")
            for table in found
        ),
    }
    paths = []
    for ending, text in texts.items():
        paths.append(folder / f"{recipe.name}.{ending}")
        files.write_text(paths[-1], text)
    return paths


def title(name: str) -> str:
    """Title of the tables of a recipe."""
    return TITLES.get(name, name)


def _escape(text: str) -> str:
    return (
        text.replace("%", r"\%").replace("&", r"\&").replace("_", r"\_").replace("λ", r"$\lambda$")
    )
