"""`evaluate` turns codes and labels into a `Report`."""

from __future__ import annotations

import doctest
import json
import subprocess
import sys
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

import hadahash as hh
from hadahash.codes import pack
from hadahash.data import Labels
from hadahash.errors import StorageError, UsageError
from hadahash.evaluation import evaluate, reference, scoring, sums
from hadahash.evaluation.labels import check_class_numbers
from hadahash.native import available


def codes_of(values):
    return hh.Codes(packed=pack(values), bits=np.shape(values)[1])


def make_case(rng, *, queries=12, database=90, bits=16, classes=5, multilabel=False, flips=0.3):
    """Noisy class codes: (query values, labels, database values, labels)."""
    centers = rng.choice([-1, 1], (classes, bits))
    n = queries + database
    if multilabel:
        labels = (rng.random((n, classes)) < 0.3).astype(int)
        values = np.where(labels @ centers >= 0, 1, -1)
    else:
        labels = rng.integers(0, classes, n)
        values = centers[labels]
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
def test_report_equals_the_slow_double_loop(multilabel, denominator, native, monkeypatch):
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
        assert np.abs(report.average_precision - [value or 0 for value in slow]).max() < 1e-12
        assert abs(report.map - np.mean([value or 0 for value in slow])) < 1e-12


@pytest.mark.parametrize("multilabel", [False, True])
def test_report_does_not_depend_on_the_order_of_the_database(multilabel):
    rng = np.random.default_rng(12)
    q, ql, d, dl = make_case(rng, queries=70, database=500, multilabel=multilabel)
    first = evaluate(codes_of(q), ql, codes_of(d), dl, depth=77).to_json()
    for _ in range(3):
        order = rng.permutation(500)
        assert evaluate(codes_of(q), ql, codes_of(d[order]), dl[order], depth=77).to_json() == first


@pytest.mark.parametrize("multilabel", [False, True])
def test_report_does_not_depend_on_threads_or_on_the_compiled_kernel(multilabel, monkeypatch):
    q, ql, d, dl = make_case(np.random.default_rng(13), queries=200, bits=48, multilabel=multilabel)
    reports = {
        evaluate(codes_of(q), ql, codes_of(d), dl, threads=threads).to_json()
        for threads in (1, 2, 3, None)
    }
    monkeypatch.setenv("HADAHASH_NATIVE", "0")
    reports.add(evaluate(codes_of(q), ql, codes_of(d), dl).to_json())
    assert len(reports) == 1


def test_one_hot_labels_equal_class_numbers():
    q, ql, d, dl = make_case(np.random.default_rng(14), classes=4)
    numbers = evaluate(codes_of(q), ql, codes_of(d), dl)
    one_hot = evaluate(codes_of(q), np.eye(4)[ql], codes_of(d), np.eye(4, dtype=bool)[dl])
    assert numbers.to_json() == one_hot.to_json()


def test_class_numbers_need_not_be_consecutive():
    q, ql, d, dl = make_case(np.random.default_rng(15))
    names = np.array([10**12, 5, 77, 0, 31])
    a, b = (
        evaluate(codes_of(q), ql, codes_of(d), dl),
        evaluate(codes_of(q), names[ql], codes_of(d), names[dl]),
    )
    assert np.array_equal(a.average_precision, b.average_precision)
    assert {int(names[c]): v for c, v in a.per_class.items()} == b.per_class


def test_per_class_is_the_mean_over_the_queries_of_the_class():
    for multilabel in (False, True):
        q, ql, d, dl = make_case(np.random.default_rng(16), queries=30, multilabel=multilabel)
        report = evaluate(codes_of(q), ql, codes_of(d), dl)
        for c in range(5):
            members = ql[:, c] == 1 if multilabel else ql == c
            assert report.per_class[c] == pytest.approx(
                report.average_precision[members].mean(), abs=1e-14
            )
        assert list(report.per_class) == [0, 1, 2, 3, 4]


def test_perfect_codes_score_one_and_opposite_codes_the_minimum():
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


def test_blockwise_arithmetic_gives_the_same_result(monkeypatch):
    q, ql, d, dl = make_case(np.random.default_rng(18), queries=50)
    whole = evaluate(codes_of(q), ql, codes_of(d), dl, depth=10)
    monkeypatch.setattr(sums, "_ROWS", 7)
    assert np.array_equal(
        evaluate(codes_of(q), ql, codes_of(d), dl, depth=10).average_precision,
        whole.average_precision,
    )


