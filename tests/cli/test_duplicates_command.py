"""`hadahash duplicates`: groups of the same photo, dismissed groups, paging, pages."""

from __future__ import annotations

import json
import shutil
import sqlite3

import numpy as np
import pytest
from PIL import Image
from toys import make_toy, tiny_hasher, write_folder

from hadahash import Codes, Index
from hadahash.photos import (
    Catalog,
    PhotoDuplicates,
    default_rank,
    find_similar_to,
    same_photo_threshold,
)
from hadahash.photos import duplicates as module
from hadahash.photos.catalog import CatalogRow, FileStat
from hadahash.ranking import Ranking


@pytest.fixture(scope="module")
def two_part_run(tmp_path_factory):
    """A saved model with content bits."""
    folder = tmp_path_factory.mktemp("two-part")
    tiny_hasher(content_bits=32).fit(write_folder(folder / "train", *make_toy(48, seed=1))).save(
        folder / "run"
    )
    return folder / "run"


@pytest.fixture
def photos(tmp_path):
    """A folder of 16 photos; one has an equal copy, another was saved again in another format."""
    folder = write_folder(tmp_path / "photos", *make_toy(16, seed=3))
    shutil.copy(folder / "red" / "002.png", folder / "blue" / "copy.png")
    with Image.open(folder / "green" / "001.png") as image:
        image.save(folder / "green" / "again.bmp")
    return folder


@pytest.fixture
def index(run, two_part_run, photos, tmp_path):
    """An index of the photos."""
    out = tmp_path / "photos.index"
    code, _, err = run("index", "build", two_part_run, photos, "--out", out, "--device", "cpu")
    assert code == 0, err
    return out


def groups_of(run, index, *options):
    code, out, err = run("duplicates", index, "--json", *options)
    assert code == 0, err
    return [{file["id"] for file in group["files"]} for group in json.loads(out)["groups"]]


EQUAL, AGAIN = {"blue/copy.png", "red/002.png"}, {"green/001.png", "green/again.bmp"}


def test_equal_files_and_copies_are_found(run, index, photos):
    assert {frozenset(group) for group in groups_of(run, index, "--threshold", 0)} >= {
        frozenset(EQUAL),
        frozenset(AGAIN),
    }
    code, out, err = run("duplicates", index, "--threshold", 0)
    assert code == 0 and "2 files, all equal\n" in out and "2 files, at most 0 bits apart\n" in out
    size = (photos / "green" / "again.bmp").stat().st_size / 1000
    assert f"{size:.0f} kB  green/again.bmp\n" in out
    assert "groups within 0 of 96 bits" in err and "2 files are copies of others" in err


@pytest.mark.parametrize("by_id", [True, False])
def test_searches_mark_the_same_photo_as_duplicates_do(run, index, photos, by_id):
    """A pair is linked by `duplicates` if and only if a search from one marks the other."""
    query = ["--id", "green/001.png"] if by_id else [photos / "green/001.png"]
    code, out, err = run("search", index, *query, "-k", 18, "--json")
    assert code == 0, err
    hits = json.loads(out)["hits"]
    found = PhotoDuplicates(index)
    for hit in hits:
        apart = hit["content_distance"] + hit["looks_distance"]
        assert hit["same_photo"] == (apart <= found.default_threshold)
    marked = {hit["id"] for hit in hits if hit["same_photo"]}
    assert AGAIN - {"green/001.png"} <= marked and len(marked) < len(hits)
    (group,) = (each for each in found.find().ids if "green/001.png" in each)
    assert marked <= set(group)
    _, out, _ = run("search", index, *query, "-k", 18)
    assert out.count("  (same photo)\n") == len(marked)


def test_without_looks_only_content_bits_are_compared(run, index):
    (index / "photos.sqlite").unlink()
    _, out, _ = run("search", index, "--id", "green/001.png", "-k", 18, "--json")
    hits = json.loads(out)["hits"]
    assert all(hit["looks_distance"] is None for hit in hits)
    assert [hit["same_photo"] for hit in hits] == [hit["content_distance"] <= 2 for hit in hits]


def test_a_smaller_threshold_needs_no_search(run, index, monkeypatch):
    wide, narrow = groups_of(run, index, "--threshold", 6), groups_of(run, index, "--threshold", 0)
    (index / "duplicates.json").unlink()
    assert groups_of(run, index, "--threshold", 6) == wide
    monkeypatch.setattr(module, "find_duplicates", None)
    assert groups_of(run, index, "--threshold", 0) == narrow
    assert groups_of(run, index, "--threshold", 6) == wide
    assert max(map(len, wide)) >= max(map(len, narrow))


@pytest.mark.parametrize("content", ["", "{}", '{"state": 1}', "[1]"])
def test_a_damaged_last_search_is_ignored(run, index, content):
    before = groups_of(run, index)
    (index / "duplicates.json").write_text(content)
    assert groups_of(run, index) == before


