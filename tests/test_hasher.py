"""The front door: fit, encode, save and load, and one line for everything that can be wrong."""

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
from toys import make_toy, one_line, smallest_backbone, tensor_bytes, tiny_hasher, write_folder

from hadahash import Hasher, evaluate
from hadahash.data import ArrayImages, FileImages, LabelledImages
from hadahash.errors import (
    DataError,
    HadaHashError,
    ImageError,
    NewerFileError,
    StorageError,
    UsageError,
)
from hadahash.hasher import ModelSettings, choose_preprocess


@pytest.fixture
def saved(fitted: Hasher, tmp_path: Path) -> Path:
    fitted.save(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def small(monkeypatch):
    """Hashers on a network that learns in no time."""
    monkeypatch.setattr("hadahash.hasher.build_backbone", smallest_backbone)
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
    assert hashers[0].outcome.steps == 1 and not hashers[0].multilabel


def test_a_corrupt_image_does_not_stop_the_training(small, toy_folder):
    bad = ["blue/000.png", "red/010.png"]
    (toy_folder / bad[0]).write_bytes(b"not an image")
    (toy_folder / bad[1]).write_bytes((toy_folder / bad[1]).read_bytes()[:300])
    for frozen in (False, True):
        hasher = small(frozen=frozen).fit(toy_folder)
        assert [name.path for name in hasher.skipped] == bad and all(
            name.reason for name in hasher.skipped
        )
        without = shutil.copytree(toy_folder, toy_folder.parent / f"good-{frozen}")
        for name in bad:
            (without / name).unlink()
        assert tensor_bytes(small(frozen=frozen).fit(without)) == tensor_bytes(hasher), (
            "labels slipped"
        )


def test_a_folder_of_which_nothing_can_be_read_is_one_line(small, toy_folder):
    for path in toy_folder.rglob("*.png"):
        path.write_bytes(b"")
    with pytest.raises(DataError, match="Only 0 of 48 images could be read") as caught:
        small().fit(toy_folder)
    text = one_line(caught.value)
    assert (
        re.search(
            r"The first that could not is blue/\d+\.png: .*empty.*\. Replace such files", text
        )
        and "Skipped" not in text
    )
    assert caught.value.exit_code == 1


def test_several_labels(small):
    pixels, numbers = make_toy(40, seed=0)
    labels = np.eye(4, dtype=int)[numbers] | np.eye(4, dtype=int)[(numbers + 1) % 4]
    hasher = small().fit(pixels, labels)
    assert hasher.multilabel and hasher.classes == ("0", "1", "2", "3")
    assert hasher.encode(pixels).packed.shape == (40, 2)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.zeros(8, int), "Only 1 class has images"),
        (np.eye(3, dtype=int)[[0] * 8], "Only 1 class has images"),
        (np.zeros((8, 3), int), "Only 0 class"),
        (np.arange(7), "8 images need 8 labels"),
        (None, "labels are missing"),
        (np.full((8, 2), 3), "0 and 1"),
    ],
)
def test_wrong_labels_are_one_line(small, labels, message):
    with pytest.raises(HadaHashError, match=message) as caught:
        small().fit(make_toy(8, seed=0)[0], labels)
    one_line(caught.value)


