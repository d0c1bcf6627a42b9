"""Class-balanced batches."""

import numpy as np
import pytest
import torch

from hadahash.config import AugmentConfig, TrainConfig
from hadahash.data.labels import Labels
from hadahash.errors import DataError
from hadahash.training import TrainingSet
from hadahash.training.loop import BatchPlan
from hadahash.training.sampling import balanced_order


def _order(labels, *, steps=5, batch_size=12, classes=4, seed=0):
    generator = torch.Generator().manual_seed(seed)
    order = balanced_order(labels, steps, batch_size, classes, generator)
    return order.view(steps, batch_size)


def test_each_batch_has_as_many_images_of_each_of_its_classes():
    numbers = np.repeat(np.arange(6), [50, 3, 20, 9, 1, 30])
    seen = set()
    for rows in _order(Labels.from_array(numbers, 6), steps=20):
        classes, counts = np.unique(numbers[rows], return_counts=True)
        assert len(classes) == 4 and set(counts) == {3}
        seen |= set(classes)
    assert seen == set(range(6))


def test_an_image_repeats_only_after_all_others_of_its_class():
    numbers = np.repeat([0, 1], [40, 8])
    order = _order(Labels.from_array(numbers, 2), steps=4, batch_size=12, classes=2).flatten()
    large = order[numbers[order] == 0]
    small = order[numbers[order] == 1]
    assert len(set(large.tolist())) == len(large) == 24
    assert np.bincount(small)[40:].tolist() == [3] * 8


def test_a_batch_that_does_not_divide_evenly_is_still_whole():
    numbers = np.arange(60) % 6
    for rows in _order(Labels.from_array(numbers, 6), batch_size=10, classes=32):
        assert sorted(np.bincount(numbers[rows], minlength=6)) == [1, 1, 2, 2, 2, 2]


def test_a_multi_label_image_counts_for_one_of_its_labels():
    dense = np.zeros((30, 3), int)
    dense[:, 0] = 1  # a class that all images have
    dense[:10, 1] = 1
    dense[10:16, 2] = 1
    dense[29] = 0
    order = _order(Labels.from_array(dense), steps=40, batch_size=6, classes=3)
    assert 29 not in order, "an image without a label"
    shares = dense[order.flatten()].mean(0)
    assert shares[1] > 0.3 and shares[2] > 0.2, "rare classes are not drawn more often"


def test_balanced_batches_follow_from_seed_and_step():
    data = TrainingSet(torch.zeros(40, 4), Labels.from_array(np.arange(40) % 5, 5))
    config = TrainConfig(batch_size=8, sampler="balanced", classes_per_batch=4)
    first, again = (BatchPlan(data, config, AugmentConfig(), 1.0, 3) for _ in range(2))
    other = BatchPlan(data, config, AugmentConfig(), 1.0, 4)
    steps = [first.at(step) for step in range(10)]
    for step in (7, 2, 9):
        rows, table = again.at(step)
        assert torch.equal(rows, steps[step][0]) and torch.equal(table, steps[step][1])
        assert np.bincount(rows % 5, minlength=5).tolist().count(2) == 4
    assert not torch.equal(other.at(0)[0], steps[0][0])


def test_images_without_labels_cannot_be_balanced():
    with pytest.raises(DataError, match="images with labels"):
        _order(Labels.from_array(np.zeros((4, 2), int)))
