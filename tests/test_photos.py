"""Sync of an index with photos on disk: new, changed, renamed, deleted and unreadable files."""

from __future__ import annotations

import csv
import os
import shutil
import sqlite3
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from toys import make_toy, one_line, tiny_hasher, write_folder

from hadahash.codes import Codes, hamming
from hadahash.errors import DataError, ImageError, StorageError, UsageError
from hadahash.index import Index, list_engines
from hadahash.index.duplicates import duplicate_groups
from hadahash.model import HashModel
from hadahash.photos import (
    BuildOptions,
    PhotoIndex,
    build_or_update,
    digests,
    find_similar,
    load_model_of,
    scan_folder,
    scan_paths,
    sync,
)
from hadahash.photos.catalog import Catalog, CatalogRow, FileStat
from hadahash.photos.scan import Photo


@pytest.fixture
def model(fitted):
    return fitted.model_


@pytest.fixture
def build(model, saved, toy_folder, tmp_path):
    """Build, or build again; returns the index, the summary and how many images were encoded."""
    encode, seen = HashModel.encode, []

    def counted(self, source, **options):
        seen.append(len(source.images))
        return encode(self, source, **options)

    def go(folder=toy_folder, *, moved=False, checksum=False, **options):
        seen.clear()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(HashModel, "encode", counted)
            photos = PhotoIndex.open_or_create(
                tmp_path / "photos.index", model, saved, folder, moved=moved, **options
            )
            plan = photos.plan(scan_folder(folder), whole=folder.resolve(), checksum=checksum)
            summary = photos.apply(plan, model)
        return photos, summary, sum(seen)

    return go


def figures(summary):
    return summary.encoded, summary.unchanged, summary.removed, summary.skipped, summary.total


@pytest.mark.parametrize("engine", list_engines())
def test_the_index_is_synced_with_the_folder(build, model, toy_folder, engine):
    photos, summary, seen = build(engine=engine)
    assert figures(summary) == (48, 0, 0, 0, 48) and seen == 48 and photos.index.engine == engine
    assert figures(build()[1]) == (0, 48, 0, 0, 48) and build()[2] == 0

    new = toy_folder / "red" / "new.png"
    shutil.copy(toy_folder / "blue" / "000.png", new)
    Image.fromarray(make_toy(1, seed=77)[0][0]).save(toy_folder / "green" / "001.png")  # changed
    os.utime(toy_folder / "blue" / "004.png", (1, 1))  # same content, new time
    (toy_folder / "yellow" / "003.png").unlink()
    (toy_folder / "loose.jpg").write_bytes((toy_folder / "red" / "002.png").read_bytes())
    photos, summary, seen = build()
    assert figures(summary) == (3, 46, 1, 0, 49) and seen == 3
    assert figures(build()[1]) == (0, 49, 0, 0, 49)

    whole = model.encode(toy_folder)
    order = np.argsort(whole.ids.tolist())
    codes = Index.open(photos.folder).codes()
    assert codes.ids.tolist() == whole.ids[order].tolist()
    assert np.array_equal(codes.packed, whole.packed[order])
    items = photos.index.get(["red/new.png", "loose.jpg"])
    assert [item.labels for item in items] == [("red",), ()] and items[0].path == str(new.resolve())


def test_progress_while_photos_are_compared(build, toy_folder, monkeypatch):
    photos, _, _ = build()
    monkeypatch.setattr(digests, "_STEP", 20)
    done = []
    plan = photos.plan(scan_folder(toy_folder), progress=done.append)
    assert done == [20, 20, 8] and plan.unchanged == 48


def test_renamed_files_keep_their_codes(build, toy_folder):
    photos, _, _ = build()
    before = photos.index.codes(["red/002.png"]).packed
    (toy_folder / "red").rename(toy_folder / "rouge")
    photos, summary, seen = build()
    assert (summary.renamed, seen) == (12, 0) and figures(summary) == (0, 36, 0, 0, 48)
    assert "12 renamed" in str(summary)
    (item,) = photos.index.get(["rouge/002.png"])
    assert item.labels == ("rouge",) and item.path == str(toy_folder / "rouge" / "002.png")
    assert np.array_equal(photos.index.codes(["rouge/002.png"]).packed, before)
    assert not photos.index.has(["red/002.png"]).any()
    assert figures(build()[1]) == (0, 48, 0, 0, 48)


