"""Tables of images: what is read, and the message for every mistake."""

from __future__ import annotations

import os
import time
import warnings
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from make_images import encode, picture
from toys import one_line

from hadahash.data import (
    DoubtfulLabelWarning,
    find_dataset,
    make_split,
    open_dataset,
    read_table,
    table_checks,
)
from hadahash.data.sources import as_images, as_labelled
from hadahash.data.table import is_table, read_paths, table_protocol
from hadahash.data.table_checks import Problems, Row, warn_of_misspellings
from hadahash.errors import DataError, HadaHashError, StorageError

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


def test_single_label_tables(table, tmp_path, monkeypatch):
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


def test_multi_label_tables(table):
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
def test_dialects_of_tables(table, name, content):
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
    with pytest.raises(DataError, match="needs a data set with parts"):
        make_split(read_table(table("path,labels\ncat/0.png,a\ndog/0.png,b\n")), "table")


def test_tables_without_a_split_use_holdout(table):
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
def test_holdout_of_multi_label_tables_keeps_every_label(table, seed):
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
        == "photos.parquet row 2: the class 'dog' has no row with split=train. Fix the table and try again."
    )
    columns |= {"split": ["train", "train"]}
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    assert (
        error_of(path)
        == "photos.parquet row 1: the table has no row with split=query. Fix the table and try again."
    )
    del columns["split"]
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    data = read_table(path)
    assert data.classes == ("cat", "dog", "pet")
    assert data.labels.array.tolist() == [[1, 0, 1], [0, 1, 0]]
    pyarrow.parquet.write_table(pyarrow.table(columns | {"labels": [7, 12]}), path)
    assert read_table(path).classes == ("12", "7")
    pyarrow.parquet.write_table(pyarrow.table(columns | {"labels": ["cat", None]}), path)
    assert error_of(path) == "photos.parquet row 2: there is no label. Fix the table and try again."
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
            "photos.csv line 2: 3 fields where the header has 2 (quote a field that contains a comma).",
        ),
        ("cat/0.png\ndog/0.png,dog", "photos.csv line 2: 1 fields where the header has 2."),
        (
            'cat/0.png,"cat\ndog/0.png,dog',
            "photos.csv line 2: unexpected end of data. Check the quotation marks there.",
        ),
        (
            "cat/0.png,cat\ndog/0.png,cat",
            "has only the label 'cat'. At least 2 are needed.",
        ),
        ("", "photos.csv has a header and no rows."),
    ],
)
def test_wrong_rows_are_reported(table, rows, message):
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
            "photos.csv line 5: the class 'cow' has no row with split=train.",
        ),
        (
            "cat/0.png,cat,train\ndog/0.png,dog,train",
            "line 2: the table has no row with split=query.",
        ),
        (
            "cat/0.png,cat,query\ndog/0.png,dog,test",
            "line 2: the table has no row with split=train.",
        ),
    ],
)
def test_wrong_splits_are_reported(table, rows, message):
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
            "photos.csv has a column 'splits'. Did you mean 'split'?",
        ),
        (
            "path,labels\ncat/0.png,Käse\n".encode("latin-1"),
            "photos.csv line 2: not UTF-8 (byte 0xe4). Save the table as CSV",
        ),
        (
            "path,labels\ncat/0.png,cat\n".encode("utf-16"),
            "photos.csv line 1: not UTF-8 (byte 0xff).",
        ),
    ],
)
def test_files_that_are_not_tables_are_refused(table, content, message):
    assert message in error_of(table(content))


def test_problems_are_reported_together(table):
    lines = [f"gone/{i}.png,cat" for i in range(9)] + ["cat/0.png,"]
    text = error_of(table("path,labels\n" + "\n".join(lines)))
    assert text.startswith("photos.csv line 2: image gone/0.png does not exist")
    assert "; line 6: image gone/4.png" in text
    assert "gone/5" not in text
    assert text.endswith("; and 5 more problems. Fix the table and try again.")


