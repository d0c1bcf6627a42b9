"""An index follows the photos on disk: new, changed, touched, vanished and unreadable ones; models are never mixed."""

from __future__ import annotations

import csv
import os
import shutil
import sqlite3
import sys

import numpy as np
import pytest
from PIL import Image
from toys import make_toy, one_line, tiny_hasher, write_folder

from hadahash import photos as room
from hadahash.errors import StorageError, UsageError
from hadahash.index import Index, list_engines
from hadahash.index.duplicates import duplicate_groups
from hadahash.photos import PhotoIndex, find, model_of, photos_at, photos_of


@pytest.fixture
def follow(fitted, saved, toy_folder, tmp_path):
    """Build, or build again; answers the changes and how many images were encoded."""
    encode, seen = fitted.encode, []

    def counted(source, **options):
        seen.append(len(source.images))
        return encode(source, **options)

    def go(**options):
        seen.clear()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(fitted, "encode", counted)
            photos = PhotoIndex.open_or_make(
                tmp_path / "photos.index", fitted, saved, toy_folder, **options
            )
            changes = photos.apply(
                photos.plan(photos_of(toy_folder), vanished_from=photos.home), fitted
            )
        assert sum(seen) >= changes.encoded
        return photos, changes, sum(seen)

    return go


def figures(changes):
    return changes.encoded, changes.same, changes.removed, changes.skipped, changes.total


@pytest.mark.parametrize("engine", list_engines())
def test_the_index_follows_the_folder(follow, fitted, toy_folder, engine):
    photos, changes, seen = follow(engine=engine)
    assert figures(changes) == (48, 0, 0, 0, 48) and seen == 48 and photos.index.engine == engine
    assert figures(follow()[1]) == (0, 48, 0, 0, 48) and follow()[2] == 0

    new = toy_folder / "red" / "new.png"
    shutil.copy(toy_folder / "blue" / "000.png", new)
    Image.fromarray(make_toy(1, seed=77)[0][0]).save(toy_folder / "green" / "001.png")  # changed
    os.utime(toy_folder / "blue" / "004.png", (1, 1))  # touched
    (toy_folder / "yellow" / "003.png").unlink()
    (toy_folder / "loose.jpg").write_bytes((toy_folder / "red" / "002.png").read_bytes())
    photos, changes, seen = follow()
    assert figures(changes) == (3, 46, 1, 0, 49) and seen == 3
    assert figures(follow()[1]) == (0, 49, 0, 0, 49)

    whole = fitted.encode(toy_folder)
    order = np.argsort(whole.ids)
    codes = Index.open(photos.folder).codes()
    assert codes.ids.tolist() == whole.ids[order].tolist() and np.array_equal(
        codes.packed, whole.packed[order]
    )
    items = photos.index.get(["red/new.png", "loose.jpg"])
    assert [item.labels for item in items] == [("red",), ()] and items[0].path == str(new.resolve())


def test_unreadable_files_are_listed_and_looked_at_once(follow, toy_folder):
    bad = toy_folder / "red" / "bad.jpg"
    bad.write_bytes(b"\xff\xd8\xff not a picture")
    photos, changes, _ = follow()
    assert figures(changes) == (48, 0, 0, 1, 48)
    listed = list(csv.DictReader((photos.folder / "skipped.csv").open()))
    assert [row["path"] for row in listed] == ["red/bad.jpg"] and listed[0]["reason"]
    assert figures(follow()[1]) == (0, 49, 0, 1, 48) and follow()[2] == 0
    assert (photos.folder / "skipped.csv").exists()
    shutil.copy(toy_folder / "blue" / "000.png", bad)  # mended
    (toy_folder / "red" / "002.png").write_bytes(b"now broken")
    photos, changes, _ = follow()
    assert figures(changes) == (1, 47, 0, 1, 48)
    assert photos.index.has(["red/bad.jpg", "red/002.png"]).tolist() == [True, False]
    (toy_folder / "red" / "002.png").unlink()
    photos, changes, _ = follow()
    assert changes.skipped == 0 and not (photos.folder / "skipped.csv").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="pipes")
