"""`index upgrade` with Milvus: two collections, an alias, rollback."""

from __future__ import annotations

import secrets
from dataclasses import replace

import numpy as np
import pytest
from milvus_process import TOKEN
from toys import make_toy, one_line, tiny_hasher, write_folder

from hadahash import Codes, Hasher, Index
from hadahash.data.embedding_files import open_embeddings
from hadahash.errors import DataError, UsageError
from hadahash.index import revisions
from hadahash.index.engines.milvus_alias import alias_target, switch_alias
from hadahash.model import HashModel
from hadahash.photos import BuildOptions, build_or_update, late
from hadahash.photos.upgrade import UpgradeOptions, discard_old, rollback, upgrade
from hadahash.photos.vectors import build_vector_index

CPU = UpgradeOptions(device="cpu")


@pytest.fixture(scope="module")
def better(tmp_path_factory):
    folder = tmp_path_factory.mktemp("better") / "run"
    tiny_hasher(seed=7).fit(*make_toy(64, seed=0)).save(folder)
    return folder


@pytest.fixture
def photos(tmp_path):
    return write_folder(tmp_path / "photos", *make_toy(12, seed=2))


@pytest.fixture
def build(saved, photos):
    """Build an index with these options of the engine."""

    def make(**settings):
        options = BuildOptions(engine="milvus", settings=settings, device="cpu")
        return build_or_update(photos, run=saved, options=options)

    return make


def check(index, run):
    opened, model = Index.open(index), HashModel.load(run, device="cpu")
    items = opened.get(opened.ids)
    expected = model.encode([item.path for item in items]).packed
    assert (opened.codes(opened.ids).packed == expected).all()
    assert opened.meta["model"] == model.id
    return opened


def test_two_collections_and_rollback(build, saved, better, photos):
    index = build(collection="upgraded")
    old = check(index, saved)
    upgrade(index, better, options=CPU)
    new = check(index, better)
    assert (old.settings.collection, new.settings.collection) == ("upgraded", "upgraded_v2")
    assert len(check_again(old)) == 12  # who has it open goes on
    (photos / "red" / "002.png").unlink()
    build_or_update(photos, index, options=BuildOptions(device="cpu"))
    rollback(index, options=CPU)
    assert check(index, saved).settings.collection == "upgraded" and len(Index.open(index)) == 11
    rollback(index, options=CPU)
    assert check(index, better).settings.collection == "upgraded_v2"
    server = new.server
    assert discard_old(index) and not server.call_any("has_collection", "upgraded")
    assert len(check(index, better)) == 11
    new.drop()


def check_again(index):
    index.refresh()
    return index.ids


def test_a_collection_of_another_model_is_refused(build, saved, better):
    index = build(collection="refused")
    opened = Index.open(index)
    opened.meta["model"] = HashModel.load(better, device="cpu").id
    opened.save(index)
    with pytest.raises(UsageError, match="copy its folder from there") as refused:
        len(Index.open(index))
    assert one_line(refused.value)
    opened.refresh()
    opened.meta.pop("model")
    opened.drop()


@pytest.fixture
def real(milvus_server, monkeypatch):
    """The engine uses the real server."""
    monkeypatch.setenv("HADAHASH_MILVUS_URI", milvus_server.uri)
    monkeypatch.setenv("HADAHASH_MILVUS_TOKEN", TOKEN)
    return milvus_server


@pytest.mark.torture
def test_the_alias_follows(real, build, saved, better):
    """The folder names collections; the alias, for other programs, is switched and back."""
    index = build(collection="first")
    server = Index.open(index).server
    switch_alias(server, "album", "first")
    opened = Index.open(index)
    opened.settings = opened.settings.__class__(**{**vars(opened.settings), "collection": "album"})
    opened.save(index)  # an index that was built through the alias
    upgrade(index, better, options=CPU)
    assert check(index, better).settings.collection == "album_v2"
    assert alias_target(server, "album") == "album_v2"
    rollback(index, options=CPU)
    assert check(index, saved).settings.collection == "first"
    assert alias_target(server, "album") == "first"
    upgrade(index, better, options=CPU)
    assert alias_target(server, "album") == "album_v2" and discard_old(index)
    assert not server.call_any("has_collection", "first")


@pytest.mark.parametrize("after", ["done", "upgrade", "rollback", "discard"])
def test_writes_at_the_moment_of_the_switch_are_taken_over(
    build, saved, better, photos, monkeypatch, after
):
    """A service writes to the collection without saving the folder, so nothing announces it."""
    index = build(collection="late")
    path = photos / "red" / "002.png"
    switch = revisions.switch

    def write_and_switch(folder, expected):
        live = Index.open(folder)
        codes = replace(live.codes(["red/002.png"]), ids=np.array(["late.png"], object))
        live.add(codes, [["red"]], [str(path)])
        live.remove(["blue/000.png"])
        return switch(folder, expected)

    monkeypatch.setattr(revisions, "switch", write_and_switch)
    if after == "done":
        upgrade(index, better, options=CPU)
    else:
        _kill_after_the_switch(index, better, monkeypatch)
    if after == "upgrade":
        done = upgrade(index, better, options=CPU)
        assert (done.total, done.encoded, done.dropped) == (12, 1, 0) and done.was is not None
        with pytest.raises(UsageError, match="already has the codes"):
            upgrade(index, better, options=CPU)
    elif after == "rollback":
        monkeypatch.setattr(revisions, "switch", switch)
        rollback(index, options=CPU)
    elif after == "discard":
        assert discard_old(index)
    opened = check(index, saved if after == "rollback" else better)
    ids = set(opened.ids.tolist())
    assert "late.png" in ids and "blue/000.png" not in ids and len(ids) == 12
    assert not (index / "upgrade.json").exists() and discard_old(index) == (after != "discard")
    opened.drop()