def test_a_changed_index_is_searched_again(run, index, two_part_run, photos):
    assert EQUAL in groups_of(run, index, "--threshold", 0)
    (photos / "blue" / "copy.png").unlink()
    run("index", "build", two_part_run, photos, "--out", index)
    assert not any(group >= EQUAL for group in groups_of(run, index, "--threshold", 0))


def test_dismissed_groups_are_not_shown_again(run, index, two_part_run, photos):
    before = groups_of(run, index, "--threshold", 0)
    number = before.index(EQUAL) + 1
    code, out, _ = run("duplicates", index, "--threshold", 0, "--dismiss", number)
    assert code == 0 and out == f"dismissed group {number}: blue/copy.png, red/002.png\n"
    assert groups_of(run, index, "--threshold", 0) == [g for g in before if g != EQUAL]
    _, _, err = run("duplicates", index, "--threshold", 0)
    assert err.rstrip().endswith("; 1 dismissed")
    shutil.copy(photos / "red" / "002.png", photos / "red" / "third.png")
    run("index", "build", two_part_run, photos, "--out", index)
    assert {*EQUAL, "red/third.png"} in groups_of(run, index, "--threshold", 0)
    code, _, err = run("duplicates", index, "--dismiss", 99)
    assert code == 2 and "--dismiss must be 1 to " in err and err.count("\n") == 1


def test_dismissed_groups_in_a_file_of_their_own(run, index, tmp_path):
    file = tmp_path / "mine.json"
    run("duplicates", index, "--threshold", 0, "--dismiss", 1, "--dismissed", file)
    assert file.exists() and not (index / "dismissed.json").exists()
    everything = groups_of(run, index, "--threshold", 0)
    assert groups_of(run, index, "--threshold", 0, "--dismissed", file) == everything[1:]


def test_groups_are_paged(run, index):
    everything = groups_of(run, index, "--threshold", 0, "--limit", 0)
    assert groups_of(run, index, "--threshold", 0, "--limit", 1) == everything[:1]
    assert groups_of(run, index, "--threshold", 0, "--limit", 1, "--skip", 1) == everything[1:2]
    _, out, err = run("duplicates", index, "--threshold", 0, "--limit", 1, "--skip", 1)
    assert "group 2, " in out and "group 1, " not in out and ", 1 shown" in err
    code, _, err = run("duplicates", index, "--limit", -1)
    assert code == 2 and "--limit must be >= 0, got -1." in err


def test_the_page_shows_pictures_side_by_side(run, index, photos, tmp_path):
    page = tmp_path / "d.html"
    (photos / "green" / "again.bmp").unlink()
    code, _, err = run("duplicates", index, "--threshold", 0, "--html", page)
    text = page.read_text()
    assert code == 0 and f"wrote {page}" in err and err.count("Image not shown: ") == 1
    assert text.count("<figure") == 4 and text.count("<img") == 3 and "http" not in text
    assert "2 files, all equal" in text and " pixels, " in text


def test_an_index_without_content_bits_says_so(run, tmp_path):
    Index.build(Codes(np.zeros((2, 2), np.uint8), 16, ["a", "b"])).save(tmp_path / "i")
    code, out, err = run("duplicates", tmp_path / "i")
    assert code == 0 and "a group may be a whole class" in err and "group 1, 2 files" in out
    assert PhotoDuplicates(tmp_path / "i").default_threshold == 0


def test_items_without_files_are_not_called_equal(run, tmp_path):
    """Equal codes are no equal files."""
    Index.build(Codes(np.zeros((2, 2), np.uint8), 16, ["a", "b"])).save(tmp_path / "i")
    code, out, err = run("duplicates", tmp_path / "i")
    assert code == 0 and "group 1, 2 files, at most 0 bits apart\n" in out, err


def test_a_folder_of_photos_is_indexed_first(run, index, photos, monkeypatch):
    built = []
    monkeypatch.setattr(
        "hadahash.photos.build_or_update", lambda path, **options: built.append(path) or index
    )
    assert groups_of(run, photos) == groups_of(run, index) and built == [photos]


def test_codes_made_without_labels_are_compared(tmp_path):
    codes = Codes.from_values(np.random.default_rng(0).standard_normal((20, 64)))
    Index.build(codes, ranking=Ranking()).save(tmp_path / "i")
    photos = PhotoDuplicates(tmp_path / "i")
    assert photos.compares_content and photos.default_threshold == 4 and not len(photos.find())
    assert default_rank(photos.index) == "class"