def test_a_pipe_is_not_waited_for(follow, toy_folder):
    os.mkfifo(toy_folder / "red" / "pipe.jpg")
    assert figures(follow()[1]) == (48, 0, 0, 1, 48)


def test_what_a_crash_leaves_is_made_good(follow, toy_folder, monkeypatch):
    monkeypatch.setattr(room, "PART", 20)
    write = room._write_entries

    def break_off(ledger, entries):
        raise KeyboardInterrupt

    monkeypatch.setattr(room, "_write_entries", break_off)
    with pytest.raises(KeyboardInterrupt):
        follow()
    monkeypatch.setattr(room, "_write_entries", write)
    photos, changes, _ = follow()  # 20 were in the index, and none in the ledger
    assert changes.total == 48 and changes.encoded == 48
    photos.index.remove(["red/002.png"])
    photos.index.save(photos.folder)  # the ledger knows more than the index
    assert figures(follow()[1]) == (1, 47, 0, 0, 48)
    (photos.folder / "photos.sqlite").unlink()
    assert figures(follow()[1]) == (48, 0, 0, 0, 48)
    (photos.folder / "photos.sqlite").write_bytes(b"not a data base" * 100)
    with pytest.raises(StorageError, match=r"photos\.sqlite") as caught:
        follow()
    one_line(caught.value)


def test_an_interrupted_build_goes_on(follow, fitted, monkeypatch):
    monkeypatch.setattr(room, "PART", 20)
    encode, parts = PhotoIndex._encode, []

    def second_fails(self, *arguments):
        parts.append(1)
        if len(parts) == 2:
            raise KeyboardInterrupt
        return encode(self, *arguments)

    monkeypatch.setattr(PhotoIndex, "_encode", second_fails)
    with pytest.raises(KeyboardInterrupt):
        follow()
    _, changes, seen = follow()
    assert figures(changes) == (28, 20, 0, 0, 48) and seen == 28


def test_other_folders_and_files_are_added(follow, fitted, toy_folder, tmp_path):
    photos, _, _ = follow()
    other = write_folder(tmp_path / "other", *make_toy(8, seed=5))

    def add(*sources, prefix=""):
        opened = PhotoIndex.open(photos.folder)
        return opened.apply(
            opened.plan(photos_at(sources, home=opened.home, prefix=prefix)), fitted
        )

    with pytest.raises(
        UsageError, match=r"already has 'blue/000\.png', which is .*--prefix"
    ) as caught:
        add(other)
    one_line(caught.value)
    assert figures(add(other, prefix="more/")) == (8, 0, 0, 0, 56)
    assert figures(add(other, prefix="more/")) == (0, 8, 0, 0, 56)
    inside = toy_folder / "red" / "later.png"
    shutil.copy(other / "red" / "002.png", inside)
    assert add(inside).total == 57
    opened = PhotoIndex.open(photos.folder).index
    assert opened.get(["red/later.png", "more/blue/000.png"])[1].labels == ("blue",)
    assert figures(follow()[1]) == (
        0,
        49,
        0,
        0,
        57,
    )  # what was added stays, and the file inside is known
    single = tmp_path / "single.png"
    shutil.copy(inside, single)
    assert (
        add(single).total == 58
        and PhotoIndex.open(photos.folder).index.get(["single.png"])[0].labels == ()
    )
    shutil.copytree(other, tmp_path / "third")
    with pytest.raises(UsageError, match="Two files would get the id"):
        photos_at([other, tmp_path / "third"])