def test_queries_without_relevant_items():
    database = codes_of([[1, 1], [1, -1], [-1, -1]])
    arguments = database[:2], [0, 9], database, [0, 0, 1]
    zero, skip = evaluate(*arguments), evaluate(*arguments, empty_queries="skip")
    assert (
        zero.average_precision.tolist() == [1, 0]
        and zero.map == 0.5
        and zero.per_class == {0: 1, 9: 0}
    )
    assert (
        skip.average_precision[0] == 1
        and np.isnan(skip.average_precision[1])
        and skip.map == 1
        and skip.per_class == {0: 1}
    )
    assert zero.queries_without_relevant == skip.queries_without_relevant == 1
    assert skip.to_dict()["average_precision"] == [1.0, None] and "NaN" not in skip.to_json()
    assert "1 query has no relevant item" in str(zero)
    with pytest.raises(UsageError, match="No query has a relevant item"):
        evaluate(database, [9, 9, 9], database, [0, 0, 1], empty_queries="skip")


def test_skip_leaves_out_queries_that_cannot_find_anything():
    database = codes_of([[1, 1, 1], [1, 1, -1], [-1, -1, -1]])
    arguments = database[:2], [1, 0], database, [0, 0, 1]
    assert np.isnan(evaluate(*arguments, depth=2, empty_queries="skip").average_precision[0])
    assert (
        evaluate(
            *arguments, depth=2, empty_queries="skip", denominator="possible"
        ).average_precision[0]
        == 0
    )


def test_empty_queries_can_be_an_error():
    database = codes_of([[1, 1], [1, -1], [-1, -1]])
    arguments = database[:2], [0, 9], database, [0, 0, 1]
    with pytest.raises(UsageError, match=r"1 of 2 queries find no relevant item.*query 1"):
        evaluate(*arguments, empty_queries="error")
    assert evaluate(database[:1], [0], database, [0, 0, 1], empty_queries="error").map == 1


@pytest.mark.parametrize("kind", ["signs", "floats", "bits", "booleans", "packed", "tensor"])
def test_every_form_of_codes_gives_the_same_map(kind):
    q, ql, d, dl = make_case(np.random.default_rng(30), queries=40, database=300, bits=32)
    expected = evaluate(codes_of(q), ql, codes_of(d), dl)

    def form(signs):
        if kind == "tensor":
            return pytest.importorskip("torch").from_numpy(signs.astype(np.float32))
        return {
            "signs": signs,
            "floats": signs.astype(np.float32),
            "bits": (signs > 0).astype(np.int64),
            "booleans": signs > 0,
            "packed": pack(signs),
        }[kind]

    report = evaluate(form(q), ql, form(d), dl)
    assert report.to_json() == expected.to_json()
    assert 0.3 < report.map < 0.9, "a case in which wrong bits would be noticed"


def test_string_labels_give_the_same_numbers_as_class_numbers():
    q, ql, d, dl = make_case(np.random.default_rng(31), queries=40)
    names = np.array(["cat", "dog", "10", "été", "a b"])
    numbers = evaluate(codes_of(q), ql, codes_of(d), dl)
    for own in (
        evaluate(codes_of(q), names[ql], codes_of(d), names[dl]),
        evaluate(codes_of(q), names[ql].tolist(), codes_of(d), list(names[dl])),
    ):
        assert np.array_equal(own.average_precision, numbers.average_precision)
        assert own.per_class == {str(names[c]): v for c, v in numbers.per_class.items()}
        assert json.loads(own.to_json())["per_class"] == own.per_class


def test_any_hashable_label_is_accepted():
    codes = codes_of([[1, 1], [1, -1], [-1, -1]])
    report = evaluate(codes, [1, "1", frozenset("a")], codes, [1, "1", frozenset("a")])
    assert report.map == 1 and report.per_class == {1: 1, "1": 1, frozenset("a"): 1}


def test_label_objects_are_accepted():
    for multilabel in (False, True):
        q, ql, d, dl = make_case(np.random.default_rng(32), multilabel=multilabel)
        plain = evaluate(codes_of(q), ql, codes_of(d), dl)
        assert (
            evaluate(
                codes_of(q), Labels.from_array(ql), codes_of(d), Labels.from_array(dl)
            ).to_json()
            == plain.to_json()
        )


def test_precision_at_k_above_the_database_size_is_left_out():
    q, ql, d, dl = make_case(np.random.default_rng(33), database=90)
    assert list(evaluate(codes_of(q), ql, codes_of(d), dl).precision_at) == [1, 10]
    report = evaluate(codes_of(q), ql, codes_of(d), dl, precision_at=(90, 91))
    assert list(report.precision_at) == [90] and "P@91" not in str(report)


