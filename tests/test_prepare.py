"""The data sets of the stored results, prepared from the publishers' files."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from hadahash.data import open_dataset
from hadahash.data.datasets.voc import CLASSES
from hadahash.errors import DataError, UsageError
from hadahash.reproduce import prepare


def photo(path: Path, width: int, height: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)
    Image.fromarray(pixels).save(path)


def test_tinyimagenet100_has_its_classes_and_images(tmp_path, monkeypatch):
    plan = {"classes": ["n1", "n2"], "images_per_class": 3}
    monkeypatch.setattr(prepare.files, "read_toml", lambda path: plan)
    source, out = tmp_path / "source", tmp_path / "out"
    for name in ("n1", "n2", "n3"):
        for number in range(5):
            photo(source / "train" / name / "images" / f"{name}_{number}.JPEG", 8, 8)
    lines = []
    for number, name in enumerate(("n1", "n2", "n3", "n2")):
        photo(source / "val" / "images" / f"val_{number}.JPEG", 8, 8)
        lines.append(f"val_{number}.JPEG\t{name}\t0\t0\t7\t7\n")
    (source / "val" / "val_annotations.txt").write_text("".join(lines))
    (source / "words.txt").write_text("n1\tone\n")
    assert prepare.main(["tinyimagenet100", str(source), str(out)]) == 9
    found = sorted(str(path.relative_to(out)) for path in out.rglob("*.JPEG"))
    assert found[:3] == ["train/n1/n1_0.JPEG", "train/n1/n1_1.JPEG", "train/n1/n1_2.JPEG"]
    assert found[-2:] == ["val/n2/val_1.JPEG", "val/n2/val_3.JPEG"]


def test_the_class_list_is_that_of_the_results():
    folder = Path(prepare.__file__).parent
    plan = prepare.files.read_toml(folder / "tinyimagenet100.toml")
    assert len(set(plan["classes"])) == 100 and plan["images_per_class"] == 400
    assert plan["classes"] == sorted(plan["classes"])


def test_voc_photos_get_a_short_side_of_112_pixels(tmp_path):
    source, out = tmp_path / "VOC2012", tmp_path / "out"
    lists = source / "ImageSets" / "Main"
    lists.mkdir(parents=True)
    for part, name in (("train", "a"), ("val", "b")):
        (lists / f"{part}.txt").write_text(f"{name}\n")
        for label in CLASSES:
            (lists / f"{label}_{part}.txt").write_text(f"{name}  1\n")
    photo(source / "JPEGImages" / "a.jpg", 500, 375)
    photo(source / "JPEGImages" / "b.jpg", 300, 400)
    assert prepare.main(["voc2012", str(source), str(out)]) == 2
    folder = out / "VOCdevkit" / "VOC2012" / "JPEGImages"
    assert Image.open(folder / "a.jpg").size == (149, 112)
    assert Image.open(folder / "b.jpg").size == (112, 149)
    assert len(open_dataset("voc2012", out)) == 2


def test_missing_files_and_names_are_reported(tmp_path):
    with pytest.raises(DataError, match=r"n01443537_0\.JPEG is missing"):
        prepare.main(["tinyimagenet100", str(tmp_path), str(tmp_path / "out")])
    with pytest.raises(DataError, match="is not a folder"):
        prepare.main(["voc2012", str(tmp_path), str(tmp_path / "out")])
    with pytest.raises(UsageError, match="usage"):
        prepare.main(["cifar"])
