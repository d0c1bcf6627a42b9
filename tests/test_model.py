"""HashModel: identity, saved files, and what loading does and does not do."""

from __future__ import annotations

import json
import os
import time
from dataclasses import FrozenInstanceError, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from toys import (
    CLASS_NAMES,
    make_toy,
    one_line,
    tensor_bytes,
    tiny_config,
    tiny_hasher,
    use_smallest_backbone,
)

from hadahash import Hasher, restoring
from hadahash.building import build_network, seeded
from hadahash.errors import DataError, StorageError, TrainingDivergedError, UsageError
from hadahash.model import HashModel
from hadahash.model_files import MANIFEST, _digest
from hadahash.runs import DataSpec, evaluate_run, train_run
from hadahash.shared_features import SharedFeatures


@pytest.fixture
def model(saved: Path) -> HashModel:
    return HashModel.load(saved, device="cpu")


# ------------------------------------------------------------------ identity


def test_the_id_follows_from_all_that_makes_a_code(model):
    others = [
        replace(model, preprocess=replace(model.preprocess, mirror=True)),
        replace(model, preprocess=replace(model.preprocess, crop=0.9)),
        replace(model, preprocess=replace(model.preprocess, side=33)),
        replace(model, precision="bf16"),
    ]
    ids = [model.id, *(other.id for other in others)]
    assert len(set(ids)) == len(ids)
    assert all(not other.made(model.id) for other in others)
    assert model.made(model.id) and model.made(None)
    assert replace(model, info={"other": "facts"}).id == model.id


def test_models_that_differ_in_mirror_have_different_ids(toy):
    one, two = (tiny_hasher(epochs=1, mirror=mirror).fit(*toy).model_ for mirror in (False, True))
    assert one.weights_sha256 == two.weights_sha256 and one.id != two.id


def test_a_model_cannot_be_changed(model):
    with pytest.raises(FrozenInstanceError):
        model.precision = "bf16"


# ------------------------------------------------------------------ a fit that fails


def test_a_failed_second_fit_leaves_the_first_model(toy, monkeypatch):
    hasher = tiny_hasher(epochs=1).fit(*toy)
    model, codes = hasher.model_, hasher.encode(toy[0])

    def pressed(self, step, steps):
        if step == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr("hadahash.methods.hcdh.HCDH.before_step", pressed)
    with pytest.raises(KeyboardInterrupt):
        hasher.set_params(seed=1).fit(*toy)
    assert hasher.model_ is model and hasher.model_.id == model.id
    assert np.array_equal(hasher.encode(toy[0]).packed, codes.packed)


def test_a_failed_first_fit_leaves_no_model(toy, tmp_path, monkeypatch):
    def pressed(self, step, steps):
        raise KeyboardInterrupt

    monkeypatch.setattr("hadahash.methods.hcdh.HCDH.before_step", pressed)
    hasher = tiny_hasher()
    with pytest.raises(KeyboardInterrupt):
        hasher.fit(*toy)
    assert not hasattr(hasher, "model_")
    with pytest.raises(Exception, match="not fitted"):
        hasher.save(tmp_path)


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), 3e38])
def test_a_last_step_that_diverges_gives_no_model(toy, monkeypatch, value, frozen):
    """The loss is measured before the step, so it does not show it."""
    step = torch.optim.SGD.step

    def diverging(self, *arguments):
        step(self, *arguments)
        with torch.no_grad():
            self.param_groups[-1]["params"][0].fill_(value)
            self.param_groups[0]["params"][0].fill_(value)

    monkeypatch.setattr(torch.optim.SGD, "step", diverging)
    hasher = tiny_hasher("csq", epochs=1, batch_size=160, ema=0, frozen=frozen)
    with pytest.raises(TrainingDivergedError, match="Lower the learning rate") as caught:
        hasher.fit(*toy)
    one_line(caught.value)


