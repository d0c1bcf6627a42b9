"""The cache of features on disk: correctness, limits, damage, several processes, and its use."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
from toys import make_toy, one_line, tiny_hasher, write_folder

from hadahash.data.sources import as_images
from hadahash.environment import parse_size
from hadahash.errors import UsageError
from hadahash.feature_cache import DEFAULT_BYTES, FeatureStore, default_store
from hadahash.networks import Backbone
from hadahash.runtime.torch import TorchRuntime

A, B = b"a" * 32, b"b" * 32


def vectors(count: int, width: int = 1280, seed: int = 0) -> dict[bytes, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {rng.bytes(32): rng.normal(size=width).astype(np.float32) for _ in range(count)}


@pytest.fixture
def store(tmp_path):
    return FeatureStore(tmp_path / "cache")


def same(found, expected):
    assert found.keys() == expected.keys()
    for digest, vector in expected.items():
        assert found[digest].dtype == np.float32 and np.array_equal(found[digest], vector)


def test_what_was_written_is_read_bit_for_bit(store):
    written = vectors(1200, 16)
    assert store.get(A, list(written)) == {} and not store.path.exists()
    store.put(A, written)
    same(FeatureStore(store.path.parent).get(A, [*written, b"?" * 32]), written)
    assert store.get(B, list(written)) == {}
    digest = next(iter(written))
    store.put(A, {digest: np.ones(16, np.float32)})
    assert store.get(A, [digest])[digest].sum() == 16


def test_the_least_recently_used_entries_give_way(tmp_path, monkeypatch):
    store = FeatureStore(tmp_path, limit=1_000_000)
    clock = [1_000_000.0]
    monkeypatch.setattr("hadahash.feature_cache.time.time", lambda: clock[0])
    first = vectors(50, seed=1)
    store.put(A, first)
    for step in range(8):
        clock[0] += 10_000
        assert len(store.get(A, list(first))) == 50  # in use
        store.put(A, vectors(40, seed=10 + step))
        assert store.size() <= 1_000_000
    same(store.get(A, list(first)), first)
    assert store.get(A, list(vectors(40, seed=10))) == {}
    assert sum(path.stat().st_size for path in tmp_path.glob("features.sqlite")) < 1_500_000


def test_damage_is_tolerated(store):
    written = vectors(300)
    store.put(A, written)
    with closing(sqlite3.connect(store.path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.execute("UPDATE features SET vector = substr(vector, 1, 100) WHERE rowid = 1")
        connection.execute("UPDATE features SET vector = zeroblob(5124) WHERE rowid = 2")
        connection.execute("UPDATE features SET vector = 'text' WHERE rowid = 3")
        connection.commit()
    found = store.get(A, list(written))
    assert len(found) == 297
    same(found, {digest: written[digest] for digest in found})
    content = bytearray(store.path.read_bytes())
    for name in ("-wal", "-shm"):
        store.path.with_name(store.path.name + name).unlink(missing_ok=True)
    content[100:60_000] = os.urandom(59_900)
    store.path.write_bytes(content)
    same(store.get(A, list(written)), {})
    store.put(A, written)
    same(store.get(A, list(written)), written)
    store.path.write_bytes(b"not a database")
    assert store.get(A, list(written)) == {} and store.size() == 0


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    store = FeatureStore(tmp_path / "file" / "cache")
    store.put(A, vectors(3))
    assert store.get(A, list(vectors(3))) == {}


def test_several_processes_write_at_once(tmp_path):
    code = (
        "import sys; import numpy as np; from pathlib import Path\n"
        "from hadahash.feature_cache import FeatureStore\n"
        "store, own = FeatureStore(Path(sys.argv[1])), int(sys.argv[2])\n"
        "for step in range(20):\n"
        "    new = {bytes([own, step, n]) * 8: np.full(64, own + n, np.float32) for n in range(20)}\n"
        "    store.put(b'x' * 32, new)\n"
        "    found = store.get(b'x' * 32, list(new))\n"
        "    assert all((found[k] == v).all() for k, v in new.items()) and len(found) == 20\n"
    )
    running = [
        subprocess.Popen([sys.executable, "-c", code, tmp_path, str(own)]) for own in range(3)
    ]
    assert [each.wait(timeout=120) for each in running] == [0, 0, 0]
    keys = [bytes([own, s, n]) * 8 for own in range(3) for s in range(20) for n in range(20)]
    assert len(FeatureStore(tmp_path).get(b"x" * 32, keys)) == 1200


def test_the_environment_sets_size_and_place(monkeypatch, tmp_path):
    assert default_store() is None  # off in tests
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("HADAHASH_FEATURE_CACHE")
    store = default_store()
    assert store is not None and store.limit == DEFAULT_BYTES
    assert store.path == tmp_path / "hadahash" / "features" / "features.sqlite"
    monkeypatch.setenv("HADAHASH_FEATURE_CACHE", "300 MB")
    assert default_store().limit == 300_000_000
    assert (parse_size("0"), parse_size("OFF"), parse_size("2g"), parse_size("7")) == (
        0,
        0,
        2 * 10**9,
        7,
    )
    with pytest.raises(UsageError, match="such as 2GB, or off, got 'many'") as caught:
        parse_size("many")
    one_line(caught.value)


# ---- in use ------------------------------------------------------------------------------------


@pytest.fixture
def passes(monkeypatch, tmp_path):
    """Turns the cache on; counts the images that went through a backbone."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("HADAHASH_FEATURE_CACHE", "100MB")
    seen, run = [], TorchRuntime._run

    def counted(self, backbone: Backbone, view):
        seen.append(len(view))
        return run(self, backbone, view)

    monkeypatch.setattr(TorchRuntime, "_run", counted)

    def count() -> int:
        total = sum(seen)
        seen.clear()
        return total

    return count


