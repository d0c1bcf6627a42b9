"""Embeddings on the command line: encode, train, evaluate, index build and search."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from toys import make_toy

from hadahash import Codes, Hasher, HashModel, Index


@pytest.fixture
def files(tmp_path, monkeypatch) -> Path:
    """x.npy with a row of NaN, y.txt, ids.txt and q.npy, in the current folder."""
    monkeypatch.chdir(tmp_path)
    centers = np.random.default_rng(0).normal(size=(4, 32))
    labels = np.arange(120) % 4
    vectors = centers[labels] + 0.5 * np.random.default_rng(1).normal(size=(120, 32))
    vectors[7, 3] = np.nan
    np.save("x.npy", vectors.astype(np.float32))
    np.save("q.npy", vectors[10].astype(np.float32))
    Path("y.txt").write_text("\n".join(f"class {k}" for k in labels))
    Path("ids.txt").write_text("\n".join(f"item {k}" for k in range(120)))
    return tmp_path


def test_encode_fits_and_encodes_in_one_go(run, files):
    code, out, err = run(
        "encode", "--embeddings", "x.npy", "--bits", 16, "--ids", "ids.txt", "--out", "c.npz"
    )
    assert code == 0 and "119 codes of 16 bits in c.npz" in out
    assert "fitted itq on 119 embeddings; the model is in c.model" in err
    codes = Codes.load("c.npz")
    assert codes.ids[7] == "item 8" and codes.skipped[0].path == "item 7"
    expected = Hasher("itq", bits=16, device="cpu").fit(np.load("x.npy"))
    assert np.array_equal(expected.encode(np.load("x.npy")).packed, codes.packed)
    assert HashModel.load("c.model", device="cpu").id == expected.model_.id
    for arguments in (("c.model", "x.npy"), ("c.model", "--embeddings", "x.npy")):
        assert run("encode", *arguments, "--out", "again.npz")[0] == 0
        assert np.array_equal(Codes.load("again.npz").packed, codes.packed)


def test_a_run_on_labelled_embeddings_is_evaluated(run, files):
    train = ("train", "--embeddings", "x.npy", "--labels", "y.txt", "--out", "r")
    code, out, err = run(*train, "--method", "hcsdh", "--bits", 16)
    assert code == 0 and "108 training images of 4 classes" in err and "No GPU" not in err
    code, out, _ = run("evaluate", "r")
    assert code == 0 and float(out.split()[1]) > 0.8


def test_a_model_without_labels_is_trained_once(run, files):
    train = ("train", "--embeddings", "x.npy", "--out", "m", "--bits", 16, "--method")
    assert run(*train, "itq")[0] == 0
    code, _, err = run(*train, "itq")
    assert code == 2 and "m contains a model. Replace it with --overwrite" in err
    assert run(*train, "lsh", "--overwrite")[0] == 0
    assert HashModel.load("m").config.method == "lsh"
    code, _, err = run(*train, "hcdh")
    assert code == 2 and "hcdh needs --labels. The methods itq and lsh need none" in err


def test_photos_without_class_folders_are_trained_on_without_labels(run, tmp_path):
    for number, pixels in enumerate(make_toy(12, seed=0)[0]):
        (tmp_path / "photos").mkdir(exist_ok=True)
        Image.fromarray(pixels).save(tmp_path / "photos" / f"{number}.png")
    network = ("--backbone", "test_efficientnet", "--weights", "none", "--set", "size=32")
    train = ("train", tmp_path / "photos", "--bits", 8, *network)
    code, out, err = run(*train, "--method", "itq", "--out", tmp_path / "m", "--device", "cpu")
    assert code == 0 and "12 training images without labels" in err
    assert "next: hadahash index build" in out
    code, _, err = run(*train, "--out", tmp_path / "n")
    assert code == 1 and "no class folders" in err


def test_an_index_of_embeddings_is_built_and_searched(run, files):
    build = ("index", "build", "x.npy", "--labels", "y.txt", "--ids", "ids.txt", "--out", "i")
    code, out, err = run(*build)
    assert code == 0 and "119 embeddings, 32 bits each" in out and "1 rows were skipped" in err
    assert run(*build)[0] == 0  # replaces it
    index = Index.open("i")
    assert len(index) == 119 and index.meta["run"] == "model"
    code, out, _ = run("search", "i", "--vector", "q.npy", "-k", 2)
    expected = ["1", "100", "%", "0", "class", "2", "item", "10"]  # no photo: not "same photo"
    assert code == 0 and out.splitlines()[1].split() == expected
    assert run("search", "i", "--id", "item 10", "-k", 2)[0] == 0
    code, _, err = run("search", "i", "--vector", "q.npy", "--id", "item 10")
    assert code == 2 and "Give either an image file, --vector FILE or --id ID" in err


def test_an_index_of_a_run_on_embeddings(run, files):
    assert run("encode", "--embeddings", "x.npy", "--bits", 16, "--out", "c.npz")[0] == 0
    code, out, _ = run("index", "build", "c.model", "x.npy", "--out", "i")
    assert code == 0 and "119 embeddings, 16 bits each" in out
    code, out, _ = run("search", "i", "--vector", "q.npy", "-k", 5)
    assert code == 0 and "10" in [line.split()[-1] for line in out.splitlines()]


@pytest.mark.parametrize(
    "arguments",
    [
        ("encode",),
        ("encode", "run"),
        ("encode", "run", "x.npy", "--embeddings", "x.npy"),
        ("train", "--out", "r"),
        ("train", "x", "--embeddings", "x.npy", "--out", "r"),
    ],
)
def test_either_images_or_embeddings(run, files, arguments):
    code, _, err = run(*arguments)
    assert code == 2 and "--embeddings FILE" in err