def test_a_photo_folder_that_was_moved_is_accepted_on_request(build, toy_folder, tmp_path):
    build()
    moved = toy_folder.rename(tmp_path / "pictures")
    with pytest.raises(UsageError, match=r"is an index of .*--moved"):
        build(moved)
    Image.fromarray(make_toy(1, seed=77)[0][0]).save(moved / "green" / "001.png")
    photos, summary, seen = build(moved, moved=True)
    assert (summary.renamed, seen, summary.total) == (47, 1, 48) and photos.home == moved
    assert photos.index.get(["red/002.png"])[0].path == str(moved / "red" / "002.png")
    assert figures(build(moved)[1]) == (0, 48, 0, 0, 48)


def test_a_change_that_keeps_size_and_time_needs_checksums(build, toy_folder):
    build()
    path = toy_folder / "red" / "002.png"
    status, content = path.stat(), bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert build()[2] == 0
    assert build(checksum=True)[2] == 1


def test_unreadable_files_are_listed_and_read_once(build, toy_folder):
    bad = toy_folder / "red" / "bad.jpg"
    bad.write_bytes(b"\xff\xd8\xff not a picture")
    photos, summary, _ = build()
    assert figures(summary) == (48, 0, 0, 1, 48)
    listed = list(csv.DictReader((photos.folder / "skipped.csv").open()))
    assert [row["path"] for row in listed] == ["red/bad.jpg"] and listed[0]["reason"]
    assert figures(build()[1]) == (0, 49, 0, 1, 48) and build()[2] == 0
    assert (photos.folder / "skipped.csv").exists() and photos.catalog.count_skipped() == 1
    shutil.copy(toy_folder / "blue" / "000.png", bad)  # repaired
    (toy_folder / "red" / "002.png").write_bytes(b"now broken")
    photos, summary, _ = build()
    assert figures(summary) == (1, 47, 0, 1, 48)
    assert photos.index.has(["red/bad.jpg", "red/002.png"]).tolist() == [True, False]
    (toy_folder / "red" / "002.png").unlink()
    photos, summary, _ = build()
    assert summary.skipped == 0 and not (photos.folder / "skipped.csv").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="pipes")
def test_reading_does_not_block_on_a_pipe(build, toy_folder):
    os.mkfifo(toy_folder / "red" / "pipe.jpg")
    assert figures(build()[1]) == (48, 0, 0, 1, 48)


def test_files_of_unsupported_types_and_hidden_files_are_counted(
    toy_folder, tmp_path, without_heif
):
    for name in ("a.HEIC", "b.heic", "c.MOV", ".hidden.png"):
        (toy_folder / "red" / name).write_bytes(b"x")
    scan = scan_folder(toy_folder)
    assert len(scan.photos) == 48
    expected = "Skipped 3 files of unsupported types (2 .heic, 1 .mov) and 1 hidden file."
    assert scan.notice == f"{expected} To read HEIC: pip install 'hadahash[heif]'"
    assert scan_paths([toy_folder, toy_folder / "red"], home=toy_folder).notice is not None
    assert scan_paths([toy_folder / "red" / "002.png"]).notice is None


def test_an_empty_folder_does_not_empty_the_index(build, toy_folder, tmp_path):
    photos, _, _ = build()
    toy_folder.rename(tmp_path / "away")
    toy_folder.mkdir()
    plan = photos.plan(scan_folder(toy_folder), whole=toy_folder)
    with pytest.raises(DataError, match=r"contains no images.*--allow-empty") as caught:
        plan.check_deletions()
    one_line(caught.value)
    plan.check_deletions(allow_empty=True)
    (tmp_path / "away" / "red").rename(toy_folder / "red")
    plan = photos.plan(scan_folder(toy_folder), whole=toy_folder)
    with pytest.raises(DataError, match=r"36 of 48 indexed files are missing.*--yes") as caught:
        plan.check_deletions()
    one_line(caught.value)
    plan.check_deletions(allow_deletions=True)
    assert len(Index.open(photos.folder)) == 48


