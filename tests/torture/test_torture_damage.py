"""Damaged files of an index are found and named, and the remedy that the error names works."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from index_states import State, build, codes_of, described, read_state
from small_collection import small_collection
from toys import use_smallest_backbone

from hadahash.errors import HadaHashError
from hadahash.index import Index
from hadahash.index.storage.manifest import MANIFEST
from hadahash.photos import BuildOptions, build_or_update
from hadahash.photos.duplicates import DISMISSED, LAST_SEARCH, PhotoDuplicates
from hadahash.photos.upgrade import UpgradeOptions, rollback

STATE: State = {each: 1 + each % 4 for each in range(300)}


@pytest.fixture
def folder(tmp_path):
    """A routed index with two segments, one with deleted items."""
    from hadahash.index.engines import routed

    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"_MIN_ROUTED_BYTES": 0, "_MAX_COMPARED": np.inf}.items():
            patch.setattr(routed, name, value)
        index = build(STATE, "routed")
        index.save(tmp_path / "i")
        index.remove(np.arange(0, 40))
        more = dict.fromkeys(range(1000, 1050), 9)
        codes = codes_of(more)
        index.add(codes, *described(codes, more))
        index.save(tmp_path / "i")
    kinds = {path.suffix for path in (tmp_path / "i").iterdir()}
    assert kinds >= {".codes", ".content", ".items", ".labels", ".deleted", ".ordinals", ".blocks"}
    return tmp_path / "i"


def damage(rng, content: bytes, other: bytes) -> bytes:
    """A flipped bit, a run of bytes, a cut, zeros, more bytes, or the bytes of another file."""
    data, at = bytearray(content), int(rng.integers(len(content)))
    size = int(rng.integers(1, 200))
    kind = rng.integers(10)
    if kind < 5:
        data[at] ^= 1 << int(rng.integers(8))
    elif kind == 5:
        data[at : at + size] = rng.bytes(len(data[at : at + size]))
    elif kind == 6:
        del data[at:]
    elif kind == 7:
        data[at : at + size] = bytes(len(data[at : at + size]))
    elif kind == 8:
        data += rng.bytes(size)
    else:
        data[:] = other
    return bytes(data)


def test_damaged_files_are_named_and_the_remedy_works(trials, folder, tmp_path):
    tried = trials("index", "damaged files: found, named, and restored or built again")
    files = sorted(path for path in folder.iterdir() if path.stat().st_size)
    good = {path: path.read_bytes() for path in files}
    whole = read_state(folder)
    for trial in tried.numbers(300, 20_000):
        with trial:
            rng = trial.rng
            path, other = files[rng.integers(len(files))], files[rng.integers(len(files))]
            content = damage(rng, good[path], good[other])
            path.write_bytes(content)
            try:
                found = read_state(folder)
                same = path.name == MANIFEST or content == good[path]
                assert same and found == whole, f"{path.name}: accepted"
            except HadaHashError as error:
                text = str(error)
                assert path.name in text and "\n" not in text, text
                assert "Restore it or build the index again" in text or path.name == MANIFEST, text
                if rng.random() < 0.02:  # build the index again
                    copy = shutil.copytree(folder, tmp_path / "copy")
                    build(STATE, "exact").save(copy)
                    assert read_state(copy) == STATE, "after it was built again"
                    shutil.rmtree(copy)
            finally:
                path.write_bytes(good[path])
    assert read_state(folder) == whole, "restored"


@pytest.mark.parametrize("remedy", ["missing", "foreign", "changed", "folder"])
def test_remedies_of_other_errors(folder, tmp_path, remedy):
    """What each error tells to do is done, and works."""
    codes = next(folder.glob("*.codes"))
    if remedy == "missing":
        moved = codes.rename(tmp_path / "away")
        with pytest.raises(HadaHashError, match=r"is missing\. Restore it or build"):
            read_state(folder)
        moved.rename(codes)
        read_state(folder)
    elif remedy == "foreign":
        (tmp_path / "photos").mkdir()
        (tmp_path / "photos" / "a.jpg").write_bytes(b"x")
        with pytest.raises(HadaHashError, match="Choose an empty or a new folder"):
            build(STATE, "exact").save(tmp_path / "photos")
        build(STATE, "exact").save(tmp_path / "new")
        assert read_state(tmp_path / "new") == STATE
    elif remedy == "changed":
        one, two = Index.open(folder), Index.open(folder)
        one.remove([100])
        one.save(folder)
        two.remove([101])
        with pytest.raises(HadaHashError, match="Open it again and repeat the change"):
            two.save(folder)
        again = Index.open(folder)
        again.remove([101])
        again.save(folder)
        assert not {100, 101} & set(read_state(folder))
    else:
        with pytest.raises(HadaHashError, match=r"contains no index .* hadahash index build"):
            read_state(tmp_path / "nowhere")


@pytest.fixture
def photos(tmp_path, monkeypatch):
    """A collection whose index has a catalog, dismissed groups and a previous revision."""
    use_smallest_backbone(monkeypatch)
    return small_collection(tmp_path)


def answers(folder):
    """What a user sees of an index of photos: items, codes, duplicates."""
    index = Index.open(folder)
    index.verify()
    items = [(item.id, item.labels, item.path) for item in index.get(index.ids)]
    hits = index.search(index.codes()[:3], 5)
    duplicates = PhotoDuplicates(folder)
    duplicates.read(duplicates.unread())
    return {
        "items": items,
        "codes": index.codes().packed.tolist(),
        "hits": (hits.ids.tolist(), hits.distances.tolist()),
        "groups": [tuple(group.ids) for group in duplicates.find(20)],
        "dismissed": sorted(map(sorted, duplicates.dismissed)),
    }


def check_photos(folder, source, expected):
    """The same answers now, after a build and after a rollback; or the first line that refuses."""

    def check(state):
        found = answers(folder)
        for key in expected[state]:
            assert found[key] == expected[state][key], key

    try:
        check("now")
        build_or_update(source, folder, options=BuildOptions(device="cpu"))
        check("now")
        rollback(folder, options=UpgradeOptions(device="cpu"))
        check("before")
    except HadaHashError as error:
        return str(error)
    return None


def test_damaged_files_of_an_index_of_photos(trials, photos, tmp_path):
    """Catalogs, dismissed groups, the last search, and the previous revision."""
    tried = trials("index", "damaged files of photos, duplicates and upgrades: named, or the same")
    whole, copy = photos / "photos.index", tmp_path / "copy"
    shutil.copytree(whole, copy)
    expected = {"now": answers(copy)}
    rollback(copy, options=UpgradeOptions(device="cpu"))
    expected["before"] = answers(copy)
    previous = (whole / "previous.json").read_bytes()
    paths = sorted(path for path in whole.rglob("*") if path.is_file() and path.stat().st_size)
    assert {DISMISSED, LAST_SEARCH, "photos.sqlite", "previous.json"} <= {
        path.name for path in paths
    }
    for trial in tried.numbers(10, 2000):
        with trial:
            path, other = (Path(trial.rng.choice(paths)) for _ in range(2))
            shutil.rmtree(copy)
            shutil.copytree(whole, copy)
            damaged = copy / path.relative_to(whole)
            damaged.write_bytes(damage(trial.rng, path.read_bytes(), other.read_bytes()))
            if path.name == MANIFEST and damaged.read_bytes() == previous:
                assert answers(copy) == expected["before"]  # whole, as after a rollback
                continue
            refused = check_photos(copy, photos / "photos", expected)
            if refused is not None:
                gone = path.name == "previous.json" and other.name == MANIFEST  # none is left
                assert gone or path.name in refused, f"{path.name}: {refused}"
                assert "\n" not in refused, f"{path.name}: {refused}"
                damaged.write_bytes(path.read_bytes())  # restored, as the error says
                assert answers(copy)["items"] == expected["now"]["items"], "restored"