@pytest.mark.parametrize("lr", [float("inf"), "inf", float("nan"), 0, -1])
def test_an_invalid_learning_rate_is_refused_before_training(lr):
    with pytest.raises(UsageError, match="lr must be > 0, got"):
        tiny_hasher(lr=lr)


# ------------------------------------------------------------------ loading


def test_loading_searches_no_codebook(fitted, saved, monkeypatch):
    def search(*_args, **_options):
        raise AssertionError("a codebook was searched")

    for name in ("codebook", "codebooks.codebook", "methods.codewords.codebook"):
        monkeypatch.setattr(f"hadahash.{name}", search, raising=False)
    assert HashModel.load(saved, device="cpu").id == fitted.model_.id


@pytest.mark.parametrize("method", ["hcdh", "csq", "orthohash", "ssdh"])
def test_a_model_of_a_thousand_classes_loads_quickly(method, tmp_path, monkeypatch):
    use_smallest_backbone(monkeypatch)
    config = tiny_config(method, bits=48, **({"codebook": "random"} if method == "hcdh" else {}))
    model = _untrained(config, classes=1000)
    model.save(tmp_path)
    HashModel.load(tmp_path, device="cpu")
    start = time.process_time()
    loaded = HashModel.load(tmp_path, device="cpu")
    assert time.process_time() - start < 0.2
    assert loaded.id == model.id
    words = model.codewords()
    assert words is None or np.array_equal(loaded.codewords(), words)


def test_a_large_model_is_loaded_with_one_copy_of_its_weights(tmp_path):
    config = tiny_config(
        "hcdh", bits=64, backbone="efficientnet_lite0", weights="none", codebook="random"
    )
    model = _untrained(config, classes=1000)
    model.save(tmp_path)
    HashModel.load(tmp_path, device="cpu")
    start = time.process_time()
    loaded = HashModel.load(tmp_path, device="cpu")
    assert time.process_time() - start < 0.2
    pairs = zip(loaded.network.parameters(), model.network.parameters(), strict=True)
    for one, other in pairs:
        assert one.stride() == other.stride() and one.requires_grad == other.requires_grad
        assert one.data_ptr() % 64 == other.data_ptr() % 64  # results may depend on alignment
    assert tensor_bytes(loaded) == tensor_bytes(model)


def test_the_width_of_the_features_is_stored(saved, monkeypatch):
    stored = json.loads((saved / MANIFEST).read_text())["features"]
    given = []
    build = restoring.build_backbone

    def spy(name, **options):
        given.append(options["features"])
        return build(name, **options)

    monkeypatch.setattr(restoring, "build_backbone", spy)
    loaded = HashModel.load(saved, device="cpu")
    assert given == [stored] == [loaded.network.backbone.features]


def _untrained(config, classes: int) -> HashModel:
    from hadahash.building import build_backbone
    from hadahash.data.preprocess import Preprocess

    network = build_network(
        config,
        build_backbone(config.backbone, weights=config.weights),
        classes=classes,
        multilabel=False,
        train_images=20,
        device=torch.device("cpu"),
        create=True,
    )
    names = tuple(f"class {number}" for number in range(classes))
    return HashModel(
        network, Preprocess(32, 32, 32, 1.0), names, False, config, {"train_images": 20}
    )


def test_codewords_are_signs_of_every_class(fitted):
    words = fitted.model_.codewords()
    assert words.shape == (4, 16) and words.dtype == np.int8 and set(np.unique(words)) == {-1, 1}
    assert tiny_hasher("lsh").fit(*make_toy(8, seed=0)).model_.codewords() is None


def test_random_numbers_of_a_caller_with_a_gpu_are_restored(monkeypatch):
    forked = []
    fork = torch.random.fork_rng

    def spy(devices=None, **options):
        forked.append(devices)
        return fork(devices=[], **options)

    monkeypatch.setattr(torch.random, "fork_rng", spy)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with seeded(3):
        pass
    assert forked == [[0, 1]]


# ------------------------------------------------------------------ saved files


