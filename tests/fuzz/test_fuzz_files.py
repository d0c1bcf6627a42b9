"""Files that are parsed: read, or refused in one line; never another exception."""

from __future__ import annotations

import json
import shutil
import zlib
from pathlib import Path

import pytest
from fuzzing import (
    CORPUS,
    EDITS,
    JSON_VALUES,
    edited,
    examples,
    fuzz_file,
    places,
    refused_or_read,
    replaced,
)
from hypothesis import given
from hypothesis import strategies as st
from toys import use_smallest_backbone

from hadahash import files
from hadahash.codes import Codes
from hadahash.data.embedding_files import open_embeddings
from hadahash.data.headers import block_claims_too_much
from hadahash.data.images import image_size, open_image
from hadahash.data.splits import Split
from hadahash.data.table import read_paths, read_photos, read_rows
from hadahash.evaluation.result import Report
from hadahash.index import Index
from hadahash.index.dismissed import Dismissed
from hadahash.index.storage.manifest import MANIFEST, checksum
from hadahash.model import HashModel
from hadahash.model_files import _digest, _unsigned
from hadahash.runs import RunDir, read_evaluated_run


def read_embeddings(path: Path) -> None:
    embeddings = open_embeddings(path, ids="ids" if path.suffix == ".npz" else None)
    assert len(embeddings.ids) == len(embeddings)


def read_image(path: Path) -> None:
    data = path.read_bytes()
    block_claims_too_much(data)
    image_size(data)
    open_image(data)


PARSERS = {
    "codes": (["codes-text.npz", "codes-numbers.npz"], Codes.load),
    "codes in parquet": (["codes-text.parquet", "codes-numbers.parquet"], Codes.load),
    "tables": (["table.csv", "table.tsv", "table.parquet"], read_rows),
    "embeddings": (
        ["vectors.npy", "vectors.npz", "vectors.parquet", "vectors.feather"],
        read_embeddings,
    ),
    "images": (
        [f"image.{kind}" for kind in ("jpeg", "png", "tiff", "gif", "webp", "bmp")],
        read_image,
    ),
    "dismissed": (["dismissed.json"], Dismissed.load),
    "splits": (["run/split.json"], Split.load),
    "reports": (["run/evaluation/report.json"], Report.load),
    "JSON": (["run/run.json", "run/model.json"], files.read_json),
}


@pytest.mark.parametrize("name", PARSERS)
def test_files(trials, tmp_path, name):
    names, parse = PARSERS[name]
    fuzz_file(trials("fuzzing", f"parser: {name}"), names, tmp_path, parse)


def test_toml(trials, tmp_path):
    tried = trials("fuzzing", "parser: TOML settings")
    path = tmp_path / "x.toml"

    @examples(50, 3000)
    @given(EDITS)
    def harness(edits):
        path.write_bytes(edited(b'bits = 32\nmethod = "hcdh"\n[method]\nx = [1, 2.5]\n', edits))
        refused_or_read(lambda: files.read_toml(path))
        tried.count("survived")

    harness()


def test_paths_listed_in_a_table(trials, tmp_path):
    """The files that a table names are there."""
    for name in "abc":
        (tmp_path / f"{name}.jpg").write_bytes((CORPUS / "image.jpeg").read_bytes())
    names = ["table.csv", "table.tsv", "table.parquet"]

    def read(path):
        refused_or_read(lambda: read_photos(path))
        return read_paths(path)

    fuzz_file(trials("fuzzing", "parser: tables of paths"), names, tmp_path, read)


# ---- folders -------------------------------------------------------------------------------------


def use_index(folder: Path) -> None:
    index = Index.open(folder)
    index.verify()
    codes = index.codes()
    index.search(codes[:2], 30)
    index.search(codes[:1], 5, labels=["a", 1])
    index.get(index.ids[:3])
    index.label_counts()


def resign(folder: Path) -> None:
    """Make sizes and checksums of all files right: what is wrong inside must be found as well."""
    path = folder / MANIFEST
    manifest = json.loads(path.read_text())
    for segment in manifest["segments"]:
        for file in segment["files"].values():
            content = (folder / file["name"]).read_bytes()
            file |= {"bytes": len(content), "crc32": zlib.crc32(content)}
    manifest["crc32"] = checksum(manifest)
    path.write_text(json.dumps(manifest))


@pytest.mark.parametrize("name", ["text.index", "numbers.index"])
def test_files_of_an_index(trials, tmp_path, name):
    """Also where sizes and checksums are right."""
    tried = trials("fuzzing", f"parser: files of a segment with right checksums, {name}")
    paths = [path.name for path in sorted((CORPUS / name).iterdir()) if path.name != MANIFEST]

    @examples(40, 4000)
    @given(st.sampled_from(paths), EDITS)
    def harness(which, edits):
        folder = tmp_path / "i"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(CORPUS / name, folder)
        content = edited((folder / which).read_bytes(), edits)
        (folder / which).write_bytes(content)
        resign(folder)
        refused_or_read(lambda: use_index(folder))
        tried.count("survived")

    use_index(shutil.copytree(CORPUS / name, tmp_path / "whole"))
    harness()


def test_manifests(trials, tmp_path):
    tried = trials("fuzzing", "parser: manifests with right checksums")
    whole = json.loads((CORPUS / "text.index" / MANIFEST).read_text())
    folder = shutil.copytree(CORPUS / "text.index", tmp_path / "i")

    @examples(100, 5000)
    @given(st.sampled_from(list(places(whole))), JSON_VALUES)
    def harness(place, value):
        manifest = replaced(whole, place, value)
        try:
            manifest["crc32"] = checksum(manifest)
            text = json.dumps(manifest)
        except (ValueError, TypeError):
            return
        (folder / MANIFEST).write_text(text)
        refused_or_read(lambda: use_index(folder))
        tried.count("survived")

    harness()


@pytest.fixture
def run_folder(tmp_path, monkeypatch):
    use_smallest_backbone(monkeypatch)
    return Path(shutil.copytree(CORPUS / "run", tmp_path / "run"))


@pytest.mark.parametrize(
    "name",
    [
        "model.json", "model-*.safetensors", "run.json", "split.json", "evaluation/labels.npz",
        "evaluation/values.npy", "evaluation/query.npz", "evaluation/report.json", "log.jsonl",
    ],
)  # fmt: skip
def test_files_of_a_run(trials, run_folder, name):
    tried = trials("fuzzing", f"parser: files of a run, {name}")
    (path,) = run_folder.glob(name)
    whole = path.read_bytes()

    def use():
        run = RunDir(run_folder)
        run.split(run.record())
        HashModel.load(run_folder)
        read_evaluated_run(run_folder)

    assert refused_or_read(use) is None

    @examples(10, 1000)
    @given(EDITS)
    def harness(edits):
        path.write_bytes(edited(whole, edits))
        refused_or_read(use)
        tried.count("survived")

    harness()


def test_cards_of_models_with_right_checksums(trials, run_folder):
    tried = trials("fuzzing", "parser: model cards with right checksums")
    path = run_folder / "model.json"
    whole = json.loads(path.read_text())

    @examples(30, 3000)
    @given(st.sampled_from(list(places(whole))), JSON_VALUES)
    def harness(place, value):
        manifest = replaced(whole, place, value)
        try:
            manifest["sha256"] = _digest(_unsigned(manifest))
            text = json.dumps(manifest)
        except (ValueError, TypeError):
            return
        path.write_text(text)
        refused_or_read(lambda: HashModel.load(run_folder))
        tried.count("survived")

    harness()
