"""Models for collections without labels: made from the photos themselves, and kept in the index."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from .scan import Scan, source_of

if TYPE_CHECKING:
    from ..data.base import ImageSource
    from ..model import HashModel

MODEL = "model"  # folder in the folder of the index
BITS = 128
LEAST_PHOTOS = 200  # fewer are encoded with a projection that ships with the package
MOST_PHOTOS = 5000  # the projection is fitted on a sample

Info = Callable[[str], object]


def fit_ready_model(
    scan: Scan,
    *,
    device: str = "auto",
    progress: bool = False,
    info: Info = lambda text: None,
) -> HashModel:
    """Make a model for photos without labels.

    The network is EfficientNet-Lite0 with its ImageNet weights. Its features are projected to 128
    bits by ITQ, fitted on the photos, or on other photos if there are few.

    Args:
        scan: The photos.
        device: "auto", "cpu" or "cuda".
        progress: Show a progress bar on stderr.
        info: Receives messages for the user.

    Returns:
        The model.

    Raises:
        DataError: The photos cannot be read.
    """
    from ..light_export import LEAST_IMAGES, export_ready
    from ..ready_models import load_ready, prefers_ready

    if len(scan.photos) >= LEAST_IMAGES:
        export_ready(device, info)
    light = prefers_ready(device)
    if len(scan.photos) < LEAST_PHOTOS:
        info(f"Fewer than {LEAST_PHOTOS:,} photos: using the projection of the package.")
        if light:
            return load_ready(device)
        from ..model import HashModel

        return HashModel.pretrained("lite0", device=device)
    rows = np.random.default_rng(0).permutation(len(scan.photos))[:MOST_PHOTOS]
    sample = source_of([scan.photos[row] for row in sorted(rows)])
    info(f"Learning {BITS}-bit codes from {len(sample):,} photos, without labels.")
    fit = _fit_light if light else _fit
    return fit(sample, device, progress=progress)


def _fit_light(sample: ImageSource, device: str, *, progress: bool) -> HashModel:
    from ..messages import reading_bar
    from ..ready_models import fit_photos

    with reading_bar(len(sample), shown=progress) as advance:
        return fit_photos(sample, bits=BITS, device=device, progress=advance)


def _fit(sample: ImageSource, device: str, *, progress: bool) -> HashModel:
    from ..hasher import Hasher

    return Hasher("itq", bits=BITS, device=device).fit(sample, progress=progress).model_
