"""scikit-learn's digits: 1,797 handwritten digits of 8 x 8 pixels, installed with it; for trying things out offline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from .base import ArrayImages, LabelledImages


def get_digits(root: str | Path | None = None, **options: Any) -> Path:
    """They need no files."""
    return Path()


def read_digits(root: str | Path) -> LabelledImages:
    from sklearn.datasets import load_digits

    digits = load_digits()
    grey = np.rint(digits.images * (255 / 16)).astype(np.uint8)
    ids = np.array([f"{number:04d}" for number in range(len(grey))])
    names = tuple(str(name) for name in digits.target_names)
    return LabelledImages(
        ArrayImages(np.repeat(grey[..., None], 3, axis=3)), ids, digits.target.astype(np.int64), names, "digits"
    )
