"""Images that a caller holds in memory, converted to one form."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError

ACCEPTED = (
    "Give an image file, a folder, a table, a data set name, a list of files, PIL images, the bytes"
    " of image files, pixels as uint8 (h, w, 3) or (n, h, w, 3), or embeddings as floats (n, d)."
)


def is_item(item: Any) -> bool:
    """Return whether a value is one image: PIL, bytes, an open file, an array or a tensor."""
    from PIL.Image import Image

    kinds = (bytes, bytearray, memoryview, Image, np.ndarray)
    return isinstance(item, kinds) or is_tensor(item) or hasattr(item, "read")


def is_tensor(item: Any) -> bool:
    """Return whether a value is a torch tensor."""
    torch = sys.modules.get("torch")  # a tensor exists only if torch has been imported
    return torch is not None and isinstance(item, torch.Tensor)


def one_image(item: Any) -> Any:
    """Return one image as `MemoryImages` holds it.

    Args:
        item: A value for which `is_item` is true.

    Returns:
        PIL images unchanged, files as bytes, arrays and tensors as uint8 (h, w, 3).

    Raises:
        UsageError: The array is not an image, or its channels are ambiguous.
    """
    if hasattr(item, "read"):
        item = item.read()
    if isinstance(item, (bytes, bytearray, memoryview)):
        return bytes(item)
    return as_pixels(item, 3) if isinstance(item, np.ndarray) or is_tensor(item) else item


def as_pixels(source: Any, dimensions: int) -> NDArray[np.uint8]:
    """Return an array or tensor as uint8 (..., h, w, 3).

    Args:
        source: Pixels as uint8, or floats in [0, 1]; channels first or last.
        dimensions: 3 for one image, 4 for several.

    Returns:
        The pixels.

    Raises:
        UsageError: The shape or the values are not those of images, or the channels are ambiguous.
    """
    array: NDArray[Any] = source.detach().cpu().numpy() if is_tensor(source) else source
    last, first = array.shape[-1:] == (3,), array.shape[-3:-2] == (3,)
    if array.ndim != dimensions or not (last or first) or 0 in array.shape[1:]:
        raise UsageError(f"An array of the shape {array.shape} contains no RGB images. {ACCEPTED}")
    if last and first and array.shape[-2] != 3:
        raise UsageError(
            f"The shape {array.shape} has two dimensions of 3, so the channels are ambiguous. "
            "Give uint8 pixels as a list of PIL images."
        )
    if not last:
        array = np.moveaxis(array, -3, -1)
    return _as_bytes(array)


def _as_bytes(array: NDArray[Any]) -> NDArray[np.uint8]:
    if array.dtype == np.uint8:
        return array
    if array.dtype.kind == "f" and array.size and array.min() >= 0 and array.max() <= 1:
        pixels: NDArray[np.uint8] = np.rint(array * 255).astype(np.uint8)
        return pixels
    raise UsageError(
        f"Pixels must be uint8, or floats in [0, 1], got {array.dtype}"
        + (f" in [{array.min():.4g}, {array.max():.4g}]." if array.size else ".")
    )
