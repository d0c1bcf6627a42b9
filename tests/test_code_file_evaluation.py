"""`hadahash evaluate --queries --database`: labels of a table, and queries in the database."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
from toys import one_line

from hadahash import Codes, evaluate
from hadahash.codes import pack
from hadahash.data import DataWarning
from hadahash.errors import DataError, UsageError
from hadahash.runs import evaluate_files


@pytest.fixture
def files(tmp_path):
    """Codes of 10 queries and 40 other images, and a table with one or two labels each."""
    rng = np.random.default_rng(0)
    ids = [f"{number}.jpg" for number in range(50)]
    codes = Codes.from_signs(rng.choice([-1, 1], (50, 16)), ids)
    labels = [["a"], ["b"], ["a", "b"]]
    rows = [labels[number % 3] for number in range(50)]
    table = tmp_path / "labels.csv"
    table.write_text(
        "path,labels\n" + "\n".join(f"{i},{'|'.join(r)}" for i, r in zip(ids, rows, strict=True))
    )
    codes[:10].save(tmp_path / "q.npz")
    codes[10:].save(tmp_path / "d.npz")
    matrix = np.array([["a" in row, "b" in row] for row in rows], np.uint8)
    return tmp_path, codes, matrix


def test_several_labels_come_from_a_table(files):
    folder, codes, matrix = files
    report = evaluate_files(folder / "q.npz", folder / "d.npz", labels=folder / "labels.csv")
    expected = evaluate(codes[:10], matrix[:10], codes[10:], matrix[10:])
    assert report.map == pytest.approx(expected.map)


def test_an_id_without_a_label_is_named(files):
    folder, _, _ = files
    (folder / "labels.csv").write_text("path,labels\n0.jpg,a\n1.jpg,b\n")
    with pytest.raises(DataError, match=r"the id '10.jpg' has no label in .*labels.csv") as caught:
        evaluate_files(folder / "q.npz", folder / "d.npz", labels=folder / "labels.csv")
    one_line(caught.value)
    with pytest.raises(DataError, match="--labels TABLE"):
        evaluate_files(folder / "q.npz", folder / "d.npz")


def test_queries_in_the_database_are_noticed(files):
    folder, _, _ = files
    given = {"labels": folder / "labels.csv"}
    with pytest.warns(DataWarning, match="10 of 10 queries are in the database"):
        evaluate_files(folder / "q.npz", folder / "q.npz", **given)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        evaluate_files(folder / "q.npz", folder / "d.npz", **given)


def _two_parts(files, seed: int = 1):
    """The same files with 24 content bits; codes, labels and the folder."""
    folder, codes, matrix = files
    content = pack(np.random.default_rng(seed).standard_normal((50, 24)))
    codes = replace(codes, content=content, content_bits=24, content_fingerprint="p" * 64)
    codes[:10].save(folder / "q.npz")
    codes[10:].save(folder / "d.npz")
    return folder, codes, matrix


def test_content_bits_of_code_files_are_ranked(files):
    folder, codes, matrix = _two_parts(files)
    names = (folder / "q.npz", folder / "d.npz")
    given = {"labels": folder / "labels.csv", "ranks": ["photo"]}
    report = evaluate_files(*names, **given)
    assert report.rank == "hamming" and report.rankings["photo"].weight == 1
    sides = (codes[:10], matrix[:10], codes[10:], matrix[10:])
    repeated = (codes.repeated(2)[:10], matrix[:10], codes.repeated(2)[10:], matrix[10:])
    assert report.rankings["photo"].map == pytest.approx(evaluate(*repeated).map)
    heavy = evaluate_files(*names, **given, weight=5)
    expected = evaluate(*sides, rank="photo", weight=5)
    assert heavy.rankings["photo"].map == expected.map != report.rankings["photo"].map


def test_code_files_without_the_same_content_bits_are_refused(files):
    folder, codes, _ = _two_parts(files)
    names = (folder / "q.npz", folder / "d.npz")
    given = {"labels": folder / "labels.csv"}
    with pytest.raises(UsageError, match="weight is for the ranking photo, got hamming") as caught:
        evaluate_files(*names, **given, weight=2)
    one_line(caught.value)
    with pytest.raises(UsageError, match="ranked by hamming or photo, got class"):
        evaluate_files(*names, **given, ranks=["class"])
    replace(codes, content_fingerprint="o" * 64)[:10].save(folder / "q.npz")
    with pytest.raises(UsageError, match="made by two projections") as caught:
        evaluate_files(*names, **given, ranks=["photo"])
    one_line(caught.value)
    codes[:10].class_codes().save(folder / "q.npz")
    with pytest.raises(UsageError, match="in both code files, got none and 24") as caught:
        evaluate_files(*names, **given, ranks=["photo"])
    one_line(caught.value)
