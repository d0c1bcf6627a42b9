"""Codebooks of many classes: linear codes, searched with the Walsh-Hadamard transform.

A linear code with 2^k codewords is a list of columns, each an integer 1 <= q < 2^k: bit t of the
codeword of message m is the parity of m & q_t. Its minimum distance is its smallest weight. To
insert the column that raises the weights of light codewords most, all 2^k columns are scored at
once: the score is a Walsh transform of a function of the weights. So a column can be exchanged
thousands of times per second. The search starts from extended BCH codes and from the unit vectors,
and never ends below its start.

Balance: if every column q has q & (2^r - 1) != 0, each coset of the first r message bits has as
many +1 as -1 in every bit. A codebook of whole cosets is then balanced; r = 1 is the case of codes
that contain the complement of each codeword.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .bounds import distance_bound, varshamov_floor
from .galois import powers
from .hadamard import walsh

Codebook = NDArray[np.int8]
Integers = NDArray[np.int64]

_MAX_WORK = 4e6  # weights computed in one attempt to raise the distance by one
_MAX_STEPS = 600
_COVERS = 4096  # sets of messages tried
_DRAWS, _EXCHANGES, _TRIED = 8, 300, 64  # effort to balance the columns by choice of codewords


def linear_codebook(classes: int, bits: int, rng: np.random.Generator) -> Codebook:
    """Search for a linear code with a large minimum distance and take codewords from it.

    Args:
        classes: Number of classes.
        bits: Code length.
        rng: Source of all random choices.

    Returns:
        int8 (classes, bits) of +1 and -1.
    """
    k = (classes - 1).bit_length()
    cosets = coset_bits(classes, k)
    best = _best_code(k, bits, cosets, rng)
    basis = [1 << i for i in range(cosets)]
    if cosets < k and best.distance < distance_bound(classes, bits):
        free = _best_code(k, bits, k, rng)
        if free.distance > best.distance:
            cover = _cover(free, cosets, rng)
            if cover is None:
                return _balanced_choice(free, classes, rng)
            best, basis = free, cover
    return whole_cosets(best, classes, basis, rng)


@dataclass
class LinearCode:
    """A linear code as it is searched.

    Attributes:
        k: Dimension: the code has 2^k codewords.
        columns: The columns of its generator matrix as integers.
        weights: int64 (2^k,), the weights of the codewords; a large number for the zero codeword.
    """

    k: int
    columns: list[int]
    weights: Integers

    @staticmethod
    def from_columns(k: int, columns: list[int]) -> LinearCode:
        """Make the code of these columns."""
        code = LinearCode(k, [], np.zeros(1 << k, np.int64))
        code.weights[0] = 1 << 30  # never the smallest weight
        for q in columns:
            code.add(q)
        return code

    @property
    def distance(self) -> int:
        """The minimum distance."""
        return int(self.weights.min())

    def parity(self, q: int) -> Integers:
        """Return the bit of column q for each message: int64 (2^k,) of 0 and 1."""
        ones: Integers = np.bitwise_count(np.arange(1 << self.k) & q).astype(np.int64)
        return ones & 1

    def add(self, q: int) -> None:
        """Append a column."""
        self.columns.append(q)
        self.weights += self.parity(q)

    def drop(self, position: int) -> int:
        """Remove the column at a position and return it."""
        q = self.columns.pop(position)
        self.weights -= self.parity(q)
        return q

    def copy(self) -> LinearCode:
        """Return a copy that can be changed."""
        return LinearCode(self.k, list(self.columns), self.weights.copy())

    def codewords(self, messages: Integers) -> Codebook:
        """Return the codewords of messages: int8 (len(messages), bits) of +1 and -1."""
        odd = np.bitwise_count(messages[:, None] & np.array(self.columns)) & 1
        return np.where(odd, -1, 1).astype(np.int8)


def coset_bits(classes: int, k: int) -> int:
    """Compute the largest r such that whole cosets of 2^r codewords, or one more or less, fit.

    Args:
        classes: Number of codewords.
        k: Dimension of the code.

    Returns:
        1 <= r <= k.
    """
    return max(r for r in range(1, k + 1) if (classes + 1) % (1 << r) <= 2)


def _best_code(k: int, bits: int, cosets: int, rng: np.random.Generator) -> LinearCode:
    allowed = np.arange(1 << k) & ((1 << cosets) - 1) != 0
    bound = distance_bound(1 << k, bits)
    found: list[LinearCode] = []
    for start in _starts(k, bits):
        code = _adjust_length(LinearCode.from_columns(k, start), bits, allowed, rng)
        found.append(_increase_distance(code, allowed, bound, rng))
        if found[-1].distance == bound:
            break
    return max(found, key=lambda code: code.distance)


def _starts(k: int, bits: int) -> list[list[int]]:
    """Extended BCH codes of the next powers of two as length, and unit vectors."""
    m = bits.bit_length() - 1
    lengths = {m, m + (bits > 1 << m)}
    codes = [bch(m, k) for m in sorted(lengths, reverse=True) if m > 1 and k < 1 << m]
    return [*codes, [1] + [1 | 1 << i for i in range(1, k)]]


def bch(m: int, k: int) -> list[int]:
    """Construct a subcode with 2^k codewords of an extended BCH code of length 2^m.

    There is one column per x in GF(2^m). The codeword of the coefficients (b, a_1, a_2, ...) has at
    x the bit b + Tr(a_1 x^s_1) + Tr(a_2 x^s_2) + ..., where s_1 > s_2 > ... are the leaders of the
    cyclotomic cosets modulo 2^m - 1. The zeros of the narrow-sense BCH code are the leaders that
    have not been reached.

    Args:
        m: The length is 2^m.
        k: Dimension of the subcode.

    Returns:
        The 2^m columns as integers.
    """
    n = (1 << m) - 1
    log = powers(2, m)  # (n, m)
    rows = [(1 << (n + 1)) - 1]  # rows of the generator matrix as integers; bit 0 is x = 0
    basis = list(rows)
    leaders = (s for s in range(n - 1, 0, -1) if s == min((s << i) % n for i in range(m)))
    for bit in (bit for s in leaders for bit in log[np.arange(n) * s % n].T):
        row = sum(1 << (i + 1) for i in np.flatnonzero(bit).tolist())
        rest = _reduced(row, basis)
        if rest:
            rows.append(row)
            basis.append(rest)
        if len(rows) == k:
            break
    return [sum((rows[j] >> i & 1) << j for j in range(k)) for i in range(n + 1)]


def penalty(weights: Integers, target: int) -> Integers:
    """Compute the squared shortfall of each weight from the target.

    Args:
        weights: Weights of codewords.
        target: The weight that none should be below.

    Returns:
        Integers of the same shape.
    """
    return np.maximum(target - weights, 0) ** 2


def insert_column(
    code: LinearCode,
    target: int,
    allowed: NDArray[np.bool_],
    rng: np.random.Generator,
    *,
    exclude: int = 0,
) -> int:
    """Insert the allowed column that lowers the penalty most, ties broken at random.

    Args:
        code: The code, changed in place.
        target: The weight that no codeword should be below.
        allowed: bool (2^k,), the columns to choose from.
        rng: Breaks ties.
        exclude: A column that is not inserted.

    Returns:
        The inserted column.
    """
    gain = walsh(penalty(code.weights + 1, target) - penalty(code.weights, target))
    gain = np.where(allowed, gain - gain[0], -1)
    gain[exclude] = -1
    q = int(rng.choice(np.flatnonzero(gain == gain.max())))
    code.add(q)
    return q


def _remove(code: LinearCode, target: int, rng: np.random.Generator, held: Integers) -> int:
    """Remove the column that raises the penalty least, preferably one not held; return it."""
    loss = walsh(penalty(code.weights, target) - penalty(code.weights - 1, target))
    columns = np.array(code.columns)
    order = (loss[columns] - loss[0]) + held[columns] * (1 << 50)
    return code.drop(int(rng.choice(np.flatnonzero(order == order.min()))))


def _adjust_length(
    code: LinearCode, bits: int, allowed: NDArray[np.bool_], rng: np.random.Generator
) -> LinearCode:
    """Insert or remove columns one by one until the code has the length."""
    target = varshamov_floor(1 << code.k, bits) + 2
    none_held = np.zeros(1 << code.k, np.int64)
    while len(code.columns) > bits:
        _remove(code, target, rng, none_held)
    while len(code.columns) < bits:
        insert_column(code, target, allowed, rng)
    return code


def _increase_distance(
    code: LinearCode, allowed: NDArray[np.bool_], bound: int, rng: np.random.Generator
) -> LinearCode:
    """Raise the distance by one as often as possible."""
    best = code
    while best.distance < bound:
        higher = _exchange(best.copy(), best.distance + 1, allowed, rng)
        if higher is None:
            break
        best = higher
    return best


def _exchange(
    code: LinearCode, target: int, allowed: NDArray[np.bool_], rng: np.random.Generator
) -> LinearCode | None:
    """Exchange columns until the target distance is reached; a new column stays for a few steps."""
    free_at = np.zeros(1 << code.k, np.int64)  # the step from which a column may be removed again
    for step in range(int(min(_MAX_STEPS, max(4, _MAX_WORK / (1 << code.k))))):
        removed = _remove(code, target, rng, (free_at > step).astype(np.int64))
        inserted = insert_column(code, target, allowed, rng, exclude=removed)
        free_at[inserted] = step + rng.integers(3, 9)
        if code.distance >= target:
            return code
    return None


def _reduced(number: int, basis: list[int]) -> int:
    """Reduce a number by a basis made by this function; 0 if it is in the span."""
    for other in basis:
        number = min(number, number ^ other)
    return number


def _cover(code: LinearCode, dimension: int, rng: np.random.Generator) -> list[int] | None:
    """Reduced independent messages such that each bit is -1 in one of their codewords, or None."""
    chosen = rng.integers(1, 1 << code.k, (_COVERS, dimension))
    odd = np.bitwise_count(chosen[:, :, None] & np.array(code.columns)) & 1
    for messages in chosen[odd.any(1).all(1)].tolist():
        basis: list[int] = []
        for message in messages:
            basis.append(_reduced(message, basis))
        if all(basis):
            return basis
    return None


def whole_cosets(
    code: LinearCode, classes: int, basis: list[int], rng: np.random.Generator
) -> Codebook:
    """Take codewords of whole cosets of a span, plus or minus one.

    Args:
        code: The code.
        classes: Number of codewords.
        basis: Reduced independent messages; each bit is -1 in the codeword of one of them.
        rng: Chooses the cosets.

    Returns:
        int8 (classes, bits); every |column sum| is 0 or 1.
    """
    span, leaders = np.zeros(1, np.int64), np.arange(1 << code.k)
    for message in basis:
        span = np.concatenate([span, span ^ message])
        leaders = np.minimum(leaders, leaders ^ message)
    chosen = rng.permutation(np.unique(leaders))[: -(-classes // len(span))]
    return code.codewords((chosen[:, None] ^ span).ravel()[:classes])


def _balanced_choice(code: LinearCode, classes: int, rng: np.random.Generator) -> Codebook:
    """The best of a few random choices of codewords, each balanced by exchanges."""
    all_codewords = code.codewords(np.arange(1 << code.k))
    draws = (
        _balance_columns(all_codewords[rng.permutation(len(all_codewords))], classes)
        for _ in range(_DRAWS)
    )
    return min(draws, key=lambda chosen: int((chosen.sum(0, dtype=np.int64) ** 2).sum()))


def _balance_columns(codewords: Codebook, classes: int) -> Codebook:
    """Exchange the first `classes` codewords for others while the squared column sums decrease.

    In each step the chosen codewords with the largest inner product with the column sums are tried
    against the others with the smallest.
    """
    for _ in range(_EXCHANGES):
        alignment = codewords @ codewords[:classes].sum(0, dtype=np.int64)
        outgoing = np.argsort(-alignment[:classes], kind="stable")[:_TRIED]
        incoming = np.argsort(alignment[classes:], kind="stable")[:_TRIED] + classes
        same = codewords[outgoing].astype(np.int64) @ codewords[incoming].T  # bits - 2 distance
        # Half of the change of the sum of squares.
        change = alignment[incoming] - alignment[outgoing, None] + codewords.shape[1] - same
        i, j = divmod(int(change.argmin()), len(incoming))
        if change[i, j] >= 0:
            break
        codewords[[outgoing[i], incoming[j]]] = codewords[[incoming[j], outgoing[i]]]
    return codewords[:classes]
