"""What an evaluation found out."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from .. import files
from .metrics import Denominator, PrecisionRecall, Reals

Empty = Literal["zero", "skip"]


@dataclass(frozen=True, eq=False)
class Report:
    """All measures of one retrieval experiment, with the policies under which they hold."""

    map: float  # the mean of `ap`; exact expectation over the order of ties
    depth: int | None  # how far down the ranking precision is averaged; None: to the end
    denominator: Denominator  # of average precision, see metrics.average_precision
    empty: Empty  # what becomes of queries whose denominator is 0: AP 0, or left out
    queries: int
    database: int
    bits: int
    queries_without_relevant: int  # in the whole database
    ap: Reals  # (queries,); NaN where left out
    per_class: dict[int, float]  # the mean AP of the queries of each class
    precision_recall: PrecisionRecall
    precision_at: dict[int, float]
    bit_balance: Reals  # (bits,): the share of database codes in which the bit is +1
    skipped: int = 0  # images that could not be read

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, lists and dictionaries. NaN, which JSON does not know, becomes None."""
        plain: dict[str, Any] = _plain(asdict(self))
        return plain

    def to_json(self, path: str | Path | None = None) -> str:
        """The report as JSON text; also written to `path` where one is given."""
        text = json.dumps(self.to_dict(), indent=2)
        if path is not None:
            files.write_text(path, text + "\n")
        return text

    def __str__(self) -> str:
        depth = "all" if self.depth is None else f"{self.depth:,}"
        precision = "  ".join(f"P@{k} {value:.4f}" for k, value in self.precision_at.items())
        lines = [
            f"mAP@{depth} {self.map:.4f}  ({self.queries:,} queries, {self.database:,} codes of {self.bits} bits)",
            precision,
            f"ties: expectation, denominator: {self.denominator}, queries without relevant items: {self.empty}",
        ]
        if self.queries_without_relevant:
            lines.append(
                f"{self.queries_without_relevant:,} queries have no relevant item in the database"
            )
        return "\n".join(line for line in lines if line)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return [_plain(item) for item in value.tolist()]
    return None if isinstance(value, float) and math.isnan(value) else value
