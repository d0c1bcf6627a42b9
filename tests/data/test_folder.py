"""Listing and reading folders of images."""

from __future__ import annotations

import os
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
from make_images import encode, picture

from hadahash.data import DataWarning, as_images, as_labelled, find_dataset, open_dataset
from hadahash.data.folder import Listing, list_images, read_folder, scan, skipped_notice
from hadahash.errors import CorruptImage, DataError, HadaHashError, UnreadableImage

posix = pytest.mark.skipif(os.name != "posix", reason="needs pipes, links, users and odd names")

PNG = encode(picture(4, 6), "PNG")


def fill(root: Path, *names: str) -> Path:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(PNG)
    return root


def test_classes_are_the_folders_and_ids_the_paths(tmp_path):
    root = fill(
        tmp_path / "photos", "dog/b.png", "dog/2023/a.JPG", "cat/z.png", "cat/10.png", "cat/9.png"
    )
    fill(root, "cat/.hidden.png", ".git/x.png", "cat/notes.txt", "readme.md")
    data = read_folder(root)
    assert data.ids.tolist() == [
        "cat/10.png",
        "cat/9.png",
        "cat/z.png",
        "dog/2023/a.JPG",
        "dog/b.png",
    ]
    assert data.labels.array.tolist() == [0, 0, 0, 1, 1]
    assert data.labels.array.dtype == np.int64
    assert data.classes == ("cat", "dog")
    assert data.name == "photos"
    assert np.array_equal(data.images[3], picture(4, 6))
    assert data.take(np.array([4, 0])).ids.tolist() == ["dog/b.png", "cat/10.png"]
    assert read_folder(str(root)).ids.tolist() == data.ids.tolist()


def test_hidden_and_other_files_are_counted(tmp_path):
    fill(tmp_path, "a/1.png", "a/.2.png", ".thumbs/3.png", "a/x.txt", "b/y", "b/z.svg")
    listing = scan(tmp_path)
    assert [path.name for path in listing.images] == ["1.png"]
    assert (listing.hidden, [path.name for path in listing.others]) == (2, ["x.txt", "y", "z.svg"])
    assert Listing().skipped == ""
    assert skipped_notice(listing.others[:1], 2).endswith("(1 .txt) and 2 hidden files.")
    assert skipped_notice([Path(f"x.{kind}") for kind in "abcdefg"]).endswith("1 .e, ...).")


@pytest.mark.parametrize("use", [read_folder, list_images, as_images, as_labelled])
def test_every_listing_mentions_files_of_unsupported_types(tmp_path, use, without_heif):
    fill(tmp_path, "cat/1.png", "dog/1.png", "dog/2.HEIC", "dog/3.HEIC", "dog/x.MOV")
    message = r"Skipped 3 files of unsupported types \(2 .heic, 1 .mov\)\."
    with pytest.warns(DataWarning, match=message):
        assert len(use(tmp_path)) == 2


@pytest.mark.parametrize("use", [read_folder, as_images, as_labelled])
def test_a_folder_of_unsupported_types_is_refused(tmp_path, use, without_heif):
    fill(tmp_path, "dog/2.HEIC")
    with pytest.raises(
        DataError,
        match=r"contains no images. Skipped 1 file .*pip install.*heif.* end in .apng, .avif, .bmp",
    ):
        use(tmp_path)


@posix
@pytest.mark.parametrize("use", [read_folder, list_images, as_images, as_labelled, find_dataset])
def test_links_in_a_loop_and_names_too_long_are_one_line_errors(tmp_path, use):
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    for path in (str(loop), str(tmp_path / ("x" * 5_000)), "y" * 5_000):
        if use is find_dataset and path == str(loop):
            assert find_dataset(path).name == "loop"  # refused when it is read
            continue
        with pytest.raises(HadaHashError) as error:
            use(path)
            open_dataset(path)
        assert "\n" not in str(error.value)


def test_listing_from_the_current_folder(tmp_path, monkeypatch):
    fill(tmp_path, "cat/a.png", "dog/b.png")
    monkeypatch.chdir(tmp_path)
    assert list_images(".") == [Path("cat/a.png"), Path("dog/b.png")]
    assert read_folder(".").ids.tolist() == ["cat/a.png", "dog/b.png"]
    assert read_folder(".").name == tmp_path.name


def test_the_order_follows_from_the_names_alone(tmp_path):
    names = ["b/1.png", "a/2.png", "a/b/1.png", "a/a.png", "a.b/x.png", "a/10.png", "B/1.png"]
    one, other = fill(tmp_path / "one", *names), fill(tmp_path / "other", *reversed(names))
    relative = [path.relative_to(one).parts for path in list_images(one)]
    assert relative == [path.relative_to(other).parts for path in list_images(other)]
    assert relative == sorted(relative)
    assert len(relative) == 7


