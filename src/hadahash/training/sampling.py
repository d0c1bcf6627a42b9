"""The order of the images of an epoch: random, or in class-balanced batches."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ..data.labels import Labels
from ..errors import DataError


def draw_order(
    labels: Labels, steps: int, batch_size: int, classes: int | None, generator: torch.Generator
) -> Tensor:
    """Draw the order of the images of an epoch.

    Args:
        labels: Labels of the training images.
        steps: Number of batches.
        batch_size: Images per batch.
        classes: Classes per batch for balanced batches; None: a random order of all images.
        generator: Source of all random choices, on the CPU.

    Returns:
        int64, the rows of the images; at least steps * batch_size.
    """
    if classes is None:
        return torch.randperm(len(labels), generator=generator)
    return balanced_order(labels, steps, batch_size, classes, generator)


def balanced_order(
    labels: Labels, steps: int, batch_size: int, classes: int, generator: torch.Generator
) -> Tensor:
    """Draw the images of an epoch so that each batch has as many images of each of its classes.

    The classes of a batch are drawn without replacement. The images of a class follow in a random
    order, which starts again after the last one. An image with several labels counts for one of
    them, drawn anew in each epoch; images without a label are left out.

    Args:
        labels: Labels of the training images.
        steps: Number of batches.
        batch_size: Images per batch. If it is not divisible by the number of classes, some classes
            of a batch have one image more.
        classes: Classes per batch; at most those that have images and `batch_size`.
        generator: Source of all random choices, on the CPU.

    Returns:
        int64 (steps * batch_size,), the rows of the images.

    Raises:
        DataError: If no image has a label.
    """
    own = _one_label_each(labels, generator)
    present = torch.from_numpy(np.unique(own[own >= 0].numpy()))
    if not len(present):
        raise DataError("Balanced batches need images with labels.")
    count = min(classes, len(present), batch_size)
    part = torch.arange(batch_size) % count
    slots = torch.cat(
        [
            present[torch.randperm(len(present), generator=generator)[:count]][
                part[torch.randperm(batch_size, generator=generator)]
            ]
            for _ in range(steps)
        ]
    )
    order = torch.empty_like(slots)
    for number in present:
        rows, places = torch.nonzero(own == number)[:, 0], torch.nonzero(slots == number)[:, 0]
        turns = -(-len(places) // len(rows))
        drawn = [rows[torch.randperm(len(rows), generator=generator)] for _ in range(turns)]
        if drawn:
            order[places] = torch.cat(drawn)[: len(places)]
    return order


def _one_label_each(labels: Labels, generator: torch.Generator) -> Tensor:
    """One label of each image, drawn at random; -1 without a label."""
    if labels.indptr is None:
        return torch.from_numpy(labels.indices)
    starts = torch.from_numpy(labels.indptr[:-1])
    lengths = torch.from_numpy(np.diff(labels.indptr))
    drawn = (torch.rand(len(labels), generator=generator, dtype=torch.float64) * lengths).long()
    found = torch.full((len(labels),), -1)
    some = lengths > 0
    found[some] = torch.from_numpy(labels.indices)[(starts + drawn)[some]]
    return found
