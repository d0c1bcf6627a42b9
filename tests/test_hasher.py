"""The high-level API: fit, encode, save and load, and one-line errors."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import re
import resource
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from toys import (
    make_toy,
    one_line,
    tensor_bytes,
    tiny_hasher,
    use_smallest_backbone,
    write_folder,
)

from hadahash import Hasher, evaluate, fitting
from hadahash.config import InputConfig
from hadahash.data import ArrayImages, FileImages, LabelledImages
from hadahash.data.preprocess import choose_preprocess
from hadahash.errors import (
    DataError,
    HadaHashError,
    ImageError,
    NewerFileError,
    StorageError,
    UsageError,
)
from hadahash.model import HashModel
from hadahash.model_files import MANIFEST, _digest


@pytest.fixture
def saved(fitted: Hasher, tmp_path: Path) -> Path:
    fitted.save(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def small(monkeypatch):
    """Hashers on a tiny network."""
    use_smallest_backbone(monkeypatch)
    return lambda method="hcdh", **changes: tiny_hasher(method, **{"epochs": 1} | changes)


# ------------------------------------------------------------------ fit


def test_pixels_a_folder_and_labelled_images_are_the_same_data(small, tmp_path):
    pixels, labels = make_toy(32, seed=0)
    order = np.argsort(labels, kind="stable")  # as a folder lists them
    pixels, labels = pixels[order], labels[order]
    folder = write_folder(tmp_path / "photos", pixels, labels)
    paths = sorted(folder.rglob("*.png"))
    hashers = [
        small().fit(pixels, labels),
        small().fit(folder),
        small().fit(str(folder)),
        small().fit([str(path) for path in paths], [path.parent.name for path in paths]),
        small().fit(
            LabelledImages(ArrayImages(pixels), np.arange(32).astype(str), labels, tuple("abcd"))
        ),
    ]
    assert all(tensor_bytes(hasher) == tensor_bytes(hashers[0]) for hasher in hashers)
    assert hashers[0].classes == ("0", "1", "2", "3") and hashers[1].classes == (
        "blue",
        "green",
        "red",
        "yellow",
    )
    assert hashers[0].model_.info["steps"] == 1 and not hashers[0].model_.multilabel


def test_a_corrupt_image_does_not_stop_training(small, toy_folder):
    bad = ["blue/000.png", "red/010.png"]
    (toy_folder / bad[0]).write_bytes(b"not an image")
    (toy_folder / bad[1]).write_bytes((toy_folder / bad[1]).read_bytes()[:300])
    for frozen in (False, True):
        hasher = small(frozen=frozen).fit(toy_folder)
        assert [name.path for name in hasher.skipped_] == bad and all(
            name.reason for name in hasher.skipped_
        )
        without = shutil.copytree(toy_folder, toy_folder.parent / f"good-{frozen}")
        for name in bad:
            (without / name).unlink()
        assert tensor_bytes(small(frozen=frozen).fit(without)) == tensor_bytes(hasher), (
            "labels slipped"
        )


def test_a_folder_of_which_nothing_can_be_read_is_a_one_line_error(small, toy_folder):
    for path in toy_folder.rglob("*.png"):
        path.write_bytes(b"")
    with pytest.raises(DataError, match="at least 2 readable images, got 0 of 48") as caught:
        small().fit(toy_folder)
    text = one_line(caught.value)
    assert (
        re.search(r"First failure: blue/\d+\.png: .*empty.*\. Replace unreadable files", text)
        and "Skipped" not in text
    )
    assert caught.value.exit_code == 1


def test_multilabel_data(small):
    pixels, numbers = make_toy(40, seed=0)
    labels = np.eye(4, dtype=int)[numbers] | np.eye(4, dtype=int)[(numbers + 1) % 4]
    hasher = small().fit(pixels, labels)
    assert hasher.model_.multilabel and hasher.classes == ("0", "1", "2", "3")
    assert hasher.encode(pixels).packed.shape == (40, 2)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.zeros(8, int), "at least 2 classes with images, got 1"),
        (np.eye(3, dtype=int)[[0] * 8], "at least 2 classes with images, got 1"),
        (np.zeros((8, 3), int), "at least 2 classes with images, got 0"),
        (np.arange(7), "8 images need 8 labels"),
        (None, "labels are missing"),
        (np.full((8, 2), 3), "0 and 1"),
    ],
)
def test_wrong_labels_are_one_line_errors(small, labels, message):
    with pytest.raises(HadaHashError, match=message) as caught:
        small().fit(make_toy(8, seed=0)[0], labels)
    one_line(caught.value)


def test_a_folder_of_one_class_is_a_one_line_error(small, toy_folder):
    for name in ("blue", "green", "yellow"):
        shutil.rmtree(toy_folder / name)
    with pytest.raises(DataError, match="has only the class 'red'") as caught:
        small().fit(toy_folder)
    one_line(caught.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bits": 0}, "bits must be an integer >= 1 and < 2**63, got 0"),
        ({"bits": -8}, "got -8"),
        ({"bits": 16.5}, "got 16.5"),
        ({"seed": "one"}, "seed must be an integer >= 0 and < 2**63, got 'one'"),
        ({"method": "hcdhh"}, "Unknown method 'hcdhh'. Did you mean 'hcdh"),
        (
            {"backbone": "test_efficientnt"},
            "Unknown backbone 'test_efficientnt'. Did you mean 'test_efficientnet'",
        ),
        ({"epoch": 3}, "Unknown setting 'epoch'. Did you mean 'epochs'"),
        ({"lam": -1}, "lam must be >= 0, got -1.0"),
        ({"codebook": "papr"}, "paper"),
        ({"device": "gpu"}, "Unknown device 'gpu'. Use auto, cpu or cuda"),
        ({"size": 4}, "size must be >= 8, got 4"),
        ({"epochs": "many"}, "epochs must be an integer, got many"),
        ({"weights": "/nowhere/w.pth"}, "There is no weights file /nowhere/w.pth"),
    ],
)
def test_wrong_arguments_are_one_line_errors_and_exit_code_2(toy, changes, message):
    with pytest.raises(HadaHashError) as caught:
        tiny_hasher(**changes).fit(*toy)
    assert message in one_line(caught.value)
    assert isinstance(caught.value, UsageError) or "weights" in changes


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_missing_gpu_is_reported(toy):
    with pytest.raises(UsageError, match=r"No GPU.*--device cpu"):
        tiny_hasher(device="cuda").fit(*toy)


def test_numpy_numbers_are_numbers(small, tmp_path):
    hasher = small(bits=np.int64(8), seed=np.int32(3), epochs=np.int64(1), lr=np.float32(0.1))
    hasher.fit(*make_toy(8, seed=0)).save(tmp_path)
    assert Hasher.load(tmp_path, device="cpu").bits == 8


def test_init_stores_its_arguments_as_given():
    hasher = Hasher("lsh", bits=np.int64(8), epochs="3")
    assert (hasher.method, hasher.bits, hasher.settings) == ("lsh", 8, {"epochs": "3"})


def test_frozen_leaves_the_backbone_unchanged(toy):
    frozen = tiny_hasher(frozen=True, epochs=4).fit(*toy)
    untouched = tiny_hasher("lsh").fit(*toy)
    ours, theirs = (
        frozen.model_.network.backbone.state_dict(),
        untouched.model_.network.backbone.state_dict(),
    )
    assert any(key.endswith("running_mean") for key in ours)
    assert all(torch.equal(ours[key], theirs[key]) for key in ours)
    thawed = tiny_hasher(epochs=1).fit(*toy).model_.network.backbone.state_dict()
    assert not any(
        torch.equal(thawed[key], theirs[key])
        for key in ours
        if key.endswith(("running_mean", "conv_stem.weight"))
    )


def test_frozen_training_learns_from_the_features_that_encoding_sees(toy, monkeypatch):
    seen = []
    train = fitting.train

    def spy(network, data, *args, **options):
        seen.append(data)
        return train(network, data, *args, **options)

    monkeypatch.setattr(fitting, "train", spy)
    model = tiny_hasher(frozen=True).fit(*toy).model_
    features = model.encoder().features(ArrayImages(toy[0])).values
    assert np.array_equal(seen[0].inputs, features)
    assert np.array_equal(seen[0].labels.array, toy[1])


def test_learned_codes_find_their_class(fitted, toy, toy_queries):
    assert (
        evaluate(fitted.encode(toy_queries[0]), toy_queries[1], fitted.encode(toy[0]), toy[1]).map
        > 0.95
    )


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("method", ["hcdh-c", "lsh"])
def test_thresholds_balance_the_bits_on_the_training_set(toy, method, frozen):
    zero = tiny_hasher(method, frozen=frozen).fit(*toy)
    mean = tiny_hasher(method, frozen=frozen, threshold="mean").fit(*toy)
    median = tiny_hasher(method, frozen=frozen, threshold="median").fit(*toy)
    assert (zero.model_.network.threshold == 0).all() and (mean.model_.network.threshold != 0).any()
    torch.testing.assert_close(
        torch.from_numpy(mean.model_.values(toy[0]).values).mean(0),
        torch.zeros(16),
        rtol=0,
        atol=1e-4,
    )
    ones = lambda hasher: (hasher.encode(toy[0]).signs() > 0).mean(0)  # noqa: E731
    assert np.abs(ones(median) - 0.5).max() <= 0.02
    assert np.abs(ones(mean) - 0.5).mean() <= np.abs(ones(zero) - 0.5).mean()
    assert np.abs(ones(mean) - 0.5).max() < 0.35


# ------------------------------------------------------------------ how images reach the network


@pytest.mark.parametrize(
    ("pixels", "settings", "expected"),
    [
        ((32, 32), {}, (32, 224, 1.0)),  # small images are used whole
        ((300, 400), {}, (256, 224, 0.875)),
        ((256, 256), {}, (256, 224, 0.875)),
        ((240, 300), {}, (240, 224, 1.0)),
        ((300, 300), {"size": 64}, (73, 64, 0.875)),
        ((300, 300), {"size": 64, "side": 100, "crop": 0.5}, (100, 64, 0.5)),
    ],
)
def test_the_square_suits_the_images(pixels, settings, expected):
    chosen = choose_preprocess(
        ArrayImages(np.zeros((3, *pixels, 3), np.uint8)), 224, InputConfig(**settings)
    )
    assert (chosen.side, chosen.size, chosen.crop) == expected


def test_the_square_follows_the_typical_file(tmp_path):
    from PIL import Image

    for number, size in enumerate([(50, 60), (50, 60), (40, 41), (2000, 1000), (50, 90)]):
        Image.new("RGB", size).save(tmp_path / f"{number}.png")
    (tmp_path / "x.png").write_bytes(b"broken")
    paths = sorted(tmp_path.glob("*.png"))
    assert choose_preprocess(FileImages(paths), 224, InputConfig()).side == 50


# ------------------------------------------------------------------ encode


def test_a_hasher_that_is_not_fitted_is_reported(tmp_path):
    uses = (
        lambda h: h.encode([]),
        lambda h: h.save(tmp_path),
        lambda h: h.classes,
    )
    for use in uses:
        with pytest.raises(HadaHashError, match="not fitted: call fit") as caught:
            use(tiny_hasher())
        one_line(caught.value)


def test_one_unreadable_file_is_an_error_but_in_a_folder_it_is_skipped(fitted, toy_folder):
    bad = toy_folder / "blue" / "000.png"
    bad.write_bytes(b"rubbish")
    with pytest.raises(ImageError) as caught:
        fitted.encode(bad)
    assert str(bad) in one_line(caught.value) and caught.value.reason
    codes = fitted.encode(toy_folder)
    assert len(codes) == 47 and codes.skipped[0].path == "blue/000.png"
    codes = fitted.encode([bad, toy_folder / "red" / "002.png"])
    assert len(codes) == 1 and codes.skipped[0].path == str(bad)
    assert len(fitted.encode(str(toy_folder / "red" / "002.png"))) == 1


def test_names_of_all_kinds(fitted, toy_folder, tmp_path):
    names = [
        "Grüße 日本.png",
        "a b.png",
        "-leading.png",
        "new\nline.png",
        "n" * 250 + ".png",
        os.fsdecode(b"bad-\xff.png"),
    ]
    folder = tmp_path / "odd"
    folder.mkdir()
    for name in names:
        shutil.copy(toy_folder / "red" / "002.png", folder / name)
    codes = fitted.encode(folder)
    assert sorted(codes.ids) == sorted(names) and len({row.tobytes() for row in codes.packed}) == 1
    fitted.model_.encode_to_file(folder, tmp_path / "codes.npz")
    assert sorted(type(codes).load(tmp_path / "codes.npz").ids) == sorted(names)


# ------------------------------------------------------------------ save and load


def test_save_and_load_round_trip(fitted, saved, toy_queries):
    loaded = Hasher.load(saved, device="cpu")
    assert tensor_bytes(loaded) == tensor_bytes(fitted)
    assert np.array_equal(
        loaded.encode(toy_queries[0]).packed, fitted.encode(toy_queries[0]).packed
    )
    for name in (
        "method",
        "bits",
        "backbone",
        "seed",
        "weights",
        "classes",
    ):
        assert getattr(loaded, name) == getattr(fitted, name), name
    for name in ("id", "config", "info", "classes", "multilabel", "preprocess", "weights_sha256"):
        assert getattr(loaded.model_, name) == getattr(fitted.model_, name), name
    assert not loaded.model_.network.training


def test_loading_leaves_the_callers_random_numbers_alone(saved):
    state = torch.random.get_rng_state()
    Hasher.load(saved, device="cpu")
    assert torch.equal(torch.random.get_rng_state(), state)


@pytest.mark.parametrize("method", ["hcdh-2", "lsh"])
def test_other_methods_come_back_too(toy, toy_queries, tmp_path, method):
    hasher = tiny_hasher(method, epochs=1, threshold="median", bits=12).fit(*toy)
    hasher.save(tmp_path)
    assert np.array_equal(
        Hasher.load(tmp_path, device="cpu").encode(toy_queries[0]).packed,
        hasher.encode(toy_queries[0]).packed,
    )


def test_the_manifest_names_the_weights_and_their_hash(fitted, saved):
    manifest = json.loads((saved / MANIFEST).read_text())
    content = (saved / manifest["weights_file"]).read_bytes()
    found = hashlib.sha256(content).hexdigest()
    assert manifest["weights_sha256"] == found == fitted.model_.weights_sha256
    assert {path.name for path in saved.iterdir()} == {MANIFEST, manifest["weights_file"]}


def test_saving_again_replaces_the_model_and_leaves_no_other(fitted, saved, toy):
    other = tiny_hasher(epochs=1, seed=9).fit(*toy)
    other.save(saved)
    assert len(list(saved.iterdir())) == 2
    assert tensor_bytes(Hasher.load(saved, device="cpu")) == tensor_bytes(other)


def test_a_flipped_byte_in_the_weights_is_named(saved):
    (path,) = saved.glob("model-*")
    good = path.read_bytes()
    for place in (0, 20, len(good) // 2, len(good) - 1):
        path.write_bytes(good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :])
        with pytest.raises(StorageError, match=r"is damaged \(its checksum") as caught:
            Hasher.load(saved, device="cpu")
        assert path.name in one_line(caught.value)
    path.write_bytes(good[:-1])
    with pytest.raises(StorageError, match="damaged"):
        Hasher.load(saved, device="cpu")
    path.unlink()
    with pytest.raises(StorageError, match=f"Cannot read .*{path.name}: No such file") as caught:
        Hasher.load(saved, device="cpu")
    one_line(caught.value)


def _change_manifest(folder: Path, **changes) -> None:
    """Change model.json, or a part of it, with a checksum that is right."""
    manifest = json.loads((folder / MANIFEST).read_text())
    for key, value in changes.items():
        *parents, name = key.split("__")
        place = manifest
        for parent in parents:
            place = place[parent]
        place[name] = value
        if value is None:
            del place[name]
    del manifest["sha256"]
    (folder / MANIFEST).write_text(json.dumps(manifest | {"sha256": _digest(manifest)}))


def test_a_newer_format_asks_for_an_update_with_exit_code_3(saved):
    _change_manifest(saved, format=4, hadahash="9.1", preprocess={"new": 1})
    with pytest.raises(
        NewerFileError, match=r"written by hadahash 9.1. Update with: pip install -U hadahash"
    ) as caught:
        Hasher.load(saved)
    assert caught.value.exit_code == 3
    one_line(caught.value)


def test_a_missing_folder_says_how_to_train_one(tmp_path):
    for folder in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(
            StorageError, match=r"has no trained model .*hadahash train DATA --out"
        ) as caught:
            Hasher.load(folder)
        one_line(caught.value)


@pytest.mark.parametrize(
    "key",
    [
        "format",
        "config",
        "config__method",
        "classes",
        "multilabel",
        "preprocess",
        "weights_file",
        "weights_sha256",
        "info__train_images",
    ],
)
def test_a_manifest_with_a_gap_is_damaged(saved, key):
    _change_manifest(saved, **{key: None})
    with pytest.raises(StorageError, match=r"model.json is damaged") as caught:
        Hasher.load(saved, device="cpu")
    one_line(caught.value)


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "5", '"x"', "null", '{"format": "1"}', '{"format": 1, "settings": 5}'],
)
def test_a_manifest_without_content_is_damaged(saved, content):
    (saved / MANIFEST).write_text(content)
    with pytest.raises(StorageError, match=r"model.json is damaged") as caught:
        Hasher.load(saved, device="cpu")
    one_line(caught.value)


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"config__bits": 24}, "method.head.hash.weight"),
        ({"classes": ["a", "b"]}, "codebook"),
        ({"config__method": "hcdh-h"}, "classifier"),
    ],
)
def test_weights_of_another_shape_are_named(saved, changes, key):
    _change_manifest(saved, **changes)
    with pytest.raises(
        StorageError, match=r"model.json is damaged .*tensors are missing"
    ) as caught:
        Hasher.load(saved, device="cpu")
    assert key in one_line(caught.value)


class _Wicked:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_a_pickle_in_place_of_the_weights_is_refused(saved, tmp_path):
    content = pickle.dumps(_Wicked(tmp_path / "effect"))
    (saved / "w.safetensors").write_bytes(content)
    _change_manifest(
        saved, weights_file="w.safetensors", weights_sha256=hashlib.sha256(content).hexdigest()
    )
    with pytest.raises(StorageError) as caught:
        Hasher.load(saved, device="cpu")
    one_line(caught.value)
    assert not (tmp_path / "effect").exists()


def test_a_full_disk_leaves_the_previous_model(saved, toy, tmp_path):
    """In a separate process, whose files may not grow beyond 100 KB."""
    before = tensor_bytes(Hasher.load(saved, device="cpu"))
    tiny_hasher(epochs=1, seed=5).fit(*toy).save(tmp_path / "other")
    program = f"""