def test_changing_and_renaming_everything_is_not_a_mass_deletion(build, toy_folder):
    photos, _, _ = build()
    for number, path in enumerate(sorted(toy_folder.glob("yellow/*"))):
        Image.fromarray(make_toy(1, seed=100 + number)[0][0]).save(path)
    (toy_folder / "yellow" / "003.png").unlink()
    photos.plan(scan_folder(toy_folder), whole=toy_folder).check_deletions()
    for name in ("red", "green", "blue"):
        (toy_folder / name).rename(toy_folder / f"{name}ish")
    photos.plan(scan_folder(toy_folder), whole=toy_folder).check_deletions()


def break_off(self, rows):
    raise KeyboardInterrupt


def test_a_crash_loses_no_file(build, toy_folder, monkeypatch):
    monkeypatch.setattr(sync, "PART", 20)
    write = Catalog.write
    monkeypatch.setattr(Catalog, "write", break_off)
    with pytest.raises(KeyboardInterrupt):
        build()
    monkeypatch.setattr(Catalog, "write", write)
    photos, summary, _ = build()  # 20 were in the index, and none in the catalog
    assert summary.total == 48 and summary.encoded == 48
    photos.index.remove(["red/002.png"])
    photos.index.save(photos.folder)  # the catalog knows more than the index
    assert figures(build()[1]) == (1, 47, 0, 0, 48)
    (photos.folder / "photos.sqlite").unlink()
    assert figures(build()[1]) == (48, 0, 0, 0, 48)
    (photos.folder / "photos.sqlite").write_bytes(b"not a data base" * 100)
    with pytest.raises(StorageError, match=r"photos\.sqlite") as caught:
        build()
    one_line(caught.value)


def replace_item(photos, name, like):
    """Remove an item and add one of other content under its id, as a client of the service does."""
    codes = photos.index.codes([like])
    photos.index.remove([name])
    photos.index.add(Codes(codes.packed, codes.bits, [name]))
    photos.index.save(photos.folder)


@pytest.mark.parametrize("renamed", [None, "red/other.png"])
def test_an_item_that_took_the_id_of_a_file_gives_it_back(build, model, toy_folder, renamed):
    photos, _, _ = build()
    name = "red/002.png"
    before = photos.index.codes([name]).packed
    replace_item(photos, name, "blue/000.png")
    if renamed:
        (toy_folder / name).rename(toy_folder / renamed)
    photos, summary, seen = build()
    assert seen == 1 and summary.encoded == 1 and summary.renamed == 0, "its code is not taken over"
    (item,) = photos.index.get([renamed or name])
    assert item.path == str(toy_folder / (renamed or name)) and item.labels == ("red",)
    assert (photos.index.codes([renamed or name]).packed == before).all()
    assert figures(build()[1])[0] == 0


def test_an_item_without_a_file_stays_when_the_file_of_its_id_is_deleted(build, toy_folder):
    photos, _, _ = build()
    replace_item(photos, "red/002.png", "blue/000.png")
    (toy_folder / "red/002.png").unlink()
    photos, summary, _ = build()
    assert summary.removed == 0 and photos.index.has(["red/002.png"])[0]
    assert figures(build()[1]) == (0, 47, 0, 0, 48), "and the catalog forgot the file"


def test_other_content_never_has_the_looks_of_the_file_before(build, toy_folder, monkeypatch):
    """As kill -9 after the index was saved, and before the catalog was."""
    photos, _, _ = build()
    name, write = "red/002.png", Catalog.write
    before = photos.catalog.looks()[name]
    Image.fromarray(255 - np.array(Image.open(toy_folder / name))).save(toy_folder / name)
    monkeypatch.setattr(Catalog, "write", break_off)
    with pytest.raises(KeyboardInterrupt):
        build()
    assert name not in photos.catalog.looks()
    monkeypatch.setattr(Catalog, "write", write)
    assert figures(build()[1]) == (1, 47, 0, 0, 48)
    assert photos.catalog.looks()[name] not in (before, None)


def test_an_interrupted_build_continues(build, monkeypatch):
    monkeypatch.setattr(sync, "PART", 20)
    encode, parts = PhotoIndex._encode, []

    def second_fails(self, *arguments):
        parts.append(1)
        if len(parts) == 2:
            raise KeyboardInterrupt
        return encode(self, *arguments)

    monkeypatch.setattr(PhotoIndex, "_encode", second_fails)
    with pytest.raises(KeyboardInterrupt):
        build()
    _, summary, seen = build()
    assert figures(summary) == (28, 20, 0, 0, 48) and seen == 28


