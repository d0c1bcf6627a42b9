"""`hadahash index build PHOTOS`: an index of photos without labels and without a trained model."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from PIL import Image
from toys import make_toy, tiny_hasher, write_folder

from hadahash import Index
from hadahash.model import HashModel
from hadahash.photos import BuildOptions, build_or_update, load_model_of, ready
from hadahash.serve.core.collection import Collection, resolve_config


@pytest.fixture
def small(monkeypatch):
    """Fits from 20 photos on, on a small network of torch."""
    monkeypatch.setenv("HADAHASH_RUNTIME", "torch")
    monkeypatch.setattr(ready, "LEAST_PHOTOS", 20)
    monkeypatch.setattr(
        "hadahash.hasher.Hasher", lambda method, bits, device: tiny_hasher(method, bits=16)
    )


@pytest.fixture
def build(run, tmp_path):
    return lambda *arguments: run(
        "index", "build", *arguments, "--out", tmp_path / "i", "--device", "cpu"
    )


def test_few_photos_use_the_projection_of_the_package(run, build, tmp_path):
    photos = tmp_path / "photos"
    photos.mkdir()
    for number, pixels in enumerate(make_toy(8, seed=0, side=64)[0]):
        Image.fromarray(pixels).save(photos / f"{number}.png")
    code, out, err = build(photos)
    assert code == 0 and "8 images: 8 encoded" in out, err
    assert "Fewer than 200 photos" in err and "hadahash serve" in err and "train" not in err
    index = Index.open(tmp_path / "i")
    assert (index.bits, len(index), index.meta["run"]) == (128, 8, "model")
    code, out, _ = run("search", tmp_path / "i", photos / "3.png", "-k", 1)
    assert code == 0 and "3.png" in out


def test_codes_are_learned_from_the_photos_and_kept(small, run, build, toy_folder, tmp_path):
    code, out, err = build(toy_folder)
    assert code == 0 and "48 images: 48 encoded" in out
    assert "Learning 128-bit codes from 48 photos, without labels." in err
    assert f"hadahash train {toy_folder} --out RUN" in err and "4 labels" in err
    assert f"hadahash index upgrade {tmp_path / 'i'} --run RUN" in err
    index = Index.open(tmp_path / "i")
    assert index.label_counts() == {"blue": 12, "green": 12, "red": 12, "yellow": 12}
    model = (tmp_path / "i" / "model" / "model.json").read_bytes()

    write_folder(toy_folder / "new", *make_toy(4, seed=9))
    code, out, err = build(toy_folder)
    assert code == 0 and "52 images: 4 encoded, 48 unchanged" in out and "Learning" not in err
    assert (tmp_path / "i" / "model" / "model.json").read_bytes() == model
    moved = (tmp_path / "i").rename(tmp_path / "elsewhere")  # the model moves with the index
    assert load_model_of(Index.open(moved), moved).bits == 16
    code, out, _ = run("search", moved, toy_folder / "red" / "002.png", "-k", 1)
    assert code == 0 and "red/002.png" in out
    code, out, _ = run("index", "add", moved, toy_folder / "red" / "002.png", "--prefix", "x/")
    assert code == 0 and "53 images: 1 encoded" in out


def test_a_trained_model_takes_the_place_of_the_own_one(
    small, run, build, saved, toy_folder, tmp_path
):
    build(toy_folder)
    other = write_folder(tmp_path / "more", *make_toy(8, seed=9))
    run("index", "add", tmp_path / "i", other, "--prefix", "more/")
    before = Index.open(tmp_path / "i").meta["model"]
    code, out, _ = build(saved, toy_folder, "--dry-run")
    assert code == 0 and out.count("encode  ") == 48
    code, out, err = build(saved, toy_folder)
    assert code == 0 and "56 images: 56 encoded" in out and "encoding again" in err
    index = Index.open(tmp_path / "i")
    assert index.meta["model"] != before and HashModel.load(saved).made(index.meta["model"])
    assert index.meta["run"] == str(saved) and len(index) == 56
    assert not list(tmp_path.glob(".i.*")) and (tmp_path / "i" / "model").exists()
    assert run("index", "upgrade", tmp_path / "i", "--discard-old")[0] == 0
    assert not (tmp_path / "i" / "model").exists()
    assert set(index.get(["more/red/002.png"])[0].labels) == {"red"}
    code, out, _ = build(toy_folder)  # the recorded model is used
    assert code == 0 and "0 encoded" in out and "0 removed" in out


def test_from_python_beside_the_folder(small, toy_folder):
    said = []
    out = build_or_update(toy_folder, options=BuildOptions(device="cpu"), info=said.append)
    assert out == toy_folder.with_name("photos.index") and len(Index.open(out)) == 48
    served = Collection.open(resolve_config(out), device="cpu")
    assert served.model.bits == 16
    assert served.image_path(served.index.get(["red/002.png"])[0]) == toy_folder / "red/002.png"
    shutil.rmtree(toy_folder / "red")
    build_or_update(toy_folder, options=BuildOptions(device="cpu"), info=said.append)
    assert said[-1].endswith("0 encoded, 36 unchanged, 12 removed")


def test_an_index_made_in_python_knows_its_model_and_labels(run, saved, toy_folder):
    out = build_or_update(toy_folder, run=saved, options=BuildOptions(device="cpu"))
    photo = toy_folder / "red" / "002.png"
    code, text, _ = run("search", out, photo, "-k", 1, "--label", "red", "--rank", "hamming")
    assert code == 0 and " red " in text and "red/002.png" in text


def test_an_interrupted_build_begins_again(small, build, toy_folder, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(HashModel, "save", lambda self, folder: 1 / 0)
        assert build(toy_folder)[0] != 0 and (tmp_path / "i" / "index.json").exists()
    code, out, _ = build(toy_folder)
    assert code == 0 and "48 images: 48 encoded" in out
    shutil.rmtree(tmp_path / "i" / "model")
    code, out, err = build(toy_folder)
    assert (code, out) == (2, "") and "is missing" in err and len(Index.open(tmp_path / "i")) == 48


def test_beginning_again_keeps_the_files_of_the_user(
    small, build, toy_folder, tmp_path, monkeypatch
):
    with monkeypatch.context() as patch:
        patch.setattr(HashModel, "save", lambda self, folder: 1 / 0)
        build(toy_folder)
    (tmp_path / "i" / "notes.txt").write_text("mine")
    code, _, err = build(toy_folder)
    assert code == 1 and "contains other files (notes.txt)" in " ".join(err.split())
    assert (tmp_path / "i" / "notes.txt").read_text() == "mine"


def test_codes_of_equal_photos_are_equal(small, build, toy_folder, tmp_path):
    shutil.copy(toy_folder / "red" / "002.png", toy_folder / "blue" / "copy.png")
    build(toy_folder)
    codes = Index.open(tmp_path / "i").codes(["red/002.png", "blue/copy.png"])
    assert np.array_equal(codes.packed[0], codes.packed[1])


@pytest.mark.parametrize("arguments", [("a", "b", "c"), ("no-such-folder",)])
def test_wrong_arguments_are_one_line(build, arguments):
    code, out, err = build(*arguments)
    assert code != 0 and out == "" and err.count("\n") == 1 and err.startswith("error: ")
