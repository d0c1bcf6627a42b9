"""What figures of codes show: which classes are retrieved for which, how near values are to +-1, where codes lie."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .. import native
from ..codes import Codes, words
from .counting import Labels, checked_labels
from .metrics import Counts, Reals


def confusion(
    query_codes: Codes,
    query_labels: ArrayLike,
    database_codes: Codes,
    database_labels: ArrayLike,
    *,
    classes: int,
    depth: int = 1000,
    threads: int | None = None,
) -> Reals:
    """Which classes (columns) are retrieved for the queries of a class (rows): float (classes, classes), rows sum to 1.

    The item at rank r <= `depth` weighs 1 / log2(1 + r), so that the first ones count most. The items of a tie all get
    the mean weight of the ranks that the tie takes up, 0 for those past `depth`: the exact expectation over the order of
    ties. An item of several classes counts in equal parts for each, a query of several classes in full for each. The row
    of a class without queries is 0. Memory: a few tables of queries by distances.

    Two items at distance 0, of classes 0 and 1, share the weights 1 and 1 / log2(3); the third is past the depth.

    >>> from ..codes import pack
    >>> database = Codes(packed=pack([[1, 1], [1, 1], [-1, 1]]), bits=2)
    >>> confusion(database[[0]], [0], database, [0, 1, 1], classes=2, depth=2).tolist()
    [[0.5, 0.5], [0.0, 0.0]]
    """
    wanted = _members(checked_labels(query_labels, len(query_codes), "query"), classes)
    given = _members(checked_labels(database_labels, len(database_codes), "database"), classes)
    queries, items, bits = words(query_codes.packed), words(database_codes.packed), query_codes.bits
    weights = tie_weights(native.count_distances(queries, items, bits=bits, threads=threads), depth)
    found = np.zeros((len(queries), classes))
    for label, size, rows in _groups(given):
        counts = native.count_distances(queries, items[rows], bits=bits, threads=threads)
        found[:, label] += np.einsum("qd,qd->q", weights, counts) / size
    matrix = wanted.T.astype(float) @ found
    total = matrix.sum(axis=1, keepdims=True)
    return np.asarray(matrix / np.where(total > 0, total, 1))


def tie_weights(total: Counts, depth: int) -> Reals:
    """The mean of 1 / log2(1 + r), 0 past `depth`, over the ranks r of each tie: float (q, K + 1), from `total` (q, K + 1).

    >>> tie_weights(np.array([[1, 2]]), 2).round(4).tolist()
    [[1.0, 0.3155]]
    """
    ranks = np.arange(1, min(depth, int(total.sum(axis=1).max())) + 1)
    sums = np.concatenate([[0.0], np.cumsum(1 / np.log2(1 + ranks))])
    ends = np.minimum(np.cumsum(total, axis=1), len(ranks))
    first = np.pad(ends, ((0, 0), (1, 0)))[:, :-1]
    return np.asarray((sums[ends] - sums[first]) / np.maximum(total, 1))


def _members(labels: Labels, classes: int) -> NDArray[np.bool_]:
    """Labels of either kind as bool (n, classes)"""
    return labels if labels.ndim == 2 else np.asarray(labels[:, None] == np.arange(classes))


def _groups(members: NDArray[np.bool_]) -> Iterator[tuple[int, int, NDArray[np.int64]]]:
    """(class, number of classes, rows): the items of a class, apart by how many classes they have."""
    sizes = members.sum(axis=1)
    for label in range(members.shape[1]):
        own = np.flatnonzero(members[:, label])
        for size in np.unique(sizes[own]):
            yield label, int(size), own[sizes[own] == size]


class Histogram(NamedTuple):
    """How the values before sign are distributed."""

    edges: Reals  # (bins + 1,)
    shares: Reals  # (bins,): they sum to 1
    saturated: float  # the share of values with |v| > 0.9


def histogram(values: ArrayLike, *, bins: int = 50) -> Histogram:
    """The histogram of values from -1 to 1, or as far as they reach.

    >>> histogram([[-1, 0.95], [0.2, 1]], bins=4).shares.tolist()
    [0.25, 0.0, 0.25, 0.5]
    """
    flat = np.asarray(values, np.float64).ravel()
    reach = max(1.0, float(np.abs(flat).max()))
    counts, edges = np.histogram(flat, bins=bins, range=(-reach, reach))
    return Histogram(edges, counts / len(flat), float(np.mean(np.abs(flat) > 0.9)))


def only_class(labels: ArrayLike) -> NDArray[np.int64]:
    """The class number of each image that has exactly one class, -1 for the others.

    >>> only_class([[0, 1, 0], [1, 1, 0], [0, 0, 0]]).tolist()
    [1, -1, -1]
    """
    array = np.asarray(labels)
    if array.ndim == 1:
        return array.astype(np.int64)
    return np.where(array.sum(axis=1) == 1, array.argmax(axis=1), -1)


class Sample(NamedTuple):
    """Images chosen for a picture."""

    rows: NDArray[np.int64]  # (points,), in order
    shown: NDArray[np.int64]  # the classes that get a colour


def sample(
    numbers: NDArray[np.int64], *, points: int = 1000, classes: int = 10, seed: int = 0
) -> Sample:
    """At most `points` of the images that have a class number (not -1).

    The `classes` classes with most images, the first of equal ones, are to be seen; where there are more, the images of
    the others fill half of the points.

    >>> sample(np.array([2, 0, 2, -1, 1, 2]), points=4, classes=1).shown.tolist()
    [2]
    """
    found, counts = np.unique(numbers[numbers >= 0], return_counts=True)
    shown = np.sort(found[np.argsort(-counts, kind="stable")[:classes]])
    rng = np.random.default_rng(seed)
    in_colour = rng.permutation(np.flatnonzero(np.isin(numbers, shown)))
    others = rng.permutation(np.flatnonzero((numbers >= 0) & ~np.isin(numbers, shown)))
    kept = in_colour[: points - min(len(others), points // 2)]
    return Sample(np.sort(np.concatenate([kept, others[: points - len(kept)]])), shown)


def tsne(codes: Codes, *, seed: int = 0) -> Reals:
    """Codes on a plane, near ones near each other: float (n, 2).

    Squared Euclidean distances of +-1 codes, on which t-SNE works, are 4 times their Hamming distances. Good codes of a class
    are often equal: these would fall on one point, and those one bit away would be torn from them, as they are no one's
    neighbours any more. So the codes are shaken by normal noise that adds as much as one bit to each distance.
    """
    from sklearn.manifold import TSNE

    noise = np.random.default_rng(seed).normal(0, np.sqrt(2 / codes.bits), (len(codes), codes.bits))
    spread = min(30.0, (len(codes) - 1) / 3)
    method = TSNE(perplexity=spread, init="pca", random_state=seed)
    return np.asarray(method.fit_transform((codes.signs() + noise).astype(np.float32)), np.float64)