def test_a_folder_of_one_class_is_one_line(small, toy_folder):
    for name in ("blue", "green", "yellow"):
        shutil.rmtree(toy_folder / name)
    with pytest.raises(DataError, match=r"one class only \('red'\)") as caught:
        small().fit(toy_folder)
    one_line(caught.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bits": 0}, "bits=0 is not possible"),
        ({"bits": -8}, "bits=-8 is not possible"),
        ({"bits": 16.5}, "bits=16.5 is not possible"),
        ({"seed": "one"}, "seed=one is not possible"),
        ({"method": "hcdhh"}, "Unknown method 'hcdhh'. Did you mean 'hcdh"),
        (
            {"backbone": "test_efficientnt"},
            "Unknown backbone 'test_efficientnt'. Did you mean 'test_efficientnet'",
        ),
        ({"epoch": 3}, "Unknown setting 'epoch'. Did you mean 'epochs'"),
        ({"lam": -1}, "lam must be >= 0, got -1.0"),
        ({"codebook": "papr"}, "paper"),
        ({"device": "gpu"}, "Unknown device 'gpu'. Use auto, cpu or cuda"),
        ({"size": 4}, "size=4"),
        ({"epochs": "many"}, "epochs=many is not possible: epochs must be a whole number"),
        ({"weights": "/nowhere/w.pth"}, "There is no weights file /nowhere/w.pth"),
    ],
)
def test_wrong_arguments_are_one_line_and_exit_code_2(toy, changes, message):
    with pytest.raises(HadaHashError) as caught:
        tiny_hasher(**changes).fit(*toy)
    assert message in one_line(caught.value)
    assert isinstance(caught.value, UsageError) or "weights" in changes


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_asking_for_a_gpu_where_none_is(toy):
    with pytest.raises(UsageError, match=r"no GPU.*--device cpu"):
        tiny_hasher(device="cuda").fit(*toy)


def test_numpy_numbers_are_numbers(small, tmp_path):
    hasher = small(bits=np.int64(8), seed=np.int32(3), epochs=np.int64(1), lr=np.float32(0.1))
    hasher.fit(*make_toy(8, seed=0), out=tmp_path).save(tmp_path)
    assert Hasher.load(tmp_path, device="cpu").bits == 8


def test_init_only_stores():
    hasher = Hasher("no such method", bits=-1, nonsense=3)
    assert (hasher.method, hasher.bits, hasher.settings) == ("no such method", -1, {"nonsense": 3})


def test_frozen_leaves_the_backbone_as_it_was(toy):
    frozen = tiny_hasher(frozen=True, epochs=4).fit(*toy)
    untouched = tiny_hasher("lsh").fit(*toy)
    ours, theirs = frozen.network.backbone.state_dict(), untouched.network.backbone.state_dict()
    assert any(key.endswith("running_mean") for key in ours)
    assert all(torch.equal(ours[key], theirs[key]) for key in ours)
    thawed = tiny_hasher(epochs=1).fit(*toy).network.backbone.state_dict()
    assert not any(
        torch.equal(thawed[key], theirs[key])
        for key in ours
        if key.endswith(("running_mean", "conv_stem.weight"))
    )


def test_frozen_training_learns_from_the_features_that_encoding_sees(toy, monkeypatch):
    seen = []
    monkeypatch.setattr(
        "hadahash.hasher.train", lambda network, data, *_args, **_options: seen.append(data)
    )
    hasher = tiny_hasher(frozen=True).fit(*toy)
    assert torch.equal(seen[0].inputs, hasher.encoder().features(ArrayImages(toy[0])).values)
    assert torch.equal(seen[0].targets.argmax(1), torch.from_numpy(toy[1]))


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
    assert (zero.network.threshold == 0).all() and (mean.network.threshold != 0).any()
    torch.testing.assert_close(
        mean.values(toy[0]).values.mean(0), torch.zeros(16), rtol=0, atol=1e-4
    )
    share = lambda hasher: (hasher.encode(toy[0]).signs() > 0).mean(0)  # noqa: E731
    assert np.abs(share(median) - 0.5).max() <= 0.02
    assert np.abs(share(mean) - 0.5).mean() <= np.abs(share(zero) - 0.5).mean()
    assert np.abs(share(mean) - 0.5).max() < 0.35


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
        ArrayImages(np.zeros((3, *pixels, 3), np.uint8)), 224, ModelSettings(**settings)
    )
    assert (chosen.side, chosen.size, chosen.crop) == expected


def test_the_square_follows_the_typical_file(tmp_path):
    from PIL import Image

    for number, size in enumerate([(50, 60), (50, 60), (40, 41), (2000, 1000), (50, 90)]):
        Image.new("RGB", size).save(tmp_path / f"{number}.png")
    (tmp_path / "x.png").write_bytes(b"broken")
    paths = sorted(tmp_path.glob("*.png"))
    assert choose_preprocess(FileImages(paths), 224, ModelSettings()).side == 50