def test_other_folders_and_files_are_added(build, model, toy_folder, tmp_path):
    photos, _, _ = build()
    other = write_folder(tmp_path / "other", *make_toy(8, seed=5))

    def add(*sources, prefix=""):
        opened = PhotoIndex.open(photos.folder)
        return opened.apply(
            opened.plan(scan_paths(sources, home=opened.home, prefix=prefix)), model
        )

    with pytest.raises(UsageError, match=r"already has 'blue/000\.png'.*--prefix") as caught:
        add(other)
    one_line(caught.value)
    assert figures(add(other, prefix="more/")) == (8, 0, 0, 0, 56)
    assert figures(add(other, prefix="more/")) == (0, 8, 0, 0, 56)
    inside = toy_folder / "red" / "later.png"
    shutil.copy(other / "red" / "002.png", inside)
    assert add(inside).total == 57
    opened = PhotoIndex.open(photos.folder).index
    assert opened.get(["red/later.png", "more/blue/000.png"])[1].labels == ("blue",)
    # What was added stays, and the file inside the folder is known.
    assert figures(build()[1]) == (0, 49, 0, 0, 57)
    single = tmp_path / "single.png"
    shutil.copy(inside, single)
    assert add(single).total == 58
    assert PhotoIndex.open(photos.folder).index.get(["single.png"])[0].labels == ()
    shutil.copytree(other, tmp_path / "third")
    with pytest.raises(UsageError, match="Two files would get the id"):
        scan_paths([other, tmp_path / "third"])


def test_models_folders_and_engines_are_not_mixed(build, saved, toy, toy_folder, tmp_path):
    photos, _, _ = build()
    hasher = tiny_hasher(epochs=1, seed=9).fit(*toy)
    hasher.save(tmp_path / "stranger")
    stranger, folder = hasher.model_, photos.folder
    nothing = photos.plan(scan_paths([]))
    mistakes = [
        (lambda: PhotoIndex.open_or_create(folder, stranger, tmp_path, toy_folder), "two models"),
        (lambda: photos.apply(nothing, stranger), "codes of two models"),
        (lambda: load_model_of(photos.index, folder, tmp_path / "stranger"), "two models"),
        (lambda: build(engine="routed"), "with the engine exact"),
    ]
    for call, message in mistakes:
        with pytest.raises(UsageError, match=message) as caught:
            call()
        one_line(caught.value)
    photos.index.meta["run"] = str(tmp_path / "gone")
    with pytest.raises(UsageError, match=r"no longer at .*--run"):
        load_model_of(photos.index, folder)
    assert load_model_of(photos.index, folder, saved).bits == 16
    del photos.index.meta["run"]
    with pytest.raises(UsageError, match=r"the run of its model \w{12}\. Pass it with --run"):
        load_model_of(photos.index, folder)


def test_an_index_of_version_0_1_names_the_model_by_its_weights(build, model):
    photos, _, _ = build()
    photos.index.meta["model"] = model.weights_sha256
    assert load_model_of(photos.index, photos.folder).id == model.id
    assert figures(photos.apply(photos.plan(scan_paths([])), model)) == (0, 0, 0, 0, 48)


def test_the_codewords_of_any_method_reach_the_index(build, model, saved, toy, tmp_path):
    photos, _, _ = build(engine="routed")
    stored = Index.open(photos.folder).codewords
    assert np.array_equal(np.unpackbits(stored, axis=1, count=16), model.codewords() > 0)
    other = tiny_hasher("csq", epochs=1).fit(*toy).model_
    created = PhotoIndex.create(tmp_path / "csq.index", other, saved, tmp_path, engine="routed")
    assert created.index.codewords is not None


def test_odd_names(build, toy_folder):
    odd = ["it's.png", "-x.png", "new\nline.png", os.fsdecode(b"\xff.png"), "é 😀.png"]
    for name in odd:
        shutil.copy(toy_folder / "blue" / "000.png", toy_folder / "red" / name)
    photos, summary, _ = build()
    assert summary.total == 53 and photos.index.has([f"red/{name}" for name in odd]).all()
    assert figures(build()[1]) == (0, 53, 0, 0, 53)
    (toy_folder / "red" / odd[3]).unlink()
    assert build()[1].removed == 1


