"""`hadahash evaluate --queries --database`: labels of a table, and queries in the database."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from toys import one_line

from hadahash import Codes, evaluate
from hadahash.data import DataWarning
from hadahash.errors import DataError
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
