"""train, evaluate, encode and index with addresses, archives and parquet files."""

from __future__ import annotations

import fsspec
import numpy as np
import pytest
from storages import (
    FlakyFileSystem,
    image_files,
    parquet_bytes,
    put,
    put_folder,
    tar_bytes,
    zip_bytes,
)

from hadahash import Codes, Index
from hadahash.data.remote import place

NETWORK = ("--backbone", "test_efficientnet", "--weights", "none", "--set", "size=32")
SMALL = ("--bits", 16, "--content-bits", 0, *NETWORK, "--set", "epochs=1", "--device", "cpu")


@pytest.fixture(autouse=True)
def storage(monkeypatch, tmp_path):
    """A cache folder of its own, and no pauses."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(place, "_PAUSES", (0.0, 0.0))
    FlakyFileSystem.reset()


@pytest.fixture
def build(run, saved, tmp_path):
    """Build an index of a source; returns exit code, stdout and stderr."""
    return lambda source, *options: run(
        "index", "build", saved, source, "--out", tmp_path / "i", "--device", "cpu", *options
    )


def test_train_and_evaluate_at_an_address(run, toy_folder, tmp_path):
    address = put_folder(f"memory://{tmp_path.name}/photos", image_files(toy_folder))
    assert run("train", toy_folder, "--out", tmp_path / "local", *SMALL)[0] == 0
    code, _, err = run("train", address, "--out", tmp_path / "far", *SMALL)
    assert code == 0, err
    assert run("evaluate", tmp_path / "far", "--device", "cpu")[0] == 0
    for name in ("local", "far"):
        out = ("--out", tmp_path / f"{name}.npz", "--device", "cpu")
        assert run("encode", tmp_path / name, toy_folder, *out)[0] == 0
    local, far = (Codes.load(tmp_path / f"{name}.npz") for name in ("local", "far"))
    assert np.array_equal(local.packed, far.packed)  # the same model


def test_encode_gives_the_codes_of_the_folder(run, saved, toy_folder, tmp_path):
    files = image_files(toy_folder)
    (tmp_path / "a.zip").write_bytes(zip_bytes(files))
    (tmp_path / "a.tar").write_bytes(tar_bytes(files))
    (tmp_path / "a.parquet").write_bytes(parquet_bytes(files))
    sources = [toy_folder, put_folder("flaky://e", files)]
    sources += [tmp_path / f"a.{kind}" for kind in ("zip", "tar", "parquet")]
    found = []
    for number, source in enumerate(sources):
        out = tmp_path / f"{number}.npz"
        code, _, err = run("encode", saved, source, "--out", out, "--device", "cpu")
        assert code == 0, err
        found.append(Codes.load(out))
    for codes in found[1:]:
        assert codes.ids.tolist() == found[0].ids.tolist()
        assert np.array_equal(codes.packed, found[0].packed)


def test_unreadable_images_are_listed(run, saved, toy_folder, tmp_path):
    address = put_folder("flaky://s", image_files(toy_folder) | {"blue/x.png": b"damaged"})
    FlakyFileSystem.broken.add("/s/red/002.png")
    code, _, err = run("encode", saved, address, "--out", tmp_path / "c.npz", "--device", "cpu")
    assert code == 0 and "2 images could not be read" in err
    text = (tmp_path / "skipped.csv").read_text()
    assert "red/002.png,connection reset by peer (3 attempts)" in text and "blue/x.png" in text


def test_an_index_follows_an_address(run, build, toy_folder, tmp_path):
    files = image_files(toy_folder)
    address = put_folder("flaky://i", files)
    code, out, err = build(address)
    assert code == 0 and "48 images: 48 encoded" in out, err
    index = Index.open(tmp_path / "i")
    assert index.meta["images"] == "flaky://i"
    (item,) = index.get(["blue/000.png"])
    assert (item.path, item.labels) == ("flaky://i/blue/000.png", ("blue",))
    store, _ = fsspec.core.url_to_fs(address)
    store.rm("/i/blue/000.png")
    store.mv("/i/red/002.png", "/i/green/moved.png")
    put(f"{address}/yellow/003.png", files["green/001.png"])
    FlakyFileSystem.reads.clear()
    code, out, err = build(address)
    assert code == 0, err
    assert "47 images: 1 encoded, 45 unchanged, 1 renamed, 1 removed" in out
    assert len(FlakyFileSystem.reads) == 2  # the changed and the moved one
    assert "47 images: 0 encoded, 47 unchanged, 0 removed" in build(address)[1]


@pytest.mark.parametrize("kind", ["zip", "tar", "parquet"])
def test_an_index_of_an_archive(kind, run, build, toy_folder, tmp_path):
    files, path = image_files(toy_folder), tmp_path / f"a.{kind}"
    pack = {"zip": zip_bytes, "tar": tar_bytes, "parquet": parquet_bytes}[kind]
    path.write_bytes(pack(files))
    code, out, err = build(path)
    assert code == 0 and "48 images: 48 encoded" in out, err
    assert Index.open(tmp_path / "i").label_counts() == dict.fromkeys(
        ("blue", "green", "red", "yellow"), 12
    )
    assert "0 encoded, 48 unchanged" in build(path)[1]


def test_add_from_an_address(run, build, toy_folder, tmp_path):
    assert build(toy_folder)[0] == 0
    (tmp_path / "more.tar").write_bytes(tar_bytes(image_files(toy_folder)))
    code, out, err = run(
        "index", "add", tmp_path / "i", tmp_path / "more.tar", "--prefix", "tar/", "--device", "cpu"
    )
    assert code == 0 and "96 images: 48 encoded" in out, err
    index = Index.open(tmp_path / "i")
    assert index.get(["tar/red/002.png"])[0].labels == ("red",)
    codes = index.codes(["tar/red/002.png", "red/002.png"])
    assert np.array_equal(codes.packed[0], codes.packed[1])


def test_an_index_without_a_model(run, toy_folder, tmp_path):
    files = dict(list(image_files(toy_folder).items())[:4])
    address = put_folder("flaky://m", files)
    code, out, err = run("index", "build", address, "--out", tmp_path / "i", "--device", "cpu")
    assert code == 0 and "4 images: 4 encoded" in out, err


@pytest.mark.parametrize("command", ["train", "encode", "index build", "index add"])
def test_errors_have_one_line(command, run, saved, build, toy_folder, tmp_path):
    assert command != "index add" or build(toy_folder)[0] == 0
    arguments = {
        "train": ("train", "gs://b/x", "--out", tmp_path / "r"),
        "encode": ("encode", saved, "gs://b/x"),
        "index build": ("index", "build", "gs://b/x", "--out", tmp_path / "n"),
        "index add": ("index", "add", tmp_path / "i", "gs://b/x"),
    }[command]
    pytest.importorskip("fsspec")
    code, _, err = run(*arguments)
    assert code in (1, 2) and "Traceback" not in err
    assert "gcsfs" in err or "Cannot read gs://b/x" in err


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--engine", "spark"), "Unknown engine of encode 'spark'. Known: ray."),
        (("--workers", "2"), "--address and --workers need --engine ray."),
        (("--overwrite",), "--overwrite needs --engine ray: a code file is always replaced."),
        (("--engine", "ray", "--shard", "1/2"), "--engine ray takes images and no --shard."),
        (
            ("--engine", "ray", "--out", "x.csv"),
            "--out must be a .npz or .parquet file, NAME.index",
        ),
        (("--engine", "ray", "--out", "."), "exists, and is no job of encode. Choose another"),
        (("--out", "photos.index"), "Codes are saved as .npz or .parquet, got 'photos.index'."),
    ],
)
def test_wrong_options_of_ray(arguments, text, run, saved, toy_folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, _, err = run("encode", saved, toy_folder, "--device", "cpu", *arguments)
    assert code == 2 and text in " ".join(err.split())
    assert not list(tmp_path.glob("*.parts"))
