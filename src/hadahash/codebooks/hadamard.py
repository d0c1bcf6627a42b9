"""Hadamard matrices: n x n of +1 and -1 with H @ H.T == n I.

They can exist for the orders 1, 2 and multiples of 4 only. The constructions are

- Sylvester (1867): doubling, for powers of two;
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

MAX_ORDER = 2**14  # a matrix of this order takes 256 MiB


def hadamard(n: int) -> NDArray[np.int8]:
    """Build a Hadamard matrix, with first row and first column +1.

    For a power of two it is Sylvester's matrix.

    Args:
        n: The order: 1, 2 or a multiple of 4, at most 16,384.

    Returns:
        int8 (n, n) of +1 and -1 with H @ H.T == n I.

    Raises:
        UsageError: If no construction gives this order. The message names the nearest that exist.

    Example:
        >>> hadamard(4).tolist()
        [[1, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]]
        >>> H = hadamard(20).astype(int)
        >>> bool((H @ H.T == 20 * np.eye(20)).all())
        True
    """
    if not isinstance(n, (int, np.integer)) or isinstance(n, bool):
        raise UsageError(f"The order must be an integer: 1, 2 or a multiple of 4, got {n!r}.")
    if not 1 <= n <= MAX_ORDER:
        raise UsageError(f"The order must be >= 1 and <= {MAX_ORDER}, got {n}.")
    recipe = _recipe(int(n))
    if recipe is None:
        raise UsageError(_no_matrix(int(n)))
    return _build(int(n), *recipe)


def orders(limit: int) -> list[int]:
    """List the orders that `hadamard` can build.

    Args:
        limit: The largest order to list; at most 16,384.

    Returns:
        The orders in ascending order.

    Example:
        >>> orders(30)
        [1, 2, 4, 8, 12, 16, 20, 24, 28]
    """
    return [n for n in range(1, min(limit, MAX_ORDER) + 1) if _recipe(n) is not None]


def walsh(values: NDArray[Number]) -> NDArray[Number]:
    """Multiply Sylvester's matrix by values along the first axis, in n log n additions.

    Only sums and differences of pairs are taken, in a fixed order, so the result has the same bytes
    on every machine.

    Args:
        values: (n, ...), n a power of two.

    Returns:
        hadamard(n) @ values, of the same shape.

    Example:
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
    """How to build order n: the construction and its parameter, or None."""
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
    """I + S, where S is Jacobsthal's matrix with a border; S is skew and S S' = q I."""
    S = np.zeros((q + 1, q + 1), np.int8)
    S[0, 1:], S[1:, 0], S[1:, 1:] = 1, -1, character(q)
    return S + np.eye(q + 1, dtype=np.int8)


def _paley_2(q: int) -> NDArray[np.int8]:
    """Replace 0 in the bordered matrix by [1 -1; -1 -1] and +-1 by +-[1 1; 1 -1]."""
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
        else "Sylvester's and Paley's constructions and products do not give it"
    )
    return (
        f"No Hadamard matrix of order {n} can be built. {why}. "
        f"The nearest orders are {below} and {above}."
    )