def test_both_denominators_are_reported():
    q, ql, d, dl = make_case(np.random.default_rng(34), queries=30)
    for depth in (None, 20):
        reports = {
            name: evaluate(codes_of(q), ql, codes_of(d), dl, depth=depth, denominator=name)
            for name in ("found", "possible")
        }
        maps = {name: report.map for name, report in reports.items()}
        for report in reports.values():
            assert report.map_by_denominator == maps
        assert (maps["found"] > maps["possible"]) == (depth is not None)
    assert f"{maps['possible']:.4f}" in str(reports["found"])


@pytest.mark.parametrize("depth", [None, 7])
@pytest.mark.parametrize("denominator", ["found", "possible"])
def test_chance_is_the_mean_over_random_codes(depth, denominator):
    rng = np.random.default_rng(35)
    ql, dl = rng.integers(0, 3, 5), rng.integers(0, 3, 40)
    options = {"depth": depth, "denominator": denominator}
    chance = evaluate(codes_of(np.ones((5, 4))), ql, codes_of(np.ones((40, 4))), dl, **options)
    assert chance.chance == pytest.approx(chance.map, abs=1e-15), "equal codes are one tie"
    maps = []
    for _ in range(400):
        q, d = (rng.choice([-1, 1], (n, 32)) for n in (5, 40))
        report = evaluate(codes_of(q), ql, codes_of(d), dl, **options)
        assert report.chance == chance.chance
        maps.append(report.map)
    assert abs(np.mean(maps) - chance.chance) < 4 * np.std(maps, ddof=1) / 20
    assert chance.prevalence == pytest.approx(np.mean([(dl == label).mean() for label in ql]))


def test_lookup_metrics_equal_a_plain_loop():
    q, ql, d, dl = make_case(np.random.default_rng(36), queries=25, database=80, bits=16, flips=0.2)
    report = evaluate(codes_of(q), ql, codes_of(d), dl)
    precisions, nonempty = [], []
    for code, label in zip(q, ql, strict=True):
        ball = dl[(d != code).sum(axis=1) <= 2]
        nonempty.append(len(ball) > 0)
        precisions.append((ball == label).mean() if len(ball) else 0.0)
    assert report.precision_radius_2 == pytest.approx(np.mean(precisions), abs=1e-14)
    assert report.nonempty_radius_2 == pytest.approx(np.mean(nonempty), abs=1e-14)
    assert 0 < report.nonempty_radius_2 < 1, "a case with empty and non-empty balls"
    assert report.distinct_codes == len({tuple(row) for row in d.tolist()})
    wide = codes_of(np.random.default_rng(0).choice([-1, 1], (50, 200))[[*range(50), 3, 7]])
    assert scoring.count_distinct(wide) == 50


def test_exclude_self_removes_each_query_from_its_own_ranking():
    for multilabel in (False, True):
        _, _, d, dl = make_case(np.random.default_rng(37), database=40, multilabel=multilabel)
        report = evaluate(codes_of(d), dl, codes_of(d), dl, depth=9, exclude_self=True)
        for row in range(40):
            others = np.arange(40) != row
            alone = evaluate(
                codes_of(d[[row]]), dl[[row]], codes_of(d[others]), dl[others], depth=9
            )
            assert report.average_precision[row] == pytest.approx(alone.map, abs=1e-14)
        assert report.database == 39
    with pytest.raises(UsageError, match="exclude_self needs the same codes"):
        evaluate(codes_of(d[:5]), dl[:5], codes_of(d), dl, exclude_self=True)
    with pytest.raises(UsageError, match="exclude_self needs the same labels"):
        evaluate(codes_of(d), dl[::-1], codes_of(d), dl, exclude_self=True)


def test_summary_is_a_plain_sentence():
    codes = codes_of(np.repeat([[1, 1, 1], [-1, -1, -1]], 20, axis=0))
    labels = np.repeat([0, 1], 20)
    report = evaluate(codes, labels, codes, labels)
    sentence = "Of the 10 nearest images, 10.0 share a label with the query (by chance: 5.0)."
    assert report.summary() == sentence and sentence in str(report)
    assert "by chance: 0.5" in str(report).splitlines()[0]
    few = evaluate(codes[:1], [0], codes[18:22], [0, 0, 1, 1])
    assert few.summary() == (
        "The nearest image shares a label with the query in 100.0% of searches (by chance: 50.0%)."
    )
    assert evaluate(codes, labels, codes, labels, precision_at=()).summary().startswith("mAP is 1")


def test_report_can_be_loaded(tmp_path):
    q, ql, d, dl = make_case(np.random.default_rng(38))
    for labels in (np.arange(5), np.array(["a", "b", "c", "d", "e"])):
        report = evaluate(
            codes_of(q), labels[ql], codes_of(d), labels[dl], depth=3, empty_queries="skip"
        )
        report.to_json(tmp_path / "report.json")
        again = hh.Report.load(tmp_path / "report.json")
        assert again.to_json() == report.to_json() and again.per_class == report.per_class
        assert again.precision_recall.recall.dtype == np.float64 and again.skipped == 0


