"""The digits of scikit-learn: 1,797 handwritten digits of 8 x 8 pixels, installed with it.

`digits` has them unchanged. `digit-pairs` has two digits in each image, for multi-label tests.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ..base import ArrayImages, LabelledImages, name_ids
from ..labels import Labels
from . import DATASETS, DatasetInfo


def locate_digits(root: str | Path | None = None, **options: Any) -> Path:
    """Return an empty path: the digits need no files."""
    return Path()


def read_digits(root: str | Path) -> LabelledImages:
    """Read the digits.

    Args:
        root: Ignored.

    Returns:
        1,797 images of 10 classes.
    """
    from sklearn.datasets import load_digits

    digits = load_digits()
    gray = np.rint(digits.images * (255 / 16)).astype(np.uint8)
    ids = name_ids(f"{number:04d}" for number in range(len(gray)))
    names = tuple(str(name) for name in digits.target_names)
    return LabelledImages(
        ArrayImages(np.repeat(gray[..., None], 3, axis=3)),
        ids,
        Labels.from_array(digits.target, len(names)),
        names,
        "digits",
    )


def read_digit_pairs(root: str | Path) -> LabelledImages:
    """Make images of two digits: one at the top left, the next one at the bottom right.

    Args:
        root: Ignored.

    Returns:
        898 multi-label images of 16 x 16 pixels.
    """
    digits = read_digits(root)
    pixels = np.asarray(digits.images.pixels)  # type: ignore[attr-defined]
    first, second = pixels[0:-1:2], pixels[1::2]
    images = np.zeros((len(first), 16, 16, 3), np.uint8)
    images[:, :8, :8], images[:, 8:, 8:] = first, second
    numbers = digits.labels.array.tolist()
    pairs = zip(numbers[0:-1:2], numbers[1::2], strict=True)
    labels = Labels.from_lists(pairs, len(digits.classes))
    ids = name_ids(f"{number:04d}" for number in range(len(images)))
    return LabelledImages(ArrayImages(images), ids, labels, digits.classes, "digit-pairs")


DATASETS.register("digits")(DatasetInfo("digits", "holdout", None, read_digits, locate_digits))
DATASETS.register("digit-pairs")(
    DatasetInfo("digit-pairs", "holdout", None, read_digit_pairs, locate_digits)
)
