"""A small collection to serve."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from PIL import Image
from toys import make_toy, tiny_hasher, write_folder

from hadahash import Hasher, Index
from hadahash.photos import PhotoIndex, scan_folder

pytest.importorskip("fastapi")

from fastapi.testclient import TestClient
from serving import Running, ToyCollection, opened, running


@pytest.fixture(scope="package", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A cache folder for thumbnails, also of child processes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


def export(run: Path) -> None:
    """Export a model, as `hadahash serve` does before the first start, but without a process."""
    if find_spec("onnx") and find_spec("onnxruntime"):
        from hadahash.onnx_files import export_onnx, load_for_export

        export_onnx(load_for_export(run))


@pytest.fixture(scope="session")
def toy_collection(tmp_path_factory: pytest.TempPathFactory, fitted: Hasher) -> ToyCollection:
    """48 images of 4 classes, their model and index, and a secret file with links to it. Read-only."""
    root = tmp_path_factory.mktemp("served")
    photos = write_folder(root / "photos", *make_toy(48, seed=2))
    fitted.save(root / "run")
    export(root / "run")
    codes = fitted.encode(photos)
    names = codes.ids.tolist()
    Index.build(codes, [name.split("/")[0] for name in names], names).save(root / "photos.index")
    (root / "secret.png").write_bytes((photos / "red" / "002.png").read_bytes())
    (photos / "linked.png").symlink_to(root / "secret.png")
    (photos / "linked").symlink_to(root, target_is_directory=True)
    return ToyCollection(root)


@pytest.fixture(scope="session")
def two_part_collection(tmp_path_factory: pytest.TempPathFactory) -> ToyCollection:
    """48 images of 4 classes with class bits, content bits and a ranking. Read-only."""
    root = tmp_path_factory.mktemp("two-part")
    photos = write_folder(root / "photos", *make_toy(48, seed=2))
    hasher = tiny_hasher(content_bits=16).fit(photos)
    hasher.save(root / "run")
    codes = hasher.encode(photos)
    names = codes.ids.tolist()
    labels = [name.split("/")[0] for name in names]
    ranking = hasher.model_.ranking
    Index.build(codes, labels, names, ranking=ranking).save(root / "photos.index")
    return ToyCollection(root)


@pytest.fixture(scope="session")
def two_part_client(two_part_collection: ToyCollection) -> Iterator[TestClient]:
    with opened(two_part_collection, decode_workers=2, write_token=None) as client:
        yield client


@pytest.fixture(scope="session")
def copies_original(tmp_path_factory: pytest.TempPathFactory) -> ToyCollection:
    """16 photos, an equal copy of one and another one saved again, with model and index."""
    root = tmp_path_factory.mktemp("duplicates")
    photos = write_folder(root / "photos", *make_toy(16, seed=3))
    shutil.copy(photos / "red/002.png", photos / "blue/copy.png")
    with Image.open(photos / "green/001.png") as image:
        image.save(photos / "green/again.bmp")
    hasher = tiny_hasher(content_bits=32).fit(write_folder(root / "train", *make_toy(48, seed=1)))
    hasher.save(root / "run")
    built = PhotoIndex.open_or_create(root / "photos.index", hasher.model_, root / "run", photos)
    built.apply(built.plan(scan_folder(photos), whole=photos.resolve()), hasher.model_)
    return ToyCollection(root)


@pytest.fixture
def copies(copies_original: ToyCollection, tmp_path: Path) -> ToyCollection:
    """A copy of it. Paths in the index are those of the original, ids are relative."""
    shutil.copytree(copies_original.root, tmp_path / "own")
    return ToyCollection(tmp_path / "own")


@pytest.fixture
def collection_copy(toy_collection: ToyCollection, tmp_path: Path) -> ToyCollection:
    """A copy of the collection that a test can modify."""
    shutil.copytree(toy_collection.root, tmp_path / "own", symlinks=True)
    return ToyCollection(tmp_path / "own")


@pytest.fixture(scope="session")
def client(toy_collection: ToyCollection) -> Iterator[TestClient]:
    with opened(toy_collection, decode_workers=2) as client:
        yield client


@pytest.fixture(scope="session")
def server(toy_collection: ToyCollection) -> Iterator[Running]:
    short = ("--set", "upload_seconds=3", "--set", "header_seconds=2")
    with running(toy_collection, *short) as server:
        yield server
