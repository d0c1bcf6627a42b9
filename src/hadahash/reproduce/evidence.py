"""Evidence on the paper's claims: all results on one data set, and what a judge finds in them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import files
from .collected import Collected, Record
from .factorial import arm
from .forms import Measure
from .intervals import Interval, Values
from .recipes import Cell

Result = dict[str, Any]


@dataclass(frozen=True)
class Finding:
    """The evidence of one data set on a claim.

    Attributes:
        text: The measured values.
        interval: The difference in favor of the claim; None if it cannot be judged.
        note: Why it cannot be judged.
    """

    text: str
    interval: Interval | None = None
    note: str = ""


class Evidence:
    """All results on one data set.

    Args:
        dataset: Name of the data set.
        cells: Cells of recipes.
        records: Records of the factorial.
        results: Folder of the results.
        seeds: Records of the plan seeds: tuned methods.
        sweep: Records of the plan lambda-seeds.
    """

    def __init__(
        self,
        dataset: str,
        cells: Sequence[Cell],
        records: Sequence[Record],
        results: Path,
        seeds: Sequence[Record] = (),
        sweep: Sequence[Record] = (),
    ) -> None:
        self.cells = [cell for cell in cells if cell.dataset == dataset]
        self.records = [record for record in records if record["dataset"] == dataset]
        self._results = results
        self.seeds = [record for record in seeds if record["dataset"] == dataset]
        self.sweep = [record for record in sweep if record["dataset"] == dataset]

    def tuned(self, method: str, measure: Measure | None = None) -> Values:
        """Values of a method with tuned settings by (bits, seed); diverged runs have none."""
        return arm(self.seeds, method, None, measure or (lambda own: float(own["map"])))

    def arm(self, method: str, codebook: str | None, measure: Measure | None = None) -> Values:
        """Values of one arm of the factorial by (bits, seed)."""
        return arm(self.records, method, codebook, measure or (lambda own: float(own["map"])))

    def table(
        self,
        method: str,
        measure: Callable[[Result], float] = lambda result: float(result["map"]),
        **varied: Any,
    ) -> Values:
        """Values of the cells of a method by (bits, seed), without degenerate runs."""
        found = {}
        for cell in self.cells:
            path = cell.path(self._results)
            if (cell.method, cell.varied) != (method, varied) or not path.exists():
                continue
            if not cell.is_degenerate(self._results):
                try:
                    found[cell.bits, cell.seed] = measure(files.read_json(path))
                except KeyError:
                    continue
        return found


Judge = Callable[[Evidence], "Finding | None"]


def collect_evidence(names: Sequence[str], cells: Sequence[Cell], results: Path) -> list[Evidence]:
    """Collect the evidence of all experiments, one per data set.

    Args:
        names: Names of the data sets.
        cells: Cells of recipes.
        results: Folder of the results.

    Returns:
        The evidence in the order of the names.
    """
    plans = [Collected(results / name).records() for name in ("factorial", "seeds", "lambda-seeds")]
    return [Evidence(name, cells, plans[0], results, plans[1], plans[2]) for name in names]