@posix
def test_any_file_name_is_accepted(tmp_path):
    names = [
        "ä 猫 😀.png",
        "two words.png",
        "two\nlines.png",
        "-rf.png",
        "x" * 251 + ".png",
        os.fsdecode(b"\xff\xfe.png"),
    ]
    fill(tmp_path, *(f"-one\n/{name}" for name in names), *(f"猫/{name}" for name in names))
    data = read_folder(tmp_path)
    assert sorted(data.ids.tolist()) == sorted(
        f"{folder}/{name}" for folder in ("-one\n", "猫") for name in names
    )
    assert all(np.array_equal(data.images[i], picture(4, 6)) for i in range(len(data)))


def test_names_that_differ_in_case_only_are_different(tmp_path):
    fill(tmp_path, "cat/a.png", "cat/A.png", "Cat/a.png")
    if len(list_images(tmp_path)) < 3:
        pytest.skip("this file system does not tell them apart")
    assert read_folder(tmp_path).classes == ("Cat", "cat")


@posix
def test_links_are_followed_but_never_in_a_loop(tmp_path):
    root = fill(tmp_path / "root", "cat/a.png", "dog/b.png")
    elsewhere = fill(tmp_path / "elsewhere", "c.png")
    (root / "fish").symlink_to(elsewhere)
    (root / "cat" / "up").symlink_to(root)
    (root / "cat" / "self").symlink_to(root / "cat" / "self")
    (elsewhere / "back").symlink_to(root)
    assert read_folder(root).ids.tolist() == ["cat/a.png", "dog/b.png", "fish/c.png"]


@posix
def test_damaged_images_are_listed_and_fail_alone(tmp_path):
    fill(tmp_path, "cat/good.png", "dog/good.png", "dog/folder.png/inside.png")
    (tmp_path / "cat/bad.png").write_bytes(PNG[:40])
    (tmp_path / "cat/gone.png").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "cat/pipe.png")
    data = read_folder(tmp_path)
    assert data.ids.tolist() == [
        "cat/bad.png",
        "cat/gone.png",
        "cat/good.png",
        "cat/pipe.png",
        "dog/folder.png/inside.png",
        "dog/good.png",
    ]
    for index, error in ((0, CorruptImage), (1, UnreadableImage), (3, UnreadableImage)):
        with pytest.raises(error):
            data.images[index]
    assert data.images[2].shape == (4, 6, 3)


def test_folders_that_cannot_be_used_are_explained(tmp_path):
    file = tmp_path / "file.png"
    file.write_bytes(PNG)
    (tmp_path / "empty").mkdir()
    cases = [
        (tmp_path / "missing", "No such file"),
        (Path("a\0b"), "null"),
        (file, "is a file, not a folder"),
        (tmp_path / "empty", "contains no images"),
        (fill(tmp_path / "flat", "a.png", "b.png"), "contains 2 images but no class folders"),
        (
            fill(tmp_path / "single", "cat/a.png"),
            r"has only the class 'cat'. At least 2 are needed",
        ),
        (
            fill(tmp_path / "splits", "train/cat/a.png", "test/cat/b.png"),
            r"\('test', 'train'\) look like split names, not class names",
        ),
        (
            fill(tmp_path / "stray", "cat/a.png", "dog/b.png", "c.png"),
            r"contains 1 images outside the class folders \('c.png'\)",
        ),
    ]
    hollow = fill(tmp_path / "hollow", "cat/a.png", "dog/b.png")
    (hollow / "fish").mkdir()
    cases.append((hollow, r"1 class folders of .* contain no images \('fish'\)"))
    (fill(tmp_path / "texts", "cat/a.txt") / ".b").touch()
    cases.append(
        (tmp_path / "texts", r"contains no images. Skipped 1 file of unsupported types \(1 .txt\)")
    )
    for root, message in cases:
        with pytest.raises(DataError, match=message) as caught:
            read_folder(root)
        assert "\n" not in str(caught.value)


@posix
def test_a_folder_without_permission_is_named(tmp_path):
    root = fill(tmp_path / "root", "cat/a.png", "dog/b.png")
    me = os.geteuid()
    (root / "dog").chmod(0)
    if me == 0:
        for folder in (
            tmp_path,
            tmp_path.parent,
            tmp_path.parent.parent,
        ):  # pytest makes them for one user only
            folder.chmod(0o755)
        os.seteuid(65_534)
    try:
        with pytest.raises(DataError, match=r"Cannot read the folder .*dog"):
            read_folder(root)
    finally:
        os.seteuid(me)
        (root / "dog").chmod(0o755)


