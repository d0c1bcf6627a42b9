"""Methods with a fixed codeword per class: codebook, and target codes derived from labels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..codebooks import codebook
from .base import Batch, Method, Task

if TYPE_CHECKING:
    from typing_extensions import Self


class CodewordMethod(Method):
    """Base class of methods that keep a codebook (classes, bits) as a buffer.

    Args:
        task: The sizes to build for.
        settings: The settings of the method.
    """

    codebook: Tensor

    def __init__(self, task: Task, settings: Any) -> None:
        super().__init__(task, settings)
        self.register_buffer("codebook", torch.zeros(task.classes, task.bits))

    @classmethod
    def create(cls, task: Task, settings: Any) -> Self:
        """Make the method with its codebook.

        Args:
            task: The sizes to build for, and the seed.
            settings: The settings of the method.

        Returns:
            The method before training.

        Raises:
            UsageError: If the codebook cannot be made.
        """
        method = super().create(task, settings)
        codewords = codebook(task.classes, task.bits, design=method.design(), seed=method.seed())
        method.codebook.copy_(torch.from_numpy(codewords))
        return method

    def design(self) -> str:
        """Return the name of the codebook design; by default the setting `codebook`."""
        return str(self.settings.codebook)

    def seed(self) -> int:
        """Return the seed of the codebook; by default the run's."""
        return self.task.seed

    def codewords(self) -> Tensor | None:
        """Return the codebook (classes, bits)."""
        return self.codebook


def has_label(targets: Tensor) -> Tensor:
    """Mark the images with at least one label.

    Args:
        targets: Float (n, classes).

    Returns:
        (n, 1) of 1 where an image has a label and 0 elsewhere, in the type of the targets.
    """
    return (targets.sum(1, keepdim=True) > 0).to(targets.dtype)


def majority(targets: Tensor, codewords: Tensor, tie_break: Tensor) -> Tensor:
    """Combine the codewords of an image's labels bit by bit.

    Args:
        targets: Float (n, classes), multi-hot.
        codewords: (classes, bits) of +1 and -1.
        tie_break: (bits,) of +1 and -1, the bits of a tie.

    Returns:
        (n, bits): the sign of the sum of the codewords, `tie_break` where it is 0.
    """
    total = targets @ codewords
    return torch.where(total == 0, tie_break, total.sign())


def mixed_codes(batch: Batch, codes: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Mix the target codes of a batch as its images were mixed.

    Args:
        batch: The batch.
        codes: (n, bits), target codes of the unmixed images.
        weight: (n, 1) or (n, bits), their weights in the loss.

    Returns:
        The codes averaged by share and weight (n, bits), and the mixed weights.
    """
    if batch.share is None:
        return codes, weight
    total = batch.mixed(weight)
    return batch.mixed(weight * codes) / total.clamp(min=1e-6), total
