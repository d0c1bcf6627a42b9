"""Embeddings: vectors (n, d) that another network computed, used in place of images.

A float array of two dimensions is embeddings; an array of three or four is pixels. Rows that
contain NaN or infinite values have no code: they are skipped and named, like images that cannot be
read.
"""

from __future__ import annotations

import mmap
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import UsageError
from .base import ImageSource, LabelledImages, Rows

FIT_ROWS = 20_000  # rows that a method without gradients or labels is fitted on, drawn by the seed
BATCH = 4096  # rows per batch

_EXPECTED = (
    "Give embeddings as floats (n, d), images as uint8 (n, h, w, 3), and codes as hadahash.Codes."
)


class VectorBatch(NamedTuple):
    """A batch of embeddings.

    Attributes:
        rows: Indices of the usable rows, int64 (b,).
        vectors: float32 (b, d).
        failed: Index and reason of each row that cannot be used.
    """

    rows: NDArray[np.int64]
    vectors: NDArray[np.float32]
    failed: list[tuple[int, str]]


@dataclass(frozen=True, eq=False)
class Embeddings:
    """Embeddings in memory or in a memory-mapped file; they take the place of `Images`.

    Attributes:
        array: Floats or integers (n, d).
        stamp: Identifies the content of a file; None: the numbers are hashed.
        mapped: The memory map behind the array, whose pages are released after each batch; None
            for an array in memory.

    Example:
        >>> embeddings = Embeddings(np.array([[1.0, 2.0], [np.nan, 0.0]]))
        >>> [batch] = embeddings.batches()
        >>> batch.rows.tolist(), batch.failed
        ([0], [(1, 'contains NaN or missing values')])
    """

    array: NDArray[Any]
    stamp: str | None = None
    mapped: mmap.mmap | None = None

    def __post_init__(self) -> None:
        _check(self.array)

    @property
    def width(self) -> int:
        """Number of features d."""
        return int(self.array.shape[1])

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, index: int) -> NDArray[Any]:
        vector: NDArray[Any] = self.array[index]
        return vector

    def take(self, indices: Rows) -> Embeddings:
        """Return the rows with these indices, in this order; consecutive ones are not copied."""
        first, count = int(indices[0]) if len(indices) else 0, len(indices)
        if count and np.array_equal(indices, np.arange(first, first + count)):
            stamp = None if self.stamp is None else f"{self.stamp} {first}:{first + count}"
            return Embeddings(self.array[first : first + count], stamp, self.mapped)
        taken = np.empty((count, self.width), self.array.dtype)
        for start in range(0, count, BATCH // 4):  # a row of a file maps the pages around it too
            part = slice(start, start + BATCH // 4)
            taken[part] = self.array[indices[part]]
            self._release()
        return Embeddings(taken)

    def batches(self, size: int | None = None) -> Iterator[VectorBatch]:
        """Read all rows in order.

        Args:
            size: Rows per batch; `BATCH` by default.

        Yields:
            The batches, in float32.
        """
        size = size or BATCH
        for start in range(0, len(self), size):
            with np.errstate(over="ignore"):
                vectors = np.array(self.array[start : start + size], np.float32, order="C")
            self._release()
            usable = np.isfinite(vectors).all(axis=1)
            failed = [(start + int(row), _reason(vectors[row])) for row in np.flatnonzero(~usable)]
            rows = np.flatnonzero(usable) + start
            yield VectorBatch(rows, vectors if not failed else vectors[usable], failed)

    def update_digest(self, digest: Any) -> None:
        """Add what identifies these rows to a hashlib digest.

        Args:
            digest: An object of hashlib.
        """
        digest.update(f"{self.array.shape} {self.array.dtype} {self.stamp}\0".encode())
        for start in range(0, 0 if self.stamp else len(self), BATCH):
            digest.update(np.ascontiguousarray(self.array[start : start + BATCH]).data)

    def _release(self) -> None:
        """Give the pages of a memory map back, so that memory does not grow with the file."""
        if self.mapped is not None and hasattr(mmap, "MADV_DONTNEED"):
            self.mapped.madvise(mmap.MADV_DONTNEED)


def as_embeddings(source: Any) -> Embeddings | None:
    """Recognize embeddings among the sources that a model takes.

    Args:
        source: Any source of images or embeddings.

    Returns:
        The embeddings, of a float array, tensor or data frame (n, d), or a list of vectors; None if
        the source is something else.

    Raises:
        UsageError: An array of two dimensions, or a list of vectors, cannot be embeddings.
    """
    array = _two_dimensional(source)
    return None if array is None else Embeddings(array)


def are_embeddings(images: Any) -> bool:
    """Return whether images, or a source of them, are embeddings.

    Args:
        images: `Images`, an `ImageSource` or a `LabelledImages`.

    Returns:
        Whether they are vectors that need no network.
    """
    inner = images.images if isinstance(images, (ImageSource, LabelledImages)) else images
    return isinstance(inner, Embeddings)


def sample_rows(count: int, limit: int, seed: int) -> NDArray[np.int64]:
    """Draw rows without repetition.

    Args:
        count: Number of rows to draw from.
        limit: Number of rows to draw; all if there are fewer.
        seed: Seed of the draw.

    Returns:
        Indices in ascending order.
    """
    if count <= limit:
        return np.arange(count)
    return np.sort(np.random.default_rng(seed).choice(count, limit, replace=False))


def _two_dimensional(source: Any) -> NDArray[Any] | None:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(source, torch.Tensor):
        if source.ndim > 2:
            return None
        tensor = source.detach().cpu()
        half = tensor.dtype == torch.bfloat16  # unknown to numpy
        return np.asarray((tensor.float() if half else tensor).numpy())
    if isinstance(source, np.ndarray):
        if source.dtype.kind in "OUT":
            return _from_lists(source.tolist()) if source.ndim == 2 else None
        return source if source.ndim <= 2 else None
    if hasattr(source, "tocsr"):
        raise UsageError("Sparse data is not supported. Give a dense array: x.toarray().")
    if hasattr(source, "__array__"):  # a data frame, for example
        array = np.asarray(source)
        return array if array.ndim == 2 else None
    return _from_lists(source) if isinstance(source, (list, tuple)) else None


def _from_lists(rows: Sequence[Any]) -> NDArray[Any] | None:
    """A list of vectors as an array; None for a list of images or paths."""
    if not rows or not all(_is_vector(row) for row in rows):
        return None
    lengths = sorted({len(row) for row in rows})
    if len(lengths) > 1:
        raise UsageError(
            f"Embeddings must have one length, got vectors of {lengths[0]} and {lengths[-1]}."
        )
    return _as_numbers(rows)


def _is_vector(row: Any) -> bool:
    if isinstance(row, (list, tuple)):
        return bool(row) and not any(isinstance(item, (list, tuple)) for item in row[:1])
    numbers = getattr(getattr(row, "dtype", None), "kind", "f") in "fi"
    return numbers and len(getattr(row, "shape", ())) == 1


def _as_numbers(rows: ArrayLike) -> NDArray[Any]:
    try:
        return np.asarray(rows, np.float64)
    except (TypeError, ValueError):
        kind = type(np.asarray(rows, object).flat[0]).__name__
        raise UsageError(f"Embeddings must be numbers, got {kind}. {_EXPECTED}") from None


def _check(array: NDArray[Any]) -> None:
    if array.ndim != 2:
        raise UsageError(
            f"Embeddings need two dimensions (n, d), got the shape {array.shape}. "
            "Reshape your data: x[None] makes one row of a vector."
        )
    if array.dtype.kind == "c":
        raise UsageError("Complex data not supported: embeddings must be real numbers.")
    if array.dtype.kind not in "fi":
        raise UsageError(
            f"{array.dtype} {array.shape} could be codes or pixels, not embeddings. {_EXPECTED}"
        )
    if array.shape[1] == 0:
        raise UsageError(
            f"Embeddings have 0 feature(s) (shape={array.shape}) while a minimum of 1 is required."
        )


def _reason(vector: NDArray[np.float32]) -> str:
    if np.isnan(vector).any():
        return "contains NaN or missing values"
    return "contains infinite values"
