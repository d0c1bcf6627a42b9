"""Run folders, models and code files of version 0.1 still open and give the same codes.

v01/saved.tar.xz was written by version 0.1: `csq` is an evaluated run, `itq` and `hcdh` are saved
models, and the .npz files hold the codes of `toys.make_toy(48, seed=2)`.
"""

from __future__ import annotations

import json
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pytest
from toys import make_toy, one_line, tiny_config, write_folder

from hadahash import Codes, Hasher
from hadahash.errors import StorageError, UsageError
from hadahash.model import HashModel
from hadahash.runs import DataSpec, RunDir, evaluate_run, read_evaluated_run, train_run

ARCHIVE = Path(__file__).parent / "v01" / "saved.tar.xz"


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("v01")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    write_folder(folder / "photos", *make_toy(48, seed=2))
    return folder


@pytest.fixture
def old(unpacked, tmp_path, monkeypatch) -> Path:
    """A copy; the run names its data as "photos", relative to this folder."""
    shutil.copytree(unpacked, tmp_path / "old")
    monkeypatch.chdir(tmp_path / "old")
    return tmp_path / "old"


@pytest.mark.parametrize("name", ["csq", "itq", "hcdh"])
def test_a_model_gives_the_same_codes_as_before(old, name):
    model, codes = HashModel.load(old / name, device="cpu"), Codes.load(old / f"{name}.npz")
    found = model.encode(old / "photos")
    assert found.ids.tolist() == codes.ids.tolist() and len(found) == 48
    assert np.array_equal(found.packed, codes.packed)
    manifest = json.loads((old / name / "hasher.json").read_text())
    assert model.made(manifest["weights_sha256"]) and model.made(model.id)
    assert not model.made("0" * 64)


@pytest.mark.parametrize("name", ["csq", "itq", "hcdh"])
def test_a_model_that_is_saved_again_is_the_same(old, name):
    first = Hasher.load(old / name, device="cpu")
    first.save(old / name)
    assert not (old / name / "hasher.json").exists() and (old / name / "model.json").exists()
    again = HashModel.load(old / name, device="cpu")
    codes = Codes.load(old / f"{name}.npz")
    assert np.array_equal(again.encode(old / "photos").packed, codes.packed)
    assert len(list((old / name).glob("model-*"))) == 1


def test_an_evaluated_run_is_read_unchanged(old):
    run = read_evaluated_run(old / "csq")
    assert run.report["map"] == pytest.approx(0.5482624722771805)
    assert (len(run.query), len(run.database), run.classes[0]) == (4, 44, "blue")
    assert run.record["method"] == "csq" and RunDir(old / "csq").state == "evaluated"


def test_a_run_is_evaluated_again(old):
    before = read_evaluated_run(old / "csq")
    report = evaluate_run("csq", device="cpu")
    after = read_evaluated_run(old / "csq")
    assert report.map == pytest.approx(before.report["map"])
    assert np.array_equal(after.query.packed, before.query.packed)
    assert np.array_equal(after.database.packed, before.database.packed)
    assert after.query.ids.tolist() == before.query.ids.tolist()
    assert not (old / "csq" / "report.json").exists() and not (old / "csq" / "codes").exists()


def test_data_that_were_moved_are_named(old):
    (old / "photos").rename(old / "moved")
    with pytest.raises(Exception, match=r"no longer at photos.*--data") as caught:
        evaluate_run("csq", device="cpu")
    one_line(caught.value)
    assert evaluate_run("csq", data="moved", device="cpu").queries == 4


def test_a_run_is_replaced_as_a_whole(old):
    config = tiny_config(bits=8, frozen=True)
    with pytest.raises(UsageError, match="contains a finished run"):
        train_run(config, DataSpec("photos"), "csq", device="cpu")
    train_run(config, DataSpec("photos"), "csq", device="cpu", overwrite=True)
    names = {path.name for path in Path("csq").iterdir() if not path.name.startswith(".")}
    (weights,) = Path("csq").glob("model-*")
    assert names == {"run.json", "split.json", "model.json", "log.jsonl", weights.name}
    assert evaluate_run("csq", device="cpu").queries == 4


def test_resuming_a_finished_run_compares_what_it_recorded(old):
    record = json.loads((old / "csq" / "run.json").read_text())
    settings = record["settings"] | {"batch_size": record["settings"]["batch"]}
    del settings["batch"], settings["csq_quantisation"]
    same = {"method": "csq", "bits": 8, "backbone": "test_efficientnet", **settings}
    lines: list[str] = []
    for changes, text in (
        ({}, None),
        ({"bits": 16}, "bits: 8 before, 16 now"),
        ({"epochs": 31}, "epochs: 30 before, 31 now"),
        ({"seed": 1}, "seed: 0 before, 1 now"),
        ({"batch_size": 8}, "batch_size: 16 before, 8 now"),
    ):
        config, options = tiny_config(**same | changes), {"resume": True, "device": "cpu"}
        if text is None:
            train_run(config, DataSpec("photos"), "csq", info=lines.append, **options)
            assert lines == ["csq is trained already; nothing to do."]
            continue
        with pytest.raises(UsageError, match=text) as caught:
            train_run(config, DataSpec("photos"), "csq", **options)
        one_line(caught.value)


def test_an_unfinished_training_says_what_to_do(old):
    for name in ("run.json", "hasher.json"):
        (old / "csq" / name).unlink()
    with pytest.raises(StorageError, match=r"version 0\.1\. Start again: .*--overwrite") as caught:
        evaluate_run("csq")
    one_line(caught.value)
    for resume in (False, True):
        with pytest.raises(UsageError, match=r"version 0\.1.*--overwrite") as caught:
            train_run(tiny_config(), DataSpec("photos"), "csq", resume=resume)
        one_line(caught.value)
