"""`index upgrade` while the service answers: no wrong and no lost answer."""

from __future__ import annotations

import shutil
import threading
import time

import pytest
from serving import WRITE, ToyCollection, opened, service_in_thread, wait_for
from toys import make_toy, tiny_hasher, write_folder
from upgrading import Searching, check

from hadahash import Index
from hadahash.model import HashModel
from hadahash.photos import BuildOptions, PhotoIndex, build_or_update, scan_options, scan_paths
from hadahash.photos.upgrade import UpgradeOptions, rollback, upgrade

CPU = UpgradeOptions(device="cpu")


@pytest.fixture(scope="module")
def runs(tmp_path_factory, saved):
    """Two models with as many bits: a code of the wrong one would not be noticed otherwise."""
    root = tmp_path_factory.mktemp("runs")
    tiny_hasher(seed=7).fit(*make_toy(64, seed=0)).save(root / "new")
    return saved, root / "new"


@pytest.fixture
def served(runs, tmp_path):
    photos = write_folder(tmp_path / "photos", *make_toy(48, seed=2))
    shutil.copytree(runs[0], tmp_path / "run")
    build_or_update(photos, run=tmp_path / "run", options=BuildOptions(device="cpu"))
    return ToyCollection(tmp_path)


def test_searches_during_upgrade_and_rollback(runs, served):
    index, root = served.root / "photos.index", served.root / "photos"
    more = write_folder(served.root / "more", *make_toy(8, seed=9))
    images = {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*.png")}
    known = dict(images)
    known |= {f"more/{path.relative_to(more)}": path.read_bytes() for path in more.rglob("*.png")}
    old, new = (HashModel.load(folder, device="cpu") for folder in runs)
    with service_in_thread(served, watch_seconds=0.05, write_token=None) as (url, service):
        with Searching(url, images) as clients:

            def served_by(model):
                wait_for(lambda: service.handle.current.model.id == model.id)
                count = len(clients.answers)
                wait_for(lambda: len(clients.answers) > count + 20)

            served_by(old)
            writer = threading.Thread(target=_add, args=(index, more, old))
            writer.start()  # photos are added while the upgrade runs
            upgrade(index, runs[1], options=CPU)
            writer.join()
            served_by(new)
            rollback(index, options=CPU)
            served_by(old)
            rollback(index, options=CPU)
            served_by(new)
        assert clients.problems == []
        assert clients.models() == {old.id, new.id}
    check(clients.answers, runs, set(known), known)
    final = Index.open(index)
    assert set(final.ids.tolist()) == set(known)
    codes = dict(zip(final.ids.tolist(), final.codes(final.ids).packed, strict=True))
    expected = new.encode([known[name] for name in sorted(known)]).packed
    for name, code in zip(sorted(known), expected, strict=True):
        assert (codes[name] == code).all()


def _add(index, folder, model):
    """`hadahash index add`, which is repeated if the upgrade was faster."""
    for path in sorted(folder.rglob("*.png")):
        while True:
            photos = PhotoIndex.open(index)
            if not model.made(photos.index.meta["model"]):
                model = HashModel.load(photos.index.meta["run"], device="cpu")
            scan = scan_paths([path], scan_options({}), prefix=f"more/{path.parent.name}/")
            try:
                photos.apply(photos.plan(scan), model)
                break
            except Exception as error:
                assert "was changed by another process" in str(error)
        time.sleep(0.05)


def test_values_codes_and_writes_across_an_upgrade(runs, served):
    index = served.root / "photos.index"
    image = served.image("red/002.png")
    with opened(served, watch_seconds=0, write_token=WRITE, decode_workers=1) as client:
        client.headers["Authorization"] = f"Bearer {WRITE}"
        first = client.post("/v1/encode", files={"image": image}).json()
        by_values = {"values": first["values"], "rank": "hamming"}
        by_code = {"code": first["code"], "rank": "hamming"}
        assert client.post("/v1/search", json=by_values).status_code == 200
        upgrade(index, runs[1], options=CPU)
        assert client.post("/v1/reload").status_code == 200  # started with --run: the old one
        answer = client.post("/v1/search", json=by_values)
        assert answer.status_code == 409 and answer.json()["error"]["code"] == "model_changed"
        assert (
            client.post("/v1/search", json=by_code | {"model": first["model"]}).status_code == 409
        )
        item = {"id": "x", "code": first["code"], "model": first["model"]}
        assert client.post("/v1/items", json=item).status_code == 409
        second = client.post("/v1/encode", files={"image": image}).json()
        assert second["model"] == HashModel.load(runs[1], device="cpu").id != first["model"]
        assert client.post("/v1/search", json={"values": second["values"]}).status_code == 200
        item = {"id": "x", "code": second["code"], "model": second["model"]}
        assert client.post("/v1/items", json=item).status_code == 201


def test_an_image_that_is_added_when_the_index_is_switched(runs, served, monkeypatch):
    """The switch comes after the image was encoded: it is encoded again, with the new model."""
    from hadahash.serve.core.service import Service

    index, codes_of, calls = served.root / "photos.index", Service._codes_of, []
    image = served.image("red/002.png")

    async def switch_after(self, *arguments):
        codes = await codes_of(self, *arguments)
        if not calls:
            upgrade(index, runs[1], options=CPU)
        calls.append(codes)
        return codes

    monkeypatch.setattr(Service, "_codes_of", switch_after)
    with opened(served, watch_seconds=0, write_token=WRITE, decode_workers=1) as client:
        client.headers["Authorization"] = f"Bearer {WRITE}"
        answer = client.post("/v1/items", files={"image": image}, data={"id": "added"})
        assert answer.status_code == 201 and len(calls) == 2, answer.text
    final, model = Index.open(index), HashModel.load(runs[1], device="cpu")
    assert (final.codes(["added"]).packed == model.encode([image]).packed).all()
    assert (final.codes(["red/002.png"]).packed == final.codes(["added"]).packed).all()


def test_a_write_that_the_switch_overtakes_is_repeated(runs, served, monkeypatch):
    index = served.root / "photos.index"
    with opened(served, watch_seconds=0, write_token=WRITE, decode_workers=1) as client:
        client.headers["Authorization"] = f"Bearer {WRITE}"
        from hadahash.index.local import LocalIndex

        save, calls = LocalIndex.save, []

        def switch_before(self, folder, **options):
            if not calls:
                calls.append(1)
                upgrade(index, runs[1], options=CPU)
            save(self, folder, **options)

        monkeypatch.setattr(LocalIndex, "save", switch_before)
        assert client.delete("/v1/items/red/002.png").status_code == 204
    final = Index.open(index)
    assert "red/002.png" not in final.ids.tolist() and len(final) == 47
    assert HashModel.load(runs[1], device="cpu").made(final.meta["model"])


@pytest.mark.parametrize("change", ["add", "remove"])
def test_a_write_to_a_server_that_the_switch_overtakes(runs, served, tmp_path, monkeypatch, change):
    """It went to the collection before the upgrade, and is repeated with the one after it."""
    pytest.importorskip("milvus_lite")
    from hadahash.index.engines.milvus import MilvusIndex

    index, write, calls = served.root / "photos.index", getattr(MilvusIndex, change), []
    shutil.rmtree(index)
    options = {"uri": str(tmp_path / "milvus.db"), "collection": "overtaken"}
    build = BuildOptions(engine="milvus", settings=options, device="cpu")
    build_or_update(served.root / "photos", run=served.root / "run", options=build)

    def write_and_switch(self, *arguments):
        if self.settings.collection == "overtaken" and not calls:
            calls.append(1)
            upgrade(index, runs[1], options=CPU)
        write(self, *arguments)

    monkeypatch.setattr(MilvusIndex, change, write_and_switch)
    image = served.image("red/002.png")
    with opened(served, watch_seconds=0, write_token=WRITE, decode_workers=1) as client:
        client.headers["Authorization"] = f"Bearer {WRITE}"
        if change == "add":
            answer = client.post("/v1/items", files={"image": image}, data={"id": "added"})
            assert answer.status_code == 201, answer.text
        else:
            assert client.delete("/v1/items/red/002.png").status_code == 204
        found = client.post("/v1/search", files={"image": image}).json()["query"]["model"]
    final, model = Index.open(index), HashModel.load(runs[1], device="cpu")
    assert found == model.id and len(final) == (49 if change == "add" else 47)
    if change == "add":
        assert (final.codes(["added"]).packed == model.encode([image]).packed).all()


def test_a_wrong_run_is_refused_at_the_start(runs, served):
    from hadahash.errors import UsageError
    from hadahash.serve.core.collection import Collection, resolve_config

    config = resolve_config(served.root / "photos.index", runs[1])
    with pytest.raises(UsageError, match="codes of two models cannot be compared"):
        Collection.open(config, device="cpu")
