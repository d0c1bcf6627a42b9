"""The real data sets, where the variable HADAHASH_DATA names a folder that holds them."""

from __future__ import annotations

import os

import numpy as np
import pytest

from hadahash.data import DATASETS, LabelledImages, make_split, pixels_sha256
from hadahash.data.datasets import cifar10
from hadahash.errors import DataError

pytestmark = pytest.mark.realdata


def real(name: str) -> LabelledImages:
    if not os.environ.get("HADAHASH_DATA"):
        pytest.skip("HADAHASH_DATA is not set")
    try:
        place = DATASETS.get(name).locate(None, download=False)
    except DataError as error:
        pytest.skip(str(error))
    return DATASETS.get(name).read(place)


SIZES = {
    "cifar10": [(1_000, 5_000, 54_000)],
    "tinyimagenet100": [(5_000, 10_000, 40_000), (5_000, 10_000, 50_000)],
    "voc2012": [(5_823, 5_717, 5_717)],
    "imagenet100": [],
    "nuswide21": [],
}


@pytest.mark.parametrize("name", SIZES)
def test_the_protocol_splits_the_real_data(name):
    data = real(name)
    split = make_split(data, DATASETS.get(name).protocol, seed=1)
    assert not SIZES[name] or tuple(split.sizes.values()) in SIZES[name]
    assert len(set(data.ids.tolist())) == len(data)
    for index in np.linspace(0, len(data) - 1, 50).astype(int):
        image = data.images[int(index)]
        assert image.dtype == np.uint8
        assert image.shape[2] == 3
        assert min(image.shape) > 0
    if data.multilabel:
        assert (data.labels.array[split.train].sum(axis=0) > 0).all()
    else:
        assert len(set(np.bincount(data.labels.array[split.train]).tolist())) == 1


def test_cifar10_is_the_official_one():
    data = real("cifar10")
    assert pixels_sha256(data.images) == cifar10.PIXELS_SHA256
    assert np.bincount(data.labels.array).tolist() == [6_000] * 10
    assert np.bincount(data.labels.array[50_000:]).tolist() == [1_000] * 10


def test_voc2012_has_the_published_label_counts():
    data = real("voc2012")
    assert all(data.labels.array.any(axis=1))
    train = data.labels.array[data.parts == "train"].sum(axis=0)
    counts = dict(zip(data.classes, train.tolist(), strict=True))
    assert (counts["aeroplane"], counts["person"], counts["tvmonitor"]) == (327, 1_994, 290)


def test_the_halves_of_voc_share_no_image():
    split = make_split(real("voc2012"), "voc2012-halves", seed=1)
    assert tuple(split.sizes.values()) == (5_823, 2_859, 2_858)
    assert not np.intersect1d(split.train, split.database).size
