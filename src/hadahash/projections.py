"""Projections of features to bits, in numpy; `methods.itq` describes how ITQ fits them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .errors import UsageError
from .queries import Floats, Queries
from .settings import Checked, setting

Doubles = NDArray[np.float64]
PARTS = ("mean", "matrix", "scale")


@dataclass(frozen=True, eq=False)
class Projection:
    """Values z = (x - mean) matrix / scale of features x; their signs are content bits.

    Attributes:
        mean: float32 (d,).
        matrix: float32 (d, bits).
        scale: float32 (bits,).

    Example:
        >>> projection = Projection(np.zeros(3), np.eye(3)[:, :2], np.ones(2))
        >>> projection.values([[1.0, -2.0, 5.0]]).tolist(), projection.features, projection.bits
        ([[1.0, -2.0]], 3, 2)
    """

    mean: Floats
    matrix: Floats
    scale: Floats

    def __post_init__(self) -> None:
        for name in PARTS:
            array = np.ascontiguousarray(getattr(self, name), np.float32)
            object.__setattr__(self, name, array)
        if self.matrix.shape != (self.mean.size, self.scale.size) or not self.matrix.size:
            shapes = ", ".join(str(getattr(self, name).shape) for name in PARTS)
            raise UsageError(f"A projection is (d,), (d, bits) and (bits,), got {shapes}.")

    @property
    def features(self) -> int:
        """Number of features d."""
        return len(self.mean)

    @property
    def bits(self) -> int:
        """Number of content bits."""
        return len(self.scale)

    @cached_property
    def fingerprint(self) -> str:
        """sha256 of mean, matrix and scale: content bits of equal fingerprints can be compared."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

    def values(self, features: ArrayLike) -> Floats:
        """Project features.

        Args:
            features: Features of the original backbone (n, d).

        Returns:
            float32 (n, bits). A content bit is 1 where its value is >= 0.

        Raises:
            UsageError: The features have another width.
        """
        given = np.asarray(features, np.float32)
        if given.ndim != 2 or given.shape[1] != self.features:
            raise UsageError(f"features must be (n, {self.features}), got {given.shape}.")
        return np.asarray((given - self.mean) @ self.matrix / self.scale)

    def queries(self, features: ArrayLike, bits: int) -> Queries:
        """Make queries of which only the content is known, for `rank="photo"`.

        Args:
            features: As for `values`.
            bits: Number of class bits. Their values are 0: no class is more probable.

        Returns:
            The queries.

        Raises:
            UsageError: The features have another width, or are not finite.
        """
        content = self.values(features)
        nothing = np.zeros((len(content), bits), np.float32)
        return Queries(nothing, content=content, content_fingerprint=self.fingerprint)

    def to_bytes(self) -> bytes:
        """Mean, matrix and scale as bytes, one after the other."""
        return b"".join(getattr(self, name).tobytes() for name in PARTS)

    @staticmethod
    def from_bytes(content: bytes | memoryview, bits: int) -> Projection:
        """The projection of `to_bytes`.

        Args:
            content: The bytes.
            bits: Number of content bits.

        Returns:
            The projection.

        Raises:
            ValueError: The number of bytes does not fit.
        """
        numbers = np.frombuffer(content, np.float32)
        features = features_of(numbers.nbytes, bits)
        mean, matrix, scale = np.split(numbers, [features, features * (bits + 1)])
        return Projection(mean, matrix.reshape(features, bits), scale)


def features_of(size: int, bits: int) -> int:
    """Number of features of a projection to `bits` bits whose bytes have this size.

    >>> features_of(len(Projection(np.zeros(3), np.eye(3)[:, :2], np.ones(2)).to_bytes()), 2)
    3
    """
    features, rest = divmod(size - 4 * bits, 4 * (bits + 1))
    if rest or features < 1:
        raise ValueError(f"{size} bytes do not fit a projection to {bits} bits")
    return features


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
