"""Data sets by name or by folder."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from make_images import encode, picture

from hadahash import data as rooms
from hadahash import list_datasets
from hadahash.data import DATASETS, find_dataset, make_split, open_dataset
from hadahash.errors import DataError, UsageError


def test_every_registered_data_set_names_a_protocol_that_exists():
    assert "cifar10" in list_datasets()
    for name in list_datasets():
        entry = DATASETS.get(name)
        assert entry.name == name
        assert entry.protocol in rooms.list_protocols()
        assert entry.depth is None or entry.depth > 0


def test_a_folder_is_a_data_set(tmp_path, monkeypatch):
    for name in ("cat/a.png", "cat/b.png", "dog/c.png", "dog/d.png"):
        (tmp_path / "photos" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "photos" / name).write_bytes(encode(picture(), "PNG"))
    monkeypatch.chdir(tmp_path)
    for spec in (tmp_path / "photos", str(tmp_path / "photos"), "photos", "./photos", "photos/"):
        data = open_dataset(spec)
        assert data.name == find_dataset(spec).name == "photos"
        assert data.ids.tolist() == ["cat/a.png", "cat/b.png", "dog/c.png", "dog/d.png"]
    split = make_split(data, find_dataset("photos").protocol)
    assert len(split.query) == 2


def test_a_registered_name_is_read_from_its_root(tmp_path):
    record = bytes(3_073)
    for name in [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]:
        (tmp_path / f"{name}.bin").write_bytes(record)
    with pytest.warns(rooms.ChangedDataWarning):
        data = open_dataset("cifar10", tmp_path)
    assert len(data) == 6
    assert isinstance(data.images, rooms.ArrayImages)
    assert data.images[0].shape == (32, 32, 3)
    assert np.array_equal(data.labels, np.zeros(6))


def test_unknown_names_are_refused(tmp_path):
    with pytest.raises(
        UsageError, match=r"Unknown data set or folder 'cifar'. Did you mean 'cifar10'"
    ):
        open_dataset("cifar")
    with pytest.raises(DataError, match="No such file"):
        open_dataset(str(tmp_path / "missing"))
    with pytest.raises(DataError, match="CIFAR-10 is not in"):
        open_dataset("cifar10", tmp_path, download=False)


def test_reading_data_needs_no_torch():
    script = "import sys, hadahash.data; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], timeout=60).returncode == 0


def test_digit_pairs_have_both_digits_and_their_labels():
    digits, pairs = open_dataset("digits"), open_dataset("digit-pairs")
    assert (
        pairs.multilabel and len(pairs) == len(digits) // 2 and pairs.images[0].shape == (16, 16, 3)
    )
    for number in (0, 7, len(pairs) - 1):
        assert np.array_equal(pairs.images[number][:8, :8], digits.images[2 * number])
        assert np.array_equal(pairs.images[number][8:, 8:], digits.images[2 * number + 1])
        assert set(np.flatnonzero(pairs.labels.array[number])) == set(
            digits.labels.array[2 * number : 2 * number + 2]
        )
