"""NUS-WIDE: its lists, the 21 most frequent concepts, and missing photographs."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
from make_images import encode, picture

from hadahash.data import (
    ArrayImages,
    LabelledImages,
    MissingImagesWarning,
    find_dataset,
    make_split,
    open_dataset,
)
from hadahash.data.datasets.nuswide import locate_nuswide21, read_lists, read_nuswide21
from hadahash.data.splits import Split
from hadahash.errors import DataError, StorageError

COUNT = 60
IDS = [f"c{i % 7}/{i:04d}_{i * 31}.jpg" for i in range(COUNT)]
CONCEPTS = [f"concept{c:02d}" for c in range(24)]


def truth() -> np.ndarray:
    """(60, 24): concepts 03, 07 and 11 are the rarest, and the last 20 images have no other."""
    labels = np.zeros((COUNT, 24), np.int64)
    for c in range(24):
        if c not in (3, 7, 11):
            labels[: 24 - c + 16, c] = 1
    labels[45, 3] = 1
    return labels


def column(values: np.ndarray) -> str:
    return "".join(f"{value}\r\n" for value in values)


def make(root: Path, *, halves: bool = False, photos: str = "Flickr") -> Path:
    labels = truth()
    (root / "ImageList").mkdir(parents=True)
    parts = {"Train": slice(0, 40), "Test": slice(40, COUNT)} if halves else {"": slice(0, COUNT)}
    folder = root / "Groundtruth" / ("TrainTestLabels" if halves else "AllLabels")
    folder.mkdir(parents=True)
    for part, rows in parts.items():
        names = [name.replace("/", "\\") for name in IDS[rows]]
        (root / "ImageList" / f"{part}Imagelist.txt").write_text("\n".join(names) + "\n")
        for c, concept in enumerate(CONCEPTS):
            (folder / f"Labels_{concept}{'_' * halves}{part}.txt").write_text(
                column(labels[rows, c])
            )
    for name in IDS:
        (root / photos / name).parent.mkdir(parents=True, exist_ok=True)
        (root / photos / name).write_bytes(encode(picture(4, 5), "JPEG"))
    return root


@pytest.mark.parametrize(("halves", "photos"), [(False, "Flickr"), (True, "images")])
def test_both_layouts_give_the_same_data(tmp_path, halves, photos):
    messages: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        data = open_dataset(
            "nuswide21", make(tmp_path, halves=halves, photos=photos), info=messages.append
        )
    assert data.classes == tuple(
        c for c in CONCEPTS if c not in ("concept03", "concept07", "concept11")
    )
    assert data.ids.tolist() == IDS[:40]
    kept = [c for c in range(24) if c not in (3, 7, 11)]
    assert np.array_equal(data.labels, truth()[:40][:, kept])
    assert data.images[39].shape == (4, 5, 3)
    assert "40 images have any of the concepts concept00, " in messages[0]
    assert "20 others are left out" in messages[0]
    assert find_dataset("nuswide21").depth == 5_000


def test_missing_photographs_are_counted_and_listed(tmp_path):
    root = make(tmp_path)
    for name in (IDS[3], IDS[17], IDS[50]):
        (root / "Flickr" / name).unlink()
    with pytest.warns(
        MissingImagesWarning,
        match=f"^2 of 40 images are not in .*, for example {IDS[3]}. They are left",
    ) as caught:
        data = read_nuswide21(root)
    assert caught[0].message.missing == (IDS[3], IDS[17])  # the other has none of the concepts
    assert data.ids.tolist() == [name for name in IDS[:40] if name not in (IDS[3], IDS[17])]
    assert np.array_equal(data.labels, read_lists(root).labels.array[np.isin(IDS[:40], data.ids)])


def test_damaged_files_are_named(tmp_path):
    with pytest.raises(
        DataError, match=r"nuswide21 is not in .*ImageList, Groundtruth and Flickr.*https"
    ):
        locate_nuswide21(tmp_path)
    root = make(tmp_path / "NUS-WIDE")
    assert locate_nuswide21(tmp_path) == root
    labels = root / "Groundtruth" / "AllLabels" / "Labels_concept05.txt"
    whole = labels.read_text()
    for wrong in (whole + "1\n", whole[:-3], whole.replace("1", "2", 1)):
        labels.write_text(wrong)
        with pytest.raises(
            DataError, match=r"Labels_concept05.txt must have 0 or 1 for each of the 60 images"
        ):
            read_lists(root)
    labels.unlink()
    with pytest.raises(DataError, match="23 concepts, 24 are needed"):
        read_lists(root, count=24)
    listed = root / "ImageList" / "Imagelist.txt"
    listed.write_text(f"{IDS[0]}\n{IDS[0]}\n")
    with pytest.raises(DataError, match=rf"Imagelist.txt line 2: {IDS[0]} is already in line 1"):
        read_lists(root)
    listed.write_text("\n")
    with pytest.raises(DataError, match=r"Imagelist.txt is empty"):
        read_lists(root)
    listed.unlink()
    with pytest.raises(StorageError, match=r"Imagelist.txt"):
        read_lists(root)
    for path in (root / "Groundtruth" / "AllLabels").iterdir():
        path.unlink()
    with pytest.raises(DataError, match="neither AllLabels nor TrainTestLabels"):
        read_lists(root)


def test_no_photographs_at_all(tmp_path):
    root = make(tmp_path)
    (root / "Flickr").rename(root / "other")
    with pytest.raises(DataError, match="no folder Flickr or images"):
        read_nuswide21(root)
    (root / "images").mkdir()
    with pytest.raises(DataError, match="None of the 40 listed images is in"):
        read_nuswide21(root)


def by_hand(labels: np.ndarray, seed: int) -> Split:
    """The draw of the paper, one image at a time: each class draws from the images that earlier
    classes left."""
    bits, taken, query, train = np.random.PCG64(seed), set(), [], []
    for c in range(labels.shape[1]):
        own = [i for i in range(len(labels)) if labels[i, c] and i not in taken]
        keys = [int(key) for key in bits.random_raw(len(own))]
        order = [i for _, i in sorted(zip(keys, own, strict=True))][:600]
        query += order[:100]
        train += order[100:]
        taken |= set(order)
    return Split(
        "nuswide21", seed, sorted(query), sorted(train), sorted(set(range(len(labels))) - taken)
    )


def test_the_protocol_draws_class_by_class():
    labels = (np.random.default_rng(0).random((20_000, 21)) < 0.15).astype(np.int64)
    images = ArrayImages(np.zeros((20_000, 1, 1, 3), np.uint8))
    data = LabelledImages(images, np.arange(20_000).astype(str), labels, tuple(map(str, range(21))))
    split = make_split(data, "nuswide21", seed=4)
    assert split.sizes == {"query": 2_100, "train": 10_500, "database": 7_400}
    assert split.sha256 == by_hand(labels, 4).sha256
    other = make_split(data, "nuswide21-all", seed=4)
    assert np.array_equal(other.query, split.query)
    assert np.array_equal(other.train, split.train)
    assert len(other.database) == 17_900
    with pytest.raises(DataError, match=r"needs 600 images per class, but class '\d+' has"):
        make_split(data.take(np.arange(10_000)), "nuswide21")
    fewer = LabelledImages(images, data.ids, labels[:, :5], data.classes[:5])
    with pytest.raises(
        DataError, match=r"must give query 2,100, train 10,500, .*gives query 500, train 2,500"
    ):
        make_split(fewer, "nuswide21")
