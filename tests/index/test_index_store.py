"""What is written, when, and how large it is."""

from __future__ import annotations

import json
import time

import numpy as np
import pytest
from brute_force import LOCAL_ENGINES

from hadahash.codes import Codes
from hadahash.errors import StorageError
from hadahash.index import Index, routed
from hadahash.index.storage.manifest import MANIFEST, checksum


def times(folder):
    return {
        path.name: path.stat().st_mtime_ns
        for path in folder.iterdir()
        if path.suffix not in ("", ".json")
    }


@pytest.mark.parametrize("engine", LOCAL_ENGINES)
def test_only_what_is_new_is_written(make, engine, tmp_path):
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
    Index.build(codes).save(tmp_path / "i")
    assert sum(path.stat().st_size for path in (tmp_path / "i").glob("*.codes")) <= 8.1e6
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        index = Index.open(tmp_path / "i")
        seconds.append(time.perf_counter() - start)
    assert min(seconds) < 0.2
    hits = index.search(codes[[123_456]], 3)
    assert hits.ids[0, 0] == 123_456 and hits.distances[0, 0] == 0


def test_odd_ids_and_paths(make, tmp_path):
    ids = np.array(["", "-x", "a\nb", "é", "😀", "z\udcff", "' OR 1=1 --"])
    index = Index.build(make(7, 64, ids), list(ids), [f"/p/{each}" for each in ids])
    index.save(tmp_path / "odd ü#?%.index")
    opened = Index.open(tmp_path / "odd ü#?%.index")
    assert opened.ids.tolist() == sorted(ids.tolist())
    assert opened.get(ids) == index.get(ids)
    assert opened.has(ids).all() and not opened.has(np.array(["nobody"])).any()
    opened.remove(["z\udcff"])
    assert len(opened) == 6


def test_few_items_are_fetched_without_reading_all(make, tmp_path):
    codes = make(6000)
    Index.build(codes).save(tmp_path / "i")
    index = Index.open(tmp_path / "i")
    items = index._segments[0].items
    assert index.search(codes[:2], 3).ids.shape == (2, 3) and index.has([5, 9999]).tolist() == [
        True,
        False,
    ]
    assert items._all is None
    many = index.search(codes[:300], 20)
    assert items._all is not None
    assert np.array_equal(many.ids, Index.build(codes).search(codes[:300], 20).ids)


def test_two_programs_do_not_overwrite_each_other(make, tmp_path):
    Index.build(make(20)).save(tmp_path / "i")
    one, two = Index.open(tmp_path / "i"), Index.open(tmp_path / "i")
    one.remove([0])
    one.save(tmp_path / "i")
    two.remove([1])
    with pytest.raises(StorageError, match="changed by another program"):
        two.save(tmp_path / "i")
    assert Index.open(tmp_path / "i").ids[0] == 1
    assert two.search(make(1), 3).counts[0] == 3  # what it has open stays usable
    two.save(tmp_path / "copy")
    assert len(Index.open(tmp_path / "copy")) == 19


def test_an_open_index_outlives_its_replacement(make, tmp_path):
    codes = make(500)
    Index.build(codes).save(tmp_path / "i")
    old = Index.open(tmp_path / "i")
    Index.build(make(50)).save(tmp_path / "i")
    assert np.array_equal(old.search(codes[:4], 5).ids, Index.build(codes).search(codes[:4], 5).ids)
    assert len(Index.open(tmp_path / "i")) == 50


def test_opening_while_another_program_replaces(make, tmp_path, monkeypatch):
    """The files a manifest names may vanish before they are opened: then the new manifest is read."""
    from hadahash.index import store

    Index.build(make(30)).save(tmp_path / "i")
    read, reads = store.read_manifest, []

    def read_then_replace(folder):
        manifest = read(folder)
        reads.append(1)
        if len(reads) == 2:
            with monkeypatch.context() as patch:
                patch.setattr(store, "read_manifest", read)
                Index.build(make(40)).save(folder)
        return manifest

    monkeypatch.setattr(store, "read_manifest", read_then_replace)
    assert len(Index.open(tmp_path / "i")) == 40


def test_adding_one_by_one_keeps_few_segments(make):
    index = Index.build(make(0))
    for number in range(300):
        index.add(make(1, 64, [number * 7 % 300]))
    assert len(index) == 300 and len(index._segments) <= 9
    index.remove(np.arange(299))
    assert index.ids.tolist() == [299] and len(index._segments) == 1


@pytest.mark.parametrize("fewest", [0, np.inf])
def test_routed_tables_come_back_whatever_they_are_cut_by(make, tmp_path, fewest, monkeypatch):
    """A folder may be cut by quarters or, as all were once, only by rings; and who does not know of quarters may open both."""
    monkeypatch.setattr(routed, "_MIN_BLOCK_BYTES", fewest)
    codes, queries = make(3000), make(20)
    Index.build(codes, engine="routed", codewords=np.eye(6, 64) - 0.5).save(tmp_path / "i")
    true = Index.build(codes).search(queries, 15)
    manifest = json.loads((tmp_path / "i" / MANIFEST).read_text())
    assert manifest["segments"][0].pop("by_subdistances", False) is (fewest == 0)
    for turn in range(2):
        index = Index.open(tmp_path / "i")
        hits, runs = index.search(queries, 15), index._segments[0].codes.load().partition
        assert (runs.subdistances is not None) is (fewest == 0 and turn == 0)
        assert (
            hits.exact
            and np.array_equal(hits.ids, true.ids)
            and np.array_equal(hits.distances, true.distances)
        )
        index.remove([5])
        index.save(tmp_path / "again")
        assert (
            Index.open(tmp_path / "again")._segments[0].codes.load().partition.subdistances is None
            or turn == 0
        )
        manifest["crc32"] = checksum(manifest)
        (tmp_path / "i" / MANIFEST).write_text(json.dumps(manifest))
