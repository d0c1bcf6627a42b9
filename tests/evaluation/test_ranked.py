"""Rankings by score: all measures against a slow reference, over ties and equal codes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hadahash.codes import Codes
from hadahash.errors import UsageError
from hadahash.evaluation import Report, evaluate, ranked, reference
from hadahash.queries import Queries
from hadahash.ranking import Ranking, fit_ranking, score


def scene(seed: int, *, multilabel: bool, binary: bool = False, copies: int = 1):
    """Queries, labels, codes of 6 class and 4 content bits with many repetitions, ranking."""
    rng = np.random.default_rng(seed)
    words = rng.choice([-1, 1], (4, 6)).astype(np.int8)

    def labels(count):
        return rng.random((count, 4)) < 0.4 if multilabel else rng.integers(0, 4, count)

    def values(own):
        mean = own @ words / 2 if multilabel else words[own]
        return np.clip(mean + rng.normal(0, 1.0, (len(own), 6)), -1, 1).astype(np.float32)

    query_labels, database_labels, train_labels = labels(12), labels(90), labels(200)
    ranking = fit_ranking(values(train_labels), train_labels, words, multilabel=multilabel)
    query = Queries(values(query_labels), content=rng.normal(size=(12, 4)))
    stored = Queries(values(database_labels), content=rng.normal(size=(90, 4))).codes()
    if binary:
        query = query.codes()
    rows = np.tile(np.arange(90), copies)
    return query, query_labels, stored[rows], database_labels[rows], ranking


def slow(query, query_labels, database, database_labels, ranking, rank, weight, **options):
    """Average precision of each query, by loops over the definition of the scores."""
    queries = Queries.from_codes(query) if isinstance(query, Codes) else query
    scores = score(queries, database, ranking, rank, weight)
    sets = [
        [set(np.flatnonzero(row)) if np.ndim(row) else {int(row)} for row in labels]
        for labels in (query_labels, database_labels)
    ]
    found = [
        reference.expected_by_ranks(
            (-row).tolist(), [bool(own & other) for other in sets[1]], **options
        )
        for own, row in zip(sets[0], scores, strict=True)
    ]
    return np.array([0.0 if value is None else value for value in found])


@pytest.mark.parametrize("rank", ["hamming", "class", "photo"])
@pytest.mark.parametrize("multilabel", [False, True])
@pytest.mark.parametrize("binary", [False, True])
def test_average_precision_equals_the_reference(rank, multilabel, binary, monkeypatch):
    monkeypatch.setattr(ranked, "_ELEMENTS", 200)  # several blocks
    for copies in (1, 3):
        own = scene(copies, multilabel=multilabel, binary=binary, copies=copies)
        for depth in (None, 7, 50):
            for denominator in ("found", "possible"):
                options = {"depth": depth, "denominator": denominator}
                report = evaluate(*own[:4], rank=rank, ranking=own[4], **options)
                expected = slow(*own, rank, None, **options)
                np.testing.assert_allclose(report.average_precision, expected, atol=1e-12)
                assert report.map_by_denominator[denominator] == pytest.approx(report.map)


def test_codes_that_all_differ_take_the_same_way(monkeypatch):
    query, query_labels, database, labels, ranking = scene(5, multilabel=False)
    rows = ranked.distinct(database)[0]
    assert len(rows) > 60
    own = (query, query_labels, database[rows], labels[rows])
    report = evaluate(*own, rank="photo", ranking=ranking, weight=3)
    assert report.distinct_codes == report.database == len(rows)
    expected = slow(*own, ranking, "photo", 3)
    np.testing.assert_allclose(report.average_precision, expected, atol=1e-12)
    assert report.weight == 3 and report.rank == "photo"


@pytest.mark.parametrize("rank", ["class", "photo"])
def test_no_item_finds_itself(rank):
    _, _, database, labels, ranking = scene(2, multilabel=True)
    report = evaluate(
        database, labels, database, labels, rank=rank, ranking=ranking, exclude_self=True
    )
    for row in (0, 17, 89):
        rest = np.delete(np.arange(90), row)
        own = (database[[row]], labels[[row]], database[rest], labels[rest])
        alone = evaluate(*own, rank=rank, ranking=ranking)
        assert report.average_precision[row] == pytest.approx(alone.map, abs=1e-12)
    assert report.database == 89


def test_hamming_distance_is_measured_in_the_same_way_by_score():
    """The same numbers from counts per distance and from scores."""
    own = scene(3, multilabel=False, binary=True, copies=4)
    labels = ranked.LabelPair(own[1], own[3], None)
    scored = ranked.score_database(own[0], own[2], rank="hamming")
    report = evaluate(*own[:4], depth=30, precision_at=(1, 10, 100))
    from hadahash.evaluation.sums import Sums

    sums = Sums(30, "found", [1, 10, 100], len(own[2]))
    for tables in ranked.Ties(scored, labels).blocks():
        sums.add(*tables)
    np.testing.assert_allclose(sums.average_precision(), report.average_precision, atol=1e-12)
    assert sums.precision_at() == pytest.approx(report.precision_at)
    assert sums.first_tie() == report.first_ten_tie > 0.5


def test_curve_ties_and_limits_of_precision():
    own = scene(4, multilabel=False, copies=12)
    report = evaluate(*own[:4], rank="class", ranking=own[4], precision_at=(10, 500))
    curve = report.precision_recall
    assert curve.by == "results" and curve.radius[0] == 1 and curve.radius[-1] == len(own[2])
    assert curve.recall[-1] == pytest.approx(1) and (np.diff(curve.recall) >= -1e-12).all()
    ten = int(np.flatnonzero(curve.radius == 10)[0])
    assert curve.precision[ten] == pytest.approx(report.precision_at[10])
    assert report.first_ten_tie == 1.0  # each code is stored 12 times
    sizes = np.bincount(own[3], minlength=4)[own[1]]
    assert report.precision_at_most[500] == pytest.approx(np.minimum(sizes, 500).mean() / 500)
    assert "at most" in str(report) and "P@10 0" in str(report)
    again = Report.from_dict(report.to_dict())
    assert again.precision_recall.by == "results" and again.rank == "class"
    assert again.precision_at_most == report.precision_at_most


def test_a_method_without_codewords_ranks_by_its_values():
    query, query_labels, database, labels, _ = scene(6, multilabel=False)
    report = evaluate(query, query_labels, database, labels, rank="class")
    np.testing.assert_allclose(
        report.average_precision,
        slow(query, query_labels, database, labels, Ranking(), "class", None),
        atol=1e-12,
    )


def test_what_does_not_fit_is_refused_in_one_line():
    query, query_labels, database, labels, ranking = scene(7, multilabel=False)
    plain = database.class_codes()
    for options, text in (
        ({"rank": "nearest"}, "nearest"),
        ({"weight": 2.0}, "weight applies to rank='photo' only"),
        ({"rank": "photo", "weight": -1.0, "ranking": ranking}, "weight must be"),
    ):
        with pytest.raises(UsageError, match=text):
            evaluate(query, query_labels, database, labels, **options)
    with pytest.raises(UsageError, match="content bits"):
        evaluate(query, query_labels, plain, labels, rank="photo", ranking=ranking)
    with pytest.raises(UsageError, match="content bits"):
        evaluate(replace(query, content=None), query_labels, database, labels, rank="photo")