# ------------------------------------------------------------------ encode


def test_a_hasher_that_learned_nothing_says_so(tmp_path):
    uses = (
        lambda h: h.encode([]),
        lambda h: h.save(tmp_path),
        lambda h: h.values([]),
        lambda h: h.encode_to_file([], "x.npz"),
    )
    for use in uses:
        with pytest.raises(HadaHashError, match="learned nothing yet") as caught:
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
    fitted.encode_to_file(folder, tmp_path / "codes.npz")
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
        "settings",
        "classes",
        "multilabel",
        "preprocess",
    ):
        assert getattr(loaded, name) == getattr(fitted, name), name
    assert loaded.weights_sha256 == fitted.weights_sha256 and not loaded.network.training


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


def test_the_card_names_the_weights_and_their_hash(fitted, saved):
    card = json.loads((saved / "hasher.json").read_text())
    content = (saved / card["weights_file"]).read_bytes()
    assert card["weights_sha256"] == hashlib.sha256(content).hexdigest() == fitted.weights_sha256
    assert sorted(path.name for path in saved.iterdir()) == ["hasher.json", card["weights_file"]]


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


def _change_card(folder: Path, **changes) -> None:
    card = json.loads((folder / "hasher.json").read_text()) | changes
    (folder / "hasher.json").write_text(
        json.dumps({key: value for key, value in card.items() if value is not None})
    )


def test_a_newer_format_asks_for_an_update_with_exit_code_3(saved):
    _change_card(saved, format=2, hadahash="9.1", method="of the future", preprocess={"new": 1})
    with pytest.raises(
        NewerFileError, match=r"written by hadahash 9.1. Update with: pip install -U hadahash"
    ) as caught:
        Hasher.load(saved)
    assert caught.value.exit_code == 3
    one_line(caught.value)


def test_a_missing_folder_says_how_to_train_one(tmp_path):
    for folder in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(
            StorageError, match=r"holds no trained model .*hadahash train DATA --out"
        ) as caught:
            Hasher.load(folder)
        one_line(caught.value)


@pytest.mark.parametrize(
    "key",
    [
        "format",
        "method",
        "bits",
        "classes",
        "preprocess",
        "weights_file",
        "weights_sha256",
        "train_images",
    ],
)
def test_a_card_with_a_gap_is_damaged(saved, key):
    _change_card(saved, **{key: None})
    with pytest.raises(StorageError, match=r"hasher.json is damaged") as caught:
        Hasher.load(saved, device="cpu")
    one_line(caught.value)


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "5", '"x"', "null", '{"format": "1"}', '{"format": 1, "settings": 5}'],
)
def test_a_card_that_is_none_is_damaged(saved, content):
    (saved / "hasher.json").write_text(content)
    with pytest.raises(StorageError, match=r"hasher.json is damaged") as caught:
        Hasher.load(saved, device="cpu")
    one_line(caught.value)


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"bits": 24}, "method.head.hash.weight"),
        ({"classes": ["a", "b"]}, "codebook"),
        ({"method": "hcdh-h"}, "classifier"),
    ],
)
def test_weights_of_another_shape_are_named(saved, changes, key):
    _change_card(saved, **changes)
    with pytest.raises(StorageError, match=r"does not fit hasher\.json") as caught:
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
    _change_card(
        saved, weights_file="w.safetensors", weights_sha256=hashlib.sha256(content).hexdigest()
    )
    with pytest.raises(StorageError) as caught:
        Hasher.load(saved, device="cpu")
    one_line(caught.value)
    assert not (tmp_path / "effect").exists()


def test_a_full_disk_leaves_the_previous_model(saved, toy, tmp_path):
    """In a process of its own, whose files may not grow beyond 100 KB."""
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
    loaded = Hasher.load(saved, device="cpu")
    loaded.preprocess = replace(loaded.preprocess, crop=0.5)
    assert not torch.allclose(
        loaded.values(toy_queries[0]).values, fitted.values(toy_queries[0]).values, atol=1e-3
    )
    loaded.save(saved)
    assert Hasher.load(saved, device="cpu").preprocess.crop == 0.5
