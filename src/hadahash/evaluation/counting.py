"""Counts of items and of relevant items per Hamming distance: the two tables `metrics` works on."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import native
from ..codes import Codes, words
from .labels import LabelArray
from .metrics import Counts


def count(
    queries: Codes,
    query_labels: LabelArray,
    database: Codes,
    database_labels: LabelArray,
    *,
    threads: int | None = None,
) -> tuple[Counts, Counts]:
    """Count all items and the relevant items at each distance from each query.

    An item is relevant to a query if they share a class.

    Args:
        queries: Codes of the queries.
        query_labels: int64 (q,) class numbers or bool (q, C).
        database: Codes of the database.
        database_labels: Labels of the same kind.
        threads: Number of threads; None: one per usable core.

    Returns:
        `total` and `relevant`, int64 (q, bits + 1) each.
    """
    codes = words(queries.packed), words(database.packed)
    labels = query_labels, database_labels
    counter = _count_label_sets if query_labels.ndim == 2 else _count_classes
    return counter(codes, labels, bits=queries.bits, threads=threads)


def _count_label_sets(
    codes: tuple[native.Words, native.Words],
    labels: tuple[LabelArray, LabelArray],
    *,
    bits: int,
    threads: int | None,
) -> tuple[Counts, Counts]:
    """Label sets are packed into bits, so that one AND decides whether two sets intersect."""
    query_sets, database_sets = (words(np.packbits(side, axis=1)) for side in labels)
    return native.count_shared(
        codes[0], query_sets, codes[1], database_sets, bits=bits, threads=threads
    )


def _count_classes(
    codes: tuple[native.Words, native.Words],
    labels: tuple[LabelArray, LabelArray],
    *,
    bits: int,
    threads: int | None,
) -> tuple[Counts, Counts]:
    """Sorted by class, the relevant items of a query are one contiguous range of the database."""
    small_type: Any = np.min_scalar_type(labels[1].max())  # small types sort faster
    order = np.argsort(labels[1].astype(small_type), kind="stable")
    database, classes = codes[1][order], labels[1][order]
    first = np.searchsorted(classes, labels[0], "left")
    last = np.searchsorted(classes, labels[0], "right")
    ranges = np.stack([first, last], axis=1)
    relevant = native.count_distances(codes[0], database, bits=bits, ranges=ranges, threads=threads)
    return native.count_distances(codes[0], database, bits=bits, threads=threads), relevant
