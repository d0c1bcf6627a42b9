"""Copies of data sets as the published results use them."""

from __future__ import annotations

import pytest
import test_voc
from make_images import encode, picture
from PIL import Image

from hadahash.data import open_dataset
from hadahash.data.datasets.imagenet import tiny_classes
from hadahash.data.prepare import list_preparations, prepare
from hadahash.errors import DataError


def test_the_names():
    assert list_preparations() == ["tinyimagenet100", "voc2012-112px"]


def test_voc_photographs_get_a_short_side_of_112_pixels(tmp_path):
    source = test_voc.make(tmp_path / "VOCdevkit" / "VOC2012")
    for path in (source / "JPEGImages").iterdir():
        path.write_bytes(encode(picture(375, 500), "JPEG"))
    messages: list[str] = []
    assert prepare(
        "voc2012-112px", tmp_path / "VOCdevkit", tmp_path / "small", info=messages.append
    )
    small, whole = open_dataset("voc2012", tmp_path / "small"), open_dataset("voc2012", source)
    assert small.ids.tolist() == whole.ids.tolist()
    assert small.labels.digest() == whole.labels.digest()
    assert small.images[0].shape == (112, 149, 3)
    with Image.open(small.images.paths[0]) as image:
        assert image.quantization[0][:6] == [6, 4, 4, 6, 10, 16]  # quality 80
    assert messages == ["voc2012-112px: shrinking 5 images ..."]


@pytest.fixture
def publisher(tmp_path):
    """Tiny-ImageNet in the layout of its publisher, with few images and a class too many."""
    root, content = tmp_path / "tiny-imagenet-200", encode(picture(4, 4), "JPEG")
    lines = []
    for number, wnid in enumerate([*tiny_classes(), "n99999999"]):
        images = root / "train" / wnid / "images"
        images.mkdir(parents=True)
        for index in (0, 399, 400):
            (images / f"{wnid}_{index}.JPEG").write_bytes(content)
        (root / "val" / "images").mkdir(parents=True, exist_ok=True)
        (root / "val" / "images" / f"val_{number}.JPEG").write_bytes(content)
        lines.append(f"val_{number}.JPEG\t{wnid}\t0\t0\t9\t9\n")
    (root / "val" / "val_annotations.txt").write_text("".join(lines))
    return root


def test_the_classes_of_tiny_imagenet_are_those_of_the_published_results(publisher):
    data = open_dataset("tinyimagenet100", publisher)
    assert {name.split("/")[1] for name in data.ids} == set(tiny_classes())
    assert len(tiny_classes()) == len(data.classes) == 100


def test_tiny_imagenet_keeps_400_training_images_per_class(publisher, tmp_path):
    assert prepare("tinyimagenet100", publisher, tmp_path / "small") == 300
    data = open_dataset("tinyimagenet100", tmp_path / "small")
    assert data.ids[:2].tolist() == [
        "train/n01443537/n01443537_0.JPEG",
        "train/n01443537/n01443537_399.JPEG",
    ]
    assert data.ids[200] == "val/n01443537/n01443537_0.JPEG"
    assert data.classes[0] == "goldfish"


def test_a_missing_class_is_named(publisher, tmp_path):
    (publisher / "train" / "n01443537").rename(publisher / "train" / "n88888888")
    with pytest.raises(DataError, match=r"lacks .* of the 100 classes, for example n0"):
        prepare("tinyimagenet100", publisher, tmp_path / "small")
