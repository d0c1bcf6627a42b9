"""Queries: real values, their codes, and refusals."""

from __future__ import annotations

import numpy as np
import pytest

import hadahash as hh
from hadahash.errors import UsageError


def test_signs_of_values_and_content_are_the_code(rng):
    values, content = rng.uniform(-1, 1, (5, 12)), rng.normal(size=(5, 24))
    queries = hh.Queries(values, ids=list("abcde"), content=content)
    codes = queries.codes()
    assert np.array_equal(codes.signs(), np.where(values >= 0, 1, -1))
    assert np.array_equal(codes.content_codes().signs(), np.where(content >= 0, 1, -1))
    assert codes.ids.tolist() == list("abcde") and codes.content_bits == queries.content_bits == 24


def test_codes_become_queries_and_back(rng):
    packed = rng.integers(0, 256, (4, 2), np.uint8)
    codes = hh.Codes(packed, 16, ids=[5, 6, 7, 8], content=packed[::-1], content_bits=16)
    queries = hh.Queries.from_codes(codes)
    assert set(np.unique(queries.values)) <= {-1, 1} and queries.bits == 16
    again = queries.codes()
    assert np.array_equal(again.packed, packed) and np.array_equal(again.content, codes.content)
    assert again.ids.tolist() == [5, 6, 7, 8]
    assert hh.Queries.from_codes(codes.class_codes()).content is None


def test_rows_are_selected(rng):
    queries = hh.Queries(
        rng.uniform(-1, 1, (4, 8)), content=np.ones((4, 8)), probabilities=np.full((4, 3), 1 / 3)
    )
    assert len(queries[1:3]) == 2 and queries[2].ids.tolist() == [2]
    assert queries[[0, 3]].probabilities.shape == (2, 3)
    assert queries.prefix(5).values.shape == (4, 5) and queries.prefix(5).content_bits == 8


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"values": [[2.0]]}, r"values must be in \[-1, 1\], got 2"),
        ({"values": [[np.nan]]}, "values must be finite"),
        ({"values": [1.0]}, r"values must be numbers \(n, width\), got float64 \(1,\)"),
        ({"values": [[1.0]], "content": [[1.0], [2.0]]}, "1 queries need 1 rows of content, got 2"),
        ({"values": [[1.0]], "probabilities": [[3.0]]}, r"probabilities must be in \[0, 1\]"),
        ({"values": [[1.0]], "ids": [1, 2]}, "need 1 ids"),
    ],
)
def test_bad_queries_are_refused(arguments, message):
    with pytest.raises(UsageError, match=message):
        hh.Queries(**arguments)


def test_a_prefix_has_at_least_one_bit():
    with pytest.raises(UsageError, match="bits must be 1 to 3, got 0"):
        hh.Queries([[1.0, 1.0, -1.0]]).prefix(0)
