"""`hadahash index upgrade`: another model for an index that is in use."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from storages import image_files, put_folder, tar_bytes
from toys import make_toy, one_line, tiny_hasher, write_folder

from hadahash import Codes, Hasher, Index
from hadahash.data.embedding_files import open_embeddings
from hadahash.errors import DataError, StorageError, UsageError
from hadahash.index import revisions
from hadahash.model import HashModel
from hadahash.photos import (
    BuildOptions,
    PhotoIndex,
    build_or_update,
    kept,
    late,
    load_model_of,
    scan_folder,
    staging,
)
from hadahash.photos import upgrade as upgrading
from hadahash.photos.upgrade import UpgradeOptions, discard_old, rollback, upgrade
from hadahash.photos.vectors import build_vector_index
from hadahash.ready_models import fit_embeddings

CPU = UpgradeOptions(device="cpu")


@pytest.fixture(scope="module")
def better(tmp_path_factory):
    """The run of another model with as many bits: mixed codes would not be noticed."""
    folder = tmp_path_factory.mktemp("better") / "run"
    tiny_hasher(seed=7).fit(*make_toy(64, seed=0)).save(folder)
    return folder


@pytest.fixture
def index(saved, toy_folder):
    return build_or_update(toy_folder, run=saved, options=BuildOptions(device="cpu"))


def check(index, run, ids=None):
    """Every code is what the model of this run makes of its file, and nothing is missing."""
    opened, model = Index.open(index), HashModel.load(run, device="cpu")
    assert model.made(opened.meta["model"]) and opened.meta["model"] is not None
    assert load_model_of(opened, index, device="cpu").id == model.id
    if ids is not None:
        assert opened.ids.tolist() == sorted(ids)
    items = opened.get(opened.ids)
    expected = model.encode([item.path for item in items]).packed
    assert (opened.codes(opened.ids).packed == expected).all()
    opened.verify()
    return opened


def leftovers(index):
    return {path.name for path in index.iterdir()} & {"upgrade", "upgrade.json"}


def test_upgrade_and_rollback(run, saved, better, index, toy_folder):
    old = check(index, saved)
    code, out, err = run("index", "upgrade", index, "--run", better, "--device", "cpu")
    assert code == 0 and "48 items, 48 encoded; 16 bits of the model" in out
    assert f"hadahash index upgrade {index} --rollback" in err and not leftovers(index)
    new = check(index, better, old.ids.tolist())
    assert new.label_counts() == old.label_counts()
    assert {**new.meta, "model": 0, "run": 0} == {**old.meta, "model": 0, "run": 0}
    assert (old.codes().packed != new.codes().packed).any()  # the open one still reads its files
    code, out, _ = run("index", "build", toy_folder, "--out", index, "--device", "cpu")
    assert code == 0 and "0 encoded, 48 unchanged" in out

    code, out, _ = run("index", "upgrade", index, "--rollback", "--device", "cpu")
    assert code == 0 and "48 items, 0 encoded" in out
    check(index, saved, old.ids.tolist())
    code, out, _ = run("index", "upgrade", index, "--rollback", "--device", "cpu")
    assert code == 0 and "0 encoded" in out and check(index, better)
    code, out, _ = run("index", "upgrade", index, "--discard-old")
    assert code == 0 and "old codes removed" in out and not (index / "previous.json").exists()
    assert not (index / "previous").exists() and check(index, better)
    assert len(list(index.glob("*.codes"))) == 1
    code, _, err = run("index", "upgrade", index, "--rollback")
    assert code == 2 and "no previous codes" in err
    assert "no old codes" in run("index", "upgrade", index, "--discard-old")[1]


def test_usage(run, index, saved, better):
    for given in [(), ("--rollback", "--discard-old"), ("--run", better, "--discard-old")]:
        code, _, err = run("index", "upgrade", index, *given)
        assert code == 2 and "Give one of --run RUN, --rollback and --discard-old." in err
    code, _, err = run("index", "upgrade", index, "--run", saved)
    assert code == 2 and "already has the codes" in err
    code, _, err = run("index", "upgrade", index, "--run", better, "--embeddings", "x.npy")
    assert code == 2 and "takes no --embeddings" in err
    code, _, err = run("search", index, "x.png", "--run", better)
    assert code == 2 and f"hadahash index upgrade {index} --run RUN" in err
    code, out, _ = run("index", "info", index, "--json")
    assert json.loads(out)["previous"] is None
    assert run("index", "upgrade", index, "--run", better, "--device", "cpu", "--bits", 8)[0] == 0
    assert Index.open(index).bits == 8
    code, out, _ = run("index", "info", index, "--json")
    assert json.loads(out)["previous"] == HashModel.load(saved, device="cpu").id


def test_changes_during_the_upgrade_are_taken_over(
    saved, better, index, toy_folder, tmp_path, monkeypatch
):
    """After the first pass, photos are added, changed, relabelled and removed, in two steps."""
    more = write_folder(tmp_path / "more", *make_toy(8, seed=9))
    steps, model = [], HashModel.load(saved, device="cpu")

    def disturb():
        if not steps:
            (toy_folder / "red" / "002.png").unlink()
            (toy_folder / "blue" / "000.png").replace(toy_folder / "green" / "000.png")
            Image.fromarray(make_toy(1, seed=5)[0][0]).save(toy_folder / "blue" / "004.png")
            build_or_update(toy_folder, index, options=BuildOptions(device="cpu"))
        elif len(steps) == 1:
            photos = PhotoIndex.open(index)
            from hadahash.photos import scan_options, scan_paths

            scan = scan_paths([more], scan_options({}), home=photos.home, prefix="more/")
            photos.apply(photos.plan(scan), model)
            photos.remove(["green/001.png"])
        steps.append(1)

    check_missing = upgrading._Upgrade._check_missing
    monkeypatch.setattr(
        upgrading._Upgrade,
        "_check_missing",
        lambda self, stage: (disturb(), check_missing(self, stage)),
    )
    expected = set(Index.open(index).ids.tolist()) - {"red/002.png", "blue/000.png"}
    expected = expected - {"green/001.png"} | {"green/000.png"}
    expected |= {f"more/{path.relative_to(more)}" for path in more.rglob("*.png")}
    done = upgrade(index, better, options=CPU)
    assert len(steps) == 3 and done.total == len(expected) == 54
    new = check(index, better, expected)
    assert new.get(["green/000.png"])[0].labels == ("green",)
    rollback(index, options=CPU)
    check(index, saved, expected)


def test_an_interrupted_upgrade_continues(saved, better, index, run, monkeypatch, toy_folder):
    monkeypatch.setattr(staging, "PART", 10)
    encode, parts = staging.Staging._encode, []

    def stop(self, items, advance):
        parts.append(len(items))
        if len(parts) == 3:
            raise KeyboardInterrupt
        encode(self, items, advance)

    with monkeypatch.context() as patch:
        patch.setattr(staging.Staging, "_encode", stop)
        with pytest.raises(KeyboardInterrupt):
            upgrade(index, better, options=CPU)
    check(index, saved)
    build_or_update(toy_folder, index, options=BuildOptions(device="cpu"))  # keeps what is there
    said = []
    done = upgrade(index, better, options=CPU, info=said.append)
    assert done.encoded == 28 and "Continuing an upgrade, 20 items are encoded." in said
    assert check(index, better) and not leftovers(index)


def test_another_run_begins_again_and_old_files_are_removed(saved, better, index, tmp_path):
    third = tmp_path / "third"
    tiny_hasher(seed=8).fit(*make_toy(64, seed=0)).save(third)
    upgrade(index, better, options=CPU)
    with pytest.raises(ZeroDivisionError):
        upgrade(index, third, options=CPU, bar=lambda title, total: 1 / 0)
    assert leftovers(index)
    upgrade(index, third, options=CPU)
    assert check(index, third) and len(list(index.glob("*.codes"))) == 2
    assert discard_old(index) and check(index, third) and len(list(index.glob("*.codes"))) == 1


def test_items_without_files_are_refused_or_left_out_and_come_back(saved, better, index):
    photos = PhotoIndex.open(index)
    posted = Codes(np.zeros((1, 2), np.uint8), 16, ids=np.array(["posted"], object))
    photos.index.add(posted, [["red"]])
    photos.index.save(index)
    path = photos.index.get(["red/002.png"])[0].path
    shutil.copy(path, f"{path}.saved")
    Path(path).write_bytes(b"broken")
    before = Index.open(index).ids.tolist()
    with pytest.raises(DataError, match=r"2 items .* cannot be encoded again") as refused:
        upgrade(index, better, options=CPU)
    assert "--drop-missing" in one_line(refused.value) and len(Index.open(index)) == 49
    done = upgrade(index, better, options=UpgradeOptions(drop_missing=True, device="cpu"))
    assert (done.total, done.encoded, done.dropped) == (47, 0, 2)
    check(index, better)
    shutil.move(f"{path}.saved", path)
    rollback(index, options=CPU)
    assert Index.open(index).ids.tolist() == before
    assert not Index.open(index).codes(["posted"]).packed.any()


def test_a_file_that_changed_has_not_its_looks_of_before(better, index, toy_folder):
    """The upgrade encodes it as it is now, and so the catalog has to say."""
    catalog, name = PhotoIndex.open(index).catalog, "red/002.png"
    assert len(catalog.looks()) == 48
    Image.fromarray(make_toy(1, seed=77)[0][0]).save(toy_folder / name)
    upgrade(index, better, options=CPU)
    assert check(index, better) and set(catalog.looks()) == set(Index.open(index).ids) - {name}
    photos = PhotoIndex.open(index)
    plan = photos.plan(scan_folder(toy_folder), whole=toy_folder.resolve())
    assert not plan.encode and plan.unchanged == 48
    rollback(index, options=CPU)
    assert name not in catalog.looks()


@pytest.mark.parametrize("back", [True, False])
def test_an_item_that_took_the_id_of_a_file_has_not_its_code(
    saved, better, index, toy_folder, monkeypatch, back
):
    """A client removed the item and gave its id to something else, after the file was encoded."""
    name = "red/002.png"
    if back:
        upgrade(index, better, options=CPU)
    else:
        with monkeypatch.context() as patch:
            patch.setattr(upgrading.revisions, "switch", _break_off)
            with pytest.raises(KeyboardInterrupt):
                upgrade(index, better, options=CPU)
    live = Index.open(index)
    live.remove([name])
    live.add(Codes(np.zeros((1, 2), np.uint8), 16, [name]))
    live.save(index)

    def go(options):
        return rollback(index, options=options) if back else upgrade(index, better, options=options)

    with pytest.raises(DataError, match=r"1 items .* such as 'red/002\.png': it has no file"):
        go(CPU)
    done = go(UpgradeOptions(drop_missing=True, device="cpu"))
    assert (done.total, done.dropped) == (47, 1)
    assert name not in check(index, saved if back else better).ids


def _break_off(folder, expected):
    raise KeyboardInterrupt


def test_a_crash_between_the_manifests(saved, better, index, monkeypatch):
    """previous.json is written first; without index.json nothing has changed."""
    from hadahash.index.storage.manifest import Manifest

    write = Manifest.write

    def fail(self, folder, name="index.json"):
        if name == "index.json":
            raise KeyboardInterrupt
        write(self, folder, name)

    with monkeypatch.context() as patch:
        patch.setattr(Manifest, "write", fail)
        with pytest.raises(KeyboardInterrupt):
            upgrade(index, better, options=CPU)
    assert (index / "previous.json").exists() and check(index, saved)
    with pytest.raises(UsageError, match="no previous codes"):
        rollback(index, options=CPU)
    assert upgrade(index, better, options=CPU).encoded == 0 and check(index, better)
    assert rollback(index, options=CPU).encoded == 0 and check(index, saved)


def test_the_label_free_model_can_come_back(saved, index, toy_folder, tmp_path, monkeypatch):
    own = tmp_path / "own.index"
    monkeypatch.setattr(
        "hadahash.photos.build.fit_ready_model",
        lambda *args, **kwargs: tiny_hasher("itq", seed=3).fit(*make_toy(64, seed=1)).model_,
    )
    build_or_update(toy_folder, own, options=BuildOptions(device="cpu"))
    upgrade(own, saved, options=CPU)
    assert Index.open(own).meta["run"] == str(saved.resolve())
    rollback(own, options=CPU)
    assert Index.open(own).meta["run"] == "model" and check(own, own / "model")


def test_embeddings(tmp_path, run):
    vectors = np.random.default_rng(0).normal(size=(64, 24)).astype(np.float32)
    np.save(tmp_path / "vectors.npy", vectors)
    out = tmp_path / "vectors.index"
    assert run("index", "build", tmp_path / "vectors.npy", "--out", out, "--device", "cpu")[0] == 0
    Hasher("itq", bits=16, device="cpu").fit(vectors[:40]).save(tmp_path / "new")
    arguments = ("index", "upgrade", out, "--run", tmp_path / "new", "--device", "cpu")
    code, _, err = run(*arguments)
    assert code == 2 and "--embeddings FILE" in err
    np.save(tmp_path / "few.npy", vectors[:60])
    code, _, err = run(*arguments, "--embeddings", tmp_path / "few.npy")
    assert code != 0 and "4 items" in err
    code, out_, err = run(*arguments, "--embeddings", tmp_path / "vectors.npy")
    assert code == 0 and "64 items" in out_, err
    model = HashModel.load(tmp_path / "new", device="cpu")
    assert (Index.open(out).codes().packed == model.encode(vectors).packed).all()
    code, _, _ = run("index", "upgrade", out, "--rollback", "--embeddings", tmp_path / "few.npy")
    assert code == 0 and Index.open(out).bits == 24


def test_embeddings_with_onnxruntime(tmp_path, monkeypatch):
    pytest.importorskip("onnxruntime")
    monkeypatch.setenv("HADAHASH_RUNTIME", "onnx")
    vectors = np.random.default_rng(0).normal(size=(64, 24)).astype(np.float32)
    np.save(tmp_path / "vectors.npy", vectors)
    source = open_embeddings(tmp_path / "vectors.npy")
    build_vector_index(tmp_path / "x.index", source)
    fit_embeddings(source, bits=16).save(tmp_path / "new")
    given = UpgradeOptions(embeddings=tmp_path / "vectors.npy")
    assert upgrade(tmp_path / "x.index", tmp_path / "new", options=given).encoded == 64
    assert Index.open(tmp_path / "x.index").meta["embeddings"] == 24


def test_changes_are_found_by_segments(make_codes):
    first = Index.build(make_codes(range(100)), engine="routed")
    assert revisions.changes(first, first).touched.tolist() == []


@pytest.fixture
def make_codes():
    rng = np.random.default_rng(0)
    return lambda ids: Codes(
        rng.integers(0, 256, (len(ids), 2), np.uint8), 16, ids=np.array([*ids])
    )


def test_photos_at_an_address(run, saved, better, toy_folder, tmp_path):
    (tmp_path / "a.tar").write_bytes(tar_bytes(image_files(toy_folder)))
    address, out = (
        put_folder(f"memory://{tmp_path.name}/u", image_files(toy_folder)),
        tmp_path / "i",
    )
    local = HashModel.load(better, device="cpu")
    for source in (address, tmp_path / "a.tar"):
        shutil.rmtree(out, ignore_errors=True)
        assert run("index", "build", saved, source, "--out", out, "--device", "cpu")[0] == 0
        assert upgrade(out, better, options=CPU).encoded == 48
        index = Index.open(out)
        expected = local.encode([toy_folder / str(each) for each in index.ids.tolist()]).packed
        assert (index.codes(index.ids).packed == expected).all()
        assert rollback(out, options=CPU).encoded == 0


# ------------------------------------------------------------------ damaged and foreign files


@pytest.fixture
def two_revisions(tmp_path):
    """An index folder with a current and a previous revision, and what belongs to that one."""
    folder = tmp_path / "index"
    index = Index.build(Codes.from_bits(np.eye(8, 16, dtype=int)))
    index.save(folder, name=revisions.PREVIOUS)
    index.save(folder)
    (folder / "previous" / "000001").mkdir(parents=True)
    (folder / "upgrade").mkdir()
    return folder


@pytest.mark.parametrize("text", ["null", "[[1]]", "5", '{"a": 1}', "[1.5]"])
def test_a_damaged_list_of_dropped_items_is_a_one_line_error(two_revisions, text):
    (two_revisions / "previous" / "000001" / "dropped.json").write_text(text)
    with pytest.raises(StorageError, match=r"dropped.json is damaged .*remove it") as caught:
        kept.dropped(two_revisions)
    one_line(caught.value)


@pytest.mark.parametrize(
    "text", ["null", "{}", '{"generation": "1", "ids": []}', '{"generation": 1, "ids": [1, "a"]}']
)
def test_a_damaged_list_of_compared_items_is_a_one_line_error(two_revisions, text):
    (two_revisions / "upgrade" / "compared.json").write_text(text)
    with pytest.raises(StorageError, match=r"compared.json is damaged .*remove it") as caught:
        late.unfinished(two_revisions)
    one_line(caught.value)


@pytest.mark.parametrize("linked", [False, True])
def test_only_folders_of_earlier_revisions_are_removed(two_revisions, tmp_path, linked):
    place = two_revisions / "previous"
    if linked:  # by the one whose index this is
        shutil.rmtree(place)
        place.symlink_to(tmp_path / "mine", target_is_directory=True)
        (tmp_path / "mine").mkdir()
    for name in ("000000", "thesis", "000001"):
        (place / name).mkdir(exist_ok=True)
    kept.clean(two_revisions)
    left = {"thesis", "000001"} | ({"000000"} if linked else set())
    assert {path.name for path in place.iterdir()} == left
