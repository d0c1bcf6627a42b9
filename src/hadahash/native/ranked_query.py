"""Queries of a ranked search as ranked.c reads them."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .ranked_bounds import Balls, ClassBounds
from .ranked_tables import Doubles, LinearTerm, Points, RankedQueries, logarithm_tables
from .tables import Rows, rows_of

_MOST_UNITS = 15  # weights are rounded down to at most so many units, in 4 bit planes
_EXACT_UNITS = 255  # weights that are small integers times a common unit are not rounded
_STEPS = (4, 8, 16, 32)  # as STEPS of ranked.h: numbers of classes after which bounds are compared
_POWER_STEPS = 1024
_POWERS = np.concatenate(
    [np.exp(np.arange(_POWER_STEPS) / _POWER_STEPS), np.exp(-np.arange(_POWER_STEPS, dtype=float))]
) * (1 - 1e-12)
_LOGARITHMS = np.concatenate([*logarithm_tables(), [np.log(2.0)]])
_BYTES = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).astype(np.int64)


class _Planes(ctypes.Structure):
    """`planes_t` of ranked.h."""

    _fields_ = (
        ("masks", ctypes.c_void_p),
        ("shifts", ctypes.c_void_p),
        ("count", ctypes.c_int64),
    )


class _Steps(ctypes.Structure):
    """`steps_t` of ranked.h."""

    _fields_ = (
        ("steps", ctypes.c_int64 * len(_STEPS)),
        ("codewords", ctypes.c_void_p),
        ("values", ctypes.c_void_p),
        ("next", ctypes.c_double * len(_STEPS)),
        ("rest", ctypes.c_double * len(_STEPS)),
        ("powers", ctypes.c_void_p),
    )


class QueryStruct(ctypes.Structure):
    """`ranked_t` of ranked.h."""

    _fields_ = (
        ("code", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("start", "radius", "classes", "bits")),
        *((name, ctypes.c_void_p) for name in ("codewords", "probabilities", "powers", "factors")),
        *((name, ctypes.c_void_p) for name in ("logarithms", "top", "caps")),
        *((name, ctypes.c_int64) for name in ("most", "balls")),
        *((name, ctypes.c_void_p) for name in ("anchors", "radii", "losses")),
        *((name, ctypes.c_void_p) for name in ("content", "content_losses")),
        ("unit", ctypes.c_int64),
        ("planes", _Planes),
        ("content_planes", _Planes),
        ("steps", _Steps),
    )


class CompiledQuery:
    """One query: fills a struct and keeps the arrays that it points to."""

    def __init__(
        self,
        queries: RankedQueries,
        row: int,
        struct: QueryStruct,
        bits: int,
        radius: int | None = None,
        signs: Doubles | None = None,
    ) -> None:
        """Fill the struct.

        Args:
            queries: The queries.
            row: Number of the query.
            struct: What to fill.
            bits: Number of class bits.
            radius: Largest Hamming distance of the class bits; None for any.
            signs: `signs_of` the class term, where they are known.
        """
        self.struct, self._kept = struct, dict[str, NDArray[Any]]()
        self.bounds = None if queries.classes is None else ClassBounds(queries.classes, row, signs)
        struct.start, struct.bits, struct.balls, struct.unit = int(queries.start[row]), bits, -1, 1
        struct.radius = bits if radius is None else radius
        self._point("code", queries.codes[row])
        if queries.classes is not None:
            self._set_classes(queries, row)
        self._set_losses(queries.linear, queries.content, row)

    def restrict(self, balls: Balls | None) -> None:
        """Evaluate only items in these balls."""
        self.struct.balls = -1 if balls is None else len(balls.radii)
        if balls is not None:
            self._point("anchors", balls.anchors)
            self._point("radii", balls.radii)

    def _point(self, name: str, array: NDArray[Any]) -> None:
        self._kept[name] = np.ascontiguousarray(array)
        setattr(self.struct, name, self._kept[name].ctypes.data)

    def _set_classes(self, queries: RankedQueries, row: int) -> None:
        term, bounds = queries.classes, self.bounds
        if term is None or bounds is None:
            return
        self.struct.classes = len(term.codewords)
        self._point("codewords", term.codewords)
        if term.factors is not None:
            self._point("factors", term.factors[row])
        elif term.probabilities is not None and term.powers is not None:
            self._point("probabilities", term.probabilities[row])
            self._point("powers", term.powers)
        if term.logarithm:
            self._point("logarithms", _LOGARITHMS)
        caps = bounds.caps()
        self.struct.most = int(caps.max())
        self._point("caps", caps)
        self._point("top", term.codewords[bounds.top])
        self._set_steps(term.codewords, bounds)

    def _set_steps(self, codewords: Rows, bounds: ClassBounds) -> None:
        found, struct = bounds.steps(_STEPS), self.struct.steps
        kept = codewords[found.order], np.ascontiguousarray(found.values), _POWERS
        self._kept |= dict(zip(("step words", "step values", "step powers"), kept, strict=True))
        struct.codewords, struct.values, struct.powers = (each.ctypes.data for each in kept)
        for i, columns in enumerate(zip(found.counts, found.following, found.rest, strict=True)):
            struct.steps[i], struct.next[i], struct.rest[i] = columns

    def _set_losses(self, linear: LinearTerm | None, content: LinearTerm | None, row: int) -> None:
        terms = [term for term in (linear, content) if term is not None]
        if not terms:
            return
        unit = unit_of(np.concatenate([term.weights[row] for term in terms]))
        self.struct.unit = unit
        if linear is not None:
            self._point("losses", byte_losses(linear.weights[row], linear.codes[row].nbytes))
            self.struct.planes = self._planes("planes", linear, row, unit)
        if content is not None:
            size = content.codes[row].nbytes
            self._point("content", content.codes[row])
            self._point("content_losses", byte_losses(content.weights[row], size))
            self.struct.content_planes = self._planes("content_planes", content, row, unit)

    def _planes(self, name: str, term: LinearTerm, row: int, unit: int) -> _Planes:
        units = term.weights[row] // unit
        planes = [(units >> shift) & 1 for shift in range(int(units.max(initial=0)).bit_length())]
        used = [shift for shift, plane in enumerate(planes) if plane.any()]
        shifts = np.array(used, np.int64)
        masks = rows_of(
            np.packbits(
                np.array([planes[shift] for shift in used], np.uint8).reshape(
                    len(used), len(units)
                ),
                axis=1,
            )
        )
        self._kept[name + " masks"], self._kept[name + " shifts"] = masks, shifts
        return _Planes(masks.ctypes.data, shifts.ctypes.data, len(used))


def unit_of(weights: Points) -> int:
    """The unit to which weights are rounded down: their divisor, or a 15th of the largest."""
    largest = int(weights.max(initial=0))
    common = int(np.gcd.reduce(weights)) if len(weights) else 0
    if common and largest // common <= _EXACT_UNITS:
        return common
    return max(1, -(-largest // _MOST_UNITS))


def byte_losses(weights: Points, width: int) -> Points:
    """Points lost by the byte of the difference, int64 (width, 256)."""
    padded = np.zeros(8 * width, np.int64)
    padded[: len(weights)] = weights
    return np.asarray(padded.reshape(width, 8) @ _BYTES.T)
