"""Tables of images: what is read, and what every mistake is answered with."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from make_images import encode, picture

from hadahash.data import DoubtfulLabelWarning, find_dataset, make_split, open_dataset, read_table
from hadahash.data.sources import as_labelled
from hadahash.data.table import is_table, table_protocol
from hadahash.errors import DataError

PNG = encode(picture(4, 6), "PNG")


@pytest.fixture
def table(tmp_path):
    """Write a table, with images cat/0.png ... dog/9.png beside it."""
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        for i in range(10):
            (tmp_path / name / f"{i}.png").write_bytes(PNG)

    def write(text: str | bytes, name: str = "photos.csv") -> Path:
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def error_of(path: Path) -> str:
    with pytest.raises(DataError) as caught:
        read_table(path)
    text = str(caught.value)
    assert "\n" not in text
    assert str(path) in text
    return text.replace(str(path), path.name)


def test_one_label_each(table, tmp_path, monkeypatch):
    path = table("path,labels\ncat/0.png,cat\ndog/1.png,dog\ncat/3.png,cat\n")
    data = read_table(path)
    assert data.ids.tolist() == ["cat/0.png", "dog/1.png", "cat/3.png"]
    assert data.labels.array.tolist() == [0, 1, 0]
    assert data.classes == ("cat", "dog")
    assert (data.name, data.parts) == ("photos", None)
    assert np.array_equal(data.images[1], picture(4, 6))
    monkeypatch.chdir(tmp_path.parent)
    assert read_table(Path(tmp_path.name) / "photos.csv").images[0].shape == (
        4,
        6,
        3,
    )  # from the table's folder on


def test_several_labels(table):
    data = read_table(
        table("path,labels\ncat/0.png,cat|indoors\ndog/1.png,dog\ncat/3.png, indoors | cat |dog\n")
    )
    assert data.classes == ("cat", "dog", "indoors")
    assert data.labels.array.tolist() == [[1, 0, 1], [0, 1, 0], [1, 1, 1]]
    assert data.labels.array.dtype == np.uint8


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (
            "t.csv",
            "\ufeffpath,label\r\ncat/0.png,cat\r\n\r\ndog/1.png,dog\r\n",
        ),  # Windows: a mark first, CR LF
        ("t.csv", 'Path , LABELS, photographer\n"cat/0.png","cat","A, B"\ndog/1.png,dog,\n'),
        (
            "t.csv",
            "path;labels\ncat/0.png;cat\ndog/1.png;dog\n;\n",
        ),  # Excel where the comma is the decimal sign
        ("t.tsv", "labels\tpath\ncat\tcat/0.png\ndog\tdog/1.png"),
        ("T.CSV", "path,labels\ncat\\0.png,cat\ndog\\1.png,dog\n"),  # Windows' paths
    ],
)
def test_the_ways_a_table_is_written(table, name, content):
    data = read_table(table(content, name))
    assert data.labels.array.tolist() == [0, 1]
    assert data.classes == ("cat", "dog")
    assert [image.shape for image in (data.images[0], data.images[1])] == [(4, 6, 3)] * 2


def test_absolute_paths_and_odd_names(table, tmp_path):
    (tmp_path / "ä 猫, |.png").write_bytes(PNG)
    data = read_table(table(f'path,labels\n{tmp_path}/cat/0.png,Käse\n"ä 猫, |.png",猫\n'))
    assert data.classes == ("Käse", "猫")
    assert data.images[0].shape == data.images[1].shape == (4, 6, 3)


def test_splits(table):
    rows = [
        "cat/0.png,cat,train",
        "dog/0.png,dog,Train",
        "cat/1.png,cat,query",
        "dog/1.png,dog,test",
    ]
    path = table("path,labels,split\n" + "\n".join(rows))
    entry = find_dataset(str(path))
    assert (entry.name, entry.protocol, entry.depth) == ("photos", "table", None)
    split = make_split(open_dataset(path), entry.protocol)
    assert [part.tolist() for part in (split.query, split.train, split.database)] == [
        [2, 3],
        [0, 1],
        [0, 1],
    ]
    path = table(
        "path,labels,split\n"
        + "\n".join([*rows, "cat/2.png,cat,database", "dog/2.png,dog,database"])
    )
    split = make_split(open_dataset(path), "table", seed=3)
    assert [part.tolist() for part in (split.query, split.train, split.database)] == [
        [2, 3],
        [0, 1],
        [4, 5],
    ]
    assert as_labelled(path).ids.tolist() == [
        "cat/0.png",
        "dog/0.png",
    ]  # fit never sees the queries
    with pytest.raises(DataError, match="marked as query or train"):
        make_split(read_table(table("path,labels\ncat/0.png,a\ndog/0.png,b\n")), "table")


def test_without_a_split_some_are_held_out(table):
    lines = [f"{name}/{i}.png,{name}" for name in ("cat", "dog") for i in range(10)]
    path = table("path,labels\n" + "\n".join(lines))
    entry = find_dataset(path)
    assert entry.protocol == "holdout"
    assert make_split(open_dataset(path), entry.protocol).sizes == {
        "query": 2,
        "train": 18,
        "database": 18,
    }
    assert len(as_labelled(str(path))) == 20


@pytest.mark.parametrize("seed", range(8))
def test_held_out_images_of_several_labels_leave_every_label_to_learn(table, seed):
    lines = [f"cat/{i}.png,cat|only{i}" for i in range(7)] + [
        f"dog/{i}.png,dog|pet" for i in range(10)
    ]
    data = read_table(table("path,labels\n" + "\n".join(lines)))
    split = make_split(data, "holdout", seed=seed)
    assert split.sizes == {"query": 2, "train": 15, "database": 15}
    assert (data.labels.array[split.train].sum(axis=0) > 0).all()


def test_parquet(table, tmp_path):
    path = tmp_path / "photos.parquet"
    columns = {
        "path": ["cat/0.png", "dog/0.png"],
        "labels": [["cat", "pet"], ["dog"]],
        "split": ["train", "query"],
        "x": [1, 2],
    }
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    assert table_protocol(path) == "table"
    assert (
        error_of(path)
        == "photos.parquet row 2: the class 'dog' has no image of the split train. Mend the row and try again."
    )
    columns |= {"split": ["train", "train"]}
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    assert (
        error_of(path)
        == "photos.parquet row 1: neither here nor below is a row of the split query. Mend the row and try again."
    )
    del columns["split"]
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    data = read_table(path)
    assert data.classes == ("cat", "dog", "pet")
    assert data.labels.array.tolist() == [[1, 0, 1], [0, 1, 0]]
    pyarrow.parquet.write_table(pyarrow.table(columns | {"labels": [7, 12]}), path)
    assert read_table(path).classes == ("12", "7")
    pyarrow.parquet.write_table(pyarrow.table(columns | {"labels": ["cat", None]}), path)
    assert error_of(path) == "photos.parquet row 2: there is no label. Mend the row and try again."
    path.write_bytes(b"no parquet" * 10)
    assert "is not a parquet file, or is damaged" in error_of(path)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            "cat/0.png,cat\ncat/x.png,dog",
            "photos.csv line 3: image cat/x.png does not exist (looked for ",
        ),
        ("cat/0.png,cat\ncat,dog", "photos.csv line 3: cat is a folder, not an image."),
        (f"cat/0.png,cat\n{'x' * 5_000},dog", "line 3: image xxx"),
        (",cat\ncat/0.png,dog", "photos.csv line 2: the path is empty."),
        ("cat/0.png,\ndog/0.png,dog", "photos.csv line 2: there is no label."),
        ("cat/0.png, \ndog/0.png,dog", "photos.csv line 2: there is no label."),
        (
            "cat/0.png,cat\ndog/0.png,dog||pet",
            "photos.csv line 3: one of the labels 'dog||pet' is empty.",
        ),
        ("cat/0.png,cat\ndog/0.png,dog|", "photos.csv line 3: one of the labels 'dog|' is empty."),
        (
            "cat/0.png,cat\ndog/0.png,dog\n\ndog/../cat/0.png,pet",
            "photos.csv line 5: dog/../cat/0.png is already in line 2: put all its labels into one row.",
        ),
        (
            "cat/0.png,cat,extra\ndog/0.png,dog",
            "photos.csv line 2: 3 fields where the header has 2 (a comma inside a field needs quotation marks around it).",
        ),
        ("cat/0.png\ndog/0.png,dog", "photos.csv line 2: 1 fields where the header has 2."),
        (
            'cat/0.png,"cat\ndog/0.png,dog',
            "photos.csv line 2: unexpected end of data. Check the quotation marks there.",
        ),
        (
            "cat/0.png,cat\ndog/0.png,cat",
            "has one label only ('cat'): hashing needs at least 2 classes.",
        ),
        ("", "photos.csv has a header and no rows."),
    ],
)
def test_rows_that_are_wrong(table, rows, message):
    assert message in error_of(table("path,labels\n" + rows))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            "cat/0.png,cat,train\ndog/0.png,dog,val",
            "line 3: the split 'val' must be one of train, query, test, database.",
        ),
        (
            "cat/0.png,cat,\ndog/0.png,dog,train",
            "line 2: the split '' must be one of train, query, test, database.",
        ),
        (
            "cat/0.png,cat,train\ndog/0.png,dog,train\ndog/1.png,dog,query\ncat/2.png,cow,query\ncat/3.png,cow,query",
            "photos.csv line 5: the class 'cow' has no image of the split train.",
        ),
        (
            "cat/0.png,cat,train\ndog/0.png,dog,train",
            "line 2: neither here nor below is a row of the split query.",
        ),
        (
            "cat/0.png,cat,query\ndog/0.png,dog,test",
            "line 2: neither here nor below is a row of the split train; ",
        ),
    ],
)
def test_splits_that_are_wrong(table, rows, message):
    assert message in error_of(table("path,labels,split\n" + rows))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "photos.csv is empty. A table has the columns path, labels"),
        ("\n \n", "photos.csv is empty."),
        (
            "file,labels\ncat/0.png,cat\n",
            "photos.csv has no column path; its first line has 'file', 'labels'. A table has",
        ),
        (
            "cat/0.png,cat\n",
            "photos.csv has no column path and no column labels; its first line has 'cat/0.png', 'cat'.",
        ),
        ("path,labels,label\n", "photos.csv has the column labels twice."),
        (
            "path,labels,splits\ncat/0.png,cat,train\n",
            "photos.csv has a column 'splits': did you mean 'split'?",
        ),
        (
            "path,labels\ncat/0.png,Käse\n".encode("latin-1"),
            "photos.csv line 2: not UTF-8 text (byte 0xe4). Save the table as CSV",
        ),
        (
            "path,labels\ncat/0.png,cat\n".encode("utf-16"),
            "photos.csv line 1: not UTF-8 text (byte 0xff).",
        ),
    ],
)
def test_tables_that_are_none(table, content, message):
    assert message in error_of(table(content))


def test_many_mistakes_are_told_at_once(table):
    lines = [f"gone/{i}.png,cat" for i in range(9)] + ["cat/0.png,"]
    text = error_of(table("path,labels\n" + "\n".join(lines)))
    assert text.startswith("photos.csv line 2: image gone/0.png does not exist")
    assert "; line 6: image gone/4.png" in text
    assert "gone/5" not in text
    assert text.endswith("; and 5 more such problems. Mend the lines and try again.")


def test_a_file_named_in_two_ways_is_there_twice(table, tmp_path, monkeypatch):
    table(f"path,labels\ncat/0.png,cat\ndog/0.png,dog\n{tmp_path / 'cat' / '0.png'},dog\n")
    monkeypatch.chdir(tmp_path)
    assert "photos.csv line 4: " in error_of(Path("photos.csv"))
    assert "is already in line 2" in error_of(Path("photos.csv"))


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_lines_may_end_as_on_any_system(table, end):
    rows = end.join(["path,labels", "cat/0.png,cat", "dog/0.png,dog", ""])
    assert read_table(table(rows)).labels.array.tolist() == [0, 1]
    assert "photos.csv line 4: there is no label." in error_of(table(rows + f"dog/1.png,{end}"))


def test_letters_that_changed_places_are_told(table):
    lines = [f"{name}/{i}.png,{name}" for name in ("cat", "dog") for i in range(8)]
    with pytest.warns(
        DoubtfulLabelWarning, match="line 18: the label 'dgo' occurs once; did you mean 'dog'"
    ):
        read_table(table("path,labels\n" + "\n".join([*lines, "dog/8.png,dgo"])))


def test_a_label_that_looks_misspelt_is_told(table):
    lines = [f"cat/{i}.png,kitten" for i in range(8)] + [f"dog/{i}.png,dog" for i in range(8)]
    path = table(
        "path,labels\n" + "\n".join([*lines, "cat/8.png,kiten", "cat/9.png,Dog", "dog/8.png,horse"])
    )
    with pytest.warns(DoubtfulLabelWarning) as told:
        data = read_table(path)
    assert [str(warning.message) for warning in told] == [
        f"{path} line 18: the label 'kiten' occurs once; did you mean 'kitten' (8 times)? It is used as it is.",
        f"{path} line 19: the label 'Dog' occurs once; did you mean 'dog' (8 times)? It is used as it is.",
    ]
    assert data.classes == ("Dog", "dog", "horse", "kiten", "kitten")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read_table(table("path,labels\n" + "\n".join([*lines[:10], "cat/8.png,kitchen"])))


def test_which_names_are_tables(tmp_path):
    (tmp_path / "folder.csv").mkdir()
    assert [
        is_table(name) for name in ("a.csv", "b/A.TSV", "x.parquet", "photos", "a.csv.jpg")
    ] == [True] * 3 + [False] * 2
    assert not is_table(tmp_path / "folder.csv")
    with pytest.raises(
        DataError,
        match=r"Cannot read the table .*none.csv: No such file or directory. Check the path.",
    ):
        find_dataset(str(tmp_path / "none.csv"))
