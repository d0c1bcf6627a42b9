"""Evidence on the paper's claims: all results on one data set, and what a judge finds in them."""

from __future__ import annotations

import math
import statistics
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

SHALLOW = ("lsh", "itq", "ksh", "sdh")
DEEP = ("ssdh", "dpsh", "dsdh", "hashnet", "mihash")
RIVALS = (*SHALLOW, *DEEP)  # the nine methods that the paper compares
PLANS = ("factorial", "seeds", "lambda-seeds", "tuning")


def _map(record: Record) -> float:
    return float(record["map"])


def correlation(record: Record) -> float:
    """Mean absolute correlation of two bits."""
    return float(record["bit_correlation"]["mean"])


def near_binary(record: Record) -> float:
    """Fraction of values beyond ±.9 before binarization."""
    return float(record["binarised"]["beyond_0.9"])


def precision(record: Record) -> float:
    """Precision of the first 100 results."""
    return float(record["precision_at"]["100"])


def imbalance(record: Record) -> float:
    """Mean deviation of a bit's fraction of ones from one half."""
    return float(statistics.mean(abs(share - 0.5) for share in record["bit_balance"]))


def entropy(record: Record) -> float:
    """Mean entropy of a bit; 1 for a balanced one."""
    pairs = [(share, 1 - share) for share in record["bit_balance"]]
    own = (-sum(p * math.log2(p) for p in pair if p > 0) for pair in pairs)
    return float(statistics.mean(own))


def at(values: Values, bits: int | None) -> Values:
    """The values at one code length; None: all."""
    return {key: value for key, value in values.items() if bits in (None, key[0])}


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
        trials: Records of the plan tuning.
    """

    def __init__(
        self,
        dataset: str,
        cells: Sequence[Cell],
        records: Sequence[Record],
        results: Path,
        seeds: Sequence[Record] = (),
        sweep: Sequence[Record] = (),
        trials: Sequence[Record] = (),
    ) -> None:
        self.cells = [cell for cell in cells if cell.dataset == dataset]
        self.records = [record for record in records if record["dataset"] == dataset]
        self._results = results
        self.seeds = [record for record in seeds if record["dataset"] == dataset]
        self.sweep = [record for record in sweep if record["dataset"] == dataset]
        self.trials = [record for record in trials if record["dataset"] == dataset]

    def tuned(self, method: str, measure: Measure | None = None) -> Values:
        """Values of a method with tuned settings by (bits, seed); diverged runs have none."""
        return arm(self.seeds, method, None, measure or _map)

    def rival(self, method: str, measure: Measure | None = None) -> Values:
        """Values of a method by (bits, seed): of its tuned runs, or else of table 1."""
        return self.tuned(method, measure) or self.table(method, measure or _map)

    def arm(self, method: str, codebook: str | None, measure: Measure | None = None) -> Values:
        """Values of one arm of the factorial by (bits, seed)."""
        return arm(self.records, method, codebook, measure or _map)

    def table(
        self,
        method: str,
        measure: Measure = _map,
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
    records, *others = (Collected(results / plan).records() for plan in PLANS)
    return [Evidence(name, cells, records, results, *others) for name in names]