@pytest.fixture
def killed_with_a_late_item(build, better, monkeypatch):
    """An item without a file came while an upgrade switched, and then the upgrade was killed."""
    index, switch = build(collection=f"posted_{secrets.token_hex(4)}"), revisions.switch

    def write_and_switch(folder, expected):
        live = Index.open(folder)
        live.add(Codes(np.zeros((1, 2), np.uint8), 16, ["posted"]))
        return switch(folder, expected)

    with monkeypatch.context() as patch:
        patch.setattr(revisions, "switch", write_and_switch)
        _kill_after_the_switch(index, better, monkeypatch)
    yield index
    discard_old(index, replace(CPU, drop_missing=True))
    Index.open(index).drop()


@pytest.mark.parametrize(
    "again", [upgrade, lambda index, run, options: discard_old(index, options)]
)
def test_late_items_that_cannot_be_encoded_are_refused(killed_with_a_late_item, better, again):
    index = killed_with_a_late_item
    for _ in range(2):
        with pytest.raises(
            DataError, match=r"1 items .* such as 'posted': it has no file"
        ) as refused:
            again(index, better, options=CPU)
        assert "--drop-missing" in one_line(refused.value)
        assert revisions.open_revision(index, "previous.json").has(["posted"])[0]
    done = again(index, better, options=replace(CPU, drop_missing=True))
    assert done is True or (done.total, done.encoded, done.dropped) == (12, 0, 1)
    check(index, better)
    assert not (index / "upgrade").exists()


@pytest.mark.parametrize("told", [True, False])
def test_late_items_that_cannot_be_encoded_come_back(killed_with_a_late_item, saved, better, told):
    index = killed_with_a_late_item
    if told:
        upgrade(index, better, options=replace(CPU, drop_missing=True))
    rollback(index, options=CPU)
    opened = Index.open(index)
    assert len(opened) == 13 and not opened.codes(["posted"]).packed.any()
    assert opened.meta["model"] == HashModel.load(saved, device="cpu").id


def test_another_upgrade_reports_what_was_late(killed_with_a_late_item, better):
    options = replace(CPU, drop_missing=True, bits=8)
    done = upgrade(killed_with_a_late_item, better, options=options)
    assert (done.total, done.encoded, done.dropped) == (12, 12, 1)


def test_embeddings_that_came_late(tmp_path, monkeypatch):
    vectors = np.random.default_rng(0).normal(size=(64, 24)).astype(np.float32)
    np.save(tmp_path / "vectors.npy", vectors)
    for name, seed in (("old", 0), ("new", 1)):
        Hasher("itq", bits=16, device="cpu", seed=seed).fit(vectors[:40]).save(tmp_path / name)
    np.save(tmp_path / "first.npy", vectors[:60])
    index, switch = tmp_path / "vectors.index", revisions.switch
    source, settings = open_embeddings(tmp_path / "first.npy"), {"collection": "late_vectors"}
    build_vector_index(
        index, source, run=tmp_path / "old", engine="milvus", device="cpu", **settings
    )

    def write_and_switch(folder, expected):
        live = Index.open(folder)
        live.add(replace(live.codes([0]), ids=np.array([60])))
        return switch(folder, expected)

    given = replace(CPU, embeddings=tmp_path / "vectors.npy")
    with monkeypatch.context() as patch:
        patch.setattr(revisions, "switch", write_and_switch)
        _kill_after_the_switch(index, tmp_path / "new", monkeypatch, given)
    with pytest.raises(UsageError, match="Give them: --embeddings FILE") as refused:
        discard_old(index, CPU)
    assert one_line(refused.value)
    few = replace(CPU, embeddings=tmp_path / "first.npy")
    with pytest.raises(DataError, match="such as '60': it has no embedding"):
        upgrade(index, tmp_path / "new", options=few)
    done = upgrade(index, tmp_path / "new", options=given)
    assert (done.total, done.encoded, done.dropped) == (61, 1, 0)
    expected = HashModel.load(tmp_path / "new", device="cpu").encode(vectors[60:61])
    assert (Index.open(index).codes([60]).packed == expected.packed).all()
    discard_old(index)
    Index.open(index).drop()


def _kill_after_the_switch(index, run, monkeypatch, options=CPU):
    """As kill -9: what comes after the switch is not done."""
    with monkeypatch.context() as patch:

        def killed(stage, known):
            raise KeyboardInterrupt

        patch.setattr(late, "take_late", killed)
        with pytest.raises(KeyboardInterrupt):
            upgrade(index, run, options=options)
