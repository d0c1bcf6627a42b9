"""Image sources: `as_images`, `as_labelled` and fingerprints."""

from __future__ import annotations

import dataclasses
import io
import os
import tracemalloc
import warnings

import numpy as np
import pytest
import torch
from PIL import Image
from toys import make_toy, one_line, write_folder

from hadahash.data import (
    ArrayImages,
    DataWarning,
    FileImages,
    ImageSource,
    LabelledImages,
    as_images,
    as_labelled,
    find_dataset,
    open_dataset,
    read_table,
)
from hadahash.data.base import name_ids
from hadahash.errors import DataError, ImageError, UsageError


@pytest.fixture
def photos(tmp_path):
    return write_folder(tmp_path / "photos", *make_toy(8, seed=0))


def png(pixels):
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


# ---------------------------------------------------------------------- as_images


def test_paths_and_their_ids(tmp_path, photos):
    pixels, _ = make_toy(8, seed=0)
    assert as_images(photos).ids.tolist()[0] == "blue/000.png"
    assert as_images(str(photos)).ids.tolist() == as_images(photos).ids.tolist()
    single = as_images(str(photos / "red" / "002.png"))
    assert single.ids.tolist() == ["002.png"]
    assert np.array_equal(single.images[0], pixels[2])
    paths = [photos / "red" / "006.png", photos / "blue" / "000.png"]
    texts = [str(path) for path in paths]
    entries = sorted(os.scandir(photos / "red"), key=lambda entry: entry.name)
    assert as_images(entries).ids.tolist() == [entry.path for entry in entries]
    given = (paths, texts, tuple(paths), (path for path in paths), np.array(texts), iter(texts))
    for source in given:
        found = as_images(source)
        assert found.ids.tolist() == texts
        assert np.array_equal(found.images[1], pixels[0])
    assert len(as_images([])) == 0


def test_tables_give_their_paths_with_or_without_labels(tmp_path, photos):
    table = tmp_path / "t.csv"
    table.write_text("path\nphotos/red/002.png\nphotos/blue/000.png\n")
    found = as_images(table)
    assert found.ids.tolist() == ["photos/red/002.png", "photos/blue/000.png"]
    assert np.array_equal(found.images[0], make_toy(8, seed=0)[0][2])
    table.write_text("path,labels,split\nphotos/red/002.png,a,val\nphotos/blue/000.png,,\n")
    assert as_images(str(table)).ids.tolist() == found.ids.tolist()
    table.write_text("path\nnowhere.png\n")
    with pytest.raises(DataError, match=r"t.csv line 2: image nowhere.png does not exist"):
        as_images(table)


def test_data_set_names_are_opened():
    assert len(as_images("digits")) == 1_797


def test_pixels_in_every_form_are_the_same_images():
    pixels, _ = make_toy(3, seed=0)
    first = torch.from_numpy(pixels)
    forms = {
        "array": pixels,
        "list of arrays": list(pixels),
        "PIL": [Image.fromarray(image) for image in pixels],
        "bytes": [png(image) for image in pixels],
        "bytearray": [bytearray(png(image)) for image in pixels],
        "files": [io.BytesIO(png(image)) for image in pixels],
        "generator": (Image.fromarray(image) for image in pixels),
        "channels last": first,
        "channels first": first.permute(0, 3, 1, 2),
        "float": first.permute(0, 3, 1, 2) / 255,
        "list of tensors": list(first.permute(0, 3, 1, 2)),
        "numpy float": pixels / 255,
    }
    for form, source in forms.items():
        found = as_images(source)
        assert found.ids.tolist() == [0, 1, 2], form
        assert all(np.array_equal(found.images[i], pixels[i]) for i in range(3)), form


def test_one_image_in_every_form():
    image = make_toy(1, seed=0)[0][0]
    tensor = torch.from_numpy(image)
    plain = (image, Image.fromarray(image), png(image), io.BytesIO(png(image)))
    for source in (*plain, tensor, tensor.permute(2, 0, 1)):
        found = as_images(source)
        assert found.ids.tolist() == [0]
        assert np.array_equal(found.images[0], image)


