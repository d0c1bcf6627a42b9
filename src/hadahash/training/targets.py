"""Dense targets per batch, made on the device."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from ..data.labels import Labels


class BatchTargets:
    """Makes the targets of a batch without a transfer between CPU and GPU.

    Class numbers, or the class numbers of each image padded to the longest list, are kept on the
    device: memory grows with the number of labels, not with images times classes.

    Args:
        labels: Labels of all training images.
        device: Where targets are made.
    """

    def __init__(self, labels: Labels, device: torch.device) -> None:
        self.classes, self.device = labels.count, device
        self._padded: Tensor | None = None
        if labels.indptr is None:
            self._numbers = torch.from_numpy(labels.indices).to(device)
            return
        lengths = np.diff(labels.indptr)
        rows = np.repeat(np.arange(len(labels)), lengths)
        columns = np.arange(len(labels.indices)) - np.repeat(labels.indptr[:-1], lengths)
        padded = np.full((len(labels), max(1, int(lengths.max(initial=0)))), self.classes, np.int64)
        padded[rows, columns] = labels.indices
        self._padded = torch.from_numpy(padded).to(device)

    def __call__(self, rows: Tensor) -> Tensor:
        """Targets of these images: float32 (rows, classes)."""
        rows = rows.to(self.device)
        if self._padded is None:
            return F.one_hot(self._numbers[rows], self.classes).float()
        targets = torch.zeros(len(rows), self.classes + 1, device=self.device)
        return targets.scatter_(1, self._padded[rows], 1.0)[:, : self.classes]
