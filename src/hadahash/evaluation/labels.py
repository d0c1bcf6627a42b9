"""Labels of queries and database items as arrays that can be compared."""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import UsageError

LabelArray = NDArray[Any]  # int64 (n,) class numbers, or bool (n, C)


@runtime_checkable
class HasLabelArray(Protocol):
    """An object, such as `hadahash.data.Labels`, that offers its labels as an array."""

    @property
    def array(self) -> NDArray[Any]:
        """(n,) class numbers, or (n, C) of 0 and 1."""
        ...


LabelsLike: TypeAlias = "ArrayLike | HasLabelArray"


class LabelPair(NamedTuple):
    """Labels of queries and database in the same encoding."""

    query: LabelArray
    database: LabelArray
    names: tuple[Hashable, ...] | None  # names[c]: label of class number c; None: the number itself


def encode_labels(
    query_labels: LabelsLike, query_count: int, database_labels: LabelsLike, database_count: int
) -> LabelPair:
    """Check the labels of both sides and encode them as class numbers or as boolean matrices.

    Args:
        query_labels: (n,) integers, strings or other hashable values, or (n, C) of 0 and 1.
        query_count: Number of queries.
        database_labels: Labels of the same kind.
        database_count: Number of database items.

    Returns:
        Class numbers int64 (n,) or bool (n, C) for each side, and the labels behind the numbers.

    Raises:
        UsageError: If labels are missing, of the wrong shape, or of different kinds.

    Example:
        >>> pair = encode_labels(["cat"], 1, ["dog", "cat"], 2)
        >>> pair.query.tolist(), pair.database.tolist(), pair.names
        ([0], [1, 0], ('cat', 'dog'))
    """
    query = _read(query_labels, query_count, "query")
    database = _read(database_labels, database_count, "database")
    if isinstance(query, list) and isinstance(database, list):
        return _factorize(query, database)
    if isinstance(query, list) or isinstance(database, list):
        raise UsageError(
            "Query labels and database labels are of different kinds (integers and other values). "
            "Use the same kind for both."
        )
    if query.shape[1:] != database.shape[1:]:
        raise UsageError(
            f"Query labels have the shape {query.shape} and database labels {database.shape}. "
            "Use (n,) class numbers for both, or (n, C) with the same C."
        )
    return LabelPair(query, database, None)


def check_class_numbers(labels: LabelsLike, count: int, side: str) -> LabelArray:
    """Validate labels and convert them to int64 (n,) class numbers or bool (n, C).

    Args:
        labels: (n,) class numbers, or (n, C) of 0 and 1.
        count: Number of codes that the labels belong to.
        side: "query" or "database", for error messages.

    Returns:
        The checked array.

    Raises:
        UsageError: If the labels have an unsupported form.
    """
    array = _read(labels, count, side)
    if isinstance(array, list):
        raise UsageError(f"The {side} labels must be integer class numbers, got {array[0]!r}.")
    return array


def _read(labels: LabelsLike, count: int, side: str) -> LabelArray | list[Hashable]:
    """An encoded array, or a list of hashable labels that are not integers."""
    raw = labels.array if isinstance(labels, HasLabelArray) else labels
    try:
        array = np.asarray(raw)
    except ValueError:
        raise UsageError(
            f"The {side} labels have rows of different lengths. Use one label per item, or a "
            "matrix (n, C) of 0 and 1."
        ) from None
    if array.ndim not in (1, 2) or array.size == 0:
        raise UsageError(
            f"The {side} labels must have the shape (n,) or (n, C), got the shape {array.shape}."
        )
    if len(array) != count:
        raise UsageError(
            f"{count} {side} codes need {count} labels, got {len(array)}. "
            "Give codes and labels in the same order."
        )
    if array.ndim == 2:
        return _matrix(array, side)
    if array.dtype.kind in "USO":
        is_array = isinstance(raw, np.ndarray)
        values = array.tolist() if is_array else list(raw)  # type: ignore[arg-type]
        return _hashable(values, side)
    return _class_numbers(array, side)


def _matrix(array: NDArray[Any], side: str) -> NDArray[np.bool_]:
    """A label matrix as booleans, without a copy where its type allows; it can be large."""
    if array.dtype == bool:
        return array
    if array.dtype == np.uint8 and array.max() <= 1:
        return array.view(bool)
    if array.dtype.kind not in "iuf" or not ((array == 0) | (array == 1)).all():
        hint = " For class numbers use labels[:, 0]." if array.shape[1] == 1 else ""
        raise UsageError(
            f"A {side} label matrix (n, C) must contain only 0 and 1, "
            f"got other values ({array.dtype}).{hint}"
        )
    return array.astype(bool)


def _class_numbers(array: NDArray[Any], side: str) -> NDArray[np.int64]:
    if array.dtype.kind not in "biu":
        raise UsageError(
            f"The {side} labels must be integers or strings, got {array.dtype}. Convert them first."
        )
    if array.min() < 0:
        raise UsageError(
            f"The {side} labels must be >= 0, got {array.min()}. Remove items without a class."
        )
    return array.astype(np.int64)


def _hashable(values: list[Any], side: str) -> list[Hashable]:
    for row, value in enumerate(values):
        if not isinstance(value, Hashable):
            raise UsageError(
                f"The {side} labels must be hashable, got {type(value).__name__} in row {row}."
            )
        if value is None or (isinstance(value, float) and math.isnan(value)):
            raise UsageError(
                f"The {side} label of row {row} is {value}. Remove items without a label."
            )
    return values


def _factorize(query: list[Hashable], database: list[Hashable]) -> LabelPair:
    names = tuple(sorted({*query, *database}, key=lambda label: (type(label).__name__, str(label))))
    number = {name: index for index, name in enumerate(names)}
    sides = [np.array([number[label] for label in side], np.int64) for side in (query, database)]
    return LabelPair(sides[0], sides[1], names)