def test_class_names_that_are_not_unicode_are_trained_saved_and_evaluated(tmp_path, monkeypatch):
    use_smallest_backbone(monkeypatch)
    pixels, labels = make_toy(40, seed=0)
    names = [os.fsdecode(name) for name in (b"caf\xe9", b"th\xe9", b"eau", b"vin")]
    from PIL import Image

    for number, (image, label) in enumerate(zip(pixels, labels, strict=True)):
        folder = tmp_path / os.fsdecode(b"donn\xe9es") / names[label]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(folder / f"{number}.png")
    out = tmp_path / "run"
    config = tiny_config(backbone="smallest", epochs=1)
    train_run(config, DataSpec(str(folder.parent)), out)
    assert set(HashModel.load(out, device="cpu").classes) == set(names)
    assert evaluate_run(out, device="cpu").queries == 4
    Hasher.load(out, device="cpu").save(tmp_path / "again")
    assert set(HashModel.load(tmp_path / "again", device="cpu").classes) == set(names)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"side": 32', '"side": 33'),
        ('"crop": 1.0', '"crop": 0.9'),
        ('"mirror": false', '"mirror": true'),
        ('"green"', '"grean"'),
        ('"precision": "fp32"', '"precision": "bf16"'),
    ],
)
def test_an_edited_manifest_is_refused(fitted, tmp_path, old, new):
    fitted.save(tmp_path)
    text = (tmp_path / MANIFEST).read_text().replace('"0"', '"green"', 1)
    (tmp_path / MANIFEST).write_text(text.replace(old, new))
    with pytest.raises(StorageError, match=r"model\.json is damaged \(its checksum") as caught:
        HashModel.load(tmp_path, device="cpu")
    one_line(caught.value)


WRONG = [None, True, -1, 0, 2**31, 1.5, "x", "", [], [1], {}, {"a": 1}, [["a"]]]
KEYS = ["format", "config", "classes", "multilabel", "preprocess", "info", "weights_file"]
KEYS += ["weights_sha256", "precision", "hadahash", "id"]
KEYS += [f"config.{name}" for name in ("method", "bits", "backbone", "seed", "train", "plugins")]
KEYS += ["config.method_settings", "config.input", "config.input.size", "config.train.epochs"]
KEYS += ["config.content_bits", "ranking", "ranking.codewords", "ranking.bits", "ranking.classes"]
KEYS += ["ranking.sharpness", "ranking.slope", "ranking.content_weight", "ranking.class_weight"]
KEYS += ["preprocess.side", "preprocess.size", "preprocess.fit", "info.train_images"]


@pytest.mark.parametrize("key", KEYS)
def test_a_manifest_of_wrong_types_never_raises_another_error(fitted, tmp_path, key, monkeypatch):
    use_smallest_backbone(monkeypatch)
    fitted.save(tmp_path)
    manifest = json.loads((tmp_path / MANIFEST).read_text())
    del manifest["sha256"]
    *parents, name = key.split(".")
    place = manifest
    for parent in parents:
        place = place[parent]
    for value in WRONG:
        place[name] = value
        signed = manifest | {"sha256": _digest(manifest)}
        (tmp_path / MANIFEST).write_text(json.dumps(signed))
        try:
            HashModel.load(tmp_path, device="cpu")
        except StorageError as error:
            one_line(error)


@pytest.mark.parametrize("kind", ["pipe", "zero", "nested", "folder", "loop"])
def test_a_manifest_that_cannot_be_read_is_a_one_line_error(tmp_path, kind):
    path = tmp_path / MANIFEST
    make = {
        "pipe": lambda: os.mkfifo(path),
        "zero": lambda: path.symlink_to("/dev/zero"),
        "nested": lambda: path.write_text("[" * 100_000),
        "folder": path.mkdir,
        "loop": lambda: path.symlink_to(path),
    }
    make[kind]()
    with pytest.raises(StorageError) as caught:
        HashModel.load(tmp_path, device="cpu")
    one_line(caught.value)


