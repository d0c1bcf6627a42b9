"""ImageNet and Tiny-ImageNet: every layout gives the same images, classes and splits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from make_images import encode, picture
from scipy.io import savemat

from hadahash.data import ArrayImages, LabelledImages, find_dataset, make_split, open_dataset
from hadahash.data.datasets.imagenet import (
    choose_classes,
    locate_imagenet100,
    locate_tinyimagenet100,
    read_wnids,
)
from hadahash.data.splits import train_on_some
from hadahash.errors import DataError

WNIDS = ("n01443537", "n02012849", "n03126707")
JPEG = encode(picture(4, 6), "JPEG")
IDS = [f"train/{wnid}/{wnid}_{i}.JPEG" for wnid in WNIDS for i in range(6)]
VALS = {f"ILSVRC2012_val_{n:08d}": wnid for n, wnid in enumerate((*WNIDS, *WNIDS), start=1)}
VAL_IDS = sorted(f"val/{wnid}/{name}.JPEG" for name, wnid in VALS.items())


def put(path: Path, content: bytes | str = JPEG) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


def train_images(root: Path, inner: str = "") -> None:
    for wnid in WNIDS:
        for i in range(6):
            put(root / "train" / wnid / inner / f"{wnid}_{i}.JPEG")


def flat_val(root: Path, inner: str = "") -> None:
    for name in VALS:
        put(root / "val" / inner / f"{name}.JPEG")


def class_folders(root: Path) -> Path:
    train_images(root)
    for name, wnid in VALS.items():
        put(root / "val" / wnid / f"{name}.JPEG")
    put(
        root / "words.txt",
        "n01443537\tgoldfish, Carassius auratus\nn02012849\tcrane\nn03126707\tcrane\nn9\tother\n",
    )
    return root


def publisher(root: Path) -> Path:
    """Tiny-ImageNet as its publisher packs it."""
    train_images(root, "images")
    for wnid in WNIDS:
        put(root / "train" / wnid / f"{wnid}_boxes.txt", "boxes")
    flat_val(root, "images")
    put(
        root / "val" / "val_annotations.txt",
        "".join(f"{name}.JPEG\t{wnid}\t0\t0\t9\t9\n" for name, wnid in VALS.items()),
    )
    return root


def kaggle(root: Path) -> Path:
    inner = root / "ILSVRC" / "Data" / "CLS-LOC"
    train_images(inner)
    flat_val(inner)
    rows = "".join(f"{name},{wnid} 1 2 3 4 {wnid} 5 6 7 8 \n" for name, wnid in VALS.items())
    put(root / "LOC_val_solution.csv", "ImageId,PredictionString\n" + rows)
    put(root / "LOC_synset_mapping.txt", "n01443537 goldfish, Carassius auratus\nn02012849 crane\n")
    return inner


def devkit(root: Path) -> Path:
    """The class numbers of the devkit are not in the order of the wnids."""
    train_images(root)
    flat_val(root)
    numbers = {"n01443537": 3, "n02012849": 1, "n03126707": 2}
    data = root / "ILSVRC2012_devkit_t12" / "data"
    put(
        data / "ILSVRC2012_validation_ground_truth.txt",
        "".join(f"{numbers[wnid]}\n" for wnid in VALS.values()),
    )
    kinds = [("ILSVRC2012_ID", "f8"), ("WNID", "O"), ("words", "O")]
    synsets = np.array([(number, wnid, "words") for wnid, number in numbers.items()], kinds)
    savemat(data / "meta.mat", {"synsets": synsets.reshape(-1, 1)})
    return root


@pytest.mark.parametrize("layout", [class_folders, publisher, kaggle, devkit])
def test_every_layout_gives_the_same_data(tmp_path, layout):
    data = read_wnids(layout(tmp_path), "imagenet100")
    assert data.ids.tolist() == IDS + VAL_IDS
    assert data.labels.array.tolist() == [0] * 6 + [1] * 6 + [2] * 6 + [0, 0, 1, 1, 2, 2]
    assert data.parts.tolist() == ["train"] * 18 + ["query"] * 6
    assert np.array_equal(data.images[20].shape, (4, 6, 3))
    assert not data.multilabel


def test_classes_have_names(tmp_path):
    assert read_wnids(class_folders(tmp_path / "a"), "x").classes == (
        "goldfish",
        "crane (n02012849)",
        "crane (n03126707)",
    )
    assert read_wnids(kaggle(tmp_path / "b"), "x").classes == ("goldfish", "crane", "n03126707")
    assert read_wnids(publisher(tmp_path / "c"), "x").classes == WNIDS


def test_classes_are_drawn_once_or_listed(tmp_path):
    wnids = [f"n{i:08d}" for i in range(200)]
    for wnid in wnids:
        (tmp_path / "train" / wnid).mkdir(parents=True)
    chosen = choose_classes(tmp_path)
    assert len(chosen) == len(set(chosen)) == 100
    assert chosen == sorted(chosen) == choose_classes(tmp_path)
    assert chosen[:5] == [
        "n00000001",
        "n00000002",
        "n00000003",
        "n00000008",
        "n00000011",
    ]  # for ever
    put(tmp_path / "classes.txt", "n00000007\nn00000002\n")
    assert choose_classes(tmp_path) == ["n00000002", "n00000007"]
    put(tmp_path / "classes.txt", "n00000007\nn5\n")
    with pytest.raises(DataError, match=r"classes.txt line 2: n5 has no folder in .*train"):
        choose_classes(tmp_path)


def test_only_the_chosen_classes_are_read(tmp_path):
    data = read_wnids(class_folders(tmp_path / "a"), "x", count=2)
    flat = read_wnids(publisher(tmp_path / "b"), "x", count=2)
    assert data.ids.tolist() == flat.ids.tolist()
    assert len(data) == 16
    assert len(data.classes) == 2


def test_it_is_found_in_the_cache_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HADAHASH_DATA", str(tmp_path / "cache"))
    with pytest.raises(
        DataError,
        match=r"tinyimagenet100 is not in .*cache.*train/<wnid>.*tiny-imagenet-200.zip.*--data-root",
    ):
        open_dataset("tinyimagenet100")
    with pytest.raises(DataError, match=r"imagenet100 is not in .*image-net.org"):
        open_dataset("imagenet100", tmp_path)
    publisher(tmp_path / "cache" / "tiny-imagenet-200")
    assert locate_tinyimagenet100() == tmp_path / "cache" / "tiny-imagenet-200"
    class_folders(tmp_path / "cache" / "tinyimagenet100")
    assert locate_tinyimagenet100() == tmp_path / "cache" / "tinyimagenet100"
    assert (
        locate_tinyimagenet100(tmp_path / "cache" / "tinyimagenet100")
        == tmp_path / "cache" / "tinyimagenet100"
    )
    inner = kaggle(tmp_path / "kaggle")
    assert locate_imagenet100(tmp_path / "kaggle") == locate_imagenet100(inner) == inner
    data = open_dataset("imagenet100", tmp_path / "kaggle")
    assert (data.name, len(data)) == ("imagenet100", 24)
    assert find_dataset("imagenet100").depth == find_dataset("tinyimagenet100").depth == 1_000


def test_missing_files_are_named(tmp_path):
    root = publisher(tmp_path / "a")
    (root / "val" / "val_annotations.txt").unlink()
    with pytest.raises(
        DataError,
        match=r"nor a file of classes \(val_annotations.txt, LOC_val_solution",
    ):
        read_wnids(root, "x")
    put(root / "val" / "val_annotations.txt", "ILSVRC2012_val_00000001.JPEG\tn01443537\n")
    with pytest.raises(
        DataError,
        match=r"no class for 5 images, for example ILSVRC2012_val_00000002.JPEG",
    ):
        read_wnids(root, "x")
    put(root / "val" / "val_annotations.txt", "ILSVRC2012_val_00000001.JPEG\n")
    with pytest.raises(
        DataError, match=r"val_annotations.txt line 1: expected an image and its class, got"
    ):
        read_wnids(root, "x")
    root = devkit(tmp_path / "b")
    meta = root / "ILSVRC2012_devkit_t12" / "data" / "meta.mat"
    meta.write_bytes(b"no matrix" * 50)
    with pytest.raises(DataError, match=r"meta.mat is damaged"):
        read_wnids(root, "x")
    meta.unlink()
    with pytest.raises(DataError, match=r"meta.mat, which is missing"):
        read_wnids(root, "x")
    root = devkit(tmp_path / "c")
    put(
        root / "ILSVRC2012_devkit_t12" / "data" / "ILSVRC2012_validation_ground_truth.txt", "3\n1\n"
    )
    with pytest.raises(DataError, match="2 lines and no class number for ILSVRC2012_val_00000003"):
        read_wnids(root, "x")


@pytest.mark.parametrize("name", ["classes.txt", "words.txt", "val/val_annotations.txt"])
def test_text_that_is_not_utf8_is_reported_with_its_line(tmp_path, name):
    root = publisher(tmp_path)
    put(root / name, f"{WNIDS[0]}\t{WNIDS[0]}\n\xe9\n".encode("latin-1"))
    with pytest.raises(DataError, match=rf"{name} line 2: not UTF-8 \(byte 0xe9\)"):
        read_wnids(root, "x")


def test_an_empty_list_of_classes_is_refused(tmp_path):
    root = publisher(tmp_path)
    put(root / "classes.txt", "\n")
    with pytest.raises(
        DataError, match=r"classes.txt is empty. Write one WordNet ID per line, or delete the file"
    ):
        read_wnids(root, "x")


def test_empty_folders_and_duplicates_are_named(tmp_path):
    root = class_folders(tmp_path)
    put(root / "train" / WNIDS[0] / "images" / f"{WNIDS[0]}_1.JPEG")
    with pytest.raises(
        DataError,
        match=f"1 images occur more than once, for example train/{WNIDS[0]}/{WNIDS[0]}_1.JPEG",
    ):
        read_wnids(root, "x")
    (root / "train" / "n00000001").mkdir()
    with pytest.raises(DataError, match="n00000001 contains no images"):
        read_wnids(root, "x")


def test_the_training_images_are_drawn_from_the_database(tmp_path):
    data = read_wnids(class_folders(tmp_path), "x")
    split = train_on_some(data, "x", 2, seed=0)
    assert split.sizes == {"query": 6, "train": 6, "database": 18}
    assert np.bincount(data.labels.array[split.train]).tolist() == [2, 2, 2]
    assert set(split.train) <= set(split.database)
    assert train_on_some(data, "x", 2, seed=0).sha256 == split.sha256
    assert not np.array_equal(train_on_some(data, "x", 2, seed=1).train, split.train)
    with pytest.raises(DataError, match="needs 7 images per class, but class 'goldfish' has 6"):
        train_on_some(data, "x", 7, seed=0)


def sized(train: int, val: int) -> LabelledImages:
    """A data set of the real size, without files."""
    labels = np.concatenate([np.repeat(np.arange(100), train), np.repeat(np.arange(100), val)])
    parts = np.repeat(["train", "query"], [100 * train, 100 * val])
    pixels = np.zeros((len(labels), 1, 1, 3), np.uint8)
    return LabelledImages(
        ArrayImages(pixels),
        np.arange(len(labels)).astype(str),
        labels,
        tuple(map(str, range(100))),
        parts=parts,
    )


def test_the_official_sizes_are_required():
    for train in (400, 500):
        split = make_split(sized(train, 50), "tinyimagenet100")
        assert tuple(split.sizes.values()) == (5_000, 10_000, 100 * train)
    assert tuple(make_split(sized(1_300, 50), "imagenet100").sizes.values()) == (
        5_000,
        10_000,
        130_000,
    )
    with pytest.raises(
        DataError,
        match=r"database 40,000 or query .*; this data set gives query 5,000, .* database 30,000",
    ):
        make_split(sized(300, 50), "tinyimagenet100")
    with pytest.raises(DataError, match=r"database 73,200 to 130,000; this .* database 50,000"):
        make_split(sized(500, 50), "imagenet100")  # Tiny-ImageNet is not ImageNet
    with pytest.raises(DataError, match="needs a data set with parts"):
        plain = sized(400, 50)
        make_split(
            LabelledImages(plain.images, plain.ids, plain.labels, plain.classes), "tinyimagenet100"
        )
