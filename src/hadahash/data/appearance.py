"""What an image looks like, in 64 bits: a perceptual hash that mirroring does not change.

The image is reduced to 32 x 32 gray pixels. Each bit is the sign of a low frequency of its discrete
cosine transform. Horizontally only even frequencies are used: they are the same for an image and
its mirror image. Resizing, compression and brightness change few of the bits; a crop changes more.
"""

from __future__ import annotations

import numpy as np

from .squares import Reduced

BITS = 64

_SIDE = 32
_GRAY = np.array([0.299, 0.587, 0.114])
_NOISE = 1e-6  # a uniform image has no bits


def _cosines(frequencies: range) -> np.ndarray:
    """Rows of the matrix of the cosine transform."""
    places = (2 * np.arange(_SIDE) + 1) * np.pi / (2 * _SIDE)
    return np.cos(np.array(frequencies)[:, None] * places)


_DOWN, _ACROSS = _cosines(range(9)), _cosines(range(0, 16, 2))


def appearance_bits(image: Reduced) -> bytes:
    """Compute the bits of an image.

    Args:
        image: The image.

    Returns:
        8 bytes.

    Example:
        >>> pixels = np.arange(48, dtype=np.uint8).reshape(4, 4, 3) * 5
        >>> mirrored = np.ascontiguousarray(pixels[:, ::-1])
        >>> appearance_bits(Reduced(pixels, (4, 4))) == appearance_bits(Reduced(mirrored, (4, 4)))
        True
    """
    gray = image.square(_SIDE, fit="squash") @ _GRAY
    values = (_DOWN @ gray @ _ACROSS.T).ravel()[1 : BITS + 1]  # without the mean
    return np.packbits(values > _NOISE * gray.sum()).tobytes()