def test_a_folder_name_that_is_too_long_is_a_one_line_error(tmp_path):
    with pytest.raises(StorageError, match="too long") as caught:
        HashModel.load(tmp_path / ("n" * 300), device="cpu")
    one_line(caught.value)


# ------------------------------------------------------------------ settings


def test_settings_of_every_type_are_stored_as_values(toy, tmp_path):
    weights = tmp_path / "w.safetensors"
    import safetensors.torch

    backbone = tiny_hasher(epochs=1).fit(*toy).model_.network.backbone
    safetensors.torch.save_file(
        {k.removeprefix("net."): v.contiguous() for k, v in backbone.state_dict().items()}, weights
    )
    hasher = tiny_hasher(
        weights=weights,
        lr=torch.tensor(0.25),
        epochs="1",
        lam=np.float32(0.5),
        seed=np.int64(3),
        frozen="yes",
        warmup=np.float64(0.25),
        partial_weights=True,
    ).fit(*toy)
    hasher.save(tmp_path / "model")
    loaded = HashModel.load(tmp_path / "model", device="cpu")
    config = loaded.config
    assert config.weights == str(weights) and config.seed == 3
    assert (config.train.lr, config.train.epochs, config.train.frozen) == (0.25, 1, True)
    assert (config.train.warmup, config.method_settings.lam) == (0.25, 0.5)
    assert config.method_settings.codebook == "paper", "defaults are stored too"
    assert config == hasher.model_.config


# ------------------------------------------------------------------ features


@pytest.mark.parametrize("method", ["ksh", "sdh", "itq", "hcdh"])
def test_features_from_a_cache_give_the_streamed_values(toy, method):
    """The head runs in float32, also where the backbone runs under bfloat16 autocast."""
    model = tiny_hasher(method, frozen=True, epochs=1).fit(*toy).model_
    with torch.autocast("cpu", torch.bfloat16):
        cached = model.values(toy[0], cache=SharedFeatures()).values
        streamed = model.values(toy[0]).values
        codes = model.encode(toy[0])
    assert cached.dtype == streamed.dtype == np.float32
    assert np.array_equal(cached, streamed)
    assert np.array_equal(codes.signs() > 0, cached >= 0)


def test_too_little_memory_halves_the_batch(fitted, toy, monkeypatch):
    model, sizes = fitted.model_, []
    forward = type(model.network.backbone).forward

    def limited(self, pixels):
        sizes.append(len(pixels))
        if len(pixels) > 10:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return forward(self, pixels)

    expected = model.values(toy[0]).values
    monkeypatch.setattr(type(model.network.backbone), "forward", limited)
    found = model.values(toy[0], batch_size=64).values
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4)
    assert max(sizes) == 64 and min(sizes) == 8
    monkeypatch.setattr(
        type(model.network.backbone),
        "forward",
        lambda self, pixels: (_ for _ in ()).throw(torch.OutOfMemoryError("none left")),
    )
    with pytest.raises(torch.OutOfMemoryError):
        model.values(toy[0][:4])


def test_classes_without_an_image_have_no_codeword(tmp_path, monkeypatch):
    use_smallest_backbone(monkeypatch)
    from toys import write_folder

    photos = write_folder(tmp_path / "photos", *make_toy(48, seed=2))
    spec = DataSpec(str(photos), protocol="unseen")
    model = train_run(tiny_config(backbone="smallest", epochs=1), spec, tmp_path / "run")
    assert len(model.classes) < 4 and set(model.classes) < set(CLASS_NAMES)
    assert len(model.codewords()) == len(model.classes)
    assert evaluate_run(tmp_path / "run", device="cpu").queries > 0


def test_a_single_class_is_refused(toy):
    with pytest.raises(DataError, match="at least 2 classes"):
        tiny_hasher().fit(toy[0], np.zeros(len(toy[0]), int))
