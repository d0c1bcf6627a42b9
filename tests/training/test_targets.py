"""Targets are made per batch, in memory proportional to the number of labels."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import torch

from hadahash.data.labels import Labels
from hadahash.training import TrainingSet
from hadahash.training.targets import BatchTargets


@pytest.mark.parametrize("multilabel", [False, True])
def test_the_targets_of_a_batch_are_those_of_its_labels(multilabel):
    rng = np.random.default_rng(0)
    if multilabel:
        labels = Labels.from_array(rng.random((50, 7)) < 0.2)
        assert (np.diff(labels.indptr) == 0).any(), "some images have no label"
    else:
        labels = Labels.from_array(rng.integers(0, 7, 50), 7)
    make = BatchTargets(labels, torch.device("cpu"))
    for rows in (torch.arange(50), torch.tensor([3, 3, 49, 0]), torch.tensor([], dtype=torch.long)):
        targets = make(rows)
        assert torch.equal(targets, labels.targets(rows, torch.device("cpu")))
        assert targets.dtype == torch.float32 and targets.shape == (len(rows), 7)


def test_labels_without_any_class_have_empty_targets():
    labels = Labels.from_lists([[], []], 3)
    targets = BatchTargets(labels, torch.device("cpu"))(torch.arange(2))
    assert torch.equal(targets, torch.zeros(2, 3))


@pytest.mark.parametrize("multilabel", [False, True])
def test_memory_does_not_grow_with_images_times_classes(multilabel):
    """20,000 images of 5,000 classes: as one-hot floats 400 MB, as numbers 160 kB."""
    numbers = np.arange(20_000) % 5_000
    labels = (
        Labels.from_lists([[number, (number + 1) % 5_000] for number in numbers], 5_000)
        if multilabel
        else Labels.from_array(numbers, 5_000)
    )
    tracemalloc.start()
    data = TrainingSet(torch.zeros(20_000, 1), labels)
    inputs, targets, _, _ = data.batch(torch.zeros(8, 1), torch.arange(8), torch.zeros(8, 8))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert targets.shape == (8, 5_000) and len(inputs) == 8
    held = sum(value.nbytes for value in vars(data.targets).values() if torch.is_tensor(value))
    assert held <= 20_000 * 8 * (2 if multilabel else 1) and peak < 4_000_000
