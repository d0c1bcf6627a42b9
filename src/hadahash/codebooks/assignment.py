"""Assign codewords to classes so that similar classes get near codewords.

An image that is taken for a similar class then gets a code that is still near its own class, which
ranks it before images of other classes. Which class gets which codeword is a quadratic assignment
problem: minimize the sum of similarity(c, d) * distance(codeword of c, codeword of d) over all
pairs of classes. It is solved by exchanging the codewords of two classes, the best pair first,
until no exchange helps.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Codebook = NDArray[np.int8]
Reals = NDArray[np.float64]

_MIN_STARTS, _MAX_STARTS = 4, 32
_MAX_EXCHANGES = 20  # times the number of classes


def class_similarity(features: NDArray[np.float32], targets: NDArray[np.float32]) -> Reals:
    """Compare classes by the mean features of their images.

    Args:
        features: (n, d).
        targets: (n, classes), 0 and 1.

    Returns:
        float64 (classes, classes): cosines of the class means after subtracting their mean; 0 for a
        class without images and on the diagonal.
    """
    totals = targets.T.astype(np.float64) @ features.astype(np.float64)
    counts = targets.sum(0, dtype=np.float64)
    means = totals / np.maximum(counts, 1)[:, None]
    present = counts > 0
    means = np.where(present[:, None], means - means[present].mean(0), 0)
    means /= np.maximum(np.linalg.norm(means, axis=1, keepdims=True), 1e-12)
    similarity: Reals = means @ means.T
    np.fill_diagonal(similarity, 0)
    return similarity


def assign_codewords(similarity: Reals, codewords: Codebook, *, seed: int = 0) -> NDArray[np.int64]:
    """Choose the codeword of each class.

    Args:
        similarity: Symmetric (classes, classes).
        codewords: int8 (classes, bits) of +1 and -1.
        seed: Seed of the assignments that the search starts from.

    Returns:
        int64 (classes,), a permutation: class c gets the codeword in this row.
    """
    classes, bits = codewords.shape
    words = codewords.astype(np.float64)
    distance = (bits - words @ words.T) / 2
    pairs = np.array(similarity, np.float64)
    np.fill_diagonal(pairs, 0)
    rng = np.random.default_rng(seed)
    count = min(_MAX_STARTS, max(_MIN_STARTS, 400 // classes))
    starts = [np.arange(classes), *(rng.permutation(classes) for _ in range(count - 1))]
    found = [_descend(pairs, distance, start) for start in starts]
    return min(found, key=lambda order: assignment_cost(pairs, codewords[order]))


def assignment_cost(similarity: Reals, codewords: Codebook) -> float:
    """Compute the mean of similarity * distance / bits over all pairs of classes.

    Args:
        similarity: Symmetric (classes, classes).
        codewords: int8 (classes, bits), the codeword of each class.

    Returns:
        The cost; smaller is better.
    """
    words = codewords.astype(np.float64)
    distance = (1 - words @ words.T / words.shape[1]) / 2
    upper = np.triu_indices(len(words), 1)
    return float((similarity * distance)[upper].mean())


def _descend(pairs: Reals, distance: Reals, order: NDArray[np.int64]) -> NDArray[np.int64]:
    """Exchange the best pair of classes while the cost decreases."""
    order = order.copy()
    own = distance[np.ix_(order, order)]
    product = pairs @ own  # kept up to date: two columns and a rank-one change per exchange
    for _ in range(_MAX_EXCHANGES * len(order)):
        kept = np.diagonal(product)
        change = product + product.T - kept - kept[:, None] + 2 * pairs * own
        i, j = divmod(int(change.argmin()), len(order))
        if change[i, j] >= -1e-9:
            break
        product += np.outer(pairs[:, i] - pairs[:, j], own[j] - own[i])
        for matrix in (own, product):
            matrix[:, [i, j]] = matrix[:, [j, i]]
        own[[i, j]] = own[[j, i]]
        order[[i, j]] = order[[j, i]]
    return order
