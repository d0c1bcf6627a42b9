"""Finite fields, for Paley's matrices and BCH codes.

An element of GF(p^k) is the vector of the k coefficients of a polynomial over the integers modulo
p, constant term first. Every element but 0 is a power of one primitive element x, so the list of
its powers is the multiplicative group.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import product

import numpy as np
from numpy.typing import NDArray


def prime_power(q: int) -> tuple[int, int] | None:
    """Factor a prime power.

    Args:
        q: An integer.

    Returns:
        The prime p and the exponent k with q = p^k, or None if there are none.

    Example:
        >>> prime_power(27), prime_power(12)
        ((3, 3), None)
    """
    if q < 2:
        return None
    p = next((d for d in range(2, int(q**0.5) + 1) if q % d == 0), q)
    k = 0
    while q % p == 0:
        q, k = q // p, k + 1
    return (p, k) if q == 1 else None


@lru_cache(maxsize=64)
def powers(p: int, k: int) -> NDArray[np.int64]:
    """Compute the powers 1, x, x^2, ... of a primitive element x of GF(p^k).

    x is a root of the first polynomial t^k - c_(k-1) t^(k-1) - ... - c_0, in the order of its
    coefficients c, for which the powers run through the whole group.

    Args:
        p: A prime.
        k: The exponent.

    Returns:
        int64 (p^k - 1, k). The array is cached: do not modify it.

    Raises:
        ArithmeticError: If p is not a prime.

    Example:
        >>> powers(7, 1).ravel().tolist()
        [1, 3, 2, 6, 4, 5]
    """
    one = (1,) + (0,) * (k - 1)
    for rule in product(range(p), repeat=k):
        found, element = [one], _times_x(one, rule, p)
        while element != one and any(element) and len(found) < p**k:
            found.append(element)
            element = _times_x(element, rule, p)
        if element == one and len(found) == p**k - 1:
            return np.array(found, np.int64)
    raise ArithmeticError(f"GF({p}^{k}) has no primitive element: {p} is not a prime")


def _times_x(element: tuple[int, ...], rule: tuple[int, ...], p: int) -> tuple[int, ...]:
    """Multiply an element by x, where x^k is the sum of rule[i] x^i."""
    top = element[-1]
    return tuple((low + top * c) % p for low, c in zip((0, *element[:-1]), rule, strict=True))


def character(q: int) -> NDArray[np.int8]:
    """Compute Jacobsthal's matrix of GF(q).

    Args:
        q: A prime power.

    Returns:
        int8 (q, q): +1 where a - b is a square, -1 where it is not, 0 where a = b.

    Raises:
        ArithmeticError: If q is not a prime power.

    Example:
        >>> character(3).tolist()
        [[0, -1, 1], [1, 0, -1], [-1, 1, 0]]
    """
    found = prime_power(q)
    if found is None:
        raise ArithmeticError(f"there is no field of {q} elements")
    p, k = found
    place = p ** np.arange(k)  # an element as an integer: its coefficients are the digits
    sign = np.zeros(q, np.int8)
    sign[powers(p, k)[0::2] @ place] = 1
    sign[powers(p, k)[1::2] @ place] = -1
    digits = np.arange(q)[:, None] // place % p  # (q, k)
    difference = np.zeros((q, q), np.int64)
    for i in range(k):
        difference += np.subtract.outer(digits[:, i], digits[:, i]) % p * place[i]
    return sign[difference]
