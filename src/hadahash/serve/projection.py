"""A map of the collection: codes to points of the plane."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..codes import Codes

_GOLDEN = np.pi * (3 - np.sqrt(5))  # the angle that spreads any number of points evenly
_SPREAD = 0.45  # radius of a spot that holds all items, where the codes' largest coordinate is 1


def project(codes: Codes) -> NDArray[np.float64]:
    """The codes' first two principal components, (n, 2), in the square from -1 to 1.

    Items with the same code would hide each other, and supervised codes are often the same: they are spread as the seeds
    of a sunflower, so that a spot's area shows how many there are.
    """
    if len(codes) == 0:
        return np.zeros((0, 2))
    distinct, group, counts = np.unique(
        codes.packed, axis=0, return_inverse=True, return_counts=True
    )
    group = group.ravel()
    signs = Codes(packed=distinct, bits=codes.bits).signs().astype(np.float64)
    centres = _principal(signs, counts)
    centres /= max(np.abs(centres).max(), 1e-9)
    points = centres[group] + _seeds(group, counts)
    low, high = points.min(axis=0), points.max(axis=0)
    return np.asarray((points - (low + high) / 2) * 2 / max(float((high - low).max()), 1e-9))


def _principal(signs: NDArray[np.float64], weights: NDArray[np.int64]) -> NDArray[np.float64]:
    """Each distinct code (m, bits), weighted by how often it occurs, on the two directions of most variance: (m, 2)."""
    centred = signs - np.average(signs, axis=0, weights=weights)
    covariance = (centred * weights[:, None]).T @ centred
    axes = np.linalg.eigh(covariance)[1][:, :-3:-1]
    axes *= np.where(
        axes[np.abs(axes).argmax(axis=0), np.arange(axes.shape[1])] < 0, -1, 1
    )  # the same sign every time
    return np.asarray(centred @ axes)


def _seeds(group: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """The place of each item within its group, (n, 2)."""
    order = np.argsort(group, kind="stable")
    number = np.empty(len(group))
    number[order] = np.arange(len(group)) - np.repeat(np.cumsum(counts) - counts, counts)
    radius, angle = _SPREAD * np.sqrt(number / max(len(group), 1)), number * _GOLDEN
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
