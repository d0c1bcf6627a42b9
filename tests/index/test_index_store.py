"""Files of an index: contents, sizes and times, and which folders can be opened."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest
from brute_force import LOCAL_ENGINES

from hadahash import files
from hadahash.codes import Codes
from hadahash.errors import StorageError, UsageError
from hadahash.index import Index
from hadahash.index.engines import routed
from hadahash.index.storage import folder as folders
from hadahash.index.storage import items_sqlite
from hadahash.index.storage.manifest import MANIFEST, checksum
from hadahash.ranking import Ranking

DATA = Path(__file__).parent / "data"


def times(folder):
    return {
        path.name: path.stat().st_mtime_ns
        for path in folder.iterdir()
        if path.suffix not in ("", ".json")
    }


def write_manifest(folder, manifest):
    manifest["crc32"] = checksum(manifest)
    (folder / MANIFEST).write_text(json.dumps(manifest))


@pytest.mark.parametrize("engine", LOCAL_ENGINES)
def test_only_new_files_are_written(make, engine, tmp_path):
    folder = tmp_path / "i"
    Index.build(make(5000), engine=engine).save(folder)
    first = times(folder)
    index = Index.open(folder)
    index.add(make(10, 64, np.arange(9000, 9010)))
    index.save(folder)
    second = times(folder)
    assert first.items() <= second.items() and len(second) > len(first)
    index.remove([3, 9000])
    index.save(folder)
    third = times(folder)
    assert second.items() <= third.items()
    assert {name.split(".")[1] for name in set(third) - set(second)} == {"deleted"}
    index.save(folder)
    assert times(folder) == third
    assert len(Index.open(folder)) == 5008


def test_sizes_and_times_of_a_million(rng, tmp_path):
    codes = Codes(packed=rng.integers(0, 256, (1_000_000, 8), dtype=np.uint8), bits=64)
    Index.build(codes, np.arange(1_000_000) % 100).save(tmp_path / "i")
    assert sum(path.stat().st_size for path in (tmp_path / "i").glob("*.codes")) <= 8.1e6
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        index = Index.open(tmp_path / "i")
        seconds.append(time.perf_counter() - start)
    assert min(seconds) < 0.2
    hits = index.search(codes[[123_456]], 3)
    assert hits.ids[0, 0] == 123_456 and hits.distances[0, 0] == 0


# ---- ids, paths and labels -------------------------------------------------------------------------

UNUSUAL = ["", "-x", "a\nb", "é", "😀", "z\udcff", "' OR 1=1 --", "nul\0x"]


def test_unusual_ids_labels_and_paths_survive(make, tmp_path):
    ids = np.array(UNUSUAL)
    index = Index.build(make(len(ids), 64, ids), list(ids), [f"/p/{each}" for each in ids])
    index.save(tmp_path / "ü#?%.index")
    opened = Index.open(tmp_path / "ü#?%.index")
    assert opened.ids.tolist() == sorted(UNUSUAL)
    assert opened.get(ids) == index.get(ids)
    assert opened.has(ids).all() and not opened.has(np.array(["unknown"])).any()
    opened.remove(["z\udcff"])
    assert len(opened) == len(UNUSUAL) - 1


def test_a_trailing_nul_makes_another_id(make, tmp_path):
    index = Index.build(make(1, 64, ["a"]))
    assert index.has(["a\0"]).tolist() == [False]
    with pytest.raises(UsageError, match=r"does not have 'a\\x00'"):
        index.remove(["a\0"])
    index.add(make(1, 64, ["a\0"]))
    index.save(tmp_path / "i")
    opened = Index.open(tmp_path / "i")
    assert opened.ids.tolist() == opened.codes().ids.tolist() == ["a", "a\0"]
    opened.remove(["a\0"])
    assert opened.ids.tolist() == ["a"]


MEMORY = """
    import sys
    from pathlib import Path
    import numpy as np
    from hadahash.codes import Codes
    from hadahash.index import Index

    def codes(ids):
        packed = np.arange(8 * len(ids), dtype=np.uint64).view(np.uint8)[: 8 * len(ids)]
        return Codes(packed=packed.reshape(-1, 8), bits=64, ids=ids)

    index = Index.build(codes([f"{number}.jpg" for number in range(100_000)]))
    index.add(codes(["d/" * 1990 + "x.jpg"]))
    index.add(codes([f"new {number}.jpg" for number in range(60_000)]))  # causes a compaction
    index.save(sys.argv[1])
    opened = Index.open(sys.argv[1])
    assert len(opened.ids) == 160_001
    opened.search(codes(["query"]), 2000)
    # Not ru_maxrss, which begins with the memory of the process that started this one.
    print(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak is read from /proc")
def test_one_long_id_does_not_multiply_the_memory(tmp_path):
    command = [sys.executable, "-c", textwrap.dedent(MEMORY), str(tmp_path / "i")]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(run.stdout) < 200 * 1024, f"{int(run.stdout) // 1024} MB of the whole process"


def test_few_items_are_fetched_without_loading_all(make, tmp_path):
    codes = make(6000)
    Index.build(codes).save(tmp_path / "i")
    index = Index.open(tmp_path / "i")
    items = index._segments[0].items
    assert index.search(codes[:2], 3).ids.shape == (2, 3)
    assert index.has([5, 9999]).tolist() == [True, False]
    assert items._ids is None
    many = index.search(codes[:300], 20)
    assert items._ids is not None and items._table is None
    assert np.array_equal(many.ids, Index.build(codes).search(codes[:300], 20).ids)


def test_an_item_is_read_once_for_a_search(make, tmp_path, monkeypatch):
    codes = make(6000)
    built = Index.build(codes, ["cat", "dog"] * 3000)
    built.save(tmp_path / "i")
    index = Index.open(tmp_path / "i")
    real, read = items_sqlite.StoredItems._execute, []
    monkeypatch.setattr(items_sqlite, "_MOST_KEPT", 40)
    monkeypatch.setattr(
        items_sqlite.StoredItems,
        "_execute",
        lambda self, *given: read.append(1) or real(self, *given),
    )
    for each in range(0, 100, 7):
        read.clear()
        assert index.get([each, each]) == built.get([each, each])
        query = index.codes([each])
        (found,), (expected,) = index.neighbors(query, 5), built.neighbors(query, 5)
        assert [hit[:2] + hit[3:] for hit in found] == [hit[:2] + hit[3:] for hit in expected]
        assert len(read) == 2, "the item, and what was found"
        kept = index._segments[0].items
        assert len(kept._kept) <= 40 and len(kept._ordinals) <= 40


@pytest.mark.parametrize("rank", ["hamming", "class"])
def test_a_large_search_does_not_load_the_items(make, rank, tmp_path):
    codes = make(4000)
    built = Index.build(codes, ["cat", "dog"] * 2000, [f"{n}.png" for n in range(4000)])
    built.ranking = Ranking()
    built.save(tmp_path / "i")
    index = Index.open(tmp_path / "i")
    found = index.neighbors(codes[:20], 500, rank=rank)
    items = index._segments[0].items
    assert items._table is None and items._ids is None
    for row, expected in zip(found, built.neighbors(codes[:20], 500, rank=rank), strict=True):
        assert [hit[:2] + hit[3:] for hit in row] == [hit[:2] + hit[3:] for hit in expected]
    assert len(index.get(index.ids)) == 4000 and items._table is not None, "all are loaded"


@pytest.mark.parametrize("engine", LOCAL_ENGINES)
def test_a_label_filter_does_not_load_the_items(make, engine, tmp_path, monkeypatch):
    codes, labels = make(3000), [["cat", 7], ["dog"], []] * 1000
    built = Index.build(codes, labels, engine=engine)
    built.save(tmp_path / "i")
    index = Index.open(tmp_path / "i")
    assert index.label_counts() == {"cat": 1000, 7: 1000, "dog": 1000}
    for label_filter in ("cat", 7, ["dog", "none"]):
        expected = built.search(codes[:3], 40, labels=label_filter)
        assert np.array_equal(index.search(codes[:3], 40, labels=label_filter).ids, expected.ids)
    items = index._segments[0].items
    assert items._ids is None and items._table is None
    index.remove(np.arange(0, 300))
    assert index.label_counts() == {"cat": 900, 7: 900, "dog": 900}
    index.save(tmp_path / "i")
    assert Index.open(tmp_path / "i").label_counts() == index.label_counts()


def test_more_label_sets_than_the_manifest_holds(make, tmp_path, monkeypatch):
    monkeypatch.setattr(folders, "MAX_LABEL_SETS", 10)
    Index.build(make(200), np.arange(200) % 50).save(tmp_path / "i")
    assert (tmp_path / "i" / MANIFEST).stat().st_size < 2000
    index = Index.open(tmp_path / "i")
    assert index.label_counts() == dict.fromkeys(range(50), 4)
    assert index.search(make(1), 20, labels=[3, 4]).counts.tolist() == [8]


def test_meta_comes_back_as_json(make, tmp_path):
    index = Index.build(make(3))
    index.meta = {9: "a", 10: "b", "t": (1, 2)}
    index.save(tmp_path / "i")
    assert Index.open(tmp_path / "i").meta == {"9": "a", "10": "b", "t": [1, 2]}
    index.meta = {"x": object()}
    with pytest.raises(UsageError, match="meta must contain JSON values"):
        index.save(tmp_path / "i")
    assert Index.open(tmp_path / "i").meta["9"] == "a"


# ---- several processes -----------------------------------------------------------------------------


def test_two_writers_do_not_overwrite_each_other(make, tmp_path):
    Index.build(make(20)).save(tmp_path / "i")
    one, two = Index.open(tmp_path / "i"), Index.open(tmp_path / "i")
    one.remove([0])
    one.save(tmp_path / "i")
    two.remove([1])
    with pytest.raises(StorageError, match="changed by another process"):
        two.save(tmp_path / "i")
    assert Index.open(tmp_path / "i").ids[0] == 1
    assert two.search(make(1), 3).counts[0] == 3  # what it has open stays usable
    two.verify()
    two.save(tmp_path / "copy")
    assert len(Index.open(tmp_path / "copy")) == 19


def test_an_open_index_outlives_its_replacement(make, tmp_path):
    codes = make(500)
    Index.build(codes).save(tmp_path / "i")
    old = Index.open(tmp_path / "i")
    Index.build(make(50)).save(tmp_path / "i")
    expected = Index.build(codes).search(codes[:4], 5)
    assert np.array_equal(old.search(codes[:4], 5).ids, expected.ids)
    old.verify()
    assert len(Index.open(tmp_path / "i")) == 50


def replace_during(monkeypatch, owner, name, replacement, *, before):
    """Save an index in the same folder just before or after the first call of a function."""
    function, calls = getattr(owner, name), []

    def call(*arguments, **options):
        calls.append(1)
        if len(calls) == 1 and before:
            replacement()
        result = function(*arguments, **options)
        if len(calls) == 1 and not before:
            replacement()
        return result

    monkeypatch.setattr(owner, name, call)


@pytest.mark.parametrize(
    "name, before", [("read_manifest", False), ("open_files", True), ("StoredItems", True)]
)
def test_opening_while_another_process_saves(make, tmp_path, monkeypatch, name, before):
    """Files that a manifest names may be removed before they are opened: then it is read again."""
    folder = tmp_path / "i"
    Index.build(make(30), engine="routed").save(folder)
    command = [sys.executable, "-c", textwrap.dedent(REPLACE), str(folder)]
    replacement = lambda: subprocess.run(command, check=True)  # noqa: E731
    replace_during(monkeypatch, folders, name, replacement, before=before)
    index = Index.open(folder)
    assert len(index) == 40 and index.engine == "exact"
    index.verify()


REPLACE = """
    import sys
    import numpy as np
    from hadahash.codes import Codes
    from hadahash.index import Index

    Index.build(Codes(packed=np.zeros((40, 8), np.uint8), bits=64)).save(sys.argv[1])
"""
SAVE_IN_A_LOOP = """
    import sys, time
    import numpy as np
    from hadahash.codes import Codes
    from hadahash.index import Index

    end = time.monotonic() + float(sys.argv[2])
    index = Index.open(sys.argv[1])
    while time.monotonic() < end:
        number = len(index)
        index.add(Codes(packed=np.full((1, 8), number % 256, np.uint8), bits=64, ids=[number]))
        index.save(sys.argv[1])
"""


def test_readers_beside_a_process_that_saves_in_a_loop(make, tmp_path):
    folder, opened = tmp_path / "i", 0
    Index.build(make(30)).save(folder)
    command = [sys.executable, "-c", textwrap.dedent(SAVE_IN_A_LOOP), str(folder), "3"]
    with subprocess.Popen(command) as writer:
        while writer.poll() is None:
            index = Index.open(folder)
            index.verify()
            assert index.search(make(1), len(index)).counts[0] == len(index) >= 30
            opened += 1
    assert writer.returncode == 0 and opened > 20 and len(Index.open(folder)) > 30


def test_temporary_files_of_others_are_left_alone(make, tmp_path):
    index = Index.build(make(3))
    index.save(tmp_path / "i")
    other, own = tmp_path / "i" / ".skipped.csv.x1.part", tmp_path / "i" / ".index.json.x1.part"
    data = tmp_path / "i" / ".000009-0.codes.x1.part"
    for path in (other, own, data):
        path.write_bytes(b"x")
    index.save(tmp_path / "i")
    assert other.exists() and not own.exists() and not data.exists()


def test_a_new_folder_is_flushed_with_its_parents(make, tmp_path, monkeypatch):
    flushed, flush = [], files.flush
    monkeypatch.setattr(files, "flush", lambda path: (flushed.append(Path(path)), flush(path)))
    Index.build(make(3)).save(tmp_path / "a" / "b")
    assert {tmp_path, tmp_path / "a", tmp_path / "a" / "b"} <= set(flushed)


# ---- segments --------------------------------------------------------------------------------------


def test_adding_one_by_one_keeps_few_segments(make):
    index = Index.build(make(0))
    for number in range(300):
        index.add(make(1, 64, [number * 7 % 300]))
    assert len(index) == 300 and len(index._segments) <= 9
    index.remove(np.arange(299))
    assert index.ids.tolist() == [299] and len(index._segments) == 1


@pytest.mark.parametrize("smallest_block", [0, np.inf])
def test_routed_tables_survive_with_fine_blocks_or_whole_shells(
    make, tmp_path, smallest_block, monkeypatch
):
    """Fine blocks may also be read as parts of shells, without their sub-distances."""
    monkeypatch.setattr(routed, "_MIN_BLOCK_BYTES", smallest_block)
    codes, queries, folder = make(3000), make(20), tmp_path / "i"
    Index.build(codes, engine="routed", codewords=np.eye(6, 64) - 0.5).save(folder)
    true = Index.build(codes).search(queries, 15)
    manifest = json.loads((folder / MANIFEST).read_text())
    fine = smallest_block == 0
    assert manifest["segments"][0]["by_subdistances"] is fine
    for turn in range(2):
        index = Index.open(folder)
        hits, partition = index.search(queries, 15), index._segments[0].codes.load().partition
        assert (partition.subdistances is not None) is (fine and turn == 0)
        assert hits.exact and np.array_equal(hits.ids, true.ids)
        assert np.array_equal(hits.distances, true.distances)
        index.remove([5])
        index.save(tmp_path / "again")
        again = Index.open(tmp_path / "again")._segments[0].codes.load().partition
        assert (again.subdistances is not None) is (fine and turn == 0)
        manifest["segments"][0]["by_subdistances"] = False
        write_manifest(folder, manifest)


# ---- folders of earlier versions -------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["exact", "routed"])
@pytest.mark.parametrize("version", ["0.1", "0.2"])
def test_an_index_of_an_earlier_version_opens(version, engine, tmp_path):
    """The folders of both versions hold the same items."""
    folder = shutil.copytree(DATA / f"version-{version}-{engine}.index", tmp_path / "i")
    items = json.loads((DATA / f"version-0.1-{engine}.json").read_text())
    for _ in range(2):  # as it was, and after it was saved with a change
        index = Index.open(folder)
        index.verify()
        assert index.engine == engine and index.meta == {"model": "abc", "images": "/photos"}
        assert index.content_bits == 0 and index.ranking is None
        assert index.ids.tolist() == sorted(each for each, *_ in items)
        found = index.get([each for each, *_ in items])
        stored = [(each.id, each.path, sorted(map(str, each.labels))) for each in found]
        assert stored == [(each, path, sorted(map(str, x))) for each, _, path, x in items]
        codes = index.codes([each for each, *_ in items])
        assert [code.tobytes().hex() for code in codes.packed] == [code for _, code, *_ in items]
        hits = index.search(codes, 1)
        assert hits.exact and not hits.distances.any()
        expected = sum("cat" in labels for *_, labels in items)
        assert index.label_counts()["cat"] == expected
        assert index.search(codes[:1], 40, labels="cat").counts[0] == expected
        index.remove([items.pop()[0]])
        index.save(folder)
        assert list(folder.glob("*.deleted"))
        assert json.loads((folder / MANIFEST).read_text())["format"] == 3


# ---- files that cannot be read ---------------------------------------------------------------------


def test_a_folder_instead_of_a_file(make, tmp_path):
    Index.build(make(30)).save(tmp_path / "i")
    path = next((tmp_path / "i").glob("*.codes"))
    path.unlink()
    path.mkdir()
    with pytest.raises(StorageError, match=rf"Cannot read .*{path.name}: Is a directory"):
        Index.open(tmp_path / "i")


@pytest.mark.skipif(not hasattr(os, "fork") or os.geteuid() != 0, reason="drops privileges")
@pytest.mark.parametrize("kind", ["codes", "items", "labels", "json", "."])
def test_files_without_read_permission(make, tmp_path, kind):
    folder = tmp_path / "i"
    Index.build(make(30)).save(folder)
    path = folder if kind == "." else next(folder.glob(f"*.{kind}"))
    path.chmod(0)
    for parent in (tmp_path, *tmp_path.parents):
        if parent.stat().st_uid == os.geteuid() and len(parent.parts) > 2:
            parent.chmod(0o755)
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        os.setuid(65534)
        try:
            Index.open(folder)
            os.write(writer, b"opened")
        except BaseException as error:
            os.write(writer, f"{type(error).__name__}: {error}".encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writer)
    message = os.fdopen(reader).read()
    assert message.startswith("StorageError: Cannot read") and "Permission denied" in message
    assert "write" not in message


def test_new_files_are_flushed_then_their_names_then_the_manifest(make, tmp_path, monkeypatch):
    """One flush per file and two of the folder: a change of a few items takes five."""
    index = Index.build(make(100))
    index.save(tmp_path)
    flushed, flush, real = [], files.flush, tmp_path.resolve()

    def record(path):
        name = "folder" if path.resolve() == real else path.name.split(".")[2]
        flushed.append(name)
        flush(path)

    monkeypatch.setattr(files, "flush", record)
    index.add(make(1, 64, [500]))
    index.save(tmp_path)
    assert flushed == ["codes", "items", "folder", "json", "folder"]
    flushed.clear()
    index.remove([3])
    index.save(tmp_path)
    assert flushed == ["deleted", "folder", "json", "folder"]
    flushed.clear()
    index.meta["name"] = "photos"
    index.save(tmp_path)
    assert flushed == ["json", "folder"]
    assert Index.open(tmp_path).ids.tolist() == [*range(3), *range(4, 100), 500]
