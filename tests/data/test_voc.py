"""Pascal VOC 2012."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from make_images import encode, picture

from hadahash.data import ArrayImages, LabelledImages, make_split, open_dataset
from hadahash.data.datasets.voc import CLASSES, locate_voc2012, read_voc2012
from hadahash.data.splits import as_given
from hadahash.errors import DataError, StorageError

NAMES = {
    "train": ["2008_000008", "2008_000015", "2009_000001"],
    "val": ["2008_000002", "2010_000003"],
}
MARKS = {
    "2008_000008": {"horse": 1, "person": 1},
    "2008_000015": {"bottle": 1, "person": 0},
    "2009_000001": {"cat": 0},
}


def make(root: Path) -> Path:
    main = root / "ImageSets" / "Main"
    main.mkdir(parents=True)
    (root / "JPEGImages").mkdir()
    for part, names in NAMES.items():
        for label in CLASSES:
            lines = [f"{name} {MARKS.get(name, {'dog': 1}).get(label, -1):2d}\n" for name in names]
            (main / f"{label}_{part}.txt").write_text("".join(lines))
        for name in names:
            (root / "JPEGImages" / f"{name}.jpg").write_bytes(encode(picture(5, 7), "JPEG"))
    return root


@pytest.mark.parametrize("inner", ["", "VOC2012", "VOCdevkit/VOC2012"])
def test_labels_and_parts(tmp_path, monkeypatch, inner):
    make(tmp_path / "voc2012" / inner)
    monkeypatch.setenv("HADAHASH_DATA", str(tmp_path))
    for root in (tmp_path / "voc2012", None):
        data = open_dataset("voc2012", root)
        assert data.ids.tolist() == [
            f"{part}/{name}" for part, names in NAMES.items() for name in names
        ]
        assert data.labels.array.shape == (5, 20)
        assert data.multilabel
        present = [[CLASSES[c] for c in np.flatnonzero(row)] for row in data.labels.array]
        assert present == [
            ["horse", "person"],
            ["bottle"],
            [],
            ["dog"],
            ["dog"],
        ]  # difficult ones count as absent
        assert data.parts.tolist() == ["train"] * 3 + ["query"] * 2
        assert data.images[4].shape == (5, 7, 3)
    split = as_given(data, "voc2012", 0)
    assert split.query.tolist() == [3, 4]
    assert split.train.tolist() == split.database.tolist() == [0, 1, 2]


def test_the_official_sizes_are_required(tmp_path):
    with pytest.raises(
        DataError, match=r"must give query 5,823, train 5,717, database 5,717; .* query 2, train 3"
    ):
        make_split(read_voc2012(make(tmp_path)), "voc2012")
    parts = np.repeat(["train", "query"], [5_717, 5_823])
    pixels, labels = np.zeros((11_540, 1, 1, 3), np.uint8), np.ones((11_540, 20), np.int64)
    whole = LabelledImages(
        ArrayImages(pixels), np.arange(11_540).astype(str), labels, CLASSES, "voc2012", parts
    )
    assert np.array_equal(make_split(whole, "voc2012").query, np.arange(5_717, 11_540))


def test_damaged_files_are_named(tmp_path):
    with pytest.raises(
        DataError,
        match=r"voc2012 is not in .*JPEGImages and ImageSets/Main, from http.*--data-root",
    ):
        locate_voc2012(tmp_path)
    root = make(tmp_path / "VOC2012")
    (root / "JPEGImages" / "2008_000002.jpg").unlink()
    with pytest.raises(DataError, match=r"1 of 5 images are missing, for example 2008_000002.jpg"):
        read_voc2012(root)
    path = root / "ImageSets" / "Main" / "cat_val.txt"
    path.write_text("2008_000002 -1\n")
    with pytest.raises(
        DataError, match=r"cat_val.txt does not list the images that aeroplane_val.txt lists"
    ):
        read_voc2012(root)
    path.write_text("2008_000002 -1\n2010_000003 2\n")
    with pytest.raises(
        DataError, match=r"cat_val.txt line 2: expected an id and 1, 0 or -1, got '2010_000003 2'"
    ):
        read_voc2012(root)
    path.write_bytes(b"2008_000002 -1\n2010\xe9 1\n")
    with pytest.raises(
        DataError,
        match=r"cat_val.txt line 2: not UTF-8 \(byte 0xe9\)\. Download the data set again",
    ):
        read_voc2012(root)
    path.write_text("\n")
    with pytest.raises(DataError, match=r"cat_val.txt is empty"):
        read_voc2012(root)
    path.unlink()
    with pytest.raises(StorageError, match=r"cat_val.txt"):
        read_voc2012(root)
