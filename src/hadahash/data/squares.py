"""From a decoded image to a square, and how small an image may be decoded for it.

A decoder that reduces a JPEG by 4 returns pixels of 4 x 4; the last row and column may reach beyond
the image. `Reduced` knows where the image is, so its square shows the same part of the image as
that of a full decode. Its few pixels are averaged without rounding in between (`native.resize`).
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ..errors import UsageError, unknown
from ..native.resize import shrink

_SPARE = 2.75  # a JPEG is decoded at no less than this many times the side of a square,
_SPARE_PREVIEW = 2  # or of a picture that is only shown,
_SMALL = 512  # and no smaller than this

# EXIF orientations by what they do to the last column and row of a file, which may be incomplete.
_SWAPPED, _LEFT, _TOP = (5, 6, 7, 8), (2, 3, 6, 7), (3, 4, 7, 8)

Fit = Literal["crop", "squash"]


class Reduced(NamedTuple):
    """An upright image, decoded at its full size or smaller.

    Attributes:
        pixels: uint8 (height, width, 3), RGB.
        size: Height and width of the full image.
        scale: 1, 2, 4 or 8: how much smaller the pixels are.
        start: Row and column of `pixels` where the image begins, below 1.
    """

    pixels: NDArray[np.uint8]
    size: tuple[int, int]
    scale: int = 1
    start: tuple[float, float] = (0.0, 0.0)

    @staticmethod
    def turned(
        pixels: NDArray[np.uint8], stored: tuple[int, int], scale: int, orientation: int
    ) -> Reduced:
        """Describe an image that was turned upright after it was decoded.

        Args:
            pixels: uint8 (height, width, 3), upright.
            stored: Width and height of the full image in the file.
            scale: How much smaller the pixels are.
            orientation: EXIF orientation of the file.

        Returns:
            The image.
        """
        if scale == 1:
            return Reduced(pixels, (pixels.shape[0], pixels.shape[1]))
        width, height = stored[::-1] if orientation in _SWAPPED else stored
        beyond = pixels.shape[0] - height / scale, pixels.shape[1] - width / scale
        top = beyond[0] if orientation in _TOP else 0.0
        left = beyond[1] if orientation in _LEFT else 0.0
        return Reduced(pixels, (height, width), scale, (top, left))

    def square(self, side: int, *, fit: Fit = "crop") -> NDArray[np.uint8]:
        """Resize the image to a square, as `shrink_to_square` does.

        Args:
            side: Side of the square in pixels.
            fit: See `shrink_to_square`.

        Returns:
            uint8 (side, side, 3).

        Raises:
            UsageError: `fit` is unknown or `side` is not positive.
        """
        if fit not in ("crop", "squash"):
            raise unknown("fit", fit, ("crop", "squash"))
        if side < 1:
            raise UsageError(f"side must be >= 1, got {side}.")
        height, width = self.size
        if height == width == side:
            return self.pixels
        left, top, right, bottom = 0, 0, width, height
        if fit == "crop":
            short = min(height, width)
            left, top = (width - short) // 2, (height - short) // 2
            right, bottom = left + short, top + short
        (y, x), scale = self.start, self.scale
        box = (x + left / scale, y + top / scale, x + right / scale, y + bottom / scale)
        if scale > 1 and right - left >= side * scale and bottom - top >= side * scale:
            return shrink(self.pixels, side, box)
        image = Image.fromarray(self.pixels)
        return np.array(image.resize((side, side), Image.Resampling.BILINEAR, box=box))


def shrink_to_square(
    image: NDArray[np.uint8], side: int, *, fit: Fit = "crop"
) -> NDArray[np.uint8]:
    """Resize an image to a square, with antialiasing; it may also be enlarged.

    Args:
        image: uint8 (height, width, 3).
        side: Side of the square in pixels.
        fit: "crop" scales the short side to `side` and keeps the middle of the long one; "squash"
            keeps the whole image and changes its aspect ratio.

    Returns:
        uint8 (side, side, 3); `image` itself if it has this size already.

    Raises:
        UsageError: `fit` is unknown or `side` is not positive.
    """
    return Reduced(image, (image.shape[0], image.shape[1])).square(side, fit=fit)


def enough_for(side: int, *, preview: bool = False) -> int:
    """How small a JPEG may be decoded for a result of `side` pixels.

    It is 2.75 times `side`, or twice the side of a preview, and at least 512: a JPEG of which a
    side is shorter than 1,024 pixels is always decoded in full.

    Args:
        side: Side of the result in pixels.
        preview: Whether the result is shown to people, not to a network.

    Returns:
        Value for `at_least` of `open_image`.

    Example:
        >>> enough_for(64), enough_for(256), enough_for(300), enough_for(300, preview=True)
        (512, 704, 825, 600)
    """
    return max(round((_SPARE_PREVIEW if preview else _SPARE) * side), _SMALL)