def test_two_names_of_one_file_are_a_duplicate(table, tmp_path, monkeypatch):
    table(f"path,labels\ncat/0.png,cat\ndog/0.png,dog\n{tmp_path / 'cat' / '0.png'},dog\n")
    monkeypatch.chdir(tmp_path)
    assert "photos.csv line 4: " in error_of(Path("photos.csv"))
    assert "is already in line 2" in error_of(Path("photos.csv"))


def test_folders_of_many_rows_are_checked_like_others(tmp_path, monkeypatch):
    (tmp_path / "many").mkdir()
    (tmp_path / "many" / "folder.png").mkdir()
    for i in range(70):
        (tmp_path / "many" / f"{i}.png").touch()
    names = [*(f"many/{i}.png" for i in range(70)), "many/70.png", "many/folder.png", "many/3.png"]
    rows = [f"{name},{'cat' if i % 2 else 'dog'}" for i, name in enumerate(names)]
    written = ["path,labels", *rows, "many/../many/5.png,cat", f"{tmp_path / 'many' / '6.png'},cat"]
    (tmp_path / "photos.csv").write_text("\n".join(written))
    monkeypatch.chdir(tmp_path)
    text = error_of(Path("photos.csv"))
    assert "line 72: image many/70.png does not exist (looked for many/70.png)" in text
    assert "line 73: many/folder.png is a folder, not an image" in text
    assert "line 74: many/3.png is already in line 5" in text
    assert "line 75: many/../many/5.png is already in line 7" in text
    assert "6.png is already in line 8" in text

    (tmp_path / "photos.csv").write_text("\n".join(["path,labels", *rows[:70]]))
    assert read_table(Path("photos.csv")).images.paths == [Path(name) for name in names[:70]]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_line_endings_of_every_system(table, end):
    rows = end.join(["path,labels", "cat/0.png,cat", "dog/0.png,dog", ""])
    assert read_table(table(rows)).labels.array.tolist() == [0, 1]
    assert "photos.csv line 4: there is no label." in error_of(table(rows + f"dog/1.png,{end}"))


def test_swapped_letters_are_reported(table):
    lines = [f"{name}/{i}.png,{name}" for name in ("cat", "dog") for i in range(8)]
    with pytest.warns(
        DoubtfulLabelWarning, match="line 18: the label 'dgo' occurs once; did you mean 'dog'"
    ):
        read_table(table("path,labels\n" + "\n".join([*lines, "dog/8.png,dgo"])))


def test_labels_that_look_misspelled_are_reported(table):
    lines = [f"cat/{i}.png,kitten" for i in range(8)] + [f"dog/{i}.png,dog" for i in range(8)]
    path = table(
        "path,labels\n" + "\n".join([*lines, "cat/8.png,kiten", "cat/9.png,Dog", "dog/8.png,horse"])
    )
    with pytest.warns(DoubtfulLabelWarning) as caught:
        data = read_table(path)
    assert [str(warning.message) for warning in caught] == [
        f"{path} line 18: the label 'kiten' occurs once; did you mean 'kitten' (8 times)? It is used unchanged.",
        f"{path} line 19: the label 'Dog' occurs once; did you mean 'dog' (8 times)? It is used unchanged.",
    ]
    assert data.classes == ("Dog", "dog", "horse", "kiten", "kitten")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read_table(table("path,labels\n" + "\n".join([*lines[:10], "cat/8.png,kitchen"])))


def test_which_file_names_are_tables(tmp_path):
    (tmp_path / "folder.csv").mkdir()
    assert [
        is_table(name) for name in ("a.csv", "b/A.TSV", "x.parquet", "photos", "a.csv.jpg")
    ] == [True] * 3 + [False] * 2
    assert not is_table(tmp_path / "folder.csv")
    with pytest.raises(
        StorageError,
        match=r"Cannot read .*none.csv: No such file or directory. Check the path.",
    ):
        find_dataset(str(tmp_path / "none.csv"))


