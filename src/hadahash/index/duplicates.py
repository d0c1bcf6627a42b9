"""Groups of items whose codes are nearly the same."""

from __future__ import annotations

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from ..codes import Codes
from ..errors import UsageError
from .api import Index
from .items import Id

_AT_ONCE = 256  # queries


def duplicate_groups(index: Index, radius: int) -> list[list[Id]]:
    """Groups of two or more items, linked by steps of at most `radius` bits, the largest group first.

    Equal codes are taken as one before they are compared, so that many of them cost nothing.

    >>> from hadahash.codes import pack
    >>> codes = Codes(packed=pack([[1] * 8, [1] * 7 + [-1], [-1] * 8]), bits=8, ids=["a", "b", "c"])
    >>> duplicate_groups(Index.build(codes), radius=1)
    [['a', 'b']]
    """
    if radius < 0:
        raise UsageError(f"radius={radius} is not possible: it must be at least 0.")
    codes = index.codes()
    packed, member = np.unique(codes.packed, axis=0, return_inverse=True)
    group = _linked(Codes(packed=packed, bits=index.bits), radius)[member.ravel()]
    order = np.argsort(group, kind="stable")  # the order of ids stays inside each group
    parts = np.split(order, np.flatnonzero(np.diff(group[order])) + 1)
    groups = [codes.ids[rows].tolist() for rows in parts if len(rows) > 1]
    return sorted(groups, key=lambda ids: (-len(ids), ids[0]))


def _linked(codes: Codes, radius: int) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    """The number of each code's group, for codes that all differ."""
    group = np.arange(len(codes), dtype=np.int32)
    if radius == 0:
        return group
    searched = Index.build(codes, engine="routed")
    for start in range(0, len(codes), _AT_ONCE):
        hits = searched.within(codes[start : start + _AT_ONCE], radius)
        query, place = np.nonzero(hits.distances > 0)
        ends = group[query + start], group[hits.ids[query, place]]
        links = coo_array((np.ones(len(query), bool), ends), shape=(len(codes), len(codes)))
        group = connected_components(links, directed=False)[1][group]
    return group
