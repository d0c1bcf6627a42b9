"""Shared by all tests: single-threaded arithmetic and a toy data set of four classes."""

from __future__ import annotations

import os
from collections.abc import Iterator

# Before torch is imported: its threads would spin while waiting and slow each other down on a busy
# machine.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["HADAHASH_FEATURE_CACHE"] = "off"  # tests compute what they count

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from milvus_process import MilvusProcess, why_not
from numpy.typing import NDArray
from toys import make_toy, tiny_hasher, write_folder
from trials import trials  # noqa: F401 - a fixture

from hadahash import Hasher

torch.set_num_threads(1)

# Child processes find the package too, whether it is installed or not.
_SOURCE = str(Path(__file__).parents[1] / "src")
os.environ["PYTHONPATH"] = os.pathsep.join([_SOURCE, *filter(None, [os.environ.get("PYTHONPATH")])])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skips the tests marked `torture` unless HADAHASH_TORTURE=1 or `-m` names them."""
    if os.environ.get("HADAHASH_TORTURE") == "1" or "torture" in config.getoption("markexpr"):
        return
    skip = pytest.mark.skip(reason="runs long; set HADAHASH_TORTURE=1 or pass -m torture")
    for item in items:
        if item.get_closest_marker("torture"):
            item.add_marker(skip)


@pytest.fixture(scope="session")
def toy() -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """160 training images of 4 classes, uint8 (160, 32, 32, 3), and their labels."""
    return make_toy(160, seed=0)


@pytest.fixture(scope="session")
def toy_queries() -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """80 other images of the same classes."""
    return make_toy(80, seed=1)


@pytest.fixture(scope="session")
def fitted(toy: tuple[NDArray[np.uint8], NDArray[np.int64]]) -> Hasher:
    """A small hasher trained on the toy classes. Tests only read it."""
    return tiny_hasher(epochs=8).fit(*toy)


@pytest.fixture(scope="session")
def saved(fitted: Hasher, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of that hasher. Tests only read it."""
    folder = tmp_path_factory.mktemp("saved") / "run"
    fitted.save(folder)
    return folder


@pytest.fixture
def toy_folder(tmp_path: Path) -> Path:
    """48 toy images as PNG files, 12 in each of 4 class folders."""
    return write_folder(tmp_path / "photos", *make_toy(48, seed=2))


@pytest.fixture(scope="session", autouse=True)
def configuration(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A configuration folder for the tests, also of child processes."""
    os.environ["XDG_CONFIG_HOME"] = str(tmp_path_factory.mktemp("config"))


@pytest.fixture(scope="session", autouse=True)
def milvus(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Where the index engine "milvus" finds a server, which starts with the first request."""
    os.environ["HADAHASH_MILVUS_URI"] = str(tmp_path_factory.mktemp("milvus") / "test.db")


@pytest.fixture(scope="session")
def milvus_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MilvusProcess]:
    """A real Milvus server, shared by all tests that do not stop it."""
    reason = why_not()
    if reason:
        pytest.skip(reason)
    server = MilvusProcess(tmp_path_factory.mktemp("milvus-server"))
    try:
        server.start()
    except RuntimeError as error:
        pytest.skip(str(error))
    yield server
    server.kill()
    shutil.rmtree(server.folder, ignore_errors=True)  # 500 MB


@pytest.fixture
def without_heif(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the extra `heif` were not installed."""
    from hadahash.lazy import is_installed

    def found(package: str) -> bool:
        return package != "pi_heif" and is_installed(package)

    for module in ("formats", "folder"):
        monkeypatch.setattr(f"hadahash.data.{module}.is_installed", found)
