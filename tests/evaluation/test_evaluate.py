"""evaluate(): from codes and labels to a Report."""

from __future__ import annotations

import doctest
import json
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest

import hadahash as hh
from hadahash.codes import pack
from hadahash.errors import StorageError, UsageError
from hadahash.evaluation import evaluate, reference, scoring
from hadahash.native import available


def codes_of(values):
    return hh.Codes(packed=pack(values), bits=np.shape(values)[1])


def make_case(rng, *, queries=12, database=90, bits=16, classes=5, multilabel=False, flips=0.3):
    """Codes that know their class, with some bits flipped: (query values, labels, database values, labels)"""
    centres = rng.choice([-1, 1], (classes, bits))
    n = queries + database
    if multilabel:
        labels = (rng.random((n, classes)) < 0.3).astype(int)
        values = np.where(labels @ centres >= 0, 1, -1)
    else:
        labels = rng.integers(0, classes, n)
        values = centres[labels]
    values = values * rng.choice([1, -1], values.shape, p=[1 - flips, flips])
    return values[:queries], labels[:queries], values[queries:], labels[queries:]


def class_sets(labels):
    return (
        [set(np.flatnonzero(row)) for row in labels]
        if np.ndim(labels) == 2
        else [{int(x)} for x in labels]
    )


@pytest.mark.parametrize("multilabel", [False, True])
@pytest.mark.parametrize("denominator", ["found", "possible"])
@pytest.mark.parametrize("native", ["0", "1"])
def test_equals_the_slow_double_loop(multilabel, denominator, native, monkeypatch):
    monkeypatch.setenv("HADAHASH_NATIVE", native)
    rng = np.random.default_rng(11)
    for _ in range(15):
        case = make_case(
            rng,
            queries=int(rng.integers(1, 5)),
            database=int(rng.choice([1, 2, 60])),
            bits=int(rng.choice([1, 7, 16, 65])),
            classes=int(rng.choice([1, 3, 70])),
            multilabel=multilabel,
            flips=rng.choice([0, 0.3]),
        )
        depth = rng.choice([None, 1, 20, 500])
        q, ql, d, dl = case
        slow = reference.evaluate_slowly(
            q.tolist(),
            class_sets(ql),
            d.tolist(),
            class_sets(dl),
            depth=depth,
            denominator=denominator,
        )
        report = evaluate(codes_of(q), ql, codes_of(d), dl, depth=depth, denominator=denominator)
        assert np.abs(report.ap - [value or 0 for value in slow]).max() < 1e-12
        assert abs(report.map - np.mean([value or 0 for value in slow])) < 1e-12


@pytest.mark.parametrize("multilabel", [False, True])
def test_the_order_of_the_database_changes_nothing_at_all(multilabel):
    rng = np.random.default_rng(12)
    q, ql, d, dl = make_case(rng, queries=70, database=500, multilabel=multilabel)
    first = evaluate(codes_of(q), ql, codes_of(d), dl, depth=77).to_json()
    for _ in range(3):
        order = rng.permutation(500)
        assert evaluate(codes_of(q), ql, codes_of(d[order]), dl[order], depth=77).to_json() == first


@pytest.mark.parametrize("multilabel", [False, True])
def test_threads_and_numpy_give_the_same_report(multilabel, monkeypatch):
    q, ql, d, dl = make_case(np.random.default_rng(13), queries=200, bits=48, multilabel=multilabel)
    reports = {
        evaluate(codes_of(q), ql, codes_of(d), dl, threads=threads).to_json()
        for threads in (1, 2, 3, None)
    }
    monkeypatch.setenv("HADAHASH_NATIVE", "0")
    reports.add(evaluate(codes_of(q), ql, codes_of(d), dl).to_json())
    assert len(reports) == 1


def test_one_hot_labels_are_the_same_as_class_numbers():
    q, ql, d, dl = make_case(np.random.default_rng(14), classes=4)
    numbers = evaluate(codes_of(q), ql, codes_of(d), dl)
    one_hot = evaluate(codes_of(q), np.eye(4)[ql], codes_of(d), np.eye(4, dtype=bool)[dl])
    assert numbers.to_json() == one_hot.to_json()


