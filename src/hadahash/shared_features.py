"""Features in memory, which several models share."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from .data.preprocess import Preprocess
from .data.sources import ImageSource
from .encoding import Encoder, Progress
from .outputs import Outputs


class SharedFeatures:
    """Features in memory, so that several models can share them.

    Features of a fixed backbone are kept. Of fine-tuned models, those of the original backbone are,
    which all of them share, and the own features of the model that was used last.
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[str, Preprocess, str], Outputs] = {}
        self._original: dict[tuple[object, str], Outputs] = {}
        self._last: dict[str, Outputs] = {}
        self._last_model: object = None

    def get(
        self,
        encoder: Encoder,
        source: ImageSource,
        backbone: str | None,
        progress: Progress | None = None,
    ) -> Outputs:
        """The features of these images; those that are not kept are computed.

        Args:
            encoder: Computes the features.
            source: The images.
            backbone: Identifies a fixed backbone and its weights; None: the model is fine-tuned.
            progress: Called with the number of images of each batch.

        Returns:
            The features.
        """
        if backbone is None:
            return self._get_tuned(encoder, source, progress)
        key = (f"{backbone} {encoder.precision}", encoder.preprocess, source.fingerprint())
        if key not in self._kept:
            self._kept[key] = encoder.features(source.images, progress)
        elif progress is not None:
            progress(len(source.images))
        return self._kept[key]

    def _get_tuned(
        self, encoder: Encoder, source: ImageSource, progress: Progress | None
    ) -> Outputs:
        facts, images = encoder.runtime.feature_facts(), source.fingerprint()
        if facts != self._last_model:
            self._last, self._last_model = {}, facts
        if images not in self._last:
            self._last[images] = self._compute_tuned(encoder, source, images, progress)
        elif progress is not None:
            progress(len(source.images))
        return self._last[images]

    def _compute_tuned(
        self, encoder: Encoder, source: ImageSource, images: str, progress: Progress | None
    ) -> Outputs:
        """Own features, and those of the original backbone where they are not known."""
        shared = encoder.runtime.original_facts()
        known = self._original.get((shared, images))
        if known is not None:
            own = replace(encoder, original=False).features(source.images, progress)
            if np.array_equal(own.rows, known.rows):  # otherwise files have changed
                return own._replace(content=known.values)
        found = encoder.features(source.images, progress)
        if shared is not None and found.content is not None:
            self._original[shared, images] = found._replace(values=found.content, content=None)
        return found
