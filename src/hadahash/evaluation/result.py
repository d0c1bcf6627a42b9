"""The result of an evaluation."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

import numpy as np

from .. import files
from ..errors import StorageError
from .known_item import KnownItem
from .metrics import Denominator, PrecisionRecall, Reals
from .text_tables import alteration_table, ranking_table

EmptyQueries = Literal["zero", "skip", "error"]

_NAN = float("nan")
_REALS = (
    "chance",
    "prevalence",
    "precision_radius_2",
    "nonempty_radius_2",
    "first_ten_tie",
    "agreement",
)
_NOT_REAL = ("radius", "by")  # of a curve
_RENAMED = {"ap": "average_precision", "empty": "empty_queries"}  # names of version 0.1


@dataclass(frozen=True, eq=False)
class Report:
    """All metrics of one retrieval experiment and the policies they were computed under.

    Every value is the exact expectation over the order of items at equal distance.

    Attributes:
        map: Mean of `average_precision`.
        depth: Rank cut-off R of mAP@R; None: the whole ranking.
        denominator: What average precision divides by, see `metrics.average_precision`.
        empty_queries: Treatment of queries whose denominator is 0: AP 0, left out, or an error.
        queries: Number of queries.
        database: Number of database items.
        bits: Code length.
        queries_without_relevant: Number of queries without a relevant item in the database.
        average_precision: float (queries,), NaN where a query was left out.
        per_class: Mean average precision of the queries of each class.
        precision_recall: Precision and recall at each Hamming radius.
        precision_at: Mean precision among the first k results, for each k.
        bit_balance: float (bits,), fraction of database codes in which the bit is +1.
        chance: mAP of a random ranking under the same policies.
        prevalence: Mean fraction of the database that is relevant: precision of a random ranking.
        map_by_denominator: mAP for both denominators; they differ only where `depth` is set.
        precision_radius_2: Mean precision within Hamming radius 2, 0 for an empty ball.
        nonempty_radius_2: Fraction of queries with at least one item within Hamming radius 2.
        distinct_codes: Number of distinct codes in the database; None in reports of version 0.1.
        skipped: Number of images that could not be read and therefore were not evaluated.
        rank: What the database was ranked by: "hamming", "class" or "photo".
        weight: Weight of the content in "photo".
        precision_at_most: The largest possible precision among the first k results: queries may
            have fewer than k relevant items.
        first_ten_tie: Fraction of queries whose first ten results have equal distance or score.
        rankings: Reports of the same codes under other rankings, by name.
        known_item: Known-item search with altered copies of database images: measures by ranking
            and alteration. Empty if it was not run.
        map_by_training: mAP of the queries of classes that were trained on ("seen") and of other
            queries ("unseen"), if there are any of the latter.
        agreement: Expected fraction of the ten images that are nearest by the features of the
            original backbone (cosine) among the first ten results; NaN if it was not measured.
    """

    map: float
    depth: int | None
    denominator: Denominator
    empty_queries: EmptyQueries
    queries: int
    database: int
    bits: int
    queries_without_relevant: int
    average_precision: Reals
    per_class: dict[Any, float]
    precision_recall: PrecisionRecall
    precision_at: dict[int, float]
    bit_balance: Reals
    chance: float = _NAN
    prevalence: float = _NAN
    map_by_denominator: dict[str, float] = field(default_factory=dict)
    precision_radius_2: float = _NAN
    nonempty_radius_2: float = _NAN
    distinct_codes: int | None = None
    skipped: int = 0
    rank: str = "hamming"
    weight: float | None = None
    precision_at_most: dict[int, float] = field(default_factory=dict)
    first_ten_tie: float = _NAN
    agreement: float = _NAN
    rankings: dict[str, Report] = field(default_factory=dict)
    known_item: dict[str, dict[str, KnownItem]] = field(default_factory=dict)
    map_by_training: dict[str, float] = field(default_factory=dict)

    def summary(self) -> str:
        """One plain sentence: how many of the nearest images share a label with the query.

        Returns:
            Text such as "Of the 10 nearest images, 9.0 share a label with the query (by chance:
            1.7)."
        """
        cutoffs = [k for k in self.precision_at if k <= 10] or list(self.precision_at)
        if not cutoffs:
            return f"mAP is {self.map:.4f} (by chance: {self.chance:.4f})."
        k = max(cutoffs) if max(cutoffs) <= 10 else min(cutoffs)
        precision = self.precision_at[k]
        if k == 1:
            text = f"The nearest image shares a label with the query in {precision:.1%} of searches"
            chance = f"{self.prevalence:.1%}"
        else:
            text = f"Of the {k} nearest images, {k * precision:.1f} share a label with the query"
            chance = f"{k * self.prevalence:.1f}"
        return f"{text}." if math.isnan(self.prevalence) else f"{text} (by chance: {chance})."

    def to_dict(self) -> dict[str, Any]:
        """The report as plain numbers, lists and dictionaries.

        Returns:
            A dictionary that JSON can hold: keys are strings, NaN is None.
        """
        plain: dict[str, Any] = _plain(asdict(self))
        return plain

    def to_json(self, path: str | Path | None = None) -> str:
        """The report as JSON text.

        Args:
            path: File to write the text to as well, if given.

        Returns:
            The JSON text.

        Raises:
            StorageError: If the file cannot be written.
        """
        text = json.dumps(self.to_dict(), indent=2)
        if path is not None:
            files.write_text(path, text + "\n")
        return text

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Report:
        """Create a report from the output of `to_dict`, of this version or of 0.1.

        Unknown keys are ignored.

        Args:
            values: The dictionary.

        Returns:
            The report. Values that version 0.1 did not store have their defaults.

        Raises:
            StorageError: If a value is missing or of the wrong kind.
        """
        renamed = {_RENAMED.get(name, name): value for name, value in values.items()}
        known = {each.name for each in fields(cls)}
        stored = {name: value for name, value in renamed.items() if name in known}
        try:
            return cls(**stored | _typed(stored))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise StorageError(
                f"The report is damaged or incomplete ({error}). Run the evaluation again."
            ) from error

    @classmethod
    def load(cls, path: str | Path) -> Report:
        """Read a file that `to_json` wrote, in this version or in version 0.1.

        Args:
            path: The JSON file.

        Returns:
            The report.

        Raises:
            StorageError: If the file cannot be read or is damaged.
        """
        values = files.read_json(path)
        if not isinstance(values, dict):
            raise StorageError(f"{path} is not an evaluation report.")
        return cls.from_dict(values)

    def __str__(self) -> str:
        """A human-readable summary of a few lines."""
        lines = [
            self._headline(),
            "  ".join(self._precision_text(k) for k in self.precision_at),
        ]
        if self.precision_at:
            lines.append(self.summary())
        treatment = {"zero": "counts as 0", "skip": "is left out", "error": "is an error"}
        lines.append(
            "Ties are averaged over all orders; a query without any relevant item "
            f"{treatment[self.empty_queries]}."
        )
        lines.append(self._denominator_note())
        if self.map_by_training:
            parts = (f"{name} {value:.4f}" for name, value in self.map_by_training.items())
            lines.append(f"mAP by whether the class was trained on: {', '.join(parts)}.")
        if self.queries_without_relevant:
            count = self.queries_without_relevant
            verb = "query has" if count == 1 else "queries have"
            lines.append(f"{count:,} {verb} no relevant item in the database.")
        if self.skipped:
            were = "image was" if self.skipped == 1 else "images were"
            lines.append(f"{self.skipped:,} {were} not evaluated: unreadable.")
        return "\n".join(line for line in lines if line)

    def table(self) -> str:
        """One line per ranking: mAP, precision, ties, distinct codes, and what else was measured.

        Returns:
            A table of plain text. Known-item search has the columns `copy first`, `copy in ten` and
            `micro AP`; `agreement` is with the order of the original features.
        """
        return ranking_table(self)

    def copies_table(self) -> str:
        """One line per alteration: known-item recall@1 / recall@10 under each ranking.

        Returns:
            A table of plain text; empty if the search was not run.
        """
        return alteration_table(self)

    def known_item_recall(self, rank: str) -> tuple[float, float]:
        """Known-item recall@1 and @10, the mean over all alterations except "none".

        Args:
            rank: Name of the ranking.

        Returns:
            Both recalls; NaN if the search was not run.
        """
        return self.known_item_mean(rank, "recall_1"), self.known_item_mean(rank, "recall_10")

    def known_item_mean(self, rank: str, measure: str) -> float:
        """A measure of known-item search, the mean over all alterations except "none".

        Args:
            rank: Name of the ranking.
            measure: An attribute of `KnownItem`.

        Returns:
            The mean; NaN if the search was not run.
        """
        found = [own for name, own in self.known_item.get(rank, {}).items() if name != "none"]
        return float(np.mean([getattr(own, measure) for own in found])) if found else _NAN

    def _precision_text(self, k: int) -> str:
        """Precision at k; with what is possible where queries have fewer than k relevant items."""
        most = self.precision_at_most.get(k, 1.0)
        limit = f" (at most {most:.4f})" if most < 1 - 5e-5 else ""
        return f"P@{k} {self.precision_at[k]:.4f}{limit}"

    def _headline(self) -> str:
        depth = "all" if self.depth is None else f"{self.depth:,}"
        chance = "" if math.isnan(self.chance) else f"by chance: {self.chance:.4f}; "
        sizes = f"{self.queries:,} queries, {self.database:,} codes of {self.bits} bits"
        by = {"hamming": "", "class": " by P(same class)", "photo": " by class and content"}
        return f"mAP@{depth}{by.get(self.rank, '')} {self.map:.4f}  ({chance}{sizes})"

    def _denominator_note(self) -> str:
        """How average precision is divided; it matters only with a rank cut-off."""
        if self.depth is None:
            return ""
        texts = {"found": "relevant items found", "possible": "relevant items possible"}
        note = (
            f"Average precision is divided by the {texts[self.denominator]} within {self.depth:,}"
        )
        other = "possible" if self.denominator == "found" else "found"
        if other not in self.map_by_denominator:
            return f"{note}."
        return f"{note}; divided by those {other}, mAP is {self.map_by_denominator[other]:.4f}."


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return [_plain(item) for item in value.tolist()]
    return None if isinstance(value, float) and math.isnan(value) else value


def _typed(stored: Mapping[str, Any]) -> dict[str, Any]:
    """The values that JSON stores in another form."""
    per_class, curve = stored["per_class"], stored["precision_recall"]
    numbered = all(str(key).isdecimal() for key in per_class)
    most = stored.get("precision_at_most") or {}
    return {
        "average_precision": _reals(stored["average_precision"]),
        "bit_balance": _reals(stored["bit_balance"]),
        "per_class": {int(key) if numbered else key: value for key, value in per_class.items()},
        "precision_at": {int(key): value for key, value in stored["precision_at"].items()},
        "rankings": {
            name: Report.from_dict(own) for name, own in (stored.get("rankings") or {}).items()
        },
        "known_item": {
            rank: {name: KnownItem(**own) for name, own in found.items()}
            for rank, found in (stored.get("known_item") or {}).items()
        },
        "precision_at_most": {int(key): value for key, value in most.items()},
        "precision_recall": PrecisionRecall(
            radius=np.asarray(curve["radius"], np.int64),
            by=str(curve.get("by", "radius")),
            **{name: _reals(value) for name, value in curve.items() if name not in _NOT_REAL},
        ),
        **{name: _NAN for name in _REALS if stored.get(name) is None},
    }


def _reals(values: Any) -> Reals:
    return np.asarray([_NAN if value is None else value for value in values], np.float64)