def test_models_folders_and_engines_are_not_mixed(follow, saved, toy, toy_folder, tmp_path):
    photos, _, _ = follow()
    stranger = tiny_hasher(epochs=1, seed=9).fit(*toy)
    stranger.save(tmp_path / "stranger")
    mistakes = [
        (
            lambda: PhotoIndex.open_or_make(photos.folder, stranger, tmp_path, toy_folder),
            "codes of two models",
        ),
        (lambda: photos.apply(photos.plan([]), stranger), "codes of two models"),
        (
            lambda: model_of(photos.index, photos.folder, tmp_path / "stranger"),
            "codes of two models",
        ),
        (lambda: follow(engine="routed"), "with the engine exact"),
        (
            lambda: PhotoIndex.open_or_make(
                photos.folder, model_of(photos.index, "i"), saved, tmp_path
            ),
            "is an index of",
        ),
    ]
    for call, message in mistakes:
        with pytest.raises(UsageError, match=message) as caught:
            call()
        one_line(caught.value)
    photos.index.meta["run"] = str(tmp_path / "gone")
    with pytest.raises(UsageError, match=r"no longer at .*--run"):
        model_of(photos.index, photos.folder)
    assert model_of(photos.index, photos.folder, saved).bits == 16
    del photos.index.meta["run"]
    with pytest.raises(UsageError, match="does not say which model"):
        model_of(photos.index, photos.folder)


def test_the_codebook_reaches_the_index(follow, fitted):
    photos, _, _ = follow(engine="routed")
    book = fitted.network.method.codebook.numpy()
    assert np.array_equal(
        np.unpackbits(Index.open(photos.folder).codebook, axis=1, count=16), book > 0
    )


def test_odd_names(follow, toy_folder):
    odd = ["it's.png", "-x.png", "new\nline.png", os.fsdecode(b"\xff.png"), "é 😀.png"]
    for name in odd:
        shutil.copy(toy_folder / "blue" / "000.png", toy_folder / "red" / name)
    photos, changes, _ = follow()
    assert changes.total == 53 and photos.index.has([f"red/{name}" for name in odd]).all()
    assert figures(follow()[1]) == (0, 53, 0, 0, 53)
    (toy_folder / "red" / odd[3]).unlink()
    assert follow()[1].removed == 1


def test_finding(follow, fitted, toy_folder):
    photos, _, _ = follow()
    image = toy_folder / "blue" / "000.png"
    first, *rest = find(photos.index, fitted, image, k=5)
    assert (first.distance, len(rest)) == (0, 4) and first.path == str(toy_folder / first.id)
    assert find(photos.index, fitted, image, k=48, radius=0)[0] == first
    assert {hit.labels for hit in find(photos.index, fitted, image, k=48, labels=["red"])} == {
        ("red",)
    }
    assert find(photos.index, fitted, image, labels=["nobody"]) == []


def test_the_ledger_keeps_content_and_time(follow, toy_folder):
    photos, _, _ = follow()
    row = sqlite3.connect(photos.folder / "photos.sqlite").execute(
        "SELECT size, mtime_ns, length(digest), reason FROM photos WHERE id = ?", (b"blue/000.png",)
    )
    status = (toy_folder / "blue" / "000.png").stat()
    assert row.fetchone() == (status.st_size, status.st_mtime_ns, 32, None)


# ---- duplicates ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("radius", [0, 1, 2, 5])
def test_groups_are_what_a_walk_finds(radius):
    rng = np.random.default_rng(radius)
    from hadahash.codes import Codes, hamming

    codes = Codes(
        packed=rng.integers(0, 256, (300, 2), dtype=np.uint8),
        bits=16,
        ids=[f"n{each}" for each in range(300)],
    )
    near = hamming(codes.packed, codes.packed) <= radius
    unseen, expected = set(range(300)), []
    while unseen:
        group, edge = set(), {min(unseen)}
        while edge:
            group |= edge
            edge = {int(other) for each in edge for other in np.flatnonzero(near[each])} - group
        unseen -= group
        expected.append(sorted(f"n{each}" for each in group))
    expected = sorted(
        (group for group in expected if len(group) > 1), key=lambda group: (-len(group), group[0])
    )
    assert duplicate_groups(Index.build(codes), radius) == expected
    assert duplicate_groups(Index.build(codes[:0]), radius) == []


def test_a_radius_below_zero_is_refused(follow):
    with pytest.raises(UsageError, match="radius=-1"):
        duplicate_groups(follow()[0].index, -1)