def test_images_of_different_sizes_and_modes():
    arrays = [np.full((4, 6, 3), 7, np.uint8), np.full((9, 5, 3), 9, np.uint8)]
    found = as_images(arrays)
    assert [found.images[i].shape for i in range(2)] == [(4, 6, 3), (9, 5, 3)]
    assert as_images(Image.new("L", (2, 3), 50)).images[0].tolist() == [[[50] * 3] * 2] * 3
    assert as_images(Image.new("RGBA", (1, 1))).images[0].tolist() == [[[255, 255, 255]]]


def test_pil_images_are_rotated_like_their_files(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(make_toy(1, seed=0)[0][0][:20]).save(tmp_path / "a.png", exif=exif)
    from_file = as_images(tmp_path / "a.png").images[0]
    assert from_file.shape == (32, 20, 3)
    assert np.array_equal(as_images(Image.open(tmp_path / "a.png")).images[0], from_file)


def test_damaged_bytes_are_found_when_they_are_read():
    found = as_images([b"no image", png(np.zeros((2, 2, 3), np.uint8))])
    with pytest.raises(ImageError):
        found.images[0]
    assert found.images[1].shape == (2, 2, 3)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (None, "NoneType is not a source of images. Give an image file"),
        (5, "int is not a source"),
        ({"a": 1}, "dict is not a source"),
        ([5], "A list of int is not a source"),
        (np.zeros((2, 8, 8), np.uint8), r"shape \(2, 8, 8\) contains no RGB"),
        ([np.zeros((3, 3))], "contains no RGB"),
        ([np.zeros(3), np.zeros(4)], "must have one length, got vectors of 3 and 4"),
        (np.zeros(3), r"need two dimensions \(n, d\), got the shape \(3,\)"),
        (np.zeros((2, 3), np.uint8), "could be codes or pixels"),
        (np.zeros((2, 3), bool), "could be codes or pixels"),
        ([["a", "b"]], "must be numbers, got str"),
        (np.zeros((2, 0)), "0 feature"),
        (np.zeros((2, 8, 8, 4), np.uint8), "contains no RGB"),
        (np.zeros((2, 3, 8, 3), np.uint8), "channels are ambiguous"),
        (np.full((2, 8, 8, 3), 7.0), r"floats in \[0, 1\], got float64 in \[7, 7\]"),
        (torch.full((2, 3, 8, 8), -1.0), r"got float32 in \[-1, -1\]"),
        (np.zeros((2, 8, 8, 3), np.int64), r"got int64 in \[0, 0\]"),
        (["a.png", b"x"], "either paths or images"),
    ],
)
def test_unsupported_sources_are_refused_in_one_line(source, message):
    with pytest.raises(UsageError, match=message) as error:
        as_images(source)
    one_line(error.value)


@pytest.mark.parametrize("name", ["nowhere", "a\0b", "x" * 5000])
def test_paths_that_cannot_be_read_are_refused(tmp_path, name):
    with pytest.raises(DataError, match="Cannot read"):
        as_images(str(tmp_path / name))


def test_sources_pass_through_and_select(photos):
    source = as_images(photos)
    assert as_images(source) is source
    labelled = open_dataset(photos)
    assert as_images(labelled).ids is labelled.ids
    part = source.take([3, 0])
    assert len(part) == 2
    assert part.ids.tolist() == source.ids[[3, 0]].tolist()
    assert np.array_equal(part.images[1], source.images[0])


# ---------------------------------------------------------------------- ids


def test_one_long_name_does_not_multiply_the_memory_of_all():
    names = [f"{number:08d}.jpg" for number in range(100_000)]
    tracemalloc.start()
    ids = name_ids([*names, "x" * 5_000])[np.arange(100_001)]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 << 20
    assert ids[-1] == "x" * 5_000
    assert (ids == "00000007.jpg").nonzero()[0].tolist() == [7]


