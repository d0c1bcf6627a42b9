"""Models without torch: exported graphs, the light installation, and models without labels."""

from __future__ import annotations

import json
import re
import subprocess
import urllib.request
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from light_install import HEAVY, make_environment, packages_of, run_light
from toys import make_toy, one_line, tiny_config, tiny_hasher, write_folder

from hadahash.codes import Codes
from hadahash.data.preprocess import Preprocess, center_array
from hadahash.data.sources import as_images
from hadahash.data.views import center_view
from hadahash.errors import HadaHashError, MissingExtraError, StorageError, UsageError
from hadahash.methods import itq
from hadahash.model import HashModel
from hadahash.onnx_files import export_onnx, load_for_export, make_ready
from hadahash.projections import find_rotation, fit_itq
from hadahash.ready_models import fit_embeddings, fit_photos, load_ready
from hadahash.runs import DataSpec, train_run
from hadahash.runtime.choice import prefers_torch
from hadahash.runtime.files import Graph, GraphFacts, read_facts, write_facts
from hadahash.runtime.onnx import open_session

pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")


@pytest.fixture(scope="module")
def photos(tmp_path_factory) -> Path:
    return write_folder(tmp_path_factory.mktemp("photos"), *make_toy(48, seed=2))


@pytest.fixture(scope="module")
def run(tmp_path_factory, photos) -> Path:
    """A trained run with content bits of the original backbone, exported in place."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    config = tiny_config(content_bits=16, epochs=1)
    train_run(config, DataSpec(str(photos)), folder, device="cpu")
    export_onnx(load_for_export(folder))
    return folder


@pytest.fixture(scope="module")
def ready(tmp_path_factory) -> Path:
    """A cache folder of a user that holds the ready-made model."""
    cache = tmp_path_factory.mktemp("cache")
    make_ready(cache / "hadahash" / "models" / "lite0.onnx")
    return cache


@pytest.fixture(scope="module")
def light(tmp_path_factory) -> Path:
    """The Python of an environment without torch."""
    return make_environment(tmp_path_factory.mktemp("light"))


# ------------------------------------------------------------------ equal results


def assert_same(one: HashModel, other: HashModel, source) -> None:
    a, b = one.queries(source), other.queries(source)
    for name in ("values", "content", "probabilities"):
        first, second = getattr(a, name), getattr(b, name)
        assert (first is None) == (second is None), name
        if first is not None:
            np.testing.assert_allclose(first, second, rtol=0, atol=1e-4, err_msg=name)
    codes = one.encode(source), other.encode(source)
    sure = np.abs(one.values(source).values) > 1e-4
    assert np.array_equal(codes[0].signs()[sure], codes[1].signs()[sure]) and sure.mean() > 0.99


@pytest.mark.parametrize("method", ["hcdh", "hashnet", "ksh", "csq"])
def test_both_runtimes_give_the_same_values(method, tmp_path, toy, toy_queries):
    model = tiny_hasher(method, epochs=1).fit(*toy).model_
    model.save(tmp_path)
    export_onnx(HashModel.load(tmp_path, runtime="torch"))
    loaded = HashModel.load(tmp_path, runtime="onnx")
    assert loaded.runtime.name == "onnx" and model.runtime.name == "torch"
    assert loaded.id == model.id and loaded.made(model.id)
    assert_same(model, loaded, toy_queries[0])
    words = model.codewords(), loaded.codewords()
    assert (words[0] is None and words[1] is None) or np.array_equal(*words)
    assert len(loaded.encode([])) == 0
    short = loaded.prefix(8)
    assert np.array_equal(short.encode(toy[0]).packed, model.prefix(8).encode(toy[0]).packed)
    with pytest.raises(UsageError, match="shortened to 8 bits"):
        short.save(tmp_path / "short")


def test_content_bits_of_the_original_backbone(run, toy_queries):
    models = [HashModel.load(run, device="cpu", runtime=name) for name in ("torch", "onnx")]
    assert models[0].id == models[1].id and models[1].content_bits == 16
    assert models[0].fingerprint == models[1].fingerprint is not None
    kept = [model.content_projection for model in models]
    assert {each.fingerprint for each in kept} == {models[0].fingerprint}
    assert_same(*models, toy_queries[0])
    codes = [model.encode(toy_queries[0]) for model in models]
    assert (codes[0].content != codes[1].content).mean() < 0.01


def test_the_graph_goes_from_pixels_to_packed_codes(run, toy_queries, tmp_path):
    file, facts = export_onnx(load_for_export(run), tmp_path / "model.onnx")
    session = open_session(file.read_bytes())
    about = json.loads(session.get_modelmeta().custom_metadata_map["hadahash"])
    assert about["model_id"] == facts.model_id == HashModel.load(run).id
    assert about["preprocessing"]["side"] == 32 and facts.opset >= 18
    names = [each.name for each in session.get_outputs()]
    assert names == list(facts.graphs["network"].outputs)
    expected = HashModel.load(run, runtime="onnx").encode(toy_queries[0])
    pixels = np.ascontiguousarray(toy_queries[0].transpose(0, 3, 1, 2))
    for rows in (1, len(pixels)):  # the number of rows is free
        found = dict(zip(names, session.run(None, {"pixels": pixels[:rows]}), strict=True))
        assert np.array_equal(found["codes"], expected.packed[:rows])
        assert np.array_equal(found["content_codes"], expected.content[:rows])


@pytest.mark.parametrize(
    ("side", "size", "crop"), [(256, 224, 0.875), (32, 64, 1.0), (40, 24, 0.9), (64, 64, 1.0)]
)
def test_the_view_is_that_of_torch(side, size, crop):
    pixels = np.random.default_rng(0).integers(0, 256, (2, 3, side, side), dtype=np.uint8)
    preprocess = Preprocess(side=side, size=size, crop=crop)
    expected = center_view(torch.from_numpy(pixels), preprocess)
    np.testing.assert_allclose(center_array(pixels, preprocess), expected, atol=0.02)


def test_mirror_and_resampling_are_in_the_graph(tmp_path, toy, toy_queries):
    model = tiny_hasher("lsh", mirror=True, side=40, crop=0.8).fit(*toy).model_
    assert model.preprocess.mirror and model.preprocess.crop == 0.8
    model.save(tmp_path)
    export_onnx(load_for_export(tmp_path))
    assert_same(model, HashModel.load(tmp_path, runtime="onnx"), toy_queries[0])


def test_itq_in_numpy_is_that_of_torch():
    features = torch.randn(200, 24, generator=torch.Generator().manual_seed(0)).double()
    start = torch.randn(8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    V = features[:, :8] * torch.arange(1, 9)
    expected = itq.find_rotation(V, 20, torch.Generator().manual_seed(1))
    assert np.allclose(find_rotation(V.numpy(), 20, start.numpy()), expected)
    mean, directions = fit_itq(features.numpy(), 8, 20, start.numpy())
    ours = itq.rotated_directions(features, 8, 0, torch.Generator())
    assert np.allclose(mean, ours[0])
    # The directions of both span the same space: eigenvectors have no sign.
    assert np.allclose(directions @ directions.T, ours[1] @ ours[1].T)


# ------------------------------------------------------------------ files


def test_a_folder_without_weights(run, tmp_path, toy_queries, monkeypatch):
    folder, facts = export_onnx(load_for_export(run), tmp_path / "light")
    assert sorted(path.suffix for path in folder.iterdir()) == [".json", ".json", ".onnx", ".onnx"]
    model = HashModel.load(folder)
    assert model.runtime.name == "onnx", "there are no weights for torch"
    assert_same(HashModel.load(run, runtime="torch"), model, toy_queries[0])
    model.save(tmp_path / "copy")
    assert HashModel.load(tmp_path / "copy").id == model.id == facts.model_id
    monkeypatch.setenv("HADAHASH_RUNTIME", "onnx")
    assert HashModel.load(run).runtime.name == "onnx"


def test_damaged_and_mixed_files_are_reported(run, tmp_path, toy, toy_queries):
    folder, facts = export_onnx(load_for_export(run), tmp_path / "light")
    graph = folder / facts.graphs["network"].file
    content = graph.read_bytes()
    graph.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(StorageError, match=r"is damaged .*Restore it, or export again"):
        HashModel.load(folder).encode(toy_queries[0])
    graph.unlink()
    with pytest.raises(StorageError, match="Cannot read"):
        HashModel.load(folder).encode(toy_queries[0])
    text = (folder / "onnx.json").read_text()
    (folder / "onnx.json").write_text(text.replace('"bits": 16', '"bits": 8'))
    with pytest.raises(StorageError, match="its checksum does not match") as caught:
        HashModel.load(folder)
    one_line(caught.value)
    other = tmp_path / "other"
    tiny_hasher("lsh").fit(*toy).save(other)
    (other / "onnx.json").write_text(text)
    with pytest.raises(StorageError, match="mixes two models"):
        HashModel.load(other, runtime="onnx")


@pytest.mark.parametrize("name", ["../x.onnx", "/x.onnx", "x.onnx", "network-0123456789ab.onnx\n"])
def test_graphs_have_plain_names(tmp_path, name):
    """Saving a model from someone else writes only beside the model."""
    facts = GraphFacts("m", "w", "resnet18", 512, 16, graphs={"network": Graph(name, "0" * 64)})
    write_facts(tmp_path, facts)
    with pytest.raises(StorageError, match="a graph has no valid file name") as caught:
        read_facts(tmp_path)
    one_line(caught.value)


def test_training_again_removes_the_graphs(tmp_path, toy):
    tiny_hasher("lsh").fit(*toy).save(tmp_path)
    with pytest.raises(UsageError, match=r"was not exported .*hadahash export"):
        HashModel.load(tmp_path, runtime="onnx")
    export_onnx(load_for_export(tmp_path))
    assert read_facts(tmp_path) is not None
    tiny_hasher("lsh", seed=1).fit(*toy).save(tmp_path)
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".json", ".safetensors"]


def test_the_choice_of_the_runtime(monkeypatch):
    monkeypatch.setattr("hadahash.runtime.choice.has_gpu", lambda: False)
    assert prefers_torch(None, "cuda", weights=True, graphs=True)
    assert prefers_torch(None, "cpu", weights=True, graphs=False)
    assert prefers_torch("torch", "cpu", weights=True, graphs=True)
    assert not prefers_torch(None, "cpu", weights=True, graphs=True)
    assert not prefers_torch(None, "auto", weights=True, graphs=True)
    assert not prefers_torch(None, "cuda", weights=False, graphs=True)
    assert not prefers_torch("onnx", "cuda", weights=True, graphs=True)
    monkeypatch.setattr("hadahash.runtime.choice.has_gpu", lambda: True)
    assert prefers_torch(None, "auto", weights=True, graphs=True)
    assert not prefers_torch(None, "cpu", weights=True, graphs=True)
    with pytest.raises(UsageError, match=r"Unknown runtime 'onx'\. Did you mean 'onnx'"):
        prefers_torch("onx", "cpu", weights=True, graphs=True)
    monkeypatch.setattr("hadahash.runtime.choice.is_installed", lambda name: False)
    for name in (None, "torch"):
        with pytest.raises(MissingExtraError, match=r"pip install 'hadahash\[train\]'"):
            prefers_torch(name, "cpu", weights=True, graphs=False)
    with pytest.raises(MissingExtraError, match=r"pip install 'hadahash\[onnx\]'"):
        prefers_torch("onnx", "cpu", weights=True, graphs=True)
    assert not prefers_torch(None, "cpu", weights=True, graphs=True)


# ------------------------------------------------------------------ models without labels


def test_photos_are_fitted_without_torch(ready, photos, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(ready))
    model = fit_photos(as_images(photos), bits=16)
    model.save(tmp_path)
    codes = model.encode(photos)
    for name in ("onnx", "torch"):
        loaded = HashModel.load(tmp_path, device="cpu", runtime=name)
        assert loaded.id == model.id and loaded.config.to_dict() == model.config.to_dict()
        found = loaded.encode(photos)
        assert (found.packed != codes.packed).mean() < 0.02, name
    assert set(np.unique(codes.signs())) == {-1, 1}


def test_the_ready_made_model_is_the_same_in_both_runtimes(ready, photos, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(ready))
    one, other = load_ready(), HashModel.pretrained(device="cpu")
    assert one.id == other.id and one.runtime.name == "onnx"
    assert_same(other, one, as_images(photos).take(range(4)))
    monkeypatch.setenv("XDG_CACHE_HOME", str(photos))
    monkeypatch.setattr("hadahash.ready_models._PACKAGED", photos / "none" / "lite0.onnx")
    with pytest.raises(HadaHashError, match="hadahash export lite0 --onnx") as caught:
        load_ready()
    one_line(caught.value)


def test_embeddings_are_fitted_without_torch(tmp_path):
    vectors = np.random.default_rng(0).normal(size=(200, 24)).astype(np.float32)
    model = fit_embeddings(as_images(vectors), bits=16)
    model.save(tmp_path)
    codes = model.encode(vectors)
    for name in ("onnx", "torch"):
        loaded = HashModel.load(tmp_path, device="cpu", runtime=name)
        assert loaded.id == model.id and np.array_equal(loaded.encode(vectors).packed, codes.packed)
    with pytest.raises(UsageError, match="bits must be <= 24"):
        fit_embeddings(as_images(vectors), bits=32)
    with pytest.raises(UsageError, match="This model takes embeddings"):
        model.encode(np.zeros((1, 32, 32, 3), np.uint8))


# ------------------------------------------------------------------ without torch


def test_the_light_installation_has_nothing_heavy():
    assert not {"torch", "torchvision", "timm", "scikit-learn", "scipy", "matplotlib"} & set(
        packages_of(["onnx", "milvus", "heif", "parquet"])
    )
    assert {"numpy", "onnxruntime", "pillow", *packages_of(["serve"])} <= set(packages_of(["onnx"]))
    assert "uvicorn" in packages_of(["serve"]) and "onnxruntime" not in packages_of(["serve"])


def test_commands_without_torch(light, run, photos, tmp_path):
    program = f"import importlib.util as u; print([n for n in {HEAVY!r} if u.find_spec(n)])"
    done = subprocess.run([light, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

    def call(*arguments: object) -> str:
        done = run_light(light, *arguments, HADAHASH_FEATURE_CACHE="off")
        assert done.returncode == 0, done.stderr
        return done.stdout

    call("encode", run, photos, "--out", tmp_path / "codes.npz")
    expected = HashModel.load(run, runtime="torch").encode(photos)
    codes = Codes.load(tmp_path / "codes.npz")
    assert (codes.packed != expected.packed).mean() < 0.01
    index, image = tmp_path / "x.index", next(photos.rglob("*.png"))
    call("index", "build", run, photos, "--out", index, "--runtime", "onnx")
    other = write_folder(tmp_path / "more", *make_toy(4, seed=9))
    assert "52 images" in call("index", "add", index, other, "--prefix", "more/")
    hits = json.loads(call("search", index, image, "-k", 3, "--json"))["hits"]
    assert hits[0]["id"] == image.relative_to(photos).as_posix()
    assert json.loads(call("duplicates", index, "--json"))["bits"] == 16 + 64  # with looks
    assert json.loads(call("evaluate", run, "--known-item", 0, "--json"))["map"] > 0
    assert "onnx" in call("doctor")
    assert_serves(light, index, image)


def assert_serves(light: Path, index: Path, image: Path) -> None:
    """The service answers a search by an uploaded image."""
    command = [light, "-m", "hadahash", "serve", index, "--port", "0", "--no-open"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            line = process.stdout.readline()
            (url,) = re.findall(r"http://\S+/", line)
            answer = _search(url, image)
        finally:
            process.terminate()
    assert answer["hits"] and answer["hits"][0]["distance"] == 0


def _search(url: str, image: Path) -> dict:
    """Post an image, once the service is ready."""
    import time

    for _ in range(300):
        try:
            urllib.request.urlopen(f"{url}readyz", timeout=30).read()
            break
        except OSError:
            time.sleep(0.2)
    boundary = b"----light"
    name = b'Content-Disposition: form-data; name="image"; filename="q.png"\r\n\r\n'
    body = b"--" + boundary + b"\r\n" + name + image.read_bytes() + b"\r\n--" + boundary + b"--\r\n"
    headers = {"Content-Type": f"multipart/form-data; boundary={boundary.decode()}"}
    request = urllib.request.Request(f"{url}v1/search", body, headers)
    return json.loads(urllib.request.urlopen(request, timeout=60).read())


def test_what_needs_torch_says_so_in_one_line(light, run, photos, tmp_path):
    for command in (
        ("train", photos, "--out", tmp_path / "run"),
        ("encode", tmp_path, photos, "--runtime", "torch"),
    ):
        done = run_light(light, *command)
        assert done.returncode in (1, 2)
        assert done.stderr == (
            "error: torch is not installed. Install it with: pip install 'hadahash[train]'\n"
        )
    program = "import hadahash as hh; hh.Hasher"
    done = subprocess.run([light, "-c", program], capture_output=True, text=True, check=False)
    assert "pip install 'hadahash[train]'" in done.stderr.splitlines()[-1]


def test_photos_without_labels_and_without_torch(light, ready, photos, tmp_path):
    settings = {"XDG_CACHE_HOME": str(ready), "HADAHASH_FEATURE_CACHE": "off"}
    index = tmp_path / "x.index"
    some = tmp_path / "some"
    write_folder(some, *make_toy(6, seed=4))
    done = run_light(light, "index", "build", some, "--out", index, **settings)
    assert done.returncode == 0 and "6 images" in done.stdout, done.stderr
    vectors = np.random.default_rng(0).normal(size=(50, 16)).astype(np.float32)
    np.save(tmp_path / "v.npy", vectors)
    done = run_light(
        light, "index", "build", tmp_path / "v.npy", "--out", tmp_path / "v.index", **settings
    )
    assert done.returncode == 0 and "50 embeddings" in done.stdout, done.stderr


def test_a_replaced_preprocessing_needs_a_new_export(run):
    model = HashModel.load(run, runtime="onnx")
    assert replace(model, info={}).runtime.name == "onnx"
