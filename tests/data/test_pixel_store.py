"""The store of decoded training images: order, memory, disk space, and reading ahead."""

from __future__ import annotations

import errno
import os
import threading
import time

import numpy as np
import pytest
import torch
from toys import make_toy, one_line, write_folder

from hadahash.data import as_labelled, pixel_store, read_folder, spool
from hadahash.data.memory import available_memory
from hadahash.data.pixel_store import PixelStore
from hadahash.data.prefetch import Prefetcher
from hadahash.data.preprocess import Preprocess
from hadahash.errors import StorageError

PREPROCESS = Preprocess(side=32, size=32, train_size=32, crop=1.0)


@pytest.fixture
def data():
    return as_labelled(*make_toy(8, seed=0))


def test_pixels_are_stored_in_order_without_the_damaged_ones(tmp_path):
    pixels, labels = make_toy(24, seed=0)
    folder = write_folder(tmp_path / "photos", pixels, labels)
    (folder / "green" / "005.png").write_bytes(b"not an image")
    data = read_folder(folder)
    store = PixelStore.build(data, PREPROCESS)
    assert [name.path for name in store.skipped] == ["green/005.png"]
    kept = [name for name in data.ids if name != "green/005.png"]
    assert data.ids[store.kept].tolist() == kept
    for square, name in zip(store.pixels, kept, strict=True):
        number = int(name.split("/")[1].removesuffix(".png"))
        assert np.array_equal(square.numpy().transpose(1, 2, 0), pixels[number])


def test_a_store_without_images_is_empty():
    store = PixelStore.build(as_labelled([], []), PREPROCESS)
    assert store.pixels.shape == (0, 3, 32, 32)
    assert len(store.kept) == 0


def test_a_store_beyond_the_memory_limit_is_a_file_without_a_name(tmp_path, data):
    caught: list[str] = []
    folder = tmp_path / "run"
    store = PixelStore.build(data, PREPROCESS, folder=folder, info=caught.append, memory_limit=100)
    small = PixelStore.build(data, PREPROCESS, info=caught.append)
    assert not store.in_memory
    assert small.in_memory
    assert torch.equal(store.pixels, small.pixels)
    assert list(folder.iterdir()) == []
    assert caught == [f"Storing 8 images of 32 px: 0.0 MB in {folder}."]


def test_the_default_location_of_the_file_is_the_cache_folder(tmp_path, monkeypatch, data):
    monkeypatch.setenv("HADAHASH_DATA", str(tmp_path / "cache"))
    caught: list[str] = []
    PixelStore.build(data, PREPROCESS, info=caught.append, memory_limit=0)
    assert caught[0].endswith(f"in {tmp_path / 'cache'}.")


def test_the_size_is_stated_before_the_disk_is_touched(tmp_path, monkeypatch, data):
    caught: list[str] = []

    def full(handle, offset, size):
        assert caught, "the size must be stated first"
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(StorageError, match="The disk is full") as error:
        PixelStore.build(data, PREPROCESS, folder=tmp_path, info=caught.append, memory_limit=0)
    assert "MB of decoded images" in one_line(error.value)
    assert list(tmp_path.iterdir()) == []


def test_the_space_of_the_file_is_reserved_before_it_is_filled(tmp_path):
    before = os.statvfs(tmp_path)
    array = spool.allocate_file(tmp_path, (64, 1 << 20), np.uint8, "pixels")
    after = os.statvfs(tmp_path)
    taken = (before.f_bfree - after.f_bfree) * before.f_frsize
    assert taken > 48 << 20, "a sparse file would take nothing yet"
    del array


def test_a_folder_that_cannot_be_written_is_a_one_line_error(tmp_path, data):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError) as error:
        PixelStore.build(data, PREPROCESS, folder=tmp_path / "file" / "x", memory_limit=0)
    one_line(error.value)


def test_the_memory_limit_follows_the_machine(monkeypatch, tmp_path, data):
    assert 1 << 20 < available_memory() < 1 << 50
    size = 8 * 3 * 32 * 32
    for available, in_memory in ((2 * size, True), (2 * size - 2, False)):
        monkeypatch.setattr(pixel_store, "available_memory", lambda amount=available: amount)
        assert PixelStore.build(data, PREPROCESS, folder=tmp_path).in_memory == in_memory


def test_one_item_is_read_ahead_and_no_more():
    started: list[int] = []

    def read(key):
        started.append(key)
        return key

    items = iter(Prefetcher(read, range(100)))
    assert next(items) == 0
    deadline = time.monotonic() + 5
    while len(started) < 2 and time.monotonic() < deadline:
        time.sleep(0.001)
    time.sleep(0.02)
    assert started == [0, 1]
    assert list(items) == list(range(1, 100))


def test_reading_is_done_in_another_thread_that_ends_with_the_loop():
    names = set()

    def read(key):
        names.add(threading.current_thread().name)
        return key

    for key in Prefetcher(read, iter(range(10**9))):
        if key == 3:
            break
    assert names
    assert threading.current_thread().name not in names
    assert not [t for t in threading.enumerate() if t.name in names]


def test_an_error_is_raised_where_its_item_is_due():
    def read(key):
        if key == 2:
            raise OSError("gone")
        return key

    items = iter(Prefetcher(read, [0, 1, 2, 3]))
    assert [next(items), next(items)] == [0, 1]
    with pytest.raises(OSError, match="gone"):
        next(items)