def test_names_that_are_not_utf_8_are_ids(tmp_path):
    folder = tmp_path / "photos"
    folder.mkdir()
    name = os.fsdecode(b"caf\xe9.png")
    Image.new("RGB", (2, 2)).save(folder / name)
    source = as_images(folder)
    assert source.ids.tolist() == [name]
    assert len(source.fingerprint()) == 64


# ---------------------------------------------------------------------- fingerprints


def test_equal_names_in_two_folders_have_different_fingerprints(tmp_path):
    pixels, labels = make_toy(4, seed=0)
    first = as_images(write_folder(tmp_path / "a", pixels, labels))
    second = as_images(write_folder(tmp_path / "b", pixels, labels))
    assert first.ids.tolist() == second.ids.tolist()
    assert first.fingerprint() != second.fingerprint()
    assert first.fingerprint() == as_images(tmp_path / "a").fingerprint()
    assert first.take([0, 1]).fingerprint() != first.fingerprint()


def test_a_fingerprint_notices_a_changed_file(tmp_path):
    folder = write_folder(tmp_path / "a", *make_toy(4, seed=0))
    source = as_images(folder)
    before = source.fingerprint()
    os.utime(folder / "red" / "002.png", ns=(1, 1))
    assert as_images(folder).fingerprint() != before
    assert source.fingerprint() == before  # computed once
    (folder / "red" / "002.png").unlink()
    assert dataclasses.replace(source).fingerprint() != before


def test_a_fingerprint_is_independent_of_the_working_folder(tmp_path, monkeypatch):
    folder = write_folder(tmp_path / "a", *make_toy(4, seed=0))
    monkeypatch.chdir(tmp_path)
    assert as_images("a").fingerprint() == as_images(folder).fingerprint()


def test_a_fingerprint_notices_one_pixel():
    pixels, _ = make_toy(4, seed=0)
    changed = pixels.copy()
    changed[3, 0, 0, 0] ^= 1
    forms = [pixels, list(pixels), [png(image) for image in pixels]]
    others = [changed, list(changed), [png(image) for image in changed]]
    for form, other in zip(forms, others, strict=True):
        assert as_images(form).fingerprint() != as_images(other).fingerprint()
    assert as_images(pixels).fingerprint() == as_images(pixels.copy()).fingerprint()
    pictures = [Image.fromarray(image) for image in pixels]
    assert as_images(pictures).fingerprint() == as_images(list(pixels)).fingerprint()
    named = ImageSource(ArrayImages(pixels), name_ids("abcd"))
    assert named.fingerprint() != as_images(pixels).fingerprint()


