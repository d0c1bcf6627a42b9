"""Decoding: everything in order, bad images named and left out, and only a few batches ahead of the reader."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

import numpy as np
import pytest
from toys import make_toy, write_folder

from hadahash.data import ArrayImages, FileImages, LabelledImages
from hadahash.data.decode import decode, name_failures
from hadahash.data.preprocess import Preprocess
from hadahash.data.sources import open_source, read_collection
from hadahash.errors import CorruptImage, DataError, UsageError

PREPROCESS = Preprocess(side=8, size=8, crop=1.0)


@dataclass
class Numbered:
    """Images that show their own number, some of them broken; counts what is read."""

    count: int
    bad: frozenset[int] = frozenset()
    slow: float = 0.0
    read: list[int] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        with self.lock:
            self.read.append(index)
        if self.slow:
            time.sleep(self.slow * (index % 3))
        if index in self.bad:
            raise CorruptImage(f"{index}.jpg", f"broken {index}")
        return np.full((10, 12, 3), index % 251, np.uint8)


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 100])
def test_all_images_come_in_order(count):
    parts = list(decode(Numbered(count, slow=0.0005), PREPROCESS, batch=8, workers=4))
    rows = np.concatenate([part.rows for part in parts]) if parts else np.empty(0)
    assert rows.tolist() == list(range(count))
    for part in parts:
        assert len(part.rows) <= 8 and part.failed == []
        assert part.pixels.shape == (len(part.rows), 3, 8, 8) and part.pixels.dtype == np.uint8
        assert (part.pixels == (part.rows % 251)[:, None, None, None]).all()


def test_bad_images_are_left_out_and_named():
    bad = frozenset({0, 5, 6, 7, 15, 16, 29})
    parts = list(decode(Numbered(30, bad), PREPROCESS, batch=8, workers=3))
    rows = np.concatenate([part.rows for part in parts])
    assert rows.tolist() == [i for i in range(30) if i not in bad]
    assert all((part.pixels[:, 0, 0, 0] == part.rows).all() for part in parts)
    failed = [row for part in parts for row in part.failed]
    assert failed == [(i, f"broken {i}") for i in sorted(bad)]
    ids = np.array([f"image-{i}" for i in range(30)])
    assert name_failures(failed, ids)[1] == ("image-5", "broken 5")


def test_a_batch_of_bad_images_only_is_empty_but_there():
    parts = list(decode(Numbered(6, frozenset({2, 3})), PREPROCESS, batch=2))
    assert [len(part.rows) for part in parts] == [2, 0, 2]
    assert parts[1].pixels.shape == (0, 3, 8, 8) and parts[1].rows.dtype == np.int64


def test_at_most_two_batches_are_decoded_ahead():
    images, batch = Numbered(1000), 10
    for number, _part in enumerate(decode(images, PREPROCESS, batch=batch, workers=8)):
        time.sleep(0.01)  # time enough to run far ahead
        assert len(images.read) <= (number + 3) * batch
        if number == 5:
            assert len(images.read) > (number + 1) * batch, "nothing is decoded ahead"
            break
    time.sleep(0.05)
    assert len(images.read) <= 8 * batch, "decoding goes on after the reader has gone"


def test_an_error_that_is_not_an_images_own_is_not_swallowed():
    class Broken(Numbered):
        def __getitem__(self, index):
            raise RuntimeError("a bug")

    with pytest.raises(RuntimeError, match="a bug"):
        list(decode(Broken(3), PREPROCESS, batch=2))


def test_pixels_of_the_right_size_are_only_sliced_and_equal_the_long_way():
    pixels, _ = make_toy(20, seed=0, side=8)
    short = list(decode(ArrayImages(pixels), PREPROCESS, batch=8))
    assert [part.rows.tolist() for part in short] == [
        list(range(8)),
        list(range(8, 16)),
        list(range(16, 20)),
    ]
    assert np.array_equal(
        np.concatenate([part.pixels for part in short]), pixels.transpose(0, 3, 1, 2)
    )

    class Plain(Numbered):
        def __getitem__(self, index):
            return pixels[index]

    long = list(decode(Plain(20), PREPROCESS, batch=8))
    assert all(np.array_equal(a.pixels, b.pixels) for a, b in zip(short, long, strict=True))


# ---------------------------------------------------------------------- whatever a caller holds, as images


def test_sources_and_their_ids(tmp_path):
    pixels, labels = make_toy(8, seed=0)
    folder = write_folder(tmp_path / "photos", pixels, labels)
    images, ids = open_source(folder)
    assert len(images) == 8 and ids[0] == "blue/000.png"
    images, ids = open_source(str(folder / "red" / "002.png"))
    assert ids.tolist() == ["002.png"] and np.array_equal(images[0], pixels[2])
    paths = [folder / "red" / "006.png", folder / "blue" / "000.png"]
    images, ids = open_source(paths)
    assert ids.tolist() == [str(path) for path in paths] and np.array_equal(images[1], pixels[0])
    images, ids = open_source(pixels)
    assert ids.tolist() == list(range(8)) and isinstance(images, ArrayImages)
    labelled = LabelledImages(FileImages(paths), np.array(["b", "a"]), np.array([0, 1]), ("x", "y"))
    assert open_source(labelled)[1] is labelled.ids
    assert len(open_source([])[0]) == 0


@pytest.mark.parametrize(
    "source",
    [
        None,
        5,
        np.zeros((2, 8, 8, 3)),
        np.zeros((2, 8, 8), np.uint8),
        np.zeros((2, 3, 8, 8), np.uint8),
        [np.zeros(3)],
    ],
)
def test_what_is_no_source_is_refused(source):
    with pytest.raises(
        UsageError, match="Give an image file, a folder, a list of files, or uint8 pixels"
    ):
        open_source(source)


def test_a_missing_path_is_refused(tmp_path):
    with pytest.raises(DataError, match="No such file"):
        open_source(tmp_path / "nowhere")


def test_labels_become_numbers_and_names():
    pixels, _ = make_toy(4, seed=0)
    single = read_collection(pixels, ["cat", "dog", "ant", "cat"])
    assert (
        single.classes == ("ant", "cat", "dog")
        and single.labels.tolist() == [1, 2, 0, 1]
        and not single.multilabel
    )
    several = read_collection(pixels, [[1, 0, 1], [0, 1, 1], [1, 1, 0], [0, 0, 0]])
    assert (
        several.classes == ("0", "1", "2")
        and several.multilabel
        and several.labels.dtype == np.int64
    )
    assert read_collection(single) is single


def test_wrong_labels_are_refused():
    pixels, _ = make_toy(4, seed=0)
    with pytest.raises(UsageError, match="need labels"):
        read_collection(pixels)
    with pytest.raises(UsageError, match=r"4 images need 4 labels .* got \(3,\)"):
        read_collection(pixels, [0, 1, 0])
    with pytest.raises(UsageError, match=r"got \(4, 1, 1\)"):
        read_collection(pixels, np.zeros((4, 1, 1), int))
    with pytest.raises(UsageError, match="0 and 1"):
        read_collection(pixels, np.array([[0, 2], [1, 0], [1, 1], [0, 1]]))
