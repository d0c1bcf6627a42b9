"""Fit the numbers of a ranking on training images."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import UsageError
from ..packing import is_one
from .model import MAX_SHARPNESS, MIN_SHARPNESS, Doubles, Ranking, sigmoid

_STEPS = 60  # of the search for the sharpness: far below any visible difference
_NEWTON_STEPS, _RIDGE, _LONGEST_STEP = 25, 1e-3, 5.0


def fit_ranking(
    values: ArrayLike,
    targets: ArrayLike,
    codewords: ArrayLike | None,
    *,
    multilabel: bool = False,
    **attributes: Any,
) -> Ranking:
    """Fit a ranking by maximum likelihood of the classes of training images.

    Single-label: the sharpness, between 4 and 16, from the codes. Codes of training images are
    better than those of new images, so the likelihood would ask for more. Multi-label: slope and
    offset of each class, once from the codes and once from the values.

    Args:
        values: Real-valued outputs of training images (n, bits) in [-1, 1].
        targets: Class numbers (n,), or 0 and 1 (n, C).
        codewords: (C, bits) of +-1; None for methods without codewords, where nothing is fitted.
        multilabel: Whether an image has any number of classes.
        attributes: Further attributes of `Ranking`.

    Returns:
        The ranking.

    Raises:
        UsageError: The shapes do not match.
    """
    if codewords is None:
        return Ranking(None, multilabel=multilabel, **attributes)
    words = np.asarray(codewords, np.float64)
    real = np.asarray(values, np.float64)
    if real.ndim != 2 or words.ndim != 2 or real.shape[1] != words.shape[1]:
        raise UsageError(f"values {real.shape} and codewords {words.shape} must have equal length.")
    agreements = [each @ words.T / words.shape[1] for each in (_signs(real), real)]
    wanted = _one_hot(np.asarray(targets), len(real), len(words))
    kept = np.asarray(codewords, np.int8)
    if not multilabel:
        sharpness = _fit_sharpness(agreements[0], wanted)
        return Ranking(kept, multilabel=False, sharpness=sharpness, **attributes)
    (slope, offset), (query_slope, query_offset) = (logistic(x, wanted) for x in agreements)
    return Ranking(
        kept,
        multilabel=True,
        slope=slope,
        offset=offset,
        query_slope=query_slope,
        query_offset=query_offset,
        **attributes,
    )


def logistic(x: Doubles, y: Doubles) -> tuple[Doubles, Doubles]:
    """Fit sigmoid(slope_c x + offset_c) to y by Newton's method, column by column.

    Args:
        x: (n, C).
        y: 0 and 1 (n, C).

    Returns:
        Slopes and offsets, (C,) each.
    """
    slope, offset = np.ones(x.shape[1]), np.zeros(x.shape[1])
    for _ in range(_NEWTON_STEPS):
        p = sigmoid(x * slope + offset)
        weight, error = p * (1 - p), p - y
        a, b = (weight * x * x).sum(0) + _RIDGE, (weight * x).sum(0)
        d = weight.sum(0) + _RIDGE
        first = (error * x).sum(0) + _RIDGE * slope
        second = error.sum(0) + _RIDGE * offset
        scale = 1 / (a * d - b * b)
        slope = slope - ((d * first - b * second) * scale).clip(-_LONGEST_STEP, _LONGEST_STEP)
        offset = offset - ((a * second - b * first) * scale).clip(-_LONGEST_STEP, _LONGEST_STEP)
    return slope, offset


def _fit_sharpness(agreement: Doubles, wanted: Doubles) -> float:
    """Maximize the mean log P(class | code), concave in the sharpness, by bisecting its slope."""
    low, high = MIN_SHARPNESS, MAX_SHARPNESS
    own = (agreement * wanted).sum(1).mean()
    for _ in range(_STEPS):
        middle = (low + high) / 2
        powers = np.exp(middle * (agreement - agreement.max(1, keepdims=True)))
        expected = ((agreement * powers).sum(1) / powers.sum(1)).mean()
        low, high = (middle, high) if own > expected else (low, middle)
    return float((low + high) / 2)


def _signs(values: Doubles) -> Doubles:
    return np.where(is_one(values), 1.0, -1.0)


def _one_hot(targets: NDArray[Any], count: int, classes: int) -> Doubles:
    if targets.ndim == 1:
        if targets.size and not 0 <= targets.min() <= targets.max() < classes:
            raise UsageError(f"Class numbers must be 0 to {classes - 1}, got {targets.max()}.")
        targets = np.eye(classes)[targets.astype(np.int64)]
    if targets.shape != (count, classes):
        raise UsageError(f"targets must be ({count}, {classes}), got {targets.shape}.")
    return np.asarray(targets, np.float64)
