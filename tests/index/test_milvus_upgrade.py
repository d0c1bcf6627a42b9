"""`index upgrade` with Milvus: two collections, an alias, rollback."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from milvus_process import TOKEN
from toys import make_toy, one_line, tiny_hasher, write_folder

from hadahash import Index
from hadahash.errors import UsageError
from hadahash.index import revisions
from hadahash.index.engines.milvus_alias import alias_target, switch_alias
from hadahash.model import HashModel
from hadahash.photos import BuildOptions, build_or_update, late
from hadahash.photos.upgrade import UpgradeOptions, discard_old, rollback, upgrade

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


def _kill_after_the_switch(index, run, monkeypatch):
    """As kill -9: what comes after the switch is not done."""
    with monkeypatch.context() as patch:

        def killed(stage, known):
            raise KeyboardInterrupt

        patch.setattr(late, "take_late", killed)
        with pytest.raises(KeyboardInterrupt):
            upgrade(index, run, options=CPU)
