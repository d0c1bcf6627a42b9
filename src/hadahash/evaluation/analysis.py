"""Analyses behind the figures: confusion of classes, distribution of values, t-SNE of codes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .. import native
from ..codes import Codes, words
from .labels import LabelArray, LabelsLike, check_class_numbers
from .metrics import Counts, Reals


def confusion(
    query_codes: Codes,
    query_labels: LabelsLike,
    database_codes: Codes,
    database_labels: LabelsLike,
    *,
    classes: int,
    depth: int = 1000,
    threads: int | None = None,
) -> Reals:
    """Which classes (columns) are retrieved for the queries of a class (rows).

    The item at rank r <= `depth` has the weight 1 / log2(1 + r), so that the first results count
    most. All items of a tie get the mean weight of the ranks of the tie: the exact expectation over
    the order of ties. An item of several classes counts in equal parts for each, a query of several
    classes in full for each. Memory: a few tables of queries by distances.

    Args:
        query_codes: Codes of the queries.
        query_labels: (n,) class numbers or (n, C) of 0 and 1.
        database_codes: Codes of the database.
        database_labels: Labels of the database.
        classes: Number of classes.
        depth: Ranks after this one have the weight 0.
        threads: Number of threads; None: one per usable core.

    Returns:
        float (classes, classes). Rows sum to 1; the row of a class without queries is 0.

    Example:
        Two items at distance 0, of classes 0 and 1, get the mean of the weights 1 and 1 / log2(3);
        the third is beyond `depth`.

        >>> from hadahash.codes import pack
        >>> database = Codes(packed=pack([[1, 1], [1, 1], [-1, 1]]), bits=2)
        >>> confusion(database[[0]], [0], database, [0, 1, 1], classes=2, depth=2).tolist()
        [[0.5, 0.5], [0.0, 0.0]]
    """
    query_sets = _members(check_class_numbers(query_labels, len(query_codes), "query"), classes)
    item_labels = check_class_numbers(database_labels, len(database_codes), "database")
    queries, items, bits = words(query_codes.packed), words(database_codes.packed), query_codes.bits
    weights = tie_weights(native.count_distances(queries, items, bits=bits, threads=threads), depth)
    found = np.zeros((len(queries), classes))
    for label, size, rows in _groups(_members(item_labels, classes)):
        counts = native.count_distances(queries, items[rows], bits=bits, threads=threads)
        found[:, label] += np.einsum("qd,qd->q", weights, counts) / size
    matrix = query_sets.T.astype(float) @ found
    total = matrix.sum(axis=1, keepdims=True)
    return np.asarray(matrix / np.where(total > 0, total, 1))


def tie_weights(total: Counts, depth: int) -> Reals:
    """Mean of 1 / log2(1 + r) over the ranks r of each tie, 0 for ranks beyond `depth`.

    Args:
        total: int64 (q, K + 1), number of items at each distance.
        depth: Last rank with a weight above 0.

    Returns:
        float (q, K + 1).

    Example:
        >>> tie_weights(np.array([[1, 2]]), 2).round(4).tolist()
        [[1.0, 0.3155]]
    """
    ranks = np.arange(1, min(depth, int(total.sum(axis=1).max())) + 1)
    sums = np.concatenate([[0.0], np.cumsum(1 / np.log2(1 + ranks))])
    ends = np.minimum(np.cumsum(total, axis=1), len(ranks))
    first = np.pad(ends, ((0, 0), (1, 0)))[:, :-1]
    return np.asarray((sums[ends] - sums[first]) / np.maximum(total, 1))


def _members(labels: LabelArray, classes: int) -> NDArray[np.bool_]:
    """Labels of either kind as bool (n, classes)."""
    return labels if labels.ndim == 2 else np.asarray(labels[:, None] == np.arange(classes))


def _groups(members: NDArray[np.bool_]) -> Iterator[tuple[int, int, NDArray[np.int64]]]:
    """(class, size, rows): the items of a class, grouped by their number of classes `size`."""
    sizes = members.sum(axis=1)
    for label in range(members.shape[1]):
        rows = np.flatnonzero(members[:, label])
        for size in np.unique(sizes[rows]):
            yield label, int(size), rows[sizes[rows] == size]


class Histogram(NamedTuple):
    """Distribution of real-valued outputs before binarization.

    Attributes:
        edges: float (bins + 1,), edges of the bins.
        shares: float (bins,), fraction of the values in each bin.
        saturated: Fraction of the values with |v| > 0.9.
    """

    edges: Reals
    shares: Reals
    saturated: float


def histogram(values: ArrayLike, *, bins: int = 50) -> Histogram:
    """Histogram over [-1, 1], or over [-m, m] where the largest |value| m exceeds 1.

    Args:
        values: Values of any shape.
        bins: Number of bins.

    Returns:
        Edges, fractions, and the fraction of values beyond +-0.9.

    Example:
        >>> histogram([[-1, 0.95], [0.2, 1]], bins=4).shares.tolist()
        [0.25, 0.0, 0.25, 0.5]
    """
    flat = np.asarray(values, np.float64).ravel()
    limit = max(1.0, float(np.abs(flat).max()))
    counts, edges = np.histogram(flat, bins=bins, range=(-limit, limit))
    return Histogram(edges, counts / len(flat), float(np.mean(np.abs(flat) > 0.9)))


def only_class(labels: ArrayLike) -> NDArray[np.int64]:
    """Class number of each image that has exactly one class, -1 for the others.

    Args:
        labels: (n,) class numbers or (n, C) of 0 and 1.

    Returns:
        int64 (n,).

    Example:
        >>> only_class([[0, 1, 0], [1, 1, 0], [0, 0, 0]]).tolist()
        [1, -1, -1]
    """
    array = np.asarray(labels)
    if array.ndim == 1:
        return array.astype(np.int64)
    return np.where(array.sum(axis=1) == 1, array.argmax(axis=1), -1)


class Sample(NamedTuple):
    """Images drawn for a figure.

    Attributes:
        rows: int64 (points,), their rows, ascending.
        shown: The classes that get a color.
    """

    rows: NDArray[np.int64]
    shown: NDArray[np.int64]


def sample(
    numbers: NDArray[np.int64], *, points: int = 1000, classes: int = 10, seed: int = 0
) -> Sample:
    """Draw images for a scatter plot that highlights the largest classes.

    Args:
        numbers: int64 (n,), class number of each image, -1: not drawn.
        points: Largest number of images.
        classes: Number of highlighted classes: those with most images. Images of the other classes
            fill at most half of the points.
        seed: Random seed.

    Returns:
        The rows drawn and the highlighted classes.

    Example:
        >>> sample(np.array([2, 0, 2, -1, 1, 2]), points=4, classes=1).shown.tolist()
        [2]
    """
    found, counts = np.unique(numbers[numbers >= 0], return_counts=True)
    shown = np.sort(found[np.argsort(-counts, kind="stable")[:classes]])
    rng = np.random.default_rng(seed)
    in_color = rng.permutation(np.flatnonzero(np.isin(numbers, shown)))
    others = rng.permutation(np.flatnonzero((numbers >= 0) & ~np.isin(numbers, shown)))
    kept = in_color[: points - min(len(others), points // 2)]
    return Sample(np.sort(np.concatenate([kept, others[: points - len(kept)]])), shown)


def tsne(codes: Codes, *, seed: int = 0) -> Reals:
    """t-SNE of codes.

    t-SNE works on squared Euclidean distances, which for +-1 codes are 4 times the Hamming
    distances. Good codes of a class are often equal: they would collapse to one point, and codes
    one bit away would be placed far away, since equal codes fill all neighbor lists. Normal noise
    that adds about one bit to each distance prevents this.

    Args:
        codes: The codes.
        seed: Random seed.

    Returns:
        float (n, 2).
    """
    from sklearn.manifold import TSNE

    noise = np.random.default_rng(seed).normal(0, np.sqrt(2 / codes.bits), (len(codes), codes.bits))
    perplexity = min(30.0, (len(codes) - 1) / 3)
    method = TSNE(perplexity=perplexity, init="pca", random_state=seed)
    return np.asarray(method.fit_transform((codes.signs() + noise).astype(np.float32)), np.float64)
