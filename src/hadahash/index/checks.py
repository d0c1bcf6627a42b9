"""Checks and conversions of what callers pass to an index."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..codes import Codes, as_codes, pack
from ..errors import UsageError
from .items import ItemTable, item_table, quote_ids


def packed_queries(codes: Any, bits: int) -> NDArray[np.uint8]:
    """Packed codes of queries: `Codes`, a packed uint8 array, or anything `as_codes` takes.

    Raises:
        UsageError: The codes have a different number of bits.
    """
    if isinstance(codes, np.ndarray) and codes.dtype == np.uint8:
        if codes.shape[1:] == (bits / 8,):
            return codes  # nothing more to check, and single queries must be fast
        return Codes(packed=codes, bits=bits).packed
    checked = as_codes(codes)
    if checked.bits != bits:
        raise UsageError(
            f"This index contains codes of {bits} bits, got codes of {checked.bits} bits."
        )
    return checked.packed


def sorted_items(
    codes: Any, labels: Any, paths: Any, bits: int
) -> tuple[NDArray[np.uint8], ItemTable]:
    """Packed codes and items in the order of ids.

    Raises:
        UsageError: The codes, ids, labels or paths are invalid, or an id is repeated.
    """
    codes = as_codes(codes)
    packed, ids = packed_queries(codes, bits), codes.ids
    table = item_table(ids, paths=paths, labels=labels)
    if len(ids) > 1 and not (ids[:-1] < ids[1:]).all():
        order = np.argsort(ids, kind="stable")
        packed, table = packed[order], table.take(order)
        repeated = table.ids[1:] == table.ids[:-1]
        if repeated.any():
            raise UsageError(f"Ids must be unique, got {quote_ids(table.ids[1:][repeated])} twice.")
    return packed, table


def whole_number(name: str, value: Any, minimum: int) -> int:
    """Check that a value is an integer >= `minimum`; floats and bools are refused.

    Raises:
        UsageError: It is not.
    """
    if type(value) is int and value >= minimum:
        return value
    try:
        number = operator.index(value)
    except TypeError:
        number = minimum - 1
    if number < minimum or isinstance(value, (bool, np.bool_)):
        raise UsageError(f"{name} must be an integer >= {minimum}, got {value!r}.")
    return number


def pack_codewords(codewords: Any, bits: int) -> NDArray[np.uint8] | None:
    """Packed codewords, uint8 (C, ceil(bits / 8)).

    Args:
        codewords: +-1 (C, bits), `Codes`, or None.
        bits: Length of the codes.

    Returns:
        The packed codewords, or None.

    Raises:
        UsageError: The shape does not fit.
    """
    if codewords is None:
        return None
    values = codewords.signs() if isinstance(codewords, Codes) else np.asarray(codewords)
    if values.ndim != 2 or len(values) == 0 or values.shape[1] != bits:
        raise UsageError(f"codewords must have the shape (classes, {bits}), got {values.shape}.")
    return pack(values)
