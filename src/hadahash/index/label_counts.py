"""Numbers of items per label set and per label in one segment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from .items import Label, LabelSet, Mask

Numbers = NDArray[np.int32]  # of label sets


@dataclass(frozen=True, eq=False)
class LabelCounts:
    """How many items have each label set and each label. It does not change.

    Attributes:
        sets: The label sets.
        per_set: Number of items of each, int64 (len(sets),).
    """

    sets: Sequence[LabelSet]
    per_set: NDArray[np.int64]

    @staticmethod
    def of(pairs: tuple[tuple[LabelSet, int], ...]) -> LabelCounts:
        """Make the counts of label sets.

        Args:
            pairs: The label sets with their numbers of items.

        Returns:
            The counts.
        """
        return LabelCounts([each for each, _ in pairs], np.array([n for _, n in pairs], np.int64))

    @cached_property
    def pairs(self) -> tuple[tuple[LabelSet, int], ...]:
        """The label sets with their numbers of items."""
        return tuple(zip(self.sets, self.per_set.tolist(), strict=True))

    @cached_property
    def per_label(self) -> dict[Label, int]:
        """Number of items per label; it may be 0."""
        counts: dict[Label, int] = {}
        for labels, count in zip(self.sets, self.per_set.tolist(), strict=True):
            for label in dict.fromkeys(labels):
                counts[label] = counts.get(label, 0) + count
        return counts

    def updated(self, added: Numbers, removed: Numbers) -> LabelCounts:
        """The counts after a change of some items.

        Args:
            added: Label sets of items that are new.
            removed: Label sets of items that are gone.

        Returns:
            The counts. What is known per label is not counted again.
        """
        size = len(self.sets)
        change = np.bincount(added, minlength=size) - np.bincount(removed, minlength=size)
        updated = LabelCounts(self.sets, self.per_set + change)
        known = self.__dict__.get("per_label")
        if known is not None:
            counts = known.copy()
            for number in np.flatnonzero(change).tolist():
                for label in dict.fromkeys(self.sets[number]):
                    counts[label] += int(change[number])
            updated.__dict__["per_label"] = counts
        return updated


def count_labels(sets: Sequence[LabelSet], numbers: Numbers) -> LabelCounts:
    """Count the label sets of all items.

    Args:
        sets: The label sets.
        numbers: For each item, the number of its label set.

    Returns:
        The counts.
    """
    return LabelCounts(sets, np.bincount(numbers, minlength=len(sets)))


def recount(
    counts: LabelCounts, numbers: Numbers, before: Mask | None, after: Mask | None
) -> LabelCounts:
    """Update counts after items were deleted.

    Args:
        counts: The counts before.
        numbers: For each item, deleted ones included, the number of its label set.
        before: The items that were deleted before; None for none.
        after: Those that are deleted now.

    Returns:
        The counts of the items that are not deleted now.
    """
    none = np.zeros(len(numbers), bool)
    before, after = (none if mask is None else mask for mask in (before, after))
    changed = np.flatnonzero(before != after)
    own, gone = numbers[changed], after[changed]
    return counts.updated(own[~gone], own[gone])
