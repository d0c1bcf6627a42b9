"""Projections of features to bits by ITQ, in numpy; `methods.itq` describes the method."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .settings import Checked, setting

Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class ITQSettings(Checked):
    """Settings of ITQ."""

    itq_iterations: int = setting(50, "Alternating updates of codes and rotation.", ge=0)


def fit_itq(
    features: NDArray[np.floating], bits: int, iterations: int, start: Doubles
) -> tuple[Doubles, Doubles]:
    """Find the principal directions of features, rotated to minimize the quantization error.

    Args:
        features: Float (n, d).
        bits: Number of directions K, at most d.
        iterations: Updates of the rotation; 0: the first one is kept.
        start: Random (K, K); the first rotation is its left singular vectors.

    Returns:
        The mean (d,), and the directions (d, K).

    >>> data = np.random.default_rng(0).normal(size=(100, 8))
    >>> mean, directions = fit_itq(data, 4, 50, np.random.default_rng(0).normal(size=(4, 4)))
    >>> bool(np.allclose(directions.T @ directions, np.eye(4)))
    True
    """
    centered = features.astype(np.float64)
    mean = centered.mean(0)
    centered -= mean
    P = np.linalg.eigh(centered.T @ centered).eigenvectors[:, ::-1][:, :bits]
    return mean, P @ find_rotation(centered @ P, iterations, start)


def find_rotation(V: Doubles, iterations: int, start: Doubles) -> Doubles:
    """Find a rotation that brings projected features close to their signs.

    Args:
        V: Projected features (n, K).
        iterations: Number of updates.
        start: Random (K, K); the first rotation is its left singular vectors.

    Returns:
        The rotation R (K, K).
    """
    R = np.linalg.svd(start).U
    for _ in range(iterations):
        signs = np.where(V @ R >= 0, 1.0, -1.0)
        U, _, Zt = np.linalg.svd(signs.T @ V)
        R = Zt.T @ U.T
    return R
