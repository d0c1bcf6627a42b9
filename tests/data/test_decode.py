"""Decoding: in order, damaged images listed, and at most two batches ahead."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

import numpy as np
import pytest
from toys import make_toy

from hadahash.data import ArrayImages
from hadahash.data.decode import decode, to_skipped
from hadahash.data.preprocess import Preprocess
from hadahash.errors import CorruptImage

PREPROCESS = Preprocess(side=8, size=8, crop=1.0)


@dataclass
class Numbered:
    """Images filled with their index, some of them damaged; counts reads."""

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
    parts = list(decode(Numbered(count, slow=0.0005), PREPROCESS, batch_size=8, workers=4))
    rows = np.concatenate([part.rows for part in parts]) if parts else np.empty(0)
    assert rows.tolist() == list(range(count))
    for part in parts:
        assert len(part.rows) <= 8 and part.failed == []
        assert part.pixels.shape == (len(part.rows), 3, 8, 8) and part.pixels.dtype == np.uint8
        assert (part.pixels == (part.rows % 251)[:, None, None, None]).all()


def test_damaged_images_are_skipped_and_listed():
    bad = frozenset({0, 5, 6, 7, 15, 16, 29})
    parts = list(decode(Numbered(30, bad), PREPROCESS, batch_size=8, workers=3))
    rows = np.concatenate([part.rows for part in parts])
    assert rows.tolist() == [i for i in range(30) if i not in bad]
    assert all((part.pixels[:, 0, 0, 0] == part.rows).all() for part in parts)
    failed = [row for part in parts for row in part.failed]
    assert failed == [(i, f"broken {i}") for i in sorted(bad)]
    ids = np.array([f"image-{i}" for i in range(30)])
    assert to_skipped(failed, ids)[1] == ("image-5", "broken 5")


def test_a_batch_of_damaged_images_is_empty():
    parts = list(decode(Numbered(6, frozenset({2, 3})), PREPROCESS, batch_size=2))
    assert [len(part.rows) for part in parts] == [2, 0, 2]
    assert parts[1].pixels.shape == (0, 3, 8, 8) and parts[1].rows.dtype == np.int64


def test_at_most_two_batches_are_decoded_ahead():
    images, batch = Numbered(1000), 10
    for number, _part in enumerate(decode(images, PREPROCESS, batch_size=batch, workers=8)):
        time.sleep(0.01)  # time enough to run far ahead
        assert len(images.read) <= (number + 3) * batch
        if number == 5:
            assert len(images.read) > (number + 1) * batch, "nothing is decoded ahead"
            break
    time.sleep(0.05)
    assert len(images.read) <= 8 * batch, "decoding continues after the generator was closed"


def test_other_errors_are_not_swallowed():
    class Broken(Numbered):
        def __getitem__(self, index):
            raise RuntimeError("a bug")

    with pytest.raises(RuntimeError, match="a bug"):
        list(decode(Broken(3), PREPROCESS, batch_size=2))


def test_arrays_of_the_right_size_are_sliced():
    pixels, _ = make_toy(20, seed=0, side=8)
    short = list(decode(ArrayImages(pixels), PREPROCESS, batch_size=8))
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

    long = list(decode(Plain(20), PREPROCESS, batch_size=8))
    assert all(np.array_equal(a.pixels, b.pixels) for a, b in zip(short, long, strict=True))
