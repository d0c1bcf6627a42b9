"""What is fitted to a trained network: threshold, content bits and the ranking."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .codes import Skipped
from .config import Config, TrainConfig
from .content import MOST_IMAGES, content_bits_that_fit, fit_content
from .data.base import ArrayImages, Images, MemoryImages
from .data.labels import Labels
from .data.preprocess import Preprocess
from .encoding import Encoder
from .errors import TrainingDivergedError
from .methods import DeepMethod, ShallowMethod
from .networks import Backbone
from .networks.content import ContentPart
from .networks.hash_network import HashNetwork
from .ranking import Ranking, fit_ranking
from .runtime.base import bounded_relaxed
from .training.step import effective_precision

_CHECKED_IMAGES = 64
_RANKING_IMAGES = 5_000  # more do not change the fitted numbers noticeably

Info = Callable[[str], object]
Rows = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Inputs:
    """What a method learns from.

    Attributes:
        tensor: uint8 pixels (n, 3, side, side), or float features (n, d).
        rows: The images that could be read.
        skipped: The other images, with reasons.
        on_disk: Whether the pixels are mapped from a file.
    """

    tensor: Tensor
    rows: Rows
    skipped: tuple[Skipped, ...]
    on_disk: bool = False

    def __len__(self) -> int:
        return len(self.rows)

    def images(self, rows: Rows) -> Images:
        """Decoded training images as images, without a copy."""
        pixels = self.tensor.numpy().transpose(0, 2, 3, 1)
        if len(rows) == len(pixels):
            return ArrayImages(pixels)
        return MemoryImages([pixels[row] for row in rows])

    def sample(self, limit: int, seed: int) -> Rows:
        """At most `limit` rows, in ascending order."""
        if len(self) <= limit:
            return np.arange(len(self))
        return np.sort(np.random.default_rng(seed).permutation(len(self))[:limit])


@dataclass(frozen=True, eq=False)
class Calibration:
    """Fits what a trained network needs besides its weights, on its training images.

    Attributes:
        network: The trained network, without content bits.
        preprocess: How images become its input.
        inputs: The training images.
        config: The configuration.
    """

    network: HashNetwork
    preprocess: Preprocess
    inputs: Inputs
    config: Config

    def check_outputs(self) -> None:
        """Weights may be finite but so large that the outputs are not.

        Raises:
            TrainingDivergedError: The outputs of the first images are NaN or infinite.
        """
        values = self._values(np.arange(min(_CHECKED_IMAGES, len(self.inputs))))
        if not bool(torch.isfinite(values).all()):
            raise TrainingDivergedError(
                "Training diverged: the outputs of the network are NaN or infinite. "
                "Lower the learning rate with --set lr=..."
            )

    def set_threshold(self) -> None:
        """Set the threshold of each bit to the mean or median of its values, if so configured."""
        kind = self._train.threshold
        if kind != "zero":
            values = self._values(np.arange(len(self.inputs)))
            center = values.mean(0) if kind == "mean" else values.median(0).values
            self.network.threshold.copy_(center)

    def calibrate(
        self, labels: Labels, classes: tuple[str, ...], original: Backbone | None, info: Info
    ) -> Ranking:
        """Check the outputs, set the threshold, fit the ranking, and add the content part.

        Args:
            labels: Labels of the training images.
            classes: Names of the classes.
            original: The backbone before training, where it was trained.
            info: Receives messages for the user.

        Returns:
            The ranking.

        Raises:
            TrainingDivergedError: The outputs of the first images are NaN or infinite.
        """
        if not isinstance(self.network.method, ShallowMethod):
            self.check_outputs()
        self.set_threshold()
        ranking = replace(self._fit_ranking(labels), classes=classes)
        if not self.config.content_bits:
            return ranking
        content = self._fit_content(original, info)
        self.network.content = content  # after the ranking, which needs class bits alone
        return replace(ranking, content_fingerprint=content.projection.fingerprint)

    def _fit_ranking(self, labels: Labels) -> Ranking:
        words = self.network.codewords()
        if words is None:
            return Ranking(None, multilabel=labels.multilabel and labels.count > 0)
        rows = self.inputs.sample(_RANKING_IMAGES, self.config.seed)
        return fit_ranking(
            bounded_relaxed(self._encoder(self.network).runtime, self._values(rows).cpu().numpy()),
            labels.take(rows).array,
            words.sign().to(torch.int8).cpu().numpy(),
            multilabel=labels.multilabel,
        )

    def _fit_content(self, original: Backbone | None, info: Info) -> ContentPart:
        """Fit the projection to content bits, on the features of the original backbone."""
        network, config = self.network, self.config
        rows = self.inputs.sample(MOST_IMAGES, config.seed)
        if original is not None:
            network = HashNetwork(original, network.method, network.bits).to(network.device)
        features = self._features(network, rows)
        projection = fit_content(features, config.content_bits, config.seed, info=info)
        return ContentPart(projection, original).to(network.device).eval()

    def show_features(self, labels: Labels) -> None:
        """Show the method the features of a sample of the training images, before training.

        Args:
            labels: Labels of the training images.
        """
        rows = self.inputs.sample(_RANKING_IMAGES, self.config.seed)
        features = self._features(self.network, rows).float().cpu()
        cast(DeepMethod, self.network.method).prepare(features, labels.targets(rows))

    def _features(self, network: HashNetwork, rows: Rows) -> Tensor:
        """The features of some training images."""
        if self.inputs.tensor.ndim == 2:
            return self.inputs.tensor[rows]
        found = self._encoder(network).features(self.inputs.images(rows))
        return torch.from_numpy(found.values)

    @torch.inference_mode()
    def _values(self, rows: Rows) -> Tensor:
        """The values of some training images."""
        if self.inputs.tensor.ndim == 2:
            return self.network.values(self.inputs.tensor[rows].to(self.network.device))
        found = self._encoder(self.network).values(self.inputs.images(rows))
        return torch.from_numpy(found.values)

    def _encoder(self, network: HashNetwork) -> Encoder:
        return Encoder(network, self.preprocess, effective_precision(self._train, network.device))

    @property
    def _train(self) -> TrainConfig:
        return cast(TrainConfig, self.config.train)


def limit_content_bits(config: Config, features: int, info: Info) -> Config:
    """The configuration with as many content bits as there are features for.

    Args:
        config: The requested configuration.
        features: Width of the backbone's output.
        info: Receives a line if there are fewer content bits than requested.

    Returns:
        The configuration with the effective number.
    """
    bits = content_bits_that_fit(config.content_bits, features)
    if bits < config.content_bits:
        info(
            f"{bits} content bits instead of {config.content_bits}: "
            f"the backbone has {features} features."
        )
    return replace(config, content_bits=bits)
