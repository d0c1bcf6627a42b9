"""A two-dimensional map of the collection."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...codes import Codes

_GOLDEN_ANGLE = np.pi * (3 - np.sqrt(5))  # spreads any number of points evenly
_SPREAD = 0.45  # radius of a spiral that holds all items, if the largest coordinate is 1


def project(codes: Codes) -> NDArray[np.float64]:
    """Project codes to their first two principal components.

    Items with the same code would hide each other. They are placed on a small spiral around their
    common point, so that each can be selected and the area shows their number.

    Args:
        codes: n codes.

    Returns:
        (n, 2), in the square from -1 to 1.
    """
    if len(codes) == 0:
        return np.zeros((0, 2))
    distinct, group, counts = np.unique(
        codes.packed, axis=0, return_inverse=True, return_counts=True
    )
    group = group.ravel()
    signs = Codes(packed=distinct, bits=codes.bits).signs().astype(np.float64)
    centers = _principal_components(signs, counts)
    centers /= max(np.abs(centers).max(), 1e-9)
    points = centers[group] + _spiral(group, counts)
    low, high = points.min(axis=0), points.max(axis=0)
    return np.asarray((points - (low + high) / 2) * 2 / max(float((high - low).max()), 1e-9))


def _principal_components(
    signs: NDArray[np.float64], weights: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Project the distinct codes (m, bits), weighted by their frequency, to (m, 2)."""
    centered = signs - np.average(signs, axis=0, weights=weights)
    covariance = (centered * weights[:, None]).T @ centered
    axes = np.linalg.eigh(covariance)[1][:, :-3:-1]
    largest = axes[np.abs(axes).argmax(axis=0), np.arange(axes.shape[1])]
    axes *= np.where(largest < 0, -1, 1)  # the signs of eigh are arbitrary
    return np.asarray(centered @ axes)


def _spiral(group: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Offset of each item from the point of its group, (n, 2)."""
    order = np.argsort(group, kind="stable")
    number = np.empty(len(group))
    number[order] = np.arange(len(group)) - np.repeat(np.cumsum(counts) - counts, counts)
    radius, angle = _SPREAD * np.sqrt(number / max(len(group), 1)), number * _GOLDEN_ANGLE
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
