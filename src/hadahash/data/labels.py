"""Labels of a data set, stored in memory proportional to the number of labels.

Single-label data keep one class number per image. Multi-label data keep a compressed sparse row
(CSR) list: the classes of image i are `indices[indptr[i]:indptr[i + 1]]`. Dense targets are made
for one batch at a time, on the device that needs them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import UsageError

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, eq=False)
class Labels:
    """The classes of each image, by number.

    Build one with `Labels.from_array` or `Labels.from_lists`. `numpy.asarray(labels)` gives class
    numbers (n,) or, for multi-label data, a matrix (n, C) of 0 and 1.

    Attributes:
        count: Number of classes C.
        indices: Class numbers. One per image for single-label data; for multi-label data those of
            all images, one after the other, ascending within an image.
        indptr: Where the classes of each image begin in `indices`, int64 (n + 1,); None for
            single-label data.

    Example:
        >>> labels = Labels.from_array([[1, 0, 1], [0, 1, 0]])
        >>> len(labels), labels.count, labels.multilabel
        (2, 3, True)
        >>> labels.classes_of(0).tolist()
        [0, 2]
    """

    count: int
    indices: NDArray[np.int64]
    indptr: NDArray[np.int64] | None = None

    @staticmethod
    def from_array(array: ArrayLike | Labels, count: int | None = None) -> Labels:
        """Create labels from an array.

        Args:
            array: Class numbers (n,), or a matrix (n, C) of 0 and 1.
            count: Number of classes; by default the largest class number plus one, or C.

        Returns:
            The labels. A `Labels` argument is returned unchanged.

        Raises:
            UsageError: The array has an unsupported shape, values that are not whole numbers,
                negative
                class numbers, or class numbers that are not below `count`.
        """
        if isinstance(array, Labels):
            return array
        values = np.asarray(array)
        kinds = "iubf" if values.ndim == 2 or not values.size else "iub"
        if values.ndim not in (1, 2) or values.dtype.kind not in kinds:
            raise UsageError(
                "labels must be class numbers (n,) or 0 and 1 (n, C), "
                f"got {values.dtype} {values.shape}."
            )
        if values.ndim == 1:
            return _from_numbers(values.astype(np.int64), count)
        if values.dtype.kind != "b" and not ((values == 0) | (values == 1)).all():
            raise UsageError("labels of the shape (n, C) must be 0 or 1.")
        if count not in (None, values.shape[1]):
            raise UsageError(f"labels have {values.shape[1]} columns for {count} classes.")
        rows, columns = np.nonzero(values)
        return Labels(values.shape[1], columns.astype(np.int64), _pointers(rows, len(values)))

    @staticmethod
    def from_lists(lists: Iterable[Sequence[int]], count: int) -> Labels:
        """Create multi-label labels from one list of class numbers per image.

        Args:
            lists: The class numbers of each image, in any order; repeated ones count once.
            count: Number of classes.

        Returns:
            Labels with `multilabel` True, even if every image has one class.

        Raises:
            UsageError: A class number is negative or not below `count`.
        """
        rows = [sorted(set(row)) for row in lists]
        lengths = np.fromiter((len(row) for row in rows), np.int64, len(rows))
        flat = (number for row in rows for number in row)
        indices = np.fromiter(flat, np.int64, int(lengths.sum()))
        _check_numbers(indices, count)
        return Labels(count, indices, np.concatenate([[0], np.cumsum(lengths)]))

    @staticmethod
    def none(count: int) -> Labels:
        """Create the labels of images without labels.

        Args:
            count: Number of images.

        Returns:
            Labels without classes.
        """
        return Labels(0, np.empty(0, np.int64), np.zeros(count + 1, np.int64))

    def __len__(self) -> int:
        return len(self.indices) if self.indptr is None else len(self.indptr) - 1

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        dense = self.dense()
        return dense if dtype is None else dense.astype(dtype)

    @property
    def multilabel(self) -> bool:
        """Whether an image may have any number of classes."""
        return self.indptr is not None

    @property
    def array(self) -> NDArray[Any]:
        """Same as `dense()`."""
        return self.dense()

    def dense(self) -> NDArray[Any]:
        """Return all labels as one array.

        Returns:
            int64 (n,) class numbers, or for multi-label data uint8 (n, C) of 0 and 1, which takes
            n * C bytes.
        """
        if self.indptr is None:
            return self.indices
        dense = np.zeros((len(self), self.count), np.uint8)
        dense[np.repeat(np.arange(len(self)), np.diff(self.indptr)), self.indices] = 1
        return dense

    def classes_of(self, row: int) -> NDArray[np.int64]:
        """Return the class numbers of one image, ascending."""
        if self.indptr is None:
            return self.indices[[row]]
        row = range(len(self))[row]
        return self.indices[self.indptr[row] : self.indptr[row + 1]]

    def take(self, rows: ArrayLike) -> Labels:
        """Select images.

        Args:
            rows: Indices of the images, or a boolean mask (n,).

        Returns:
            The labels of these images, in this order, with the same classes.
        """
        picked = _as_rows(rows, len(self))
        if self.indptr is None:
            return Labels(self.count, self.indices[picked])
        starts, lengths = self.indptr[picked], self.indptr[picked + 1] - self.indptr[picked]
        pointers = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        positions = np.arange(pointers[-1]) + np.repeat(starts - pointers[:-1], lengths)
        return Labels(self.count, self.indices[positions], pointers)

    def rows_by_class(self) -> list[NDArray[np.int64]]:
        """Return for each class the indices of its images, ascending."""
        lengths = 1 if self.indptr is None else np.diff(self.indptr)
        rows = np.repeat(np.arange(len(self)), lengths)[np.argsort(self.indices, kind="stable")]
        return np.split(rows, np.cumsum(self.class_counts())[:-1]) if self.count else []

    def has(self, classes: ArrayLike) -> NDArray[np.bool_]:
        """Return which images have at least one of the given classes.

        Args:
            classes: One class number or several.

        Returns:
            bool (n,).
        """
        selected = np.zeros(self.count, bool)
        selected[np.asarray(classes, np.int64)] = True
        hit: NDArray[np.bool_] = selected[self.indices]
        if self.indptr is None:
            return hit
        rows = np.repeat(np.arange(len(self)), np.diff(self.indptr))[hit]
        return np.bincount(rows, minlength=len(self)).astype(bool)

    def targets(
        self, rows: ArrayLike | torch.Tensor, device: torch.device | str = "cpu"
    ) -> torch.Tensor:
        """Make the dense targets of one batch.

        Args:
            rows: Indices of the images of the batch.
            device: Where the targets are made.

        Returns:
            float32 (rows, C) of 0 and 1; a row may have any number of ones for multi-label data.
        """
        import torch

        batch = self.take(rows.cpu().numpy() if isinstance(rows, torch.Tensor) else rows)
        lengths = np.ones(len(batch), np.int64) if batch.indptr is None else np.diff(batch.indptr)
        positions = np.repeat(np.arange(len(batch)) * self.count, lengths) + batch.indices
        targets = torch.zeros(len(batch) * self.count, device=device)
        targets[torch.from_numpy(positions).to(device)] = 1.0
        return targets.view(len(batch), self.count)

    def class_counts(self) -> NDArray[np.int64]:
        """Return the number of images of each class, int64 (C,)."""
        return np.bincount(self.indices, minlength=self.count).astype(np.int64)

    def restrict(self, classes: ArrayLike) -> Labels:
        """Keep some classes and renumber them from 0.

        Args:
            classes: The class numbers to keep, ascending; every label must be one of them.

        Returns:
            Labels of the same images with `len(classes)` classes.
        """
        kept = np.asarray(classes, np.int64)
        numbers = np.full(self.count, -1, np.int64)
        numbers[kept] = np.arange(len(kept))
        renumbered = numbers[self.indices]
        _check_numbers(renumbered, len(kept))
        return Labels(len(kept), renumbered, self.indptr)

    def digest(self) -> str:
        """Return the sha256 (hexadecimal) of all labels; equal labels have equal digests."""
        digest = hashlib.sha256(f"{self.count} {self.multilabel} ".encode())
        for part in (self.indices, self.indptr):
            if part is not None:
                digest.update(part.astype("<i8").tobytes())
        return digest.hexdigest()


def _from_numbers(numbers: NDArray[np.int64], count: int | None) -> Labels:
    if count is None:
        count = int(numbers.max()) + 1 if len(numbers) else 0
    _check_numbers(numbers, count)
    return Labels(count, numbers)


def _check_numbers(numbers: NDArray[np.int64], count: int) -> None:
    if len(numbers) and not (numbers.min() >= 0 and numbers.max() < count):
        wrong = numbers[(numbers < 0) | (numbers >= count)][0]
        raise UsageError(f"Class numbers must be 0 to {count - 1}, got {wrong}.")


def _pointers(rows: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """The CSR pointers (count + 1,) of sorted row numbers."""
    return np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=count))]).astype(np.int64)


def _as_rows(rows: ArrayLike, count: int) -> NDArray[np.int64]:
    picked = np.asarray(rows)
    if picked.dtype == bool:
        return np.flatnonzero(picked)
    picked = picked.astype(np.int64)
    return np.where(picked < 0, picked + count, picked)
