"""The commands of docs/scale.md from a laptop to a cluster, one after the other, as they stand."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from milvus_process import TOKEN, free_ports
from s3_server import s3_server
from storages import image_files
from toys import make_toy, write_folder
from trials import ROOT

from hadahash import Codes, HashModel, Index

pytestmark = [
    pytest.mark.torture,
    pytest.mark.skipif(sys.platform != "linux", reason="needs a Milvus server"),
]
PHOTOS, RUNS = 48, ("photos", "better")


def road() -> str:
    """The block of commands of the page."""
    page = (ROOT / "docs" / "scale.md").read_text("utf-8")
    found = re.search(r"<!-- road -->\n```bash\n(.*?)```", page, re.DOTALL)
    assert found is not None, "the page has no block of commands"
    return found[1]


@pytest.fixture
def bucket(photos: Path) -> Iterator[None]:
    """An S3 server with s3://bucket/photos."""
    s3fs = pytest.importorskip("s3fs")
    files = image_files(photos)
    with s3_server():
        store = s3fs.S3FileSystem()
        store.mkdir("bucket")
        store.pipe({f"bucket/photos/{name}": data for name, data in files.items()})
        yield


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """The folder of the first command, beside cat.jpg."""
    folder = write_folder(tmp_path / "photos", *make_toy(PHOTOS, seed=2))
    first = sorted(folder.rglob("*.png"))[0]
    (tmp_path / "cat.jpg").write_bytes(first.read_bytes())
    return folder


def here(script: str, uri: str) -> str:
    """The commands with the addresses of the servers of this test."""
    (port,) = free_ports(1)
    return script.replace("http://milvus:19530", uri).replace("8000", str(port))


def commands_of(script: str) -> list[str]:
    """The commands of the block."""
    return [line for line in script.splitlines() if line and not line.startswith("#")]


@pytest.mark.usefixtures("bucket")
def test_the_whole_road(trials, milvus_server, tmp_path, photos, monkeypatch):
    pytest.importorskip("ray")
    tried = trials("command line", "the road of docs/scale.md, from a laptop to Ray and Milvus")
    script = here(road(), milvus_server.uri)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    with (tmp_path / "said").open("w+") as said:
        done = subprocess.run(
            ["bash", "-m", "-e", "-x", "-c", script],
            cwd=tmp_path,
            env=os.environ | {"PATH": path, "RAY_USAGE_STATS_ENABLED": "0"},
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
            check=False,
        )
        said.seek(0)
        text = said.read()
    reached = sum(each.rstrip(" &") in text for each in commands_of(script))
    failed = done.returncode != 0 or "Traceback" in text
    tried.count("survived", reached - failed)
    if failed:
        tried.count("crashed")
        tried.failures.append(" ".join(text[-800:].split()))
        return
    monkeypatch.setenv("HADAHASH_MILVUS_TOKEN", TOKEN)
    for trial in tried.numbers(1, 1):
        with trial:
            assert reached == len(commands_of(script)), text
            compare(tmp_path, photos)
            models = [HashModel.load(tmp_path / "runs" / name, device="cpu").id for name in RUNS]
            assert re.findall(r'"model":"(\w+)"', done.stdout) == models


def compare(root: Path, photos: Path) -> None:
    """All indexes have the codes of the model in one process."""
    for run, names in {
        "photos": ("photos.index", "routed.index", "bucket.index", "far.index"),
        "better": ("album.index",),
    }.items():
        expected = HashModel.load(root / "runs" / run, device="cpu").encode(photos)
        ids = expected.ids.tolist()
        for name in names:
            index = Index.open(root / name)
            assert len(index) == PHOTOS, name
            assert np.array_equal(index.codes(ids).packed, expected.packed), name
            assert index.get(ids[:1])[0].labels == (ids[0].split("/")[0],)
    expected = HashModel.load(root / "runs" / "photos", device="cpu").encode(photos)
    parts = [Codes.load(root / "codes" / f"{number}.npz") for number in (1, 2)]
    rays = sorted((root / "codes" / "parts").glob("*.parquet"))
    for found in (Codes.concatenate(parts), Codes.concatenate([Codes.load(each) for each in rays])):
        assert found.ids.tolist() == expected.ids.tolist()
        assert np.array_equal(found.packed, expected.packed)
