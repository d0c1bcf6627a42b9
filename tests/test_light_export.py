"""Which runtime a saved model gets, and models that are exported where it pays."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from toys import make_toy, tiny_hasher, write_folder

from hadahash import HashModel, light_export, ready_models
from hadahash.data.sources import as_images
from hadahash.light_export import can_export, export_once, export_ready, for_long_job
from hadahash.onnx_files import export_onnx, load_for_export
from hadahash.pace import measured
from hadahash.photos import PhotoIndex, model_for, scan_folder
from hadahash.runtime import choice

pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")


@pytest.fixture(autouse=True)
def without_gpu(monkeypatch):
    monkeypatch.setattr(choice, "has_gpu", lambda: False)
    monkeypatch.delenv("HADAHASH_RUNTIME", raising=False)


@pytest.fixture(scope="module")
def exported(saved, tmp_path_factory):
    """A model that was exported. Tests only read it."""
    folder = shutil.copytree(saved, tmp_path_factory.mktemp("exported") / "run")
    export_onnx(load_for_export(folder))
    return folder


@pytest.fixture
def plain(saved, tmp_path):
    """A model that was not exported."""
    return shutil.copytree(saved, tmp_path / "plain")


@pytest.fixture
def in_process(monkeypatch):
    """Exports without a process of their own; returns the folders."""
    done = []

    def export(run):
        done.append(run)
        export_onnx(load_for_export(run))

    monkeypatch.setattr(light_export, "export_model", export)
    return done


def runtime_of(folder, device="cpu"):
    return HashModel.load(folder, device=device).runtime.name


# ------------------------------------------------------------------ the choice


def test_an_exported_model_runs_with_onnxruntime(exported, plain, monkeypatch):
    assert runtime_of(exported) == runtime_of(exported, "auto") == "onnx"
    assert runtime_of(plain) == "torch"
    assert can_export(plain, "cpu") and not can_export(exported, "cpu")
    assert not can_export(plain, "cuda") and not can_export(plain / "no-run", "cpu")
    monkeypatch.setattr(choice, "has_gpu", lambda: True)
    assert choice.prefers_torch(None, "auto", weights=True, graphs=True)
    assert runtime_of(exported) == "onnx"
    assert not can_export(plain, "auto") and can_export(plain, "cpu")
    monkeypatch.setenv("HADAHASH_RUNTIME", "torch")
    assert runtime_of(exported) == "torch"
    assert not can_export(plain, "cpu")


def test_graphs_that_cannot_be_used_are_left_to_torch(exported, tmp_path):
    folder = shutil.copytree(exported, tmp_path / "run")
    facts, expected = folder / "onnx.json", HashModel.load(exported, runtime="torch").id
    text = facts.read_text()
    (graph,) = folder.glob("network-*.onnx")
    graph.write_bytes(b"x" + graph.read_bytes()[1:])
    with pytest.warns(RuntimeWarning, match=r"torch runs the model: .* is damaged .*export again"):
        assert runtime_of(folder) == "torch"
    for content in (text.replace('"bits"', '"bit"'), text.replace(expected, "0" * 64), None):
        facts.unlink()
        if content is not None:
            facts.write_text(content)
        assert runtime_of(folder) == "torch"
        assert can_export(folder, "cpu")
        facts.write_text(text)
    assert HashModel.load(folder, runtime="torch").id == expected


def test_the_driver_tells_whether_there_is_a_gpu(monkeypatch):
    monkeypatch.undo()

    def missing(name):
        raise OSError(name)

    class Driver:
        def __init__(self, found):
            self._found = found

        def cuInit(self, flags):
            return 0 if self._found else 100

        def cuDeviceGetCount(self, count):
            count._obj.value = self._found
            return 0

    monkeypatch.setattr(choice.ctypes, "CDLL", missing)
    assert not choice.has_gpu()
    for found in (0, 1, 2):
        monkeypatch.setattr(choice.ctypes, "CDLL", lambda name, found=found: Driver(found))
        assert choice.has_gpu() == (found > 0)


# ------------------------------------------------------------------ exporting once


def test_what_cannot_be_exported_is_left_to_torch(plain, monkeypatch):
    for name in ("torch", "onnx", "onnxruntime"):
        with monkeypatch.context() as patch:
            for module in (light_export, choice):
                patch.setattr(module, "is_installed", lambda each, name=name: each != name)
            assert not can_export(plain, "cpu")


def test_a_model_is_exported_once(exported, plain, monkeypatch):
    ran, lines = [], []

    def run(arguments, **options):
        ran.append(arguments[1:])
        if len(ran) == 3:
            raise OSError("no memory")
        return subprocess.CompletedProcess(arguments, int(len(ran) > 1), "", "first\nno space\n")

    monkeypatch.setattr(light_export.subprocess, "run", run)
    assert not export_once(exported, "cpu", lines.append)
    assert not ran and not lines
    assert export_once(plain, "cpu", lines.append)
    assert ran == [["-m", "hadahash", "export", str(plain), "--onnx"]]
    assert lines.pop() == f"Exporting the model in {plain} for onnxruntime. This is done once."
    for reason in ("no space", "no memory"):
        assert not export_once(plain, "cpu", lines.append)
        assert lines.pop() == f"The model cannot be exported, and runs with torch: {reason}"


def test_a_folder_that_cannot_be_written_is_one_line(plain, in_process, monkeypatch):
    lines = []
    monkeypatch.setattr(light_export.os, "access", lambda *_: False)
    assert not export_once(plain, "cpu", lines.append)
    assert lines == [
        f"{plain} cannot be written, so the model is not exported and runs with torch."
    ]
    assert not in_process


def test_the_ready_made_model_is_exported_once(monkeypatch):
    made, lines = [], []
    monkeypatch.setattr(light_export, "export_model", made.append)
    monkeypatch.setattr(light_export, "is_ready", lambda: True)
    export_ready("cpu", lines.append)
    assert not made and not lines
    monkeypatch.setattr(light_export, "is_ready", lambda: False)
    export_ready("cuda", lines.append)
    assert not made
    export_ready("cpu", lines.append)
    assert made == ["lite0"] and len(lines) == 1


def test_photos_without_labels_take_the_exported_network(monkeypatch):
    for there in (True, False):
        monkeypatch.setattr(ready_models, "is_ready", lambda there=there: there)
        assert ready_models.prefers_ready("cpu") == there
        assert not ready_models.prefers_ready("cuda")
    monkeypatch.setattr(ready_models, "is_installed", lambda name: name != "torch")
    assert ready_models.prefers_ready("cuda"), "there is nothing else"
    assert not can_export(Path(), "cpu")


# ------------------------------------------------------------------ long jobs


def test_a_model_is_exported_before_a_long_job(plain, in_process, toy_folder, monkeypatch):
    model, images, lines = HashModel.load(plain, device="cpu"), as_images(toy_folder), []

    def choose(model, **options):
        return for_long_job(model, images.images, device="cpu", info=lines.append, **options)

    assert choose(model) is model, "48 images are few"
    monkeypatch.setattr(light_export, "LEAST_IMAGES", 48)
    assert choose(HashModel.load(plain, device="cpu", runtime="torch").prefix(8)).bits == 8
    assert in_process == [plain.resolve()] and len(lines) == 1
    fast = HashModel.load(plain, device="cpu")
    assert (fast.runtime.name, fast.id) == ("onnx", model.id)
    assert choose(fast) is fast and len(in_process) == 1
    assert np.array_equal(fast.encode(images).packed, model.encode(images).packed)


def test_a_job_with_few_new_images_needs_no_export(
    plain, in_process, toy_folder, tmp_path, monkeypatch
):
    monkeypatch.setenv("HADAHASH_FEATURE_CACHE", "1GB")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(light_export, "LEAST_IMAGES", 40)
    model, images = HashModel.load(plain, device="cpu"), as_images(toy_folder)
    options = {"device": "cpu", "info": lambda text: None}
    assert model.encoder().count_unknown(images.images) == 48
    model.encode(images)
    assert model.encoder().count_unknown(images.images) == 0
    write_folder(toy_folder / "new", *make_toy(48, seed=9))
    more = as_images(toy_folder)
    assert 40 <= model.encoder().count_unknown(more.images) <= 56, "about half of 96"
    assert for_long_job(model, images.images, **options) is model and not in_process
    other = for_long_job(model, images.images, **options, more=40)
    assert other.runtime.name == "onnx" and len(in_process) == 1


def test_an_export_that_fails_stops_nothing(plain, toy_folder, monkeypatch):
    lines = []
    monkeypatch.setattr(light_export, "LEAST_IMAGES", 1)
    monkeypatch.setattr(light_export, "export_model", lambda run: "no space")
    model, images = HashModel.load(plain, device="cpu"), as_images(toy_folder).images
    assert for_long_job(model, images, device="cpu", info=lines.append) is model
    assert lines[-1].endswith("runs with torch: no space")
    monkeypatch.setattr(light_export, "export_model", lambda run: (run / "model.json").unlink())
    assert for_long_job(model, images, device="cpu", info=lines.append) is model
    assert "model.json is missing" in lines[-1]


def test_a_build_exports_the_model_of_its_run(plain, in_process, toy_folder, tmp_path, monkeypatch):
    monkeypatch.setattr(light_export, "LEAST_IMAGES", 48)
    model = HashModel.load(plain, device="cpu")
    photos = PhotoIndex.create(tmp_path / "x.index", model, plain, toy_folder)
    plan = photos.plan(scan_folder(toy_folder))
    fast = model_for(plan, model, device="cpu", info=lambda text: None)
    assert fast.runtime.name == "onnx" and len(in_process) == 1
    assert photos.apply(plan, fast).encoded == 48


# ------------------------------------------------------------------ the cache of features


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HADAHASH_FEATURE_CACHE", "1GB")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def counted(model, source):
    """How many images go through the network."""
    with measured() as pace:
        model.encode(source)
    return pace.computed


def test_onnxruntime_uses_the_features_of_torch_but_not_the_other_way(exported, cache, toy_folder):
    torch, onnx = (HashModel.load(exported, device="cpu", runtime=r) for r in ("torch", "onnx"))
    assert counted(torch, toy_folder) == 48
    assert counted(onnx, toy_folder) == 0
    write_folder(toy_folder / "new", *make_toy(4, seed=9))
    assert counted(onnx, toy_folder) == 4
    assert counted(onnx, toy_folder) == 0
    assert counted(torch, toy_folder) == 4, "what is trained on is computed by torch"


def test_exported_models_of_one_backbone_share_features(cache, tmp_path, toy_folder, toy):
    models = []
    for bits in (8, 16):
        folder = tmp_path / str(bits)
        tiny_hasher("lsh", bits=bits).fit(*toy).save(folder)
        export_onnx(load_for_export(folder))
        models.append(HashModel.load(folder, device="cpu", runtime="onnx"))
    assert [counted(model, toy_folder) for model in models] == [48, 0]