def test_class_numbers_may_be_any():
    q, ql, d, dl = make_case(np.random.default_rng(15))
    names = np.array([10**12, 5, 77, 0, 31])
    a, b = (
        evaluate(codes_of(q), ql, codes_of(d), dl),
        evaluate(codes_of(q), names[ql], codes_of(d), names[dl]),
    )
    assert np.array_equal(a.ap, b.ap)
    assert {int(names[c]): v for c, v in a.per_class.items()} == b.per_class


def test_per_class_is_the_mean_over_the_queries_of_the_class():
    for multilabel in (False, True):
        q, ql, d, dl = make_case(np.random.default_rng(16), queries=30, multilabel=multilabel)
        report = evaluate(codes_of(q), ql, codes_of(d), dl)
        for c in range(5):
            members = ql[:, c] == 1 if multilabel else ql == c
            assert report.per_class[c] == pytest.approx(report.ap[members].mean(), abs=1e-14)
        assert list(report.per_class) == [0, 1, 2, 3, 4]


def test_perfect_codes_score_one_and_opposite_codes_the_worst():
    codes = codes_of([[1, 1], [1, 1], [-1, -1], [-1, -1]])
    assert evaluate(codes, [0, 0, 1, 1], codes, [0, 0, 1, 1]).map == 1
    report = evaluate(codes[[0]], [0], codes, [1, 1, 0, 0], precision_at=(1, 2, 3))
    assert report.map == pytest.approx((1 / 3 + 2 / 4) / 2, abs=1e-15)
    assert report.precision_at == pytest.approx({1: 0, 2: 0, 3: 1 / 3})


def test_bit_balance_counts_plus_ones(monkeypatch):
    monkeypatch.setattr(scoring, "_CODES", 7)
    values = np.random.default_rng(17).choice([-1, 1], (50, 13))
    report = evaluate(codes_of(values), [0] * 50, codes_of(values), [0] * 50)
    assert np.allclose(report.bit_balance, (values == 1).mean(axis=0), atol=1e-15)


def test_arithmetic_in_steps_equals_the_whole(monkeypatch):
    q, ql, d, dl = make_case(np.random.default_rng(18), queries=50)
    whole = evaluate(codes_of(q), ql, codes_of(d), dl, depth=10)
    monkeypatch.setattr(scoring, "_ROWS", 7)
    assert np.array_equal(evaluate(codes_of(q), ql, codes_of(d), dl, depth=10).ap, whole.ap)


def test_queries_without_relevant_items():
    database = codes_of([[1, 1], [1, -1], [-1, -1]])
    arguments = database[:2], [0, 9], database, [0, 0, 1]
    zero, skip = evaluate(*arguments), evaluate(*arguments, empty="skip")
    assert zero.ap.tolist() == [1, 0] and zero.map == 0.5 and zero.per_class == {0: 1, 9: 0}
    assert skip.ap[0] == 1 and np.isnan(skip.ap[1]) and skip.map == 1 and skip.per_class == {0: 1}
    assert zero.queries_without_relevant == skip.queries_without_relevant == 1
    assert skip.to_dict()["ap"] == [1.0, None] and "NaN" not in skip.to_json()
    assert "1 queries have no relevant item" in str(zero)
    with pytest.raises(UsageError, match="No query has a relevant item"):
        evaluate(database, [9, 9, 9], database, [0, 0, 1], empty="skip")


def test_skip_leaves_out_what_nothing_can_be_found_for():
    database = codes_of([[1, 1, 1], [1, 1, -1], [-1, -1, -1]])
    arguments = database[:2], [1, 0], database, [0, 0, 1]
    assert np.isnan(evaluate(*arguments, depth=2, empty="skip").ap[0])
    assert evaluate(*arguments, depth=2, empty="skip", denominator="possible").ap[0] == 0


