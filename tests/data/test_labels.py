"""Labels in memory proportional to their number, and the dense targets of one batch."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import torch

from hadahash.data import Labels
from hadahash.errors import UsageError

SINGLE = np.array([2, 0, 1, 2, 2])
MULTI = np.array([[1, 0, 1, 0], [0, 0, 0, 0], [0, 1, 0, 0], [1, 1, 1, 0]])


@pytest.mark.parametrize("array", [SINGLE, MULTI, MULTI.astype(bool), MULTI.astype(np.uint8)])
def test_arrays_survive_the_round_trip(array):
    labels = Labels.from_array(array)
    assert len(labels) == len(array)
    assert labels.multilabel == (array.ndim == 2)
    assert labels.count == (3 if array.ndim == 1 else 4)
    assert np.array_equal(labels.array, array)
    assert np.array_equal(np.asarray(labels), array)
    assert Labels.from_array(labels) is labels


@pytest.mark.parametrize("array", [SINGLE, MULTI])
@pytest.mark.parametrize("rows", [[3, 0, 0], [], [-1, 1], np.array([True, False, True, False])])
def test_taking_rows_equals_indexing_the_array(array, rows):
    array = array[:4]
    labels = Labels.from_array(array, None if array.ndim == 2 else 3)
    taken = labels.take(rows)
    index = np.asarray(rows, bool if isinstance(rows, np.ndarray) else np.int64)
    assert np.array_equal(taken.array, array[index])
    assert taken.count == labels.count


@pytest.mark.parametrize("array", [SINGLE, MULTI])
def test_targets_are_the_dense_rows(array):
    labels = Labels.from_array(array)
    dense = np.eye(3)[array] if array.ndim == 1 else array
    for rows in (np.array([3, 1, 1]), torch.tensor([3, 1, 1])):
        targets = labels.targets(rows, "cpu")
        assert targets.dtype == torch.float32
        assert np.array_equal(targets.numpy(), dense[[3, 1, 1]])
    assert labels.targets([]).shape == (0, labels.count)


@pytest.mark.parametrize("array", [SINGLE, MULTI])
def test_classes_and_their_images(array):
    labels = Labels.from_array(array)
    dense = np.eye(3, dtype=int)[array] if array.ndim == 1 else array
    assert labels.class_counts().tolist() == dense.sum(axis=0).tolist()
    for row in range(-1, len(array)):
        assert labels.classes_of(row).tolist() == np.flatnonzero(dense[row]).tolist()
    for group, column in zip(labels.rows_by_class(), dense.T, strict=True):
        assert group.tolist() == np.flatnonzero(column).tolist()
    assert labels.has([0, 2]).tolist() == dense[:, [0, 2]].any(axis=1).tolist()
    assert labels.has(1).tolist() == dense[:, 1].astype(bool).tolist()


@pytest.mark.parametrize("array", [SINGLE, MULTI])
def test_rows_out_of_range_are_an_error(array):
    with pytest.raises(IndexError):
        Labels.from_array(array).take([len(array)])


def test_lists_are_sorted_and_repeated_classes_count_once():
    labels = Labels.from_lists([(2, 0, 2), (), (1,)], 3)
    assert labels.multilabel
    assert labels.array.tolist() == [[1, 0, 1], [0, 0, 0], [0, 1, 0]]
    assert Labels.from_lists([], 3).array.shape == (0, 3)


def test_digests_tell_different_labels_apart():
    variants = [
        Labels.from_array([0, 1]),
        Labels.from_array([1, 0]),
        Labels.from_array([0, 1], 3),
        Labels.from_array([[1, 0], [0, 1]]),
        Labels.from_array([[1, 1], [0, 0]]),
        Labels.from_array([[1, 0], [0, 1], [0, 0]]),
    ]
    assert len({labels.digest() for labels in variants}) == len(variants)
    assert Labels.from_array([0, 1]).digest() == Labels.from_array(np.array([0, 1], "u1")).digest()


@pytest.mark.parametrize(
    ("array", "count", "message"),
    [
        ([0.5, 1.0], None, "labels must be class numbers"),
        (["a"], None, "labels must be class numbers"),
        (np.zeros((1, 1, 1), int), None, r"got int64 \(1, 1, 1\)"),
        ([[0, 2]], None, "must be 0 or 1"),
        ([0, -1], None, "Class numbers must be 0 to 0, got -1"),
        ([0, 3], 3, "Class numbers must be 0 to 2, got 3"),
        ([[0, 1]], 3, "2 columns for 3 classes"),
    ],
)
def test_wrong_arrays_are_refused(array, count, message):
    with pytest.raises(UsageError, match=message):
        Labels.from_array(array, count)


def test_many_classes_cost_no_more_memory_than_few():
    images, classes = 50_000, 20_000
    numbers = np.random.default_rng(0).integers(classes, size=(images, 2)).tolist()
    tracemalloc.start()
    labels = Labels.from_lists(numbers, classes)
    labels = labels.take(np.arange(images))
    labels.targets(np.arange(8))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40 << 20  # dense uint8 would take 954 MiB