def test_twenty_thousand_files_are_listed_quickly(tmp_path):
    for folder in range(20):
        (tmp_path / f"{folder:02d}").mkdir()
        for number in range(1_000):
            (tmp_path / f"{folder:02d}" / f"{number:04d}.jpg").touch()
    start = time.process_time()
    data = read_folder(tmp_path)
    assert time.process_time() - start < 5
    assert len(data) == 20_000
    assert data.ids[-1] == "19/0999.jpg"
    assert np.bincount(data.labels.array).tolist() == [1_000] * 20


def test_excluded_files_and_folders_are_not_read(tmp_path):
    fill(tmp_path, "a/1.png", "a/1_thumb.png", "a/thumbs/2.png", "b/thumbs/3.png", "b/4.png")
    fill(tmp_path, "a/deep/b/5.png")

    def names(*exclude):
        listing = scan(tmp_path, exclude=exclude)
        found = [path.relative_to(tmp_path).as_posix() for path in listing.images]
        return found, listing.excluded

    kept = ["a/1.png", "a/deep/b/5.png", "b/4.png"]
    assert names("thumbs", "*_thumb.*") == (kept, 3)
    assert names("thumbs/", "*_thumb.*") == (kept, 3)
    assert names("a/*/b", "b/thumbs") == (
        ["a/1.png", "a/1_thumb.png", "a/thumbs/2.png", "b/4.png"],
        2,
    )
    assert names("A", "")[1] == 0  # case matters, an empty pattern matches nothing
    assert skipped_notice([], 0, excluded=3) == "Skipped 3 excluded files."


@posix
def test_an_excluded_folder_need_not_be_readable(tmp_path):
    if os.geteuid() == 0:
        pytest.skip("root may read everything")
    fill(tmp_path, "a/1.png", "lost+found/2.png")
    (tmp_path / "lost+found").chmod(0)
    try:
        with pytest.raises(DataError, match="--exclude"):
            scan(tmp_path)
        assert len(scan(tmp_path, exclude=["lost+found"]).images) == 1
    finally:
        (tmp_path / "lost+found").chmod(0o700)


@posix
def test_links_inside_are_followed_to_files_only(tmp_path):
    root = fill(tmp_path / "root", "cat/a.png", "dog/b.png")
    elsewhere = fill(tmp_path / "elsewhere", "c.png")
    (root / "best").mkdir()
    (root / "best" / "a.png").symlink_to(root / "cat" / "a.png")
    (root / "best" / "out.png").symlink_to(elsewhere / "c.png")
    (root / "best" / "gone.png").symlink_to(root / "missing.png")
    (root / "fish").symlink_to(elsewhere)
    (root / "twice").symlink_to(root / "cat")
    (root / "cat" / "up").symlink_to(root)
    listing = scan(root, links="inside")
    found = [path.relative_to(root).as_posix() for path in listing.images]
    assert found == ["best/a.png", "best/gone.png", "cat/a.png", "dog/b.png"]
    assert listing.links == 4 and listing.notice == "Skipped 4 symbolic links."
    everything = scan(root)
    assert len(everything.images) == 7 and everything.links == 2


@pytest.mark.parametrize(
    ("names", "warns"),
    [
        (["2019-05 Rome", "2020", "100APPLE", "Camera Roll"], True),
        (["Italy 2019", "WhatsApp Images", "cat"], True),
        (["cat", "dog", "camera"], False),
        (["n01440764", "n02123045"], False),
        (["0", "1", "2"], False),
    ],
)
def test_album_folders_are_noticed(tmp_path, names, warns):
    fill(tmp_path, *(f"{name}/a.png" for name in names))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        read_folder(tmp_path)
    texts = [str(each.message) for each in caught]
    assert any("look like albums" in text and "index build" in text for text in texts) == warns


@pytest.mark.parametrize("count", [0, 3, 4, 7])
def test_the_number_of_images_is_reported_while_a_folder_is_searched(tmp_path, monkeypatch, count):
    monkeypatch.setattr("hadahash.data.folder._REPORTED", 2)
    for number in range(count):
        (tmp_path / f"{number}.jpg").touch()
        (tmp_path / f"{number}.txt").touch()
    reported = []
    assert len(scan(tmp_path, progress=reported.append).images) == count == sum(reported)
    assert all(each <= 2 for each in reported)
