"""Splits: sizes, disjoint parts, and indices that depend only on the seed and never change."""

from __future__ import annotations

import json
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hadahash.data import ArrayImages, LabelledImages
from hadahash.data.splits import Split, list_protocols, make_split, validation_split
from hadahash.errors import DataError, NewerFileError, StorageError, UsageError


def labelled(labels: np.ndarray, classes: int, *, tests: int = 0) -> LabelledImages:
    count = len(labels)
    ids = [f"train/{i:05d}" for i in range(count - tests)] + [f"test/{i:05d}" for i in range(tests)]
    names = tuple(f"class {c}" for c in range(classes))
    return LabelledImages(
        ArrayImages(np.zeros((count, 1, 1, 3), np.uint8)),
        np.array(ids),
        labels.astype(np.int64),
        names,
    )


@pytest.fixture(scope="module")
def cifar() -> LabelledImages:
    """Labels of the official sizes: 5,000 training and 1,000 test images per class."""
    random = np.random.default_rng(0)
    train, test = np.repeat(np.arange(10), 5_000), np.repeat(np.arange(10), 1_000)
    return labelled(
        np.concatenate([random.permutation(train), random.permutation(test)]), 10, tests=10_000
    )


SIZES = {
    "cifar10": (1_000, 5_000, 54_000),
    "cifar10-59k": (1_000, 5_000, 59_000),
    "cifar10-full": (10_000, 50_000, 50_000),
}


@pytest.mark.parametrize("name", SIZES)
def test_cifar10_protocols_have_their_sizes(cifar, name):
    split = make_split(cifar, name, seed=3)
    assert (len(split.query), len(split.train), len(split.database)) == SIZES[name]
    assert (split.name, split.seed) == (name, 3)
    for part in (split.query, split.train, split.database):
        assert part.dtype == np.int64
        assert (np.diff(part) > 0).all()
        assert (
            len(set(np.bincount(cifar.labels.array[part]).tolist())) == 1
        )  # as many of each class
    assert not set(split.query.tolist()) & set(split.train.tolist())
    assert not set(split.query.tolist()) & set(split.database.tolist())


def test_how_the_protocols_differ(cifar):
    paper, larger, full = (make_split(cifar, name, seed=1) for name in SIZES)
    assert np.array_equal(paper.query, larger.query)
    assert np.array_equal(paper.train, larger.train)
    assert not set(paper.train.tolist()) & set(paper.database.tolist())
    assert set(larger.database.tolist()) == set(range(60_000)) - set(paper.query.tolist())
    assert np.array_equal(full.query, np.arange(50_000, 60_000))
    assert np.array_equal(full.train, full.database)


def test_the_seed_alone_decides(cifar):
    one, same, other = (make_split(cifar, "cifar10", seed=seed) for seed in (0, 0, 1))
    assert np.array_equal(one.query, same.query)
    assert one.sha256 == same.sha256
    assert one.sha256 != other.sha256
    assert not np.array_equal(one.query, other.query)
    assert len({make_split(cifar, name).sha256 for name in SIZES}) == 3


def test_splits_never_change():
    """If this fails, splits of earlier versions cannot be reproduced: keep the numbers."""
    split = make_split(labelled(np.arange(40) % 2, 2), "holdout", seed=7)
    assert split.query.tolist() == [6, 12, 25, 35]
    assert split.sha256 == "b9fab937d9c2ded70c2773ef2dc1f1780ffdc2a5fc8e30a88341f849fb790778"


def test_wrong_sizes_are_named(cifar):
    with pytest.raises(DataError, match=r"needs 600 images per class, but class 'class 9' has 300"):
        make_split(labelled(np.repeat(np.arange(10), [1_000] * 9 + [300]), 10), "cifar10")
    with pytest.raises(
        DataError, match=r"must give query 1,000, train 5,000, database 54,000; .* database 1,000"
    ):
        make_split(labelled(np.repeat(np.arange(10), 700), 10), "cifar10")
    with pytest.raises(DataError, match=r"query 10,000.*gives query 0, train 60,000"):
        make_split(labelled(cifar.labels.array, 10), "cifar10-full")
    with pytest.raises(DataError, match="needs single-label data"):
        make_split(labelled(np.ones((20, 3)), 3), "cifar10")
    with pytest.raises(UsageError, match="Did you mean 'cifar10'"):
        make_split(cifar, "cifar1")


def test_holdout_takes_a_tenth_of_each_class_at_least_one():
    data = labelled(np.repeat(np.arange(3), [2, 30, 104]), 3)
    split = make_split(data, "holdout")
    assert np.bincount(data.labels.array[split.query]).tolist() == [1, 3, 10]
    assert np.array_equal(split.train, split.database)
    assert sorted([*split.query, *split.database]) == list(range(136))
    assert make_split(labelled(np.array([0, 0, 1]), 2), "holdout").database.tolist()[-1] == 2
    with pytest.raises(DataError, match="None of the 2 classes has 2 images"):
        make_split(labelled(np.array([0, 1]), 2), "holdout")