def test_damaged_images_have_a_fingerprint(tmp_path):
    whole = png(np.random.default_rng(0).integers(0, 256, (32, 32, 3)).astype(np.uint8))
    (tmp_path / "cut.png").write_bytes(whole[: len(whole) // 2])
    damaged = as_images(Image.open(tmp_path / "cut.png"))
    assert damaged.fingerprint() != as_images(Image.open(io.BytesIO(whole))).fingerprint()


def test_the_fingerprint_of_a_data_set_covers_labels_classes_and_parts():
    pixels, _ = make_toy(4, seed=0)
    data = as_labelled(pixels, [0, 1, 0, 1])
    variants = [
        data,
        as_labelled(pixels, [1, 0, 0, 1]),
        dataclasses.replace(data, classes=("a", "b")),
        dataclasses.replace(data, parts=np.array(["train"] * 4)),
        as_labelled(pixels[::-1], [0, 1, 0, 1]),
    ]
    assert len({variant.fingerprint() for variant in variants}) == len(variants)
    assert data.fingerprint() == as_labelled(pixels, [0, 1, 0, 1]).fingerprint()


# ---------------------------------------------------------------------- as_labelled


def test_labels_become_numbers_and_names():
    pixels, _ = make_toy(4, seed=0)
    single = as_labelled(pixels, ["cat", "dog", "ant", "cat"])
    assert single.classes == ("ant", "cat", "dog")
    assert single.labels.array.tolist() == [1, 2, 0, 1]
    assert not single.multilabel
    several = as_labelled(pixels, [[1, 0, 1], [0, 1, 1], [1, 1, 0], [0, 0, 0]])
    assert several.classes == ("0", "1", "2")
    assert several.multilabel
    assert several.labels.array.tolist()[1] == [0, 1, 1]
    assert as_labelled(pixels, torch.tensor([5, 5, 7, 5])).classes == ("5", "7")
    assert as_labelled(pixels, several.labels).labels is several.labels
    assert as_labelled(single) is single


def test_every_kind_of_images_can_be_labelled(photos):
    pixels, labels = make_toy(8, seed=0)
    paths = sorted(photos.rglob("*.png"))
    for source in (pixels, list(pixels), [Image.fromarray(image) for image in pixels], paths):
        assert as_labelled(source, labels).labels.array.tolist() == labels.tolist()
    assert as_labelled(as_images(paths), labels).ids.tolist() == [str(path) for path in paths]


def test_folders_and_data_set_names_have_their_own_labels(photos):
    assert as_labelled(photos).classes == ("blue", "green", "red", "yellow")
    assert as_labelled("digits").name == "digits"


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (None, "labels are missing"),
        ([0, 1, 0], "4 images need 4 labels, got 3"),
        (np.zeros((4, 1, 1), int), r"got \(4, 1, 1\)"),
        (np.array([[0, 2], [1, 0], [1, 1], [0, 1]]), "values 0 and 1"),
        ([[0], [0, 1], [1], [1]], "labels must have the shape"),
        ([0.0, float("nan"), 1.0, 1.0], "labels contain NaN or None"),
        (np.array(["a", None, "b", "b"], object), "labels contain NaN or None"),
        (np.array(["a", float("nan"), "b", "b"], object), "labels contain NaN or None"),
        (np.array(["a", 1, "b", "b"], object), "labels must be of one type"),
        (np.array([[0, np.nan]] * 4), "values 0 and 1"),
    ],
)
def test_wrong_labels_are_refused(labels, message):
    with pytest.raises(UsageError, match=message) as error:
        as_labelled(make_toy(4, seed=0)[0], labels)
    one_line(error.value)


def test_labels_that_would_be_ignored_are_refused(photos):
    for data in (photos, str(photos), "digits", open_dataset(photos)):
        with pytest.raises(UsageError, match="labels would be ignored"):
            as_labelled(data, [0, 1] * 4)


def test_only_the_training_part_is_learned_from(tmp_path, photos):
    rows = ["red/002.png,a,train", "blue/000.png,b,train", "red/006.png,a,query"]
    rows += ["blue/004.png,b,database"]
    table = tmp_path / "t.csv"
    table.write_text("path,labels,split\n" + "\n".join(f"photos/{row}" for row in rows) + "\n")
    for data in (table, str(table), read_table(table), open_dataset(table)):
        assert as_labelled(data).ids.tolist() == ["photos/red/002.png", "photos/blue/000.png"]


def test_a_folder_with_the_name_of_a_data_set_is_mentioned(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_folder(tmp_path / "digits", *make_toy(8, seed=0))
    with pytest.warns(DataWarning, match=r"'digits' names a data set and a folder.*\./digits"):
        assert len(open_dataset("digits")) == 1_797
    with pytest.warns(DataWarning, match="names a data set and a folder"):
        assert len(as_images("digits")) == 1_797
    assert len(as_labelled("./digits")) == len(as_images("./digits")) == 8
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert find_dataset("digits").name == "digits"
        assert len(open_dataset("digits", tmp_path)) == 1_797  # the folder of its files is given


def test_labelled_images_must_match():
    images = FileImages([])
    with pytest.raises(DataError, match="Got 0 images, 1 ids and 1 labels"):
        LabelledImages(images, name_ids(["a"]), np.array([0]), ("x",))