def test_find_similar(build, model, toy_folder):
    photos, _, _ = build()
    image = toy_folder / "blue" / "000.png"
    first, *rest = find_similar(photos.index, model, image, k=5)
    assert (first.distance, len(rest)) == (0, 4) and first.path == str(toy_folder / first.id)
    assert find_similar(photos.index, model, image, k=48, radius=0)[0] == first
    assert find_similar(photos.index, model, str(image), k=1) == [first]
    assert find_similar(photos.index, model, Image.open(image), k=1) == [first]
    hits = find_similar(photos.index, model, image, k=48, labels=["red"])
    assert {hit.labels for hit in hits} == {("red",)}


def test_a_search_takes_exactly_one_image(build, model, toy_folder, tmp_path):
    photos, _, _ = build()
    (tmp_path / "empty").mkdir()
    (tmp_path / "bad.jpg").write_bytes(b"\xff\xd8\xff not a picture")
    (tmp_path / "two.csv").write_text("path,labels\nphotos/red/002.png,a\nphotos/blue/000.png,b\n")
    for image, kind, message in (
        (toy_folder / "red", UsageError, "one image file, got the folder"),
        (tmp_path / "empty", UsageError, "one image file, got the folder"),
        (tmp_path / "two.csv", UsageError, "exactly one image, got 2"),
        ([], UsageError, "exactly one image, got 0"),
        (tmp_path / "nowhere.jpg", DataError, r"nowhere\.jpg"),
        ("cifar10", DataError, "cifar10"),
        (tmp_path / "bad.jpg", ImageError, r"bad\.jpg"),
    ):
        with pytest.raises(kind, match=message) as caught:
            find_similar(photos.index, model, image)
        one_line(caught.value)


def test_an_unknown_label_is_refused_with_a_suggestion(build, model, toy_folder):
    photos, _, _ = build()
    image = toy_folder / "blue" / "000.png"
    for label in ("bleu", "9" * 5000):
        with pytest.raises(UsageError, match="Unknown label") as caught:
            find_similar(photos.index, model, image, labels=["red", label])
        one_line(caught.value)
    with pytest.raises(UsageError, match=r"Did you mean 'blue'\?"):
        find_similar(photos.index, model, image, labels=["bleu"])


# ---- catalog -------------------------------------------------------------------------------------


def test_the_catalog_keeps_content_and_time(build, toy_folder):
    photos, _, _ = build()
    row = sqlite3.connect(photos.folder / "photos.sqlite").execute(
        "SELECT size, mtime_ns, length(digest), reason FROM photos WHERE id = ?", (b"blue/000.png",)
    )
    status = (toy_folder / "blue" / "000.png").stat()
    assert row.fetchone() == (status.st_size, status.st_mtime_ns, 32, None)


def test_a_catalog_of_version_0_1_is_read(tmp_path):
    with sqlite3.connect(tmp_path / "photos.sqlite") as connection:
        connection.execute(
            "CREATE TABLE photos (id BLOB PRIMARY KEY, root BLOB, size INTEGER, mtime_ns INTEGER, "
            "digest BLOB, reason TEXT) WITHOUT ROWID"
        )
        rows = [(b"a.jpg", b"/p", 1, 2, b"x", None), (b"b.jpg", b"/p", 3, 4, b"", "broken")]
        connection.executemany("INSERT INTO photos VALUES (?, ?, ?, ?, ?, ?)", rows)
    catalog, root = Catalog(tmp_path), Path("/p")
    found = [(Photo("a.jpg", root / "a.jpg", root), FileStat(1, 2))]
    compared = catalog.compare(found, deleted_from=root)
    assert [known.same_stat for known in compared.known] == [True]
    assert [each.id for each in compared.deleted] == ["b.jpg"]
    assert catalog.skipped() == [("b.jpg", "broken")]
    with sqlite3.connect(tmp_path / "photos.sqlite") as connection:
        assert connection.execute("SELECT count(crc) FROM photos").fetchone() == (2,)


@pytest.fixture
def small_catalog(tmp_path):
    """A catalog of 40 files, two of them equal, and what they look like."""
    catalog, root = Catalog(tmp_path), Path("/p")
    digests = [bytes([max(n, 1)]) * 32 for n in range(40)]
    rows = {
        f"{n:02d}.jpg": CatalogRow(root, FileStat(n, n), digest, "broken" if n == 39 else None)
        for n, digest in enumerate(digests)
    }
    catalog.write(rows)
    catalog.write_looks({digest: digest[:8] for digest in digests})
    return catalog