@pytest.mark.parametrize("several", [False, True])
def test_unseen_classes_are_never_trained_on(several):
    labels = np.arange(400) % 8
    data = labelled(np.eye(8, dtype=np.int64)[labels] if several else labels, 8)
    split = make_split(data, "unseen", seed=3)
    seen, unseen = set(labels[split.train]), set(labels[split.database])
    assert (
        (len(seen), len(unseen)) == (6, 2)
        and not seen & unseen
        and set(labels[split.query]) == unseen
    )
    assert (len(split.query), len(split.train), len(split.database)) == (10, 300, 90)
    assert set(labels[make_split(data, "unseen", seed=4).database]) != unseen, (
        "the seed draws the classes"
    )


def test_unseen_needs_classes_and_images():
    with pytest.raises(DataError, match="at least 4 classes, got 3"):
        make_split(labelled(np.arange(30) % 3, 3), "unseen")
    with pytest.raises(DataError, match="None of the 2 held-out classes has 2 images"):
        make_split(labelled(np.arange(8), 8), "unseen")


def test_holdout_of_multi_label_data_is_random():
    data = labelled(np.random.default_rng(0).integers(0, 2, (200, 5)), 5)
    split = make_split(data, "holdout", seed=2)
    assert split.sizes == {"query": 20, "train": 180, "database": 180}


@given(
    counts=st.lists(st.integers(1, 30), min_size=1, max_size=6),
    fraction=st.floats(0, 0.9),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=60, deadline=None)
def test_validation_comes_from_the_training_images_only(counts, fraction, seed):
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(len(counts)), counts))
    everything = np.concatenate([labels, labels])  # the second half is not for training
    train = np.arange(len(labels))
    rest, held = validation_split(train, everything, fraction=fraction, seed=seed)
    assert sorted([*rest, *held]) == train.tolist()
    for label, count in enumerate(counts):
        got = int((everything[held] == label).sum())
        assert got == (0 if fraction == 0 else min(count - 1, max(1, round(fraction * count))))
    again = validation_split(train, everything, fraction=fraction, seed=seed)
    assert np.array_equal(held, again[1])


def test_validation_of_multi_label_data_and_wrong_fractions():
    rest, held = validation_split(np.arange(10, 60), np.ones((100, 4)), fraction=0.2, seed=0)
    assert len(held) == 10
    assert sorted([*rest, *held]) == list(range(10, 60))
    for fraction in (-0.1, 1.0, float("nan")):
        with pytest.raises(UsageError, match="fraction"):
            validation_split(np.arange(10), np.zeros(10), fraction=fraction, seed=0)


def test_a_split_survives_saving_and_loading(cifar, tmp_path):
    split = make_split(cifar, "cifar10", seed=5)
    path = tmp_path / "split.json"
    split.save(path)
    back = Split.load(path)
    for part in ("query", "train", "database"):
        assert np.array_equal(getattr(back, part), getattr(split, part))
    assert (back.name, back.seed, back.sha256) == ("cifar10", 5, split.sha256)
    first = path.read_bytes()
    split.save(path)
    assert path.read_bytes() == first
    assert len(first) < 500_000


def test_a_damaged_split_is_refused(cifar, tmp_path):
    split = make_split(cifar, "cifar10")
    path = tmp_path / "split.json"
    split.save(path)
    whole = path.read_bytes()
    for cut in (0, 10, len(whole) // 2, len(whole) - 2):
        path.write_bytes(whole[:cut])
        with pytest.raises(StorageError):
            Split.load(path)
    random = np.random.default_rng(0)
    for _ in range(60):
        flipped = bytearray(whole)
        flipped[random.integers(0, len(whole))] ^= 1 << int(random.integers(0, 8))
        path.write_bytes(bytes(flipped))
        with suppress(StorageError):
            assert Split.load(path).sha256 == split.sha256  # a byte that does not matter
    with pytest.raises(StorageError, match="No such file"):
        Split.load(tmp_path / "missing.json")


def save_by_hand(path, split: Split, **changes) -> None:
    header = {"format": 1, "name": split.name, "seed": split.seed, "sha256": split.sha256} | changes
    parts = {part: getattr(split, part).tolist() for part in ("query", "train", "database")}
    path.write_text(json.dumps(header | parts))


def test_a_changed_or_newer_split_is_refused(tmp_path):
    split = Split("x", 0, np.array([0]), np.array([1]), np.array([2]))
    save_by_hand(tmp_path / "a.json", split)
    assert Split.load(tmp_path / "a.json").sha256 == split.sha256
    save_by_hand(tmp_path / "b.json", split, seed=1)
    with pytest.raises(StorageError, match="sha256"):
        Split.load(tmp_path / "b.json")
    save_by_hand(tmp_path / "c.json", split, format=2)
    with pytest.raises(NewerFileError, match="later version"):
        Split.load(tmp_path / "c.json")


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (([0, 1], [1, 2], [3]), "1 images are both in query and in train"),
        (([0, 1], [2], [1, 0]), "2 images are both in query and in database"),
        (([0, 0], [2], [1]), "query part .* different indices"),
        (([0], [-1], [1]), "train part"),
        (([0], [1], [[2]]), "database part"),
    ],
)
def test_a_file_without_a_split_is_refused(parts, message):
    with pytest.raises(DataError, match=message):
        Split("mine", 0, *map(np.array, parts))


def test_the_protocols_are_known_by_name():
    assert set(list_protocols()) >= {"cifar10", "cifar10-59k", "cifar10-full", "holdout"}