import resource, sys
from hadahash import Hasher
from hadahash.errors import StorageError
other = Hasher.load({str(tmp_path / "other")!r}, device="cpu")
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    other.save({str(saved)!r})
except StorageError as error:
    print(error)
else:
    sys.exit("the disk was not full")
"""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Cannot write" in one_line(done.stdout.strip()) and resource.RLIMIT_FSIZE is not None
    assert tensor_bytes(Hasher.load(saved, device="cpu")) == before
    assert len(list(saved.iterdir())) == 2, "half a file was left behind"


@pytest.mark.parametrize("call", [1, 2])
def test_a_failure_at_any_write_leaves_the_old_model_or_the_new_one(saved, toy, monkeypatch, call):
    before, other = (
        tensor_bytes(Hasher.load(saved, device="cpu")),
        tiny_hasher(epochs=1, seed=5).fit(*toy),
    )
    write, calls = Path.write_bytes, []

    def failing(self, content):
        calls.append(self)
        if len(calls) == call:
            write(self, content[: len(content) // 2])
            raise OSError(28, "No space left on device")
        return write(self, content)

    monkeypatch.setattr(Path, "write_bytes", failing)
    with pytest.raises(StorageError, match="The disk is full"):
        other.save(saved)
    monkeypatch.undo()
    assert len(calls) == call
    assert tensor_bytes(Hasher.load(saved, device="cpu")) == before
    other.save(saved)
    assert tensor_bytes(Hasher.load(saved, device="cpu")) == tensor_bytes(other)
    assert len(list(saved.iterdir())) == 2


def test_preprocess_is_stored_with_the_model(fitted, saved, toy_queries):
    model = HashModel.load(saved, device="cpu")
    changed = replace(model, preprocess=replace(model.preprocess, crop=0.5))
    values = [each.values(toy_queries[0]).values for each in (changed, fitted.model_)]
    assert not np.allclose(*values, atol=1e-3)
    changed.save(saved)
    assert HashModel.load(saved, device="cpu").preprocess.crop == 0.5


# ------------------------------------------------------------------ as an estimator


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"method": "hcdhh"}, "Unknown method 'hcdhh'. Did you mean 'hcdh"),
        ({"bits": 0}, "bits must be"),
        ({"epoch": 3}, "Unknown setting 'epoch'. Did you mean 'epochs'"),
        ({"epochs": 0}, "epochs must be >= 1, got 0."),
        ({"device": "gpu"}, "Unknown device 'gpu'"),
        ({"seed": -1}, "seed must be"),
    ],
)
def test_wrong_names_and_values_are_reported_by_the_constructor(arguments, message):
    with pytest.raises(UsageError) as caught:
        Hasher(**arguments)
    assert message in one_line(caught.value)


def test_parameters_are_read_and_changed_by_name():
    hasher = Hasher("lsh", bits=8, epochs=3)
    assert hasher.get_params() == {
        "method": "lsh",
        "bits": 8,
        "content_bits": None,
        "backbone": "efficientnet_lite0",
        "seed": 0,
        "weights": "imagenet",
        "device": "auto",
        "plugins": (),
        "epochs": 3,
    }
    assert hasher.set_params(bits=16, lr=0.5) is hasher
    assert (hasher.bits, hasher.settings) == (16, {"epochs": 3, "lr": 0.5})
    with pytest.raises(UsageError, match="Unknown setting 'bit'"):
        hasher.set_params(bits=32, bit=3)
    assert (hasher.bits, hasher.settings) == (16, {"epochs": 3, "lr": 0.5}), "nothing changed"


def test_the_repr_names_what_was_chosen():
    text = repr(Hasher("lsh", bits=8, epochs=3))
    assert text == "Hasher('lsh', bits=8, backbone='efficientnet_lite0', seed=0, epochs=3)"


def test_scikit_learn_clones_an_estimator(fitted):
    from sklearn.base import clone

    copy = clone(fitted)
    assert copy is not fitted and copy.get_params() == fitted.get_params()
    assert not hasattr(copy, "model_")


def test_a_hasher_can_be_copied_and_pickled_before_it_is_fitted():
    hasher = Hasher("lsh", bits=8, epochs=3)
    assert pickle.loads(pickle.dumps(hasher)).get_params() == hasher.get_params()


def test_a_loaded_hasher_can_be_fitted_again(saved, toy):
    again = Hasher.load(saved, device="cpu").fit(*toy)
    assert tensor_bytes(again) == tensor_bytes(tiny_hasher(epochs=8).fit(*toy))