def test_report_of_version_0_1_can_be_loaded():
    q, ql, d, dl = make_case(np.random.default_rng(39))
    values = evaluate(codes_of(q), ql, codes_of(d), dl).to_dict()
    old = {"ap": values["average_precision"], "empty": "zero"} | {
        name: values[name]
        for name in (
            *("map", "depth", "denominator", "queries", "database", "bits", "bit_balance"),
            *("queries_without_relevant", "per_class", "precision_recall", "precision_at"),
        )
    }
    report = hh.Report.from_dict(old)
    assert report.average_precision.tolist() == values["average_precision"]
    assert report.empty_queries == "zero" and np.isnan(report.chance)
    assert "chance" not in str(report) and report.distinct_codes is None
    for broken in ({}, {**old, "per_class": 5}, {**old, "ap": ["x"]}):
        with pytest.raises(StorageError, match="damaged or incomplete"):
            hh.Report.from_dict(broken)


def test_skipped_images_are_mentioned():
    report = evaluate(CODES, [0, 1, 2], CODES, [0, 1, 2])
    assert "not evaluated" not in str(report) and report.skipped == 0
    assert "40 images were not evaluated" in str(replace(report, skipped=40))


def test_report_states_its_policies_and_is_saved_as_json(tmp_path):
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
    assert (stored["depth"], stored["denominator"], stored["empty_queries"]) == (
        50,
        "possible",
        "zero",
    )
    assert (stored["queries"], stored["database"], stored["bits"]) == (12, 90, 16)
    assert (
        stored["map"] == report.map
        and len(stored["average_precision"]) == 12
        and list(stored["precision_at"]) == ["5"]
    )
    assert set(stored["precision_recall"]) == {
        "radius",
        "precision",
        "recall",
        "micro_precision",
        "micro_recall",
        "by",
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
        ({"query_codes": "codes"}, "Invalid query codes."),
        ({"query_labels": [0, -1, 2]}, "must be >= 0, got -1"),
        ({"query_labels": [0.0, 1.0, 2.0]}, "integers or strings, got float64"),
        ({"query_labels": ["a", "b", "c"]}, "different kinds"),
        ({"query_labels": ["a", None, "c"]}, "label of row 1 is None"),
        ({"query_labels": np.array(["a", np.nan, "c"], object)}, "label of row 1 is nan"),
        ({"query_labels": [["a"], ["b", "c"], ["d"]]}, "different lengths"),
        ({"query_labels": np.array([{}, "a", "b"], object)}, "must be hashable, got dict in row 0"),
        ({"query_labels": [[["a"]]] * 3}, "got the shape"),
        ({"query_labels": np.zeros((3, 0))}, "got the shape"),
        ({"query_labels": 5}, "got the shape"),
        ({"query_labels": [[0], [1], [2]]}, "labels[:, 0]"),
        ({"query_labels": [[0, 3]] * 3}, "only 0 and 1"),
        ({"query_labels": [[0, np.nan]] * 3}, "only 0 and 1"),
        ({"query_labels": [["0", "1"]] * 3}, "only 0 and 1"),
        ({"query_labels": [[0, 1]] * 3}, "(n,) class numbers for both"),
        ({"query_labels": [[0, 1]] * 3, "database_labels": [[0, 1, 0]] * 3}, "with the same C"),
        ({"depth": 0}, "depth must be an integer >= 1, got 0"),
        ({"depth": -1}, "depth must be"),
        ({"depth": 2.5}, "depth must be"),
        ({"depth": True}, "depth must be"),
        ({"threads": 0}, "threads must be"),
        ({"precision_at": (0,)}, "precision_at must be"),
        ({"denominator": "fond"}, "Did you mean 'found'?"),
        ({"empty_queries": "nan"}, "Known: error, skip, zero"),
    ],
)
def test_invalid_input_raises_a_one_line_error(change, words):
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
    )  # one byte per pair would be 12 MB; the codes of both sides are 2.4 MB unpacked


def test_evaluate_does_not_import_torch():
    program = (
        "import sys, hadahash; hadahash.evaluate, hadahash.Report; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


def test_docstring_examples():
    outcome = doctest.testmod(scoring)
    assert outcome.attempted > 2 and outcome.failed == 0


def test_boolean_and_byte_label_matrices_are_not_copied():
    for kind in (bool, np.uint8):
        matrix = np.eye(3, dtype=kind)
        assert np.shares_memory(check_class_numbers(matrix, 3, "query"), matrix)
    with pytest.raises(UsageError, match="only 0 and 1"):
        check_class_numbers(np.full((3, 3), 2, np.uint8), 3, "query")