def test_report_names_its_policies_and_is_written_whole(tmp_path):
    q, ql, d, dl = make_case(np.random.default_rng(19))
    report = evaluate(
        codes_of(q),
        ql,
        codes_of(d),
        dl,
        depth=np.int64(50),
        denominator="possible",
        precision_at=(5,),
    )
    text = report.to_json(tmp_path / "deep" / "report.json")
    stored = json.loads((tmp_path / "deep" / "report.json").read_text())
    assert stored == json.loads(text) == report.to_dict()
    assert (stored["depth"], stored["denominator"], stored["empty"]) == (50, "possible", "zero")
    assert (stored["queries"], stored["database"], stored["bits"]) == (12, 90, 16)
    assert (
        stored["map"] == report.map
        and len(stored["ap"]) == 12
        and list(stored["precision_at"]) == ["5"]
    )
    assert set(stored["precision_recall"]) == {
        "radius",
        "precision",
        "recall",
        "micro_precision",
        "micro_recall",
    }
    assert len(stored["precision_recall"]["recall"]) == 17 and len(stored["bit_balance"]) == 16
    assert (
        str(report).startswith(f"mAP@50 {report.map:.4f}")
        and "possible" in str(report)
        and "P@5" in str(report)
    )
    with pytest.raises(StorageError):
        report.to_json(tmp_path / "deep" / "report.json" / "below")


CODES = codes_of(np.ones((3, 8)))
GOOD = {
    "query_codes": CODES,
    "query_labels": [0, 1, 2],
    "database_codes": CODES,
    "database_labels": [0, 1, 2],
}


@pytest.mark.parametrize(
    "change, words",
    [
        ({"query_labels": [0, 1]}, "3 query codes need 3 labels, got 2"),
        ({"database_labels": [[0, 1]] * 4}, "3 database codes need 3 labels, got 4"),
        ({"database_codes": codes_of(np.ones((3, 9)))}, "8 bits and database codes 9"),
        ({"query_codes": CODES[:0], "query_labels": []}, "no query codes"),
        ({"database_codes": CODES[:0], "database_labels": []}, "no database codes"),
        ({"query_codes": CODES.packed}, "must be hadahash.Codes, got ndarray"),
        ({"query_labels": [0, -1, 2]}, "must not be negative, got -1"),
        ({"query_labels": [0.0, 1.0, 2.0]}, "whole class numbers, got float64"),
        ({"query_labels": ["a", "b", "c"]}, "whole class numbers"),
        ({"query_labels": [[["a"]]] * 3}, "got the shape"),
        ({"query_labels": np.zeros((3, 0))}, "got the shape"),
        ({"query_labels": 5}, "got the shape"),
        ({"query_labels": [[0], [1], [2]]}, "labels[:, 0]"),
        ({"query_labels": [[0, 3]] * 3}, "only 0 and 1"),
        ({"query_labels": [[0, np.nan]] * 3}, "only 0 and 1"),
        ({"query_labels": [["0", "1"]] * 3}, "only 0 and 1"),
        ({"query_labels": [[0, 1]] * 3}, "both as (n,) class numbers"),
        ({"query_labels": [[0, 1]] * 3, "database_labels": [[0, 1, 0]] * 3}, "with the same C"),
        ({"depth": 0}, "depth must be a whole number from 1 on, got 0"),
        ({"depth": -1}, "depth must be"),
        ({"depth": 2.5}, "depth must be"),
        ({"depth": True}, "depth must be"),
        ({"threads": 0}, "threads must be"),
        ({"precision_at": (0,)}, "precision_at must be"),
        ({"denominator": "fond"}, "Did you mean 'found'?"),
        ({"empty": "nan"}, "Known: skip, zero"),
    ],
)
def test_bad_input_gets_one_line_with_a_remedy(change, words):
    with pytest.raises(UsageError) as error:
        evaluate(**{**GOOD, **change})
    assert words in str(error.value) and "\n" not in str(error.value)
    evaluate(**GOOD)


@pytest.mark.parametrize("native", ["0", "1"])
@pytest.mark.parametrize("multilabel", [False, True])
def test_memory_does_not_grow_with_queries_times_database(native, multilabel, monkeypatch):
    monkeypatch.setenv("HADAHASH_NATIVE", native)
    q, ql, d, dl = make_case(
        np.random.default_rng(20), queries=300, database=40_000, bits=64, multilabel=multilabel
    )
    queries, database = codes_of(q), codes_of(d)
    tracemalloc.start()
    try:
        evaluate(queries, ql, database, dl, threads=1, depth=5000)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < (
        12e6 if available() else 36e6
    )  # one byte a pair would be 12 MB; codes of both are 2.4 MB unpacked


def test_the_public_name_does_not_import_torch():
    program = (
        "import sys, hadahash; hadahash.evaluate, hadahash.Report; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


def test_examples_in_the_docstrings():
    outcome = doctest.testmod(scoring)
    assert outcome.attempted > 2 and outcome.failed == 0
