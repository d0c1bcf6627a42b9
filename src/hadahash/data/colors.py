"""Colors of decoded images: any mode of Pillow in, 8-bit RGB out."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image

_FROM_16_BITS = np.rint(np.arange(65_536) / 257).astype(np.uint8)


def to_rgb(image: Image.Image) -> Image.Image:
    """Convert an image to 8-bit RGB.

    - Transparent parts are white.
    - 16-bit values are scaled to 8 bits. Values without a fixed range (32-bit integers, floats) are
      divided by the smallest of 1, 255 and 65,535 that no value exceeds; if there is none, or some
      values are negative, the minimum becomes black and the maximum white.
    - Color profiles are not applied; a CMYK JPEG is read as inverted, as Adobe writes it.

    Args:
        image: Loaded, of any mode.

    Returns:
        An image of mode RGB; `image` itself if it has this mode and no transparent color.
    """
    if image.mode.startswith("I;16"):
        return Image.fromarray(_FROM_16_BITS[np.asarray(image)]).convert("RGB")
    if image.mode in ("I", "F"):
        return Image.fromarray(_to_8_bits(np.array(image, np.float32))).convert("RGB")
    if image.mode in ("La", "RGBa"):
        image = image.convert(image.mode.upper())
    if image.mode in ("LA", "PA", "RGBA") or "transparency" in image.info:
        image = image.convert("RGBA")
        page = Image.new("RGB", image.size, "white")
        page.paste(image, mask=image)
        return page
    return image if image.mode == "RGB" else image.convert("RGB")  # convert copies


def _to_8_bits(values: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Scale values (height, width) without a fixed range; what is not finite becomes 0."""
    np.nan_to_num(values, copy=False, nan=0, posinf=0, neginf=0)
    low, high = float(values.min()), float(values.max())
    tops = [top for top in (1, 255, 65_535) if low >= 0 and high <= top]
    if tops:
        low, high = 0.0, float(tops[0])
    gain = 255 / (high - low) if high > low else 0.0
    scaled: NDArray[np.uint8] = np.rint((values * gain - low * gain).clip(0, 255)).astype(np.uint8)
    return scaled
