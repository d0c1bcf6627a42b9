"""scikit-learn's digits: 1,797 handwritten digits of 8 x 8 pixels, installed with it; for trying things out offline.

`digits` has them as they are; `digit-pairs` has two of them in each image, and so two labels (one if both are the same).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ..base import ArrayImages, LabelledImages, name_ids
from ..labels import Labels
from . import DATASETS, DatasetInfo


def locate_digits(root: str | Path | None = None, **options: Any) -> Path:
    """They need no files."""
    return Path()


def read_digits(root: str | Path) -> LabelledImages:
    from sklearn.datasets import load_digits

    digits = load_digits()
    grey = np.rint(digits.images * (255 / 16)).astype(np.uint8)
    ids = name_ids(f"{number:04d}" for number in range(len(grey)))
    names = tuple(str(name) for name in digits.target_names)
    return LabelledImages(
        ArrayImages(np.repeat(grey[..., None], 3, axis=3)),
        ids,
        Labels.from_array(digits.target, len(names)),
        names,
        "digits",
    )


def read_digit_pairs(root: str | Path) -> LabelledImages:
    """898 images of 16 x 16 pixels: one digit above on the left, the next one below on the right."""
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