USES = {
    "compare": lambda catalog: catalog.compare(
        [(Photo("07.jpg", Path("/p/07.jpg"), Path("/p")), FileStat(7, 7))],
        deleted_from=Path("/p"),
    ),
    "skipped": Catalog.skipped,
    "equal_files": Catalog.equal_files,
    "looks": Catalog.looks,
    "digests": lambda catalog: catalog.digests([f"{n:02d}.jpg" for n in range(40)]),
    "copy": lambda catalog: catalog.copy(catalog.path.parent / "copy", root=Path("/q")),
    "update_stats": lambda catalog: catalog.update_stats({"07.jpg": FileStat(8, 8)}),
}


@pytest.mark.parametrize("name", USES)
@pytest.mark.parametrize("table", ["photos", "looks"])
def test_a_changed_value_in_the_catalog_is_found(small_catalog, name, table):
    if table == "looks" and name != "looks":
        pytest.skip("this table is not read")
    row = "id = x'30372e6a7067'" if name != "skipped" else "reason IS NOT NULL"  # 07.jpg
    change = {"photos": f"digest = x'01' WHERE {row}", "looks": "bits = x'0001020304050607'"}
    USES[name](small_catalog)
    with sqlite3.connect(small_catalog.path) as connection:
        connection.execute(f"UPDATE {table} SET {change[table]}")
    with pytest.raises(StorageError, match=r"photos\.sqlite: the checksum of a row .* delete it"):
        USES[name](small_catalog)


def test_rows_that_a_damaged_page_hides_are_missed(small_catalog):
    """Every byte of the headers of all pages, where numbers of rows are."""
    whole = small_catalog.path.read_bytes()
    expected = small_catalog.equal_files(), small_catalog.looks()
    found = 0
    for start in range(0, len(whole), 4096):
        for offset in range(start + (100 if start == 0 else 0), start + 116):
            damaged = bytearray(whole)
            damaged[offset] ^= 1
            small_catalog.path.write_bytes(damaged)
            try:
                assert (small_catalog.equal_files(), small_catalog.looks()) == expected, offset
            except StorageError:
                found += 1
    assert found > 20


@pytest.mark.parametrize("deleted_from", [None, "/photos"])
def test_comparing_one_file_reads_few_rows(tmp_path, deleted_from):
    """Counts the steps of SQLite: a lookup takes dozens, a full scan hundreds of thousands."""
    catalog = Catalog(tmp_path)
    row = CatalogRow(Path("/photos"), FileStat(1, 1), b"x" * 32, None)
    catalog.write({f"{n:06d}.jpg": row for n in range(50_000)})
    steps = []
    connect = sqlite3.connect

    def counting(*arguments):
        connection = connect(*arguments)
        connection.set_progress_handler(lambda: steps.append(1), 100)
        return connection

    photo = Photo("000007.jpg", tmp_path / "000007.jpg", Path("/photos"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite3, "connect", counting)
        found = catalog.compare(
            [(photo, FileStat(1, 1))],
            deleted_from=None if deleted_from is None else Path(deleted_from),
        )
        assert catalog.skipped() == [] and catalog.count_skipped() == 0
    assert [each.id for each in found.known] == ["000007.jpg"] and not found.new
    if deleted_from is None:
        assert len(steps) < 20 and not found.deleted
    else:
        assert len(found.deleted) == 49_999


# ---- duplicates ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("radius", [0, 1, 2, 5])
def test_groups_equal_a_graph_traversal(radius):
    rng = np.random.default_rng(radius)
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


def test_a_negative_radius_is_refused():
    codes = Codes(packed=np.zeros((2, 2), np.uint8), bits=16, ids=["a", "b"])
    with pytest.raises(UsageError, match=r"radius.*-1"):
        duplicate_groups(Index.build(codes), -1)


def test_every_step_of_a_build_has_a_bar(toy_folder, saved, tmp_path):
    shown = {}

    @contextmanager
    def bar(title, total):
        counts = shown.setdefault((title, total), [])
        yield counts.append

    options = BuildOptions(device="cpu")
    build_or_update(toy_folder, tmp_path / "i", run=saved, options=options, bar=bar)
    assert {key: sum(counts) for key, counts in shown.items()} == {
        ("searching", None): 48,
        ("comparing", 48): 48,
        ("encoding", 48): 48,
    }
