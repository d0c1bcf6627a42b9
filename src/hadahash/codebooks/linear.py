"""Codebooks of many classes: linear codes, found by a search that the Walsh-Hadamard transform makes fast.

A linear code with 2^k words is a list of columns, each a whole number 1 <= q < 2^k: bit t of the word of message m is
the parity of m & q_t. Its minimum distance is its smallest weight. To put in the column that lifts the light words
most, all 2^k columns are scored at once: the score is a Walsh transform of a function of the weights. So a column can
be taken out and a better one put in thousands of times a second. The search starts from extended BCH codes and from
the unit vectors, and never ends below where it started.

Balance: if every column q has q & (2^r - 1) != 0, each coset of the first r message bits holds as many +1 as -1 in
every bit. A book made of whole cosets is then balanced; r = 1 is the case of codes that contain the complement of
each word.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .bounds import distance_bound, varshamov_floor
from .galois import powers
from .hadamard import walsh

Book = NDArray[np.int8]
Whole = NDArray[np.int64]

_WORK = 4e6  # words looked at in one attempt to raise the distance by one
_MOST_STEPS = 600
_COVERS = 4096  # sets of messages tried
_DRAWS, _EXCHANGES, _TRIED = 8, 300, 64  # effort to balance the columns by the choice of words


def linear(classes: int, bits: int, rng: np.random.Generator) -> Book:
    """int8 (classes, bits): words of a linear code, as far apart as the search can get them."""
    k = (classes - 1).bit_length()
    cosets = _coset_bits(classes, k)
    best = _best_code(k, bits, cosets, rng)
    basis = [1 << i for i in range(cosets)]
    if cosets < k and best.distance < distance_bound(classes, bits):
        free = _best_code(k, bits, k, rng)
        if free.distance > best.distance:
            cover = _cover(free, cosets, rng)
            if cover is None:
                return _balanced_words(free, classes, rng)
            best, basis = free, cover
    return _whole_cosets(best, classes, basis, rng)


@dataclass
class Code:
    """The columns of a linear code and the weights of its 2^k words; that of the zero word is set out of the way."""

    k: int
    columns: list[int]
    weights: Whole

    @staticmethod
    def of(k: int, columns: list[int]) -> Code:
        code = Code(k, [], np.zeros(1 << k, np.int64))
        code.weights[0] = 1 << 30
        for q in columns:
            code.add(q)
        return code

    @property
    def distance(self) -> int:
        return int(self.weights.min())

    def parity(self, q: int) -> Whole:
        """0 or 1 for each message: int64 (2^k,)"""
        ones: Whole = np.bitwise_count(np.arange(1 << self.k) & q).astype(np.int64)
        return ones & 1

    def add(self, q: int) -> None:
        self.columns.append(q)
        self.weights += self.parity(q)

    def drop(self, place: int) -> int:
        q = self.columns.pop(place)
        self.weights -= self.parity(q)
        return q

    def copy(self) -> Code:
        return Code(self.k, list(self.columns), self.weights.copy())

    def words(self, messages: Whole) -> Book:
        """int8 (len(messages), bits) of +1 and -1"""
        odd = np.bitwise_count(messages[:, None] & np.array(self.columns)) & 1
        return np.where(odd, -1, 1).astype(np.int8)


def _coset_bits(classes: int, k: int) -> int:
    """The largest r such that whole cosets of 2^r words, and one word more or less, make up the classes."""
    return max(r for r in range(1, k + 1) if (classes + 1) % (1 << r) <= 2)


def _best_code(k: int, bits: int, cosets: int, rng: np.random.Generator) -> Code:
    allowed = np.arange(1 << k) & ((1 << cosets) - 1) != 0
    bound = distance_bound(1 << k, bits)
    found: list[Code] = []
    for start in _starts(k, bits):
        found.append(_climb(_fit(Code.of(k, start), bits, allowed, rng), allowed, bound, rng))
        if found[-1].distance == bound:
            break
    return max(found, key=lambda code: code.distance)


def _starts(k: int, bits: int) -> list[list[int]]:
    """Extended BCH codes of the next powers of two as length, and unit vectors (which make the words distinct)."""
    m = bits.bit_length() - 1
    lengths = {m, m + (bits > 1 << m)}
    codes = [bch(m, k) for m in sorted(lengths, reverse=True) if m > 1 and k < 1 << m]
    return [*codes, [1] + [1 | 1 << i for i in range(1, k)]]


def bch(m: int, k: int) -> list[int]:
    """Columns of a subcode with 2^k words of an extended BCH code of length 2^m: one column for each x in GF(2^m).

    The word of the coefficients (b, a_1, a_2, ...) has at x the bit b + Tr(a_1 x^s_1) + Tr(a_2 x^s_2) + ..., where
    s_1 > s_2 > ... are the leaders of the cyclotomic cosets modulo 2^m - 1: the zeros of the narrow-sense BCH code
    are the leaders that have not been reached.
    """
    n = (1 << m) - 1
    log = powers(2, m)  # (n, m)
    rows = [
        (1 << (n + 1)) - 1
    ]  # the rows of the generator matrix as whole numbers; their place 0 is x = 0
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


def _penalty(weights: Whole, target: int) -> Whole:
    return np.maximum(target - weights, 0) ** 2


def _insert(
    code: Code, target: int, allowed: NDArray[np.bool_], rng: np.random.Generator, *, but: int = 0
) -> int:
    """Put in the allowed column (but not `but`) that lowers the penalty most, ties broken by chance; return it."""
    gain = walsh(_penalty(code.weights + 1, target) - _penalty(code.weights, target))
    gain = np.where(allowed, gain - gain[0], -1)
    gain[but] = -1
    q = int(rng.choice(np.flatnonzero(gain == gain.max())))
    code.add(q)
    return q


def _remove(code: Code, target: int, rng: np.random.Generator, held: Whole) -> int:
    """Take out the column that raises the penalty least, if it can one that is not held; return it."""
    loss = walsh(_penalty(code.weights, target) - _penalty(code.weights - 1, target))
    columns = np.array(code.columns)
    order = (loss[columns] - loss[0]) + held[columns] * (1 << 50)
    return code.drop(int(rng.choice(np.flatnonzero(order == order.min()))))


def _fit(code: Code, bits: int, allowed: NDArray[np.bool_], rng: np.random.Generator) -> Code:
    """Bring a code to the length: put in or take out columns one by one."""
    target = varshamov_floor(1 << code.k, bits) + 2
    nothing = np.zeros(1 << code.k, np.int64)
    while len(code.columns) > bits:
        _remove(code, target, rng, nothing)
    while len(code.columns) < bits:
        _insert(code, target, allowed, rng)
    return code


def _climb(code: Code, allowed: NDArray[np.bool_], bound: int, rng: np.random.Generator) -> Code:
    """Raise the distance by one as often as it can be done."""
    best = code
    while best.distance < bound:
        higher = _exchange(best.copy(), best.distance + 1, allowed, rng)
        if higher is None:
            break
        best = higher
    return best


def _exchange(
    code: Code, target: int, allowed: NDArray[np.bool_], rng: np.random.Generator
) -> Code | None:
    """Exchange columns until the target distance is reached; a column that came in stays for a few steps."""
    free_at = np.zeros(1 << code.k, np.int64)  # the step from which a column may be taken out again
    for step in range(int(min(_MOST_STEPS, max(4, _WORK / (1 << code.k))))):
        gone = _remove(code, target, rng, (free_at > step).astype(np.int64))
        came = _insert(code, target, allowed, rng, but=gone)
        free_at[came] = step + rng.integers(3, 9)
        if code.distance >= target:
            return code
    return None


def _reduced(number: int, basis: list[int]) -> int:
    """The number less what the basis spans: 0 if it is in the span. The basis must have been made by this function."""
    for other in basis:
        number = min(number, number ^ other)
    return number


def _cover(code: Code, dimension: int, rng: np.random.Generator) -> list[int] | None:
    """Independent messages whose words together are -1 somewhere in every bit, reduced; None if none were found."""
    chosen = rng.integers(1, 1 << code.k, (_COVERS, dimension))
    odd = np.bitwise_count(chosen[:, :, None] & np.array(code.columns)) & 1
    for messages in chosen[odd.any(1).all(1)].tolist():
        basis: list[int] = []
        for message in messages:
            basis.append(_reduced(message, basis))
        if all(basis):
            return basis
    return None


def _whole_cosets(code: Code, classes: int, basis: list[int], rng: np.random.Generator) -> Book:
    """Words of whole cosets of the span of the basis, and one word more or less: every |column sum| is 0 or 1."""
    span, leaders = np.zeros(1, np.int64), np.arange(1 << code.k)
    for message in basis:
        span = np.concatenate([span, span ^ message])
        leaders = np.minimum(leaders, leaders ^ message)
    chosen = rng.permutation(np.unique(leaders))[: -(-classes // len(span))]
    return code.words((chosen[:, None] ^ span).ravel()[:classes])


def _balanced_words(code: Code, classes: int, rng: np.random.Generator) -> Book:
    """Words drawn at random, then exchanged for others as long as the sum of the squared column sums falls.

    The best of a few draws. Each time the words that lean most to the column sums are tried against those outside that
    lean least.
    """
    everything = code.words(np.arange(1 << code.k))
    draws = (
        _even_out(everything[rng.permutation(len(everything))], classes) for _ in range(_DRAWS)
    )
    return min(draws, key=lambda book: int((book.sum(0, dtype=np.int64) ** 2).sum()))


def _even_out(words: Book, classes: int) -> Book:
    for _ in range(_EXCHANGES):
        lean = words @ words[:classes].sum(
            0, dtype=np.int64
        )  # the inner product of each word with the column sums
        out = np.argsort(-lean[:classes], kind="stable")[:_TRIED]
        come = np.argsort(lean[classes:], kind="stable")[:_TRIED] + classes
        same = words[out].astype(np.int64) @ words[come].T  # bits - 2 distance
        change = (
            lean[come] - lean[out, None] + words.shape[1] - same
        )  # half of the change of the sum of squares
        i, j = divmod(int(change.argmin()), len(come))
        if change[i, j] >= 0:
            break
        words[[out[i], come[j]]] = words[[come[j], out[i]]]
    return words[:classes]