def test_many_rare_labels_are_compared_in_linear_time(table, monkeypatch):
    frequent = [f"frequent tag {number}" for number in range(2_000)]
    rows = [Row(number, "x", (label,), None) for number, label in enumerate(frequent * 5)]
    rows += [Row(0, "x", (f"another rare tag {number}",), None) for number in range(20_000)]
    rows += [Row(0, "x", ("frequent tg 77",), None)]
    start = time.process_time()
    with pytest.warns(DoubtfulLabelWarning) as caught:
        warn_of_misspellings(rows, Problems(Path("t.csv")))
    assert time.process_time() - start < 8
    assert "did you mean 'frequent tag 77'" in str(caught[0].message)
    assert len(caught) == 1


def test_many_doubtful_labels_are_summarized(table):
    rows = [Row(1, "x", ("kitten",), None)] * 5
    rows += [Row(2, "x", (f"kitten{letter}",), None) for letter in "abcdefghi"]
    with pytest.warns(DoubtfulLabelWarning) as caught:
        warn_of_misspellings(rows, Problems(Path("t.csv")))
    assert len(caught) == 6
    assert "4 more labels occur once and look misspelled" in str(caught[-1].message)


def test_many_classes_are_checked_in_linear_time(tmp_path):
    (tmp_path / "x.png").write_bytes(b"")
    rows = [Row(n, "x.png", (f"c{n % 5_000}",), "train") for n in range(20_000)]
    rows += [Row(0, "x.png", ("c7", "c8"), "query")] * 20_000
    start = time.process_time()
    table_checks._check_splits(rows, problems := Problems(tmp_path / "t.csv"))
    assert not problems.found
    assert time.process_time() - start < 2


def write_parquet(path, /, **columns):
    pyarrow.parquet.write_table(pyarrow.table(columns), path, use_dictionary=False)
    return path


@pytest.mark.parametrize("old", [b"kitten", b"labels"])
def test_parquet_text_that_is_not_utf_8_is_a_one_line_error(tmp_path, old):
    path = write_parquet(tmp_path / "t.parquet", path=["a.png", "b.png"], labels=["kitten", "dog"])
    content = path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, b"\xff" + old[1:]))
    with pytest.raises(DataError) as error:
        read_table(path)
    one_line(error.value)


def test_parquet_columns_of_bytes_are_text(tmp_path):
    for name in ("a.png", "b.png"):
        (tmp_path / name).write_bytes(b"")
    path = write_parquet(tmp_path / "t.parquet", path=[b"a.png", b"b.png"], labels=[b"x", b"y|z"])
    data = read_table(path)
    assert data.ids.tolist() == ["a.png", "b.png"]
    assert data.classes == ("x", "y", "z")


@pytest.mark.skipif(os.name != "posix", reason="needs pipes, links and devices")
@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet"])
@pytest.mark.parametrize("kind", ["pipe", "device", "loop", "long"])
def test_tables_that_are_not_regular_files_are_refused_at_once(tmp_path, suffix, kind):
    path = tmp_path / f"t{suffix}"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "loop":
        path.symlink_to(path)
    else:
        path = tmp_path / ("x" * 5_000 + suffix)
    for use in (read_table, find_dataset, as_images, as_labelled):
        with pytest.raises(HadaHashError, match="Cannot read") as error:
            use(str(path))
        one_line(error.value)


def test_folders_of_many_rows_are_listed_once(tmp_path, monkeypatch):
    from hadahash.data import table_checks

    names = [f"a/{number}.png" for number in range(100)]
    (tmp_path / "a").mkdir()
    for name in names[:98]:
        (tmp_path / name).touch()
    (tmp_path / names[98]).mkdir()
    asked: list[str] = []
    monkeypatch.setattr(table_checks, "_is_file", lambda path: bool(asked.append(str(path))))
    table = tmp_path / "table.csv"
    table.write_text("path\n" + "\n".join(names))
    with pytest.raises(DataError, match=r"98.png is a folder, not an image.*99.png does not exist"):
        read_paths(table)
    assert {Path(each).name for each in asked} == {"98.png", "99.png"}
