"""Damaged, truncated and newer files: a StorageError that names the file, or the same answer."""

from __future__ import annotations

import json
import shutil
import sqlite3
import time
import zlib
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hadahash.errors import HadaHashError, NewerFileError, StorageError, UsageError
from hadahash.index import Index
from hadahash.index.storage.manifest import FORMAT, MANIFEST, checksum
from hadahash.ranking import Ranking

DATA = Path(__file__).parent / "data"
VALUES = [0, -1, 1, 2**31, 2**63 - 1, 2**64, 1.5, "x", "../../x.codes", None, True, [], {}, [1]]


def with_content(codes, bits=40):
    packed = np.random.default_rng(len(codes)).integers(0, 256, (len(codes), bits // 8), np.uint8)
    return replace(codes, content=packed, content_bits=bits)


@pytest.fixture
def folder(make, tmp_path):
    """A routed index with every kind of file: two segments, one with deleted items."""
    codewords = np.random.default_rng(5).choice([-1, 1], (3, 64))
    index = Index.build(
        with_content(make(600, 64)),
        np.arange(600) % 5,
        [f"p{number}" for number in range(600)],
        engine="routed",
        codewords=np.eye(6, 64) - 0.5,
        ranking=Ranking(codewords, classes=("a", "b", "c"), content_fingerprint="abc"),
    )
    index.save(tmp_path / "i")
    index.remove(np.arange(0, 40))
    index.add(with_content(make(100, 64, np.arange(1000, 1100))))
    index.save(tmp_path / "i")
    assert {path.suffix for path in (tmp_path / "i").iterdir()} >= {
        ".codes",
        ".content",
        ".items",
        ".labels",
        ".deleted",
        ".ordinals",
        ".blocks",
        ".centroids",
    }
    return tmp_path / "i"


def answer(folder, queries):
    index = Index.open(folder)
    index.verify()
    hits = index.search(queries, 5)
    content = index.codes(hits.ids[0]).content
    assert content is not None
    return hits.ids.tolist(), hits.distances.tolist(), index.get(hits.ids[0]), content.tolist()


def error_or_answer(folder, queries):
    """The message of an error of the library, or the answer; within a second."""
    start = time.process_time()
    try:
        return answer(folder, queries)
    except HadaHashError as error:
        assert "\n" not in str(error)
        return str(error)
    finally:
        assert time.process_time() - start < 1


def json_paths(value, path=()):
    """Every path in a JSON value."""
    inside = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, each in inside:
        yield (*path, key)
        yield from json_paths(each, (*path, key))


@pytest.mark.parametrize("valid_checksum", [False, True])
def test_every_field_of_the_manifest(folder, make, valid_checksum):
    """With a valid checksum, a wrong value is refused for itself, or has no effect."""
    queries, path = make(2, 64), folder / MANIFEST
    whole = path.read_text()
    expected, refused = answer(folder, queries), 0
    for position in list(json_paths(json.loads(whole))):
        for value in VALUES:
            manifest = json.loads(whole)
            at = manifest
            for key in position[:-1]:
                at = at[key]
            if at[position[-1]] == value and type(at[position[-1]]) is type(value):
                continue
            at[position[-1]] = value
            if valid_checksum and position != ("crc32",):
                manifest["crc32"] = checksum(manifest)
            path.write_text(json.dumps(manifest))
            result = error_or_answer(folder, queries)
            refused += isinstance(result, str)
            assert isinstance(result, str) or (valid_checksum and result == expected), (
                position,
                value,
            )
    assert refused > 300


def test_a_flipped_byte_is_found_before_it_is_used(folder, make):
    queries = make(2, 64)
    for kind in ("codes", "ordinals", "blocks", "centroids", "items", "deleted", "labels"):
        path = next(folder.glob(f"*.{kind}"))
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 4
        good = path.read_bytes()
        path.write_bytes(content)
        with pytest.raises(StorageError, match=path.name):  # without verify()
            Index.open(folder).search(queries, 500, labels=1)
        path.write_bytes(good)


def test_flipped_content_bits_are_found_before_they_are_used(folder, make):
    queries = with_content(make(2, 64))
    for path in folder.glob("*.content"):
        good = path.read_bytes()
        path.write_bytes(good[:-1] + bytes([good[-1] ^ 4]))
        Index.open(folder).search(queries, 500)  # it does not read them
        for use in (
            lambda index: index.search(queries, 500, rank="photo"),
            lambda index: index.codes(),
            lambda index: index.verify(),
        ):
            with pytest.raises(StorageError, match=path.name):
                use(Index.open(folder))
        path.write_bytes(good)
    Index.open(folder).search(queries, 500, rank="photo")


def test_truncated_and_missing_files(folder, make):
    queries = make(2, 64)
    expected = answer(folder, queries)
    for path in sorted(path for path in folder.iterdir() if path.name != ".lock"):
        content = path.read_bytes()
        for size in sorted(
            {0, 1, *range(0, len(content), 4096), max(0, len(content) - 1)} - {len(content)}
        ):
            path.write_bytes(content[:size])
            result = error_or_answer(folder, queries)
            assert path.name in result or (
                path.name == MANIFEST and content[size:] == b"\n" and result == expected
            )
        path.write_bytes(content + b" ")
        if path.name != MANIFEST:
            assert "bytes, not" in error_or_answer(folder, queries)
        path.unlink()
        assert path.name in error_or_answer(folder, queries)
        path.write_bytes(content)


def test_a_newer_format_is_refused(folder, make):
    manifest = json.loads((folder / MANIFEST).read_text())
    manifest |= {"format": FORMAT + 1, "written_by": "hadahash 1.4", "segments": "something new"}
    (folder / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(
        NewerFileError, match=r"was written by hadahash 1\.4\. Update with"
    ) as caught:
        Index.open(folder)
    assert caught.value.exit_code == 3
    with pytest.raises(NewerFileError):
        Index.build(make(3)).save(folder)


def test_folders_that_hold_no_index(tmp_path, make):
    for text in ("", "{}", "[]", "null", "{", '{"format": "1"}', '{"format": 0}'):
        (tmp_path / MANIFEST).write_text(text)
        with pytest.raises(StorageError, match=MANIFEST):
            Index.open(tmp_path)
    (tmp_path / MANIFEST).unlink()
    with pytest.raises(StorageError, match="contains no index"):
        Index.open(tmp_path)
    with pytest.raises(StorageError, match="contains no index"):
        Index.open(tmp_path / "nowhere")
    (tmp_path / "holiday.jpg").write_bytes(b"x")
    with pytest.raises(StorageError, match=r"other files \(holiday.jpg\)"):
        Index.build(make(3)).save(tmp_path)
    with pytest.raises(StorageError, match=r"not a folder|exists"):
        Index.build(make(3)).save(tmp_path / "holiday.jpg")


def test_a_damaged_index_can_be_replaced(folder, make):
    (folder / MANIFEST).write_text("{")
    index = Index.build(make(5))
    index.save(folder)
    assert len(Index.open(folder)) == 5
    shutil.rmtree(folder)
    index.save(folder.parent / "other")
    assert len(Index.open(folder.parent / "other")) == 5


@pytest.mark.parametrize("version", ["", "0.2", "0.1"])
def test_missing_keys_of_the_manifest(folder, version):
    """Each missing key is refused in one line, or has a default, also with a valid checksum."""
    if version:
        folder = shutil.copytree(DATA / f"version-{version}-routed.index", folder.parent / "old")
    path = folder / MANIFEST
    whole = json.loads(path.read_text())
    for position in list(json_paths(whole)):
        manifest = json.loads(json.dumps(whole))
        at = manifest
        for key in position[:-1]:
            at = at[key]
        del at[position[-1]]
        if position != ("crc32",):
            manifest["crc32"] = checksum(manifest)
        path.write_text(json.dumps(manifest))
        try:
            Index.open(folder).verify()
        except StorageError as error:
            assert "\n" not in str(error)
            assert path.name in str(error) or position[0] == "segments"


@pytest.mark.parametrize("depth", [400, 600, 900, 100_000])
def test_deeply_nested_json(folder, make, depth):
    nested = "[" * depth + "]" * depth
    for text in ("[" * depth, nested, f'{{"format": 2, "crc32": 1, "meta": {nested}}}'):
        (folder / MANIFEST).write_text(text)
        with pytest.raises(StorageError, match=MANIFEST) as caught:
            Index.open(folder)
        assert "\n" not in str(caught.value)
    Index.build(make(3)).save(folder)  # a damaged index can be replaced
    index = Index.open(folder)
    for _ in range(3000):
        index.meta = {"x": index.meta}
    with pytest.raises(UsageError, match="meta"):
        index.save(folder)


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM items WHERE rowid = 0",
        "UPDATE items SET id = 'text' WHERE rowid = 0",
        "UPDATE items SET id = 1.5 WHERE rowid = 0",
        "UPDATE items SET path = 7",
        "UPDATE label_sets SET labels = 'x'",
        "UPDATE label_sets SET labels = '[1.5]'",
        "UPDATE label_sets SET labels = x'ff'",
        "UPDATE items SET label_set = 99",
    ],
)
def test_items_that_are_not_valid_are_damage_also_with_a_right_checksum(make, tmp_path, change):
    folder = tmp_path / "i"
    Index.build(make(5), np.arange(5) % 2, list("abcde")).save(folder)
    path = next(folder.glob("*.items"))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(change)
        connection.commit()
    manifest = json.loads((folder / MANIFEST).read_text())
    content = path.read_bytes()
    file = manifest["segments"][0]["files"]["items"]
    file |= {"bytes": len(content), "crc32": zlib.crc32(content)}
    manifest["segments"][0]["label_counts"] = None
    manifest["crc32"] = checksum(manifest)
    (folder / MANIFEST).write_text(json.dumps(manifest))
    for use in (
        lambda index: index.get([0, 1]),
        lambda index: index.get(index.ids),
        lambda index: (index.search(index.codes(), 5), index.label_counts()),
    ):
        try:
            use(Index.open(folder))
        except HadaHashError as error:
            assert "\n" not in str(error)
    with pytest.raises(HadaHashError):
        index = Index.open(folder)
        index.label_counts()
        index._segments[0].items.table()
        Index.open(folder).get([0, 1])