def test_mixed_known_and_new_images_keep_their_order(fitted, passes, toy_folder, tmp_path):
    model = fitted.model_
    expected = replace(model.encoder(), store=None).values(as_images(toy_folder).images)
    passes()
    names = sorted(toy_folder.glob("*/*.png"))
    model.values([str(name) for name in names[::3]])
    assert passes() == 16
    (toy_folder / "blue" / "000.png").write_bytes(b"damaged")
    broken = model.values(toy_folder)
    assert passes() == 32 and [row for row, _ in broken.failed] == [0]
    assert broken.rows.tolist() == list(range(1, 48))
    assert np.allclose(broken.values, expected.values[1:], atol=1e-5)
    again = model.values(toy_folder)
    assert passes() == 0 and np.array_equal(again.values, broken.values)
    assert again.failed == broken.failed


def test_the_key_covers_weights_preprocessing_and_content(fitted, passes, toy_folder):
    model = fitted.model_
    model.encode(toy_folder)
    assert passes() == 48
    shutil.copytree(toy_folder, toy_folder.with_name("copy"))
    model.encode(toy_folder.with_name("copy"))
    assert passes() == 0  # other names, same content
    model.encode((toy_folder / "red" / "002.png").read_bytes())
    assert passes() == 0
    replace(model, preprocess=replace(model.preprocess, mirror=not model.preprocess.mirror)).encode(
        toy_folder
    )
    assert passes() > 0
    other = tiny_hasher(epochs=1, seed=5).fit(*make_toy(32, seed=0)).model_
    passes()
    other.encode(toy_folder)
    assert passes() == 48
    model.encode(np.zeros((3, 32, 32, 3), np.uint8))
    assert passes() == 3  # pixels are not kept


def test_a_file_that_changes_while_it_is_read_is_not_stored(
    fitted, passes, toy_folder, monkeypatch
):
    from hadahash import cached_outputs

    path = toy_folder / "red" / "002.png"
    examine = cached_outputs._examine

    def change(images, row):
        found = examine(images, row)
        if images.paths[row] == path:
            shutil.copy(toy_folder / "blue" / "000.png", path)
            os.utime(path, (1, 1))
        return found

    monkeypatch.setattr(cached_outputs, "_examine", change)
    fitted.model_.encode(toy_folder)
    passes()
    monkeypatch.undo()
    monkeypatch.setenv("HADAHASH_FEATURE_CACHE", "off")
    fresh = fitted.model_.encode(toy_folder).packed
    monkeypatch.setenv("HADAHASH_FEATURE_CACHE", "100MB")
    assert np.array_equal(fitted.model_.encode(toy_folder).packed, fresh)


def test_a_photo_goes_through_a_fixed_backbone_once(passes, tmp_path):
    from hadahash.photos import PhotoIndex, scan_folder
    from hadahash.runs import DataSpec, evaluate_run, train_run

    photos = write_folder(tmp_path / "photos", *make_toy(48, seed=2))
    config = tiny_hasher(frozen=True, epochs=1).config
    model = train_run(config, DataSpec(str(photos)), tmp_path / "run", device="cpu")
    trained_on = passes()
    assert 0 < trained_on <= 48
    evaluate_run(tmp_path / "run", device="cpu")
    assert passes() == 48 - trained_on
    model.encode_to_file(photos, tmp_path / "codes.npz")
    index = PhotoIndex.create(tmp_path / "i", model, tmp_path / "run", photos)
    plan = index.plan(scan_folder(photos), whole=photos)
    assert index.apply(plan, model).encoded == 48 and passes() == 0
    plan = index.plan(scan_folder(photos), whole=photos)
    assert plan.unchanged == 48 and not plan.encode
