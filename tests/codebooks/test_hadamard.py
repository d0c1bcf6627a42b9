"""Hadamard matrices: exact, for every order that can be built."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import hadamard as scipy_hadamard

from hadahash.codebooks.galois import character, powers, prime_power
from hadahash.codebooks.hadamard import hadamard, orders, walsh
from hadahash.errors import UsageError


@pytest.mark.parametrize("n", orders(256))
def test_matrices_are_exact_and_normalized(n: int) -> None:
    H = hadamard(n)
    assert H.dtype == np.int8 and H.shape == (n, n)
    assert set(np.unique(H)) <= {-1, 1}
    wide = H.astype(np.int64)
    assert (wide @ wide.T == n * np.eye(n, dtype=np.int64)).all()
    assert (H[0] == 1).all() and (H[:, 0] == 1).all()


def test_orders() -> None:
    assert len(orders(256)) == 58
    assert set(range(4, 257, 4)) - set(orders(256)) == {92, 116, 156, 172, 184, 188, 232, 236}
    assert {1, 2, 12, 20, 28, 36, 48, 52, 76, 100, 244, 252} <= set(orders(256))
    assert orders(0) == []


@pytest.mark.parametrize("n", [1, 2, 4, 32, 256])
def test_powers_of_two_are_sylvester(n: int) -> None:
    assert (hadamard(n) == scipy_hadamard(n)).all()


def test_a_large_order() -> None:
    H = hadamard(668 + 16).astype(np.int64)  # 683 is a prime, 3 mod 4
    assert (684 * np.eye(684) == H @ H.T).all()


@pytest.mark.parametrize(
    ("n", "near"), [(3, "2 and 4"), (13, "12 and 16"), (92, "88 and 96"), (172, "168 and 176")]
)
def test_error_names_the_nearest_orders(n: int, near: str) -> None:
    with pytest.raises(UsageError, match=f"order {n} .* {near}\\.$"):
        hadamard(n)


@pytest.mark.parametrize("n", [0, -4, 2**20, True, 4.0, "4"])
def test_invalid_orders_are_refused(n: object) -> None:
    with pytest.raises(UsageError, match="order"):
        hadamard(n)  # type: ignore[arg-type]


@pytest.mark.parametrize("q", [3, 4, 5, 7, 8, 9, 25, 27, 49, 81, 121, 125])
def test_fields(q: int) -> None:
    found = prime_power(q)
    assert found is not None
    p, k = found
    elements = {tuple(row) for row in powers(p, k).tolist()}
    assert len(elements) == q - 1 and (0,) * k not in elements
    if q % 2:
        Q = character(q).astype(np.int64)
        assert (q * np.eye(q) - 1 == Q @ Q.T).all()  # Jacobsthal's matrix
        assert ((Q.T if q % 4 == 1 else -Q.T) == Q).all()


@pytest.mark.parametrize("q", [0, 1, 6, 12, 45, 100])
def test_not_a_prime_power(q: int) -> None:
    assert prime_power(q) is None
    with pytest.raises(ArithmeticError):
        character(q)


def test_no_field_over_a_composite() -> None:
    with pytest.raises(ArithmeticError):
        powers(6, 1)


def test_walsh_is_the_product_with_sylvester() -> None:
    rng = np.random.default_rng(0)
    for shape in [(1,), (2,), (64,), (32, 5)]:
        values = rng.integers(-99, 99, shape)
        assert (walsh(values) == scipy_hadamard(shape[0]).astype(np.int64) @ values).all()
