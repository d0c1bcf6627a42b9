"""HCDH: Hadamard Codebook based Deep Hashing (Chen et al., 2019), and its variants.

Each class has a codeword, a row of the codebook. The hash layer, tanh of a linear layer, is pulled
to the codeword of the image's class by a squared error L_H. A linear classifier on the hash layer
adds L_CE (cross entropy; binary cross entropy for multi-label images): L = L_H + lambda * L_CE, the
paper's last equation.

    hcdh      both losses, the classifier on the hash layer, the paper's codebook
    hcdh-h    lambda = 0: the codebook alone
    hcdh-c    the classification loss alone, no codebook
    hcdh-2    both losses, but hash layer and classifier in parallel on the features ("two streams")
    hcdh-far  hcdh with codewords that maximize the minimum Hamming distance; not in the paper

Deviations from the paper's text:

* L_H is the mean over images and bits (`reduction="mean"`), as in the authors' code. The paper
  writes half the sum, which is thousands of times larger and does not fit lambda in {1, .1, .01} or
  its learning rate. `reduction="sum"` is the paper's formula per image: half the sum over bits,
  averaged over the batch.
* The softmax runs over the C classes. The paper's index runs over "n", which it does not define.
* For multi-label images the classification loss is the sigmoid form of binary cross entropy. The
  paper prints a softmax.
* For multi-label images the paper's target is the plain sum of the codewords, whose entries tanh
  cannot reach. `multilabel_target` selects "sign" of the sum with ties broken by one fixed random
  vector (default), "masked" (the same, with tied bits left out of the loss), "mean" of the
  codewords, or "sum" as printed.
* An image without any label has no target: it has weight 0 in L_H.
* HCDH-2: the paper calls it "the two-stream architecture of SSDH", but SSDH has one stream. Here
  the classifier reads the features instead of the hash layer.
* Mixup and CutMix are not in the paper. The target of a mixed image is the same mixture of the
  target codes of its two images.
* lambda is 1 for every data set unless set. The paper uses 1, .1 and .01 for its three data sets.

With `prefixes`, both losses are means over several prefixes of the code, as if the hash layer had
been shorter: the codeword loss sees the first bits of the codewords, the classifier the first
columns of its weights. The prefixes have equal weights, so early bits count more. The design
"nested" has codewords for it.

With `assignment="semantic"`, similar classes get near codewords, see
`hadahash.codebooks.assignment`.

The deviations of the codebook from the paper's Algorithm 1 are listed in
`hadahash.codebooks.designs.paper`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Literal, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from ..codebooks import assign_codewords, class_similarity, prefix_lengths
from ..networks import HashHead
from ..settings import Checked, require, setting
from .base import METHODS, Batch, DeepMethod, Task
from .codewords import CodewordMethod, has_label, majority, mixed_codes
from .common import classification_loss, random_signs

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True)
class HCDHSettings(Checked):
    """Settings of HCDH."""

    lam: float = setting(1.0, "Weight lambda of the classification loss.", ge=0)
    codebook: str = setting("paper", "Codebook design: paper, far, nested, csq or random.")
    codebook_seed: int | None = setting(None, "Seed of the codebook; none: the run's seed.", ge=0)
    codebook_permutation: int | None = setting(
        None, "Seed of a random assignment of codewords to classes; none: as designed.", ge=0
    )
    reduction: Literal["mean", "sum"] = setting(
        "mean", "Reduction of L_H: mean over images and bits, or the paper's half sum over bits."
    )
    multilabel_target: Literal["sign", "masked", "mean", "sum"] = setting(
        "sign", "Target of a multi-label image, made of the codewords of its labels."
    )
    multilabel_loss: Literal["mean", "sum"] = setting(
        "mean", "Binary cross entropy of a multi-label image: mean or sum over the classes."
    )
    smoothing: float = setting(0.0, "Label smoothing of the classification loss.", ge=0, le=1)
    prefixes: Literal["none", "powers", "all"] = setting(
        "none",
        "Average the loss over prefixes of the code: 16, 32, 64, ... bits, or all multiples of 8.",
    )
    assignment: Literal["design", "semantic"] = setting(
        "design", "Codewords of the classes: as designed, or similar classes get near codewords."
    )


def prefixes_of(bits: int, kind: str) -> list[int]:
    """List the lengths that a loss over prefixes is averaged over.

    Args:
        bits: Code length.
        kind: "none", "powers" (powers of two from 16 on) or "all" (multiples of 8).

    Returns:
        Lengths in increasing order; the last one is the code length.

    Example:
        >>> prefixes_of(64, "none"), prefixes_of(96, "powers"), prefixes_of(20, "all")
        ([64], [16, 32, 64, 96], [8, 16, 20])
    """
    if kind == "all":
        return prefix_lengths(bits)
    shorter = [n for n in (1 << e for e in range(4, 13)) if n < bits and kind == "powers"]
    return [*shorter, bits]


@dataclass(frozen=True)
class HCDHFarSettings(HCDHSettings):
    """Settings of HCDH-far: those of HCDH with a different default codebook."""

    codebook: str = setting("far", "Codebook design: paper, far, nested, csq or random.")


@METHODS.register("hcdh")
class HCDH(CodewordMethod, DeepMethod):
    """HCDH: squared error to the codewords plus a classification loss on the hash layer."""

    Settings = HCDHSettings
    streams = 1
    tie_break: Tensor

    def __init__(self, task: Task, settings: HCDHSettings) -> None:
        super().__init__(task, settings)
        self.register_buffer("tie_break", random_signs(task.bits, seed=self.seed()))
        classes = task.classes if settings.lam > 0 else 0
        self.head = HashHead(task.features, task.bits, classes, streams=self.streams)

    @classmethod
    def create(cls, task: Task, settings: HCDHSettings) -> Self:
        """Make the method with its codebook, whose codewords may be permuted over the classes.

        Args:
            task: The sizes to build for, and the seed.
            settings: The settings.

        Returns:
            The method before training.

        Raises:
            UsageError: If the codebook cannot be made.
        """
        method = super().create(task, settings)
        if settings.codebook_permutation is not None:
            rng = np.random.default_rng(settings.codebook_permutation)
            method.codebook.copy_(method.codebook[rng.permutation(task.classes)])
        return method

    @property
    def needs_features(self) -> bool:
        """Whether codewords are assigned by the similarity of classes."""
        return bool(self.settings.assignment == "semantic")

    def prepare(self, features: Tensor, targets: Tensor) -> None:
        """Assign the codewords so that classes with similar features get near ones.

        Args:
            features: Float (n, d), on the CPU.
            targets: Float (n, classes), on the CPU.
        """
        similarity = class_similarity(features.numpy(), targets.numpy())
        words = self.codebook.cpu()
        order = assign_codewords(similarity, words.to(torch.int8).numpy(), seed=self.seed())
        self.codebook.copy_(words[torch.from_numpy(order)])

    def seed(self) -> int:
        """Return the seed of the codebook: `codebook_seed`, or the run's seed if it is None."""
        seed: int | None = self.settings.codebook_seed
        return super().seed() if seed is None else seed

    def values(self, features: Tensor) -> Tensor:
        """Compute tanh of the hash layer, (n, bits)."""
        values: Tensor = self.head(features)[0]
        return values

    def class_scores(self, features: Tensor) -> Tensor | None:
        """Compute the classifier's scores (n, classes); None if lambda is 0."""
        scores: Tensor | None = self.head(features)[1]
        return scores

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """Compute L_H ("hadamard") and, if lambda > 0, lambda * L_CE ("classification")."""
        values, scores = self.head(batch.features)
        parts = {"hadamard": self.over_prefixes(self.code_loss, values, *self.batch_codes(batch))}
        if scores is not None:
            classify = partial(self.prefix_classification, scores=scores, targets=batch.targets)
            parts["classification"] = self.settings.lam * self.over_prefixes(classify, values)
        return parts

    def over_prefixes(self, loss: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
        """Average a loss over the prefixes of the code that the settings name.

        Args:
            loss: Computes a scalar from the tensors.
            *tensors: (n, bits), cut to each prefix.

        Returns:
            The mean.
        """
        lengths = prefixes_of(self.task.bits, self.settings.prefixes)
        found = [loss(*(tensor[:, :length] for tensor in tensors)) for length in lengths]
        return torch.stack(found).mean() if len(found) > 1 else found[0]

    def prefix_classification(self, values: Tensor, *, scores: Tensor, targets: Tensor) -> Tensor:
        """Compute the classification loss of a prefix of the hash layer.

        Args:
            values: Float (n, length), the first bits of the hash layer.
            scores: Float (n, classes), the classifier's scores of the whole hash layer.
            targets: Float (n, classes).

        Returns:
            A scalar. Two streams have one classifier for all lengths.
        """
        length, layer = values.shape[1], cast(nn.Linear, self.head.classifier)
        if length < self.task.bits and self.streams == 1:
            scores = F.linear(values, layer.weight[:, :length], layer.bias)
        own = self.settings
        return classification_loss(
            scores, targets, self.task.multilabel, own.multilabel_loss, own.smoothing
        )

    def batch_codes(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Make the target codes of a batch, mixed as its images.

        Args:
            batch: The batch.

        Returns:
            Target values (n, bits) and the weight (n, bits) of each bit in the loss.
        """
        return mixed_codes(batch, *self.target_codes(batch.labels))

    def code_loss(self, values: Tensor, codes: Tensor, weight: Tensor) -> Tensor:
        """Compute L_H, the squared distance of the hash layer to given target codes.

        Args:
            values: Float (n, bits), the hash layer.
            codes: Float (n, bits), target values.
            weight: Float (n, bits), the weight of each bit; an image without target has 0.

        Returns:
            A scalar: the mean, or half the sum over bits averaged over the images with a target.
        """
        squares = weight * (values.to(codes.dtype) - codes).square()
        if self.settings.reduction == "sum":
            return squares.sum() / (2 * (weight.amax(1) > 0).sum().clamp(min=1))
        return squares.sum() / weight.sum().clamp(min=1)

    def target_codes(self, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Make the target code of each image from its labels.

        Args:
            targets: Float (n, classes).

        Returns:
            Target values (n, bits) and the weight (n, bits) of each bit in the loss.
        """
        total = targets @ self.codebook
        weight = has_label(targets).expand_as(total)
        policy = self.settings.multilabel_target
        if not self.task.multilabel or policy == "sum":
            return total, weight
        if policy == "mean":
            return total / targets.sum(1, keepdim=True).clamp(min=1), weight
        codes = majority(targets, self.codebook, self.tie_break)
        return codes, weight * (total != 0) if policy == "masked" else weight


@METHODS.register("hcdh-far")
class HCDHFar(HCDH):
    """HCDH with codewords that maximize the minimum Hamming distance (codebook design "far")."""

    Settings = HCDHFarSettings


@METHODS.register("hcdh-h")
class HCDHHadamardOnly(HCDH):
    """HCDH-H: the codebook alone, HCDH with lambda = 0."""

    def __init__(self, task: Task, settings: HCDHSettings) -> None:
        super().__init__(task, replace(settings, lam=0.0))


@METHODS.register("hcdh-c")
class HCDHClassifierOnly(HCDH):
    """HCDH-C: the classification loss alone, on tanh of the hash layer. It has no codewords."""

    def __init__(self, task: Task, settings: HCDHSettings) -> None:
        require(settings.lam > 0, f"lam must be > 0 for hcdh-c, got {settings.lam}.")
        super().__init__(task, settings)

    def codewords(self) -> Tensor | None:
        """Return None: the codes do not follow the codebook."""
        return None

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """Compute lambda * L_CE ("classification")."""
        return {"classification": super().loss(batch)["classification"]}


@METHODS.register("hcdh-2")
class HCDHTwoStreams(HCDH):
    """HCDH-2: both losses, hash layer and classifier in parallel on the features."""

    streams = 2
