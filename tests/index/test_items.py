"""Ids and labels: arrays, and the one rule for values that are written as text."""

from __future__ import annotations

import numpy as np
import pytest

from hadahash.errors import UsageError
from hadahash.index import parse_id, parse_labels
from hadahash.index.items import concatenate, id_array, item_table


@pytest.mark.parametrize(
    "text, value",
    [("7", 7), ("-12", -12), ("007", 7), ("9" * 18, 10**18 - 1), (str(2**63 - 1), 2**63 - 1)],
)
def test_integer_ids_as_text(text, value):
    assert parse_id(text, int) == value
    assert parse_id(text, str) == parse_id(text, None) == text


@pytest.mark.parametrize(
    "text", ["", " 77 ", "1_0", "+1", "１２３", "٣", "9" * 19, "9" * 200, "1.0", "-", "--1", "x"]
)
def test_text_that_is_not_an_integer_id(text):
    with pytest.raises(UsageError, match="ids of this index are integers") as caught:
        parse_id(text, int)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 200
    assert parse_id(text, str) == text
    assert parse_labels([text]) == [text]


def test_labels_of_digits_match_both_types():
    assert parse_labels(["cat", "7", "-3", "²"]) == ["cat", "7", "-3", "²", 7, -3]
    assert parse_labels([]) == []


def test_id_arrays():
    assert id_array(["a\0", "b" * 500]).tolist() == ["a\0", "b" * 500]
    assert id_array(["a", "b" * 500]).itemsize == 8
    assert id_array("abc").tolist() == ["abc"] and id_array(7).tolist() == [7]
    assert id_array(np.array(["x", "yy"])).tolist() == ["x", "yy"]
    assert id_array(np.uint8([1, 2])).dtype == np.int64
    assert len(id_array([])) == 0 and len(id_array(np.zeros(0, str))) == 0
    for wrong in ([1, "a"], [1.5], [["a"]], [None], np.uint64([2**63]), [True, False]):
        with pytest.raises(UsageError, match=r"ds must|nteger ids"):
            id_array(wrong)


def test_unused_label_sets_are_dropped():
    table = item_table(id_array([1, 2, 3]), labels=["a", "b", "c"])
    kept = concatenate([table.take(np.array([0, 2])), table.take(np.array([2]))])
    assert kept.sets == (("a",), ("c",)) and kept.set_numbers().tolist() == [0, 1, 1]
