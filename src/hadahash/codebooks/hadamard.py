"""Hadamard matrices: n x n of +1 and -1 with H @ H.T == n I.

They can exist for the orders 1, 2 and the multiples of 4 only. Here they are built by
- Sylvester (1867): doubling, for the powers of two;
- Paley (1933), first kind: order q + 1 for a prime power q = 3 mod 4 (12, 20, 24, 28, 44, ...);
- Paley, second kind: order 2 (q + 1) for a prime power q = 1 mod 4 (12, 28, 36, 52, 100, ...);
- the Kronecker product of two of them (40, 56, 88, ...).
"""

from __future__ import annotations

from functools import cache
from itertools import count
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError
from .galois import character, prime_power

Number = TypeVar("Number", np.int64, np.float64)

LARGEST = 2**14  # a matrix of this order takes 256 MiB


def hadamard(n: int) -> NDArray[np.int8]:
    """The Hadamard matrix of order n, int8 (n, n), with first row and first column +1.

    For a power of two it is Sylvester's matrix itself.

    >>> hadamard(4).tolist()
    [[1, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]]
    >>> H = hadamard(20).astype(int)
    >>> bool((H @ H.T == 20 * np.eye(20)).all())
    True
    """
    if not isinstance(n, (int, np.integer)) or isinstance(n, bool):
        raise UsageError(
            f"The order of a Hadamard matrix is a whole number, got {n!r}. Give 1, 2 or a multiple of 4."
        )
    if not 1 <= n <= LARGEST:
        raise UsageError(f"The order of a Hadamard matrix must be from 1 to {LARGEST}, got {n}.")
    recipe = _recipe(int(n))
    if recipe is None:
        raise UsageError(_no_matrix(int(n)))
    return _build(int(n), *recipe)


def orders(limit: int) -> list[int]:
    """The orders up to and including the limit (and 16384) that `hadamard` can build.

    >>> orders(30)
    [1, 2, 4, 8, 12, 16, 20, 24, 28]
    """
    return [n for n in range(1, min(limit, LARGEST) + 1) if _recipe(n) is not None]


def walsh(values: NDArray[Number]) -> NDArray[Number]:
    """sylvester(n) @ values along the first axis (n a power of two), in n log n additions and without the matrix.

    Only sums and differences of pairs are taken, in a fixed order, so the result has the same bytes on every machine.

    >>> walsh(np.array([1, 2, 3, 4])).tolist()
    [10, -2, -4, 0]
    """
    n, rest = values.shape[0], values.shape[1:]
    half = 1
    while half < n:
        pairs = values.reshape(-1, 2, half, *rest)
        values = np.stack([pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]], axis=1).reshape(
            n, *rest
        )
        half *= 2
    return values


@cache
def _recipe(n: int) -> tuple[str, int] | None:
    """How order n is built: ("sylvester", n), ("paley 1", q), ("paley 2", q), ("product", a factor) or None."""
    if n & (n - 1) == 0:
        return "sylvester", n
    if n % 4:
        return None
    if prime_power(n - 1):
        return "paley 1", n - 1
    if (n // 2 - 1) % 4 == 1 and prime_power(n // 2 - 1):
        return "paley 2", n // 2 - 1
    factors = (
        a for a in range(2, int(n**0.5) + 1) if n % a == 0 and _recipe(a) and _recipe(n // a)
    )
    factor = next(factors, None)
    return None if factor is None else ("product", factor)


def _build(n: int, kind: str, part: int) -> NDArray[np.int8]:
    H: NDArray[np.int8]
    if kind == "sylvester":
        H = np.ones((1, 1), np.int8)
        while len(H) < n:
            H = np.block([[H, H], [H, -H]])
        return H
    if kind == "product":
        return np.kron(hadamard(part), hadamard(n // part))
    H = _paley_1(part) if kind == "paley 1" else _paley_2(part)
    H = H * H[:, :1]  # first column +1
    return H * H[:1]  # first row +1


def _paley_1(q: int) -> NDArray[np.int8]:
    """I + S, where S is Jacobsthal's matrix bordered by +1 above and -1 at the left: S is skew and S S' = q I."""
    S = np.zeros((q + 1, q + 1), np.int8)
    S[0, 1:], S[1:, 0], S[1:, 1:] = 1, -1, character(q)
    return S + np.eye(q + 1, dtype=np.int8)


def _paley_2(q: int) -> NDArray[np.int8]:
    """Each entry of the symmetric bordered matrix S becomes a 2 x 2 block: 0 to [1 -1; -1 -1], +-1 to +-[1 1; 1 -1]."""
    S = np.zeros((q + 1, q + 1), np.int8)
    S[0, 1:], S[1:, 0], S[1:, 1:] = 1, 1, character(q)
    block = np.array([[1, 1], [1, -1]], np.int8)
    return np.kron(S, block) + np.kron(
        np.eye(q + 1, dtype=np.int8), np.array([[1, -1], [-1, -1]], np.int8)
    )


def _no_matrix(n: int) -> str:
    below = next(m for m in range(n - 1, 0, -1) if _recipe(m))
    above = next(m for m in count(n + 1) if _recipe(m))
    why = (
        "None exists: the order must be 1, 2 or a multiple of 4"
        if n % 4
        else "Sylvester, Paley and products miss it"
    )
    return f"No Hadamard matrix of order {n} can be built. {why}. The nearest orders that can are {below} and {above}."
