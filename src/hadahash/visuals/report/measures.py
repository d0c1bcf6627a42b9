"""Statistics of the codes of a run: independence of bits, distances between classes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...codebooks import CodebookQuality, codebook_quality
from ...codebooks.quality import bit_correlation
from ...codes import Codes, hamming, pack
from ...errors import HadaHashError
from ...evaluation.analysis import histogram
from ...model import HashModel
from ...runs import EvaluatedRun

_ROWS = 1 << 14  # codes unpacked at once


@dataclass(frozen=True, eq=False)
class CodeFigures:
    """Statistics of the database codes of one run.

    Attributes:
        correlation: float (bits, bits), |correlation| of every two bits over the database.
        present: Classes that have images.
        majority: int8 (len(present), bits), majority code of each class, +-1.
        observed: Quality of the majority codes; None if there is only one class.
        book: Quality of the codebook the run was trained with; None if it has none.
        met: Fraction of the classes whose majority code equals their codeword.
    """

    correlation: NDArray[np.float64]
    present: NDArray[np.int64]
    majority: NDArray[np.int8]
    observed: CodebookQuality | None
    book: CodebookQuality | None
    met: float | None

    @property
    def pairs(self) -> NDArray[np.float64]:
        """|correlation| of every two different bits, flat; [0] for a single bit."""
        flat = self.correlation[np.triu_indices(len(self.correlation), 1)]
        return flat if len(flat) else np.zeros(1)


Measured = dict[Path, CodeFigures]  # by the folder of the run


def measure(run: EvaluatedRun) -> CodeFigures:
    """Compute the statistics of the database codes of a run.

    Args:
        run: An evaluated run.

    Returns:
        The statistics.
    """
    labels = run.database_labels
    products, sums, by_class, sizes = _sums(run.database, labels, len(run.classes))
    present = np.flatnonzero(sizes)
    majority = np.where(by_class[present] >= 0, 1, -1).astype(np.int8)
    book = read_codebook(run.folder)
    fits = book is not None and book.shape == (len(run.classes), run.database.bits)
    return CodeFigures(
        correlation=bit_correlation(products, sums, len(run.database)),
        present=present,
        majority=majority,
        observed=codebook_quality(majority) if len(majority) > 1 else None,
        book=codebook_quality(book) if book is not None and fits else None,
        met=float((majority == book[present]).all(axis=1).mean())
        if book is not None and fits
        else None,
    )


def read_codebook(folder: Path) -> NDArray[np.int8] | None:
    """Codewords of the saved model of a run.

    Args:
        folder: Folder of the run.

    Returns:
        int8 (classes, bits); None if the method has no codewords or the model cannot be loaded.
    """
    try:
        return HashModel.load(folder, device="cpu").codewords()
    except HadaHashError:
        return None


def class_distances(majority: NDArray[np.int8]) -> NDArray[np.int32]:
    """Hamming distances between the majority codes of every two classes.

    Args:
        majority: int8 (classes, bits) of +-1.

    Returns:
        int32 (classes, classes).
    """
    packed = pack(majority)
    return hamming(packed, packed)


def nearest_classes(
    majority: NDArray[np.int8], names: list[str], count: int
) -> list[tuple[str, str, int]]:
    """The pairs of classes whose majority codes are closest.

    Args:
        majority: int8 (classes, bits) of +-1.
        names: Names of the classes.
        count: Number of pairs.

    Returns:
        (first class, second class, distance), closest first.

    Example:
        >>> codes = np.array([[1, 1, 1], [1, 1, -1], [-1, -1, -1]], np.int8)
        >>> nearest_classes(codes, ["a", "b", "c"], 2)
        [('a', 'b', 1), ('b', 'c', 2)]
    """
    distances = class_distances(majority)
    rows, columns = np.triu_indices(len(majority), 1)
    order = np.argsort(distances[rows, columns], kind="stable")[:count]
    return [
        (names[a], names[b], int(distances[a, b]))
        for a, b in zip(rows[order], columns[order], strict=True)
    ]


def bounded(values: NDArray[np.float16]) -> bool:
    """Whether all outputs lie in [-1, 1], as those of tanh do.

    Args:
        values: Outputs before binarization.

    Returns:
        True if they do.
    """
    return bool(np.abs(values).max(initial=0) <= 1)


def saturated(values: NDArray[np.float16]) -> float | None:
    """Fraction of outputs beyond +-0.9.

    Args:
        values: Outputs before binarization.

    Returns:
        The fraction; None if outputs are not bounded by 1, where 0.9 means nothing.
    """
    return histogram(values).saturated if bounded(values) else None


def _sums(
    codes: Codes, labels: NDArray[np.int64], classes: int
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.float64], NDArray[np.int64]]:
    """Sums of b b^T and of b over all codes b, of b over each class, and class sizes."""
    bits = codes.bits
    products, sums = np.zeros((bits, bits)), np.zeros(bits, np.int64)
    by_class, sizes = np.zeros((classes, bits)), np.zeros(classes, np.int64)
    for start in range(0, len(codes), _ROWS):
        rows = slice(start, start + _ROWS)
        signs = codes[rows].signs().astype(np.float32)  # sums of fewer than 2^24 ones: exact
        own = labels[rows] if labels.ndim == 2 else np.eye(classes, dtype=np.float32)[labels[rows]]
        products += signs.T @ signs
        sums += signs.sum(axis=0).astype(np.int64)
        by_class += own.T.astype(np.float32) @ signs
        sizes += own.sum(axis=0).astype(np.int64)
    return products, sums, by_class, sizes
