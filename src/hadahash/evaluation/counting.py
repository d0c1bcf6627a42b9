"""From codes and labels to the two tables that `metrics` works on."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .. import native
from ..codes import Codes, words
from ..errors import UsageError
from .metrics import Counts

Labels = NDArray[Any]  # int64 (n,) class numbers, or bool (n, C)


def checked_labels(labels: ArrayLike, count: int, side: str) -> Labels:
    """Labels as int64 (n,) class numbers, or bool (n, C). `side` names them in errors: "query" or "database"."""
    array = np.asarray(labels)
    if array.ndim not in (1, 2) or array.size == 0:
        raise UsageError(
            f"The {side} labels must be (n,) class numbers or (n, C) of 0 and 1, got the shape {array.shape}."
        )
    if len(array) != count:
        raise UsageError(
            f"{count} {side} codes need {count} labels, got {len(array)}. Give both in the same order."
        )
    if array.ndim == 1:
        return _class_numbers(array, side)
    if array.dtype.kind not in "biuf" or not ((array == 0) | (array == 1)).all():
        hint = " For class numbers give labels[:, 0]." if array.shape[1] == 1 else ""
        raise UsageError(
            f"A {side} label matrix (n, C) must hold only 0 and 1, got other values ({array.dtype}).{hint}"
        )
    return array.astype(bool)


def count(
    queries: Codes,
    query_labels: Labels,
    database: Codes,
    database_labels: Labels,
    *,
    threads: int | None = None,
) -> tuple[Counts, Counts]:
    """total and relevant, int64 (q, bits + 1) each. An item is relevant when it shares a class with the query."""
    codes = words(queries.packed), words(database.packed)
    labels = query_labels, database_labels
    counted = _count_sets if query_labels.ndim == 2 else _count_classes
    return counted(codes, labels, bits=queries.bits, threads=threads)


def _count_sets(
    codes: tuple[native.Words, native.Words],
    labels: tuple[Labels, Labels],
    *,
    bits: int,
    threads: int | None,
) -> tuple[Counts, Counts]:
    """Sets of classes become bits, so that one AND tells whether two sets meet."""
    wanted, given = (words(np.packbits(side, axis=1)) for side in labels)
    return native.count_shared(codes[0], wanted, codes[1], given, bits=bits, threads=threads)


def _count_classes(
    codes: tuple[native.Words, native.Words],
    labels: tuple[Labels, Labels],
    *,
    bits: int,
    threads: int | None,
) -> tuple[Counts, Counts]:
    """Sorted by class, the relevant items of a query are one range of the database."""
    order = np.argsort(
        labels[1].astype(np.min_scalar_type(labels[1].max())), kind="stable"
    )  # small types sort fastest
    database, classes = codes[1][order], labels[1][order]
    first, last = (
        np.searchsorted(classes, labels[0], "left"),
        np.searchsorted(classes, labels[0], "right"),
    )
    ranges = np.stack([first, last], axis=1)
    relevant = native.count_distances(codes[0], database, bits=bits, ranges=ranges, threads=threads)
    return native.count_distances(codes[0], database, bits=bits, threads=threads), relevant


def _class_numbers(array: NDArray[Any], side: str) -> NDArray[np.int64]:
    if array.dtype.kind not in "biu":
        raise UsageError(
            f"The {side} labels must be whole class numbers, got {array.dtype}. Convert them to int."
        )
    if array.min() < 0:
        raise UsageError(
            f"The {side} labels must not be negative, got {array.min()}. Leave out what has no class."
        )
    return array.astype(np.int64)