@pytest.mark.parametrize(
    ("bits", "content", "compared"),
    [(20, 0, 84), (16, 20, 84), (448, 0, 512), (449, 0, 449)],
)
def test_searches_and_duplicates_compare_the_same_bits(tmp_path, bits, content, compared):
    """Of any code length: a search marks exactly the pairs that are linked."""
    rng, near = np.random.default_rng(0), 0.07
    flips = np.cumsum(rng.random((40, bits + content + 64)) < near, axis=0) % 2 == 1
    own, other, looks = np.split(flips, [bits, bits + content], axis=1)
    ids = [f"{number:02}.jpg" for number in range(len(flips))]
    extra = {"content": np.packbits(other, axis=1), "content_bits": content} if content else {}
    codes = Codes(np.packbits(own, axis=1), bits, ids, **extra)
    Index.build(codes, paths=ids, ranking=Ranking()).save(tmp_path)
    catalog, digests = Catalog(tmp_path), [each.encode() for each in ids]
    stat = FileStat(1, 1)
    rows = {each: CatalogRow(tmp_path, stat, each.encode(), None) for each in ids}
    catalog.write(rows)
    catalog.write_looks(dict(zip(digests, map(bytes, np.packbits(looks, axis=1)), strict=True)))
    found = PhotoDuplicates(tmp_path)
    assert found.compared_bits == compared == found.find().bits
    assert found.default_threshold == same_photo_threshold(found.index)
    marked = {
        frozenset((each, hit.id))
        for each in ids
        for hit in find_similar_to(found.index, each, k=len(ids), rank="hamming", folder=tmp_path)
        if hit.same_photo
    }
    parts = [own if not content else other, *([looks] if compared > (content or bits) else [])]
    apart = (np.concatenate(parts, axis=1)[:, None] != np.concatenate(parts, axis=1)).sum(axis=2)
    pairs = zip(*np.nonzero(np.triu(apart <= found.default_threshold, 1)), strict=True)
    assert marked == {frozenset((ids[a], ids[b])) for a, b in pairs} and 0 < len(marked) < 400
    linked = [set(group) for group in found.find().ids]
    assert all(any(pair <= group for group in linked) for pair in marked)


def test_bad_arguments_are_refused_in_one_line(run, index, photos, tmp_path):
    (tmp_path / "empty").mkdir()
    for arguments, words in (
        ((index, "--threshold", -1), "threshold must be"),
        ((tmp_path / "empty",), "contains no images"),
        ((tmp_path / "nowhere",), "contains no index"),
    ):
        code, out, err = run("duplicates", *arguments)
        assert code in (1, 2) and out == "" and words in err and err.count("\n") == 1


def test_looks_are_stored_when_photos_are_indexed(run, index, photos):
    found = PhotoDuplicates(index)
    assert found.unread() == [] and found.default_threshold == 15  # 5/32 of 32 + 64 bits
    looks = found._catalog.looks()
    assert len(looks) == 18 and looks["green/001.png"] == looks["green/again.bmp"]


def test_altered_copies_are_found_by_looks(run, index, two_part_run, photos):
    with Image.open(photos / "green" / "001.png") as image:
        image.transpose(Image.Transpose.FLIP_LEFT_RIGHT).save(photos / "green" / "mirrored.png")
    run("index", "build", two_part_run, photos, "--out", index, "--device", "cpu")
    looks = PhotoDuplicates(index)._catalog.looks()
    assert looks["green/mirrored.png"] == looks["green/001.png"]
    assert any(group >= {*AGAIN, "green/mirrored.png"} for group in groups_of(run, index))


def test_missing_looks_are_read_once(run, index, photos, monkeypatch):
    before = groups_of(run, index)
    with sqlite3.connect(index / "photos.sqlite") as connection:
        connection.execute("DROP TABLE looks")
    (index / "duplicates.json").unlink()
    found = PhotoDuplicates(index)
    assert len(found.unread()) == 17  # one of two equal files
    assert groups_of(run, index) == before
    assert PhotoDuplicates(index).unread() == []


def test_photos_that_are_gone_are_left_out(run, index, photos):
    with sqlite3.connect(index / "photos.sqlite") as connection:
        connection.execute("DROP TABLE looks")
    for name in ("green/001.png", "green/again.bmp"):
        (photos / name).unlink()
    code, _, err = run("duplicates", index, "--threshold", 0)
    assert code == 0 and "2 photos cannot be read and are left out." in err
    groups = groups_of(run, index, "--threshold", 0)
    assert EQUAL in groups and not any(group & AGAIN for group in groups)


def test_without_looks_content_bits_are_compared(run, index, photos):
    with sqlite3.connect(index / "photos.sqlite") as connection:
        connection.execute("DROP TABLE looks")
    shutil.rmtree(photos)
    found = PhotoDuplicates(index)
    assert found.read(found.unread()) == 17 and found.default_threshold == 2
    assert found.find(0).bits == 32 and EQUAL in map(set, found.find(0).ids)
