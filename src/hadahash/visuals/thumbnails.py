"""Thumbnails that are embedded in a page."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

Pixels = NDArray[np.uint8]

_PIXELATED = 48  # images of at most this height are enlarged without smoothing


@dataclass(frozen=True, eq=False)
class Thumbnail:
    """A thumbnail with its caption.

    Attributes:
        pixels: uint8 (height, width, 3).
        caption: Lines of text below the picture.
        relevant: Whether a result shares a label with the query; None for a query.
        photo: Embed as JPEG (a third of the size) instead of PNG.
    """

    pixels: Pixels
    caption: str
    relevant: bool | None = None
    photo: bool = False

    @property
    def kind(self) -> Literal["query", "relevant", "irrelevant"]:
        """CSS class of the figure."""
        if self.relevant is None:
            return "query"
        return "relevant" if self.relevant else "irrelevant"

    @property
    def source(self) -> str:
        """The picture as a data URI."""
        return data_uri(self.pixels, photo=self.photo)

    @property
    def alternative(self) -> str:
        """Alternative text."""
        return f"{self.kind}: {self.caption}".replace("\n", ", ")

    @property
    def pixelated(self) -> bool:
        """Whether the picture is so small that it should be enlarged without smoothing."""
        return len(self.pixels) <= _PIXELATED


def data_uri(pixels: Pixels, *, photo: bool = False) -> str:
    """An image as a data URI.

    Args:
        pixels: uint8 (height, width, 3), or gray (height, width).
        photo: JPEG instead of PNG.

    Returns:
        "data:image/..." with the encoded image.

    Example:
        >>> data_uri(np.zeros((1, 1, 3), np.uint8))[:22]
        'data:image/png;base64,'
    """
    buffer = io.BytesIO()
    image = Image.fromarray(pixels)
    if photo:
        image.save(buffer, "JPEG", quality=85, subsampling=0, optimize=True)
    else:
        image.save(buffer, "PNG")
    encoded = base64.b64encode(buffer.getvalue()).decode()
    return f"data:image/{'jpeg' if photo else 'png'};base64,{encoded}"


def shrink(pixels: Pixels, side: int, *, square: bool = False) -> Pixels:
    """Shrink an image for a page; it is never enlarged.

    Args:
        pixels: uint8 (height, width, 3).
        side: Longest side of the result in pixels.
        square: Crop the middle square first.

    Returns:
        uint8 (height, width, 3).

    Example:
        >>> shrink(np.zeros((40, 80, 3), np.uint8), 20).shape
        (10, 20, 3)
        >>> shrink(np.zeros((40, 80, 3), np.uint8), 60, square=True).shape
        (40, 40, 3)
    """
    image = Image.fromarray(pixels)
    if square and image.width != image.height:
        short = min(image.size)
        image = ImageOps.fit(image, (short, short))
    if max(image.size) > side:
        image.thumbnail((side, side), Image.Resampling.BOX, reducing_gap=3.0)
    return np.asarray(image)
