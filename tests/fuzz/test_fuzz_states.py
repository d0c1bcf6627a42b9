"""Files that keep the state of a training, an export, an encoding and an index.

Each is read or refused in one line, and no file outside of the folder is touched.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

import numpy as np
import pytest
from fuzzing import (
    CORPUS,
    EDITS,
    JSON_VALUES,
    edited,
    examples,
    places,
    refused_or_read,
    replaced,
)
from hypothesis import given
from hypothesis import strategies as st
from small_collection import small_collection
from storages import tree
from toys import tiny_config, use_smallest_backbone

from hadahash import files
from hadahash.data.sources import as_images
from hadahash.encoding import encode_to_file
from hadahash.errors import UsageError
from hadahash.index import Index
from hadahash.index.storage.manifest import checksum
from hadahash.light import light_network
from hadahash.model import HashModel
from hadahash.model_files import model_file_names, read_model
from hadahash.photos import BuildOptions, build_or_update
from hadahash.photos.catalog import Catalog, FileStat
from hadahash.photos.catalog_sql import CHECKSUMS, prepare
from hadahash.photos.duplicates import PhotoDuplicates
from hadahash.photos.looks import StoredLooks
from hadahash.photos.scan import Photo
from hadahash.photos.upgrade import UpgradeOptions, discard_old, rollback
from hadahash.runs import DataSpec, RunDir, train_run
from hadahash.runtime.files import _digest
from hadahash.training.checkpoint import Checkpoint

OPTIONS = UpgradeOptions(device="cpu")


@pytest.fixture(scope="module", autouse=True)
def smallest():
    with pytest.MonkeyPatch.context() as patch:
        use_smallest_backbone(patch)
        yield


@pytest.fixture
def place(tmp_path):
    """A folder to work in. Nobody may touch what is beside it."""
    (tmp_path / "beside").mkdir()
    (tmp_path / "beside" / "notes.txt").write_text("mine")
    (tmp_path / "inside").mkdir()
    return tmp_path / "inside"


def texts(place):
    """Names that lead out of the folder."""
    notes = place.parent / "beside" / "notes.txt"
    return st.sampled_from(
        ["../beside/notes.txt", str(notes), "../../beside", "..", ".", "", "/", "a\0b", "x" * 300]
    )


def contents(path, place, sign=None):
    """Other contents of a JSON file: changed bytes, or another value at one place."""
    whole = path.read_bytes()
    value = json.loads(whole)

    def dumped(change):
        where, new = change
        found = replaced(value, where, new)
        try:
            return json.dumps(found if sign is None else sign(found)).encode()
        except (AttributeError, TypeError, ValueError):
            return b"null"

    spots = st.sampled_from([(), *places(value)])
    changes = st.tuples(spots, JSON_VALUES | texts(place) | st.lists(texts(place), max_size=2))
    return EDITS.map(lambda edits: edited(whole, edits)) | changes.map(dumped)


def fuzz_state(tried, place, name, possible, use, *, short=12, count=1000):
    """Use a copy of a folder in which one file has other contents."""
    whole, copy = place / "whole", place / "copy"
    beside = tree(place.parent / "beside")

    @examples(short, count)
    @given(possible)
    def harness(content):
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(whole, copy)
        (copy / name).write_bytes(content)
        refused_or_read(lambda: use(copy))
        assert tree(place.parent / "beside") == beside, "a file beside the folder was changed"
        tried.count("survived")

    shutil.copytree(whole, copy)
    assert refused_or_read(lambda: use(copy)) is None, "the whole folder"
    try:
        harness()
    except Exception:
        tried.count("crashed")
        raise


# ---- a training ----------------------------------------------------------------------------------


def train(out, *, resume):
    config = tiny_config(backbone="smallest", epochs=1, batch_size=8, size=20, checkpoint_seconds=0)
    return train_run(config, DataSpec(str(CORPUS / "photos")), out, resume=resume, device="cpu")


class Stop(Exception):
    """The training is interrupted."""


@pytest.fixture
def unfinished(place, monkeypatch):
    """A training that was interrupted after its first checkpoint."""
    save = Checkpoint.save

    def save_and_stop(self, state):
        save(self, state)
        raise Stop

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "save", save_and_stop)
        with pytest.raises(Stop):
            train(place / "whole", resume=False)
    assert (place / "whole" / ".training" / "checkpoint.safetensors").exists()
    return place


def test_requests_of_trainings(trials, unfinished, monkeypatch):
    tried = trials("fuzzing", "states: request.json of an unfinished training")
    path = unfinished / "whole" / ".training" / "request.json"

    def fit(*arguments, **options):
        raise UsageError("Not trained in this test.")

    def use(folder):
        monkeypatch.setattr("hadahash.runs.training.fit_model", fit)
        text = refused_or_read(lambda: train(folder, resume=True))
        assert text is not None
        RunDir(folder).request()

    fuzz_state(tried, unfinished, ".training/request.json", contents(path, unfinished), use)


def test_checkpoints(trials, unfinished):
    tried = trials("fuzzing", "states: checkpoints")
    name = ".training/checkpoint.safetensors"
    whole = (unfinished / "whole" / name).read_bytes()
    possible = EDITS.map(lambda edits: edited(whole, edits))
    fuzz_state(
        tried, unfinished, name, possible, lambda folder: train(folder, resume=True), short=8
    )


def test_journals_of_trainings(trials, place):
    """A training whose files are moved into place is completed, or refused; others stay."""
    tried = trials("fuzzing", "states: publish.json of a training that is moved into place")
    staging = shutil.copytree(CORPUS / "run", place / "whole" / ".training")
    shutil.copytree(CORPUS / "run", place / "whole", dirs_exist_ok=True)
    (place / "whole" / "notes.txt").write_text("mine")
    names = [*model_file_names(staging), "split.json", "log.jsonl", "run.json"]
    journal = {"new": names, "remove": ["skipped.csv", "checkpoint.safetensors"]}
    files.write_json(staging / "publish.json", journal)

    def use(folder):
        try:
            RunDir(folder).record()
        finally:
            assert (folder / "notes.txt").read_text() == "mine"

    possible = contents(staging / "publish.json", place)
    fuzz_state(tried, place, ".training/publish.json", possible, use, short=30)


# ---- an export, an encoding ----------------------------------------------------------------------


def test_jobs_of_encodings(trials, place):
    tried = trials("fuzzing", "states: job.json and parts of an encoding")
    model, source = HashModel.load(CORPUS / "run", device="cpu"), as_images(CORPUS / "photos")
    expected = model.encode(source)

    def encode(folder, part=8):
        return encode_to_file(
            model.encoder(), source, folder / "x.npz", model_id=model.id, part=part
        )

    parts = place / "whole" / "x.npz.parts"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hadahash.encoding.end_job", lambda folder: None)
        encode(place / "whole")
    (place / "whole" / "x.npz").unlink()
    assert len(list(parts.iterdir())) == 4

    def use(folder):
        assert np.array_equal(encode(folder).packed, expected.packed)

    possible = contents(parts / "job.json", place)
    fuzz_state(tried, place, "x.npz.parts/job.json", possible, use, short=6)


@pytest.mark.parametrize("name", ["onnx.json", "network-*.onnx", "head-*.onnx"])
def test_exported_models(trials, place, name):
    """Also where the checksum of onnx.json is right."""
    pytest.importorskip("onnxruntime")
    tried = trials("fuzzing", f"states: files of an exported model, {name}")
    whole = Path(shutil.copytree(CORPUS / "exported", place / "whole"))
    (path,) = whole.glob(name)

    def use(folder):
        model_file_names(folder)
        network = light_network(read_model(folder), "cpu")
        found = network.start(network.load(np.zeros((1, 3, 8, 8), np.uint8)))()
        network.head(*found, scores=False)
        network.codewords()

    if name == "onnx.json":
        possible = contents(path, place, signed_facts)
    else:
        content = path.read_bytes()
        possible = EDITS.map(lambda edits: edited(content, edits))
    fuzz_state(tried, place, path.name, possible, use, short=15)


def signed_facts(value):
    content = {key: each for key, each in value.items() if key != "sha256"}
    return content | {"sha256": _digest(content)}


# ---- an index ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def collection(tmp_path_factory, smallest):
    return small_collection(tmp_path_factory.mktemp("collection"))


@pytest.fixture
def index(place, collection):
    """A copy of the index, with a list of compared items as a killed upgrade leaves it."""
    whole = Path(shutil.copytree(collection / "photos.index", place / "whole"))
    previous = json.loads((whole / "previous.json").read_text())
    (whole / "upgrade").mkdir()
    state = {"generation": previous["generation"] - 1, "ids": Index.open(whole).ids.tolist()}
    files.write_json(whole / "upgrade" / "compared.json", state)
    return place


def use_index(folder):
    """Every command that reads the state of an index; each may be refused."""
    refused = [refused_or_read(lambda: Index.open(folder).verify())]
    duplicates = None

    def find():
        nonlocal duplicates
        duplicates = PhotoDuplicates(folder)
        duplicates.unread()
        for group in duplicates.find(20)[:2]:
            duplicates.files(group)
            duplicates.are_equal(group)

    refused.append(refused_or_read(find))
    refused.append(refused_or_read(lambda: rollback(folder, options=OPTIONS)))
    refused.append(refused_or_read(lambda: discard_old(folder)))
    if any(refused):
        raise UsageError(next(filter(None, refused)))


def signed_manifest(value):
    return value | {"crc32": checksum(value)}


@pytest.mark.parametrize(
    "name",
    ["previous.json", "previous/*/dropped.json", "upgrade/compared.json", "duplicates.json", "dismissed.json"],
)  # fmt: skip
def test_states_of_an_index(trials, index, name):
    tried = trials("fuzzing", f"states: {name} of an index")
    (path,) = (index / "whole").glob(name)
    if path.name == "dropped.json":
        files.write_json(path, ["red/002.png", "x"])
    sign = signed_manifest if name == "previous.json" else None
    below = str(path.relative_to(index / "whole"))
    fuzz_state(tried, index, below, contents(path, index, sign), use_index, short=6, count=600)


def test_next_revisions(trials, index):
    """upgrade.json of an upgrade that was interrupted."""
    tried = trials("fuzzing", "states: upgrade.json of an index")
    whole = index / "whole"
    shutil.copy(whole / "previous.json", whole / "upgrade.json")
    possible = contents(whole / "upgrade.json", index, signed_manifest)
    fuzz_state(tried, index, "upgrade.json", possible, use_index, short=6, count=600)


# ---- catalogs ------------------------------------------------------------------------------------


def use_catalog(folder, photos):
    """Everything that is read from a catalog; each may be refused."""
    catalog = Catalog(folder)
    found = [(Photo(name, photos / name, photos), FileStat(268, 1)) for name in NAMES]
    catalog.compare(found, deleted_from=photos)
    catalog.skipped()
    catalog.count_skipped()
    catalog.equal_files()
    catalog.digests(NAMES)
    catalog.without_looks()
    catalog.copy(folder / "other")
    StoredLooks(folder, wait_seconds=0).of(Index.open(folder).get(NAMES))
    duplicates = PhotoDuplicates(folder)
    duplicates.read(duplicates.unread())
    duplicates.find(20)


NAMES = ["red/002.png", "red/copy.png", "blue/000.png"]


def test_catalogs_of_photos(trials, index, collection):
    """Changed bytes of a catalog with rows and looks."""
    tried = trials("fuzzing", "states: catalogs of photos")
    whole = (index / "whole" / "photos.sqlite").read_bytes()
    possible = EDITS.map(lambda edits: edited(whole, edits))

    def use(folder):
        use_catalog(folder, collection / "photos")

    fuzz_state(tried, index, "photos.sqlite", possible, use, count=2000)


CELLS = st.none() | st.integers(-(2**63), 2**63 - 1) | st.floats() | st.text(max_size=9)


def set_checksums(connection):
    prepare(connection)
    for table, computed in CHECKSUMS.items():
        connection.execute(f"UPDATE {table} SET crc = {computed}")


def test_cells_of_catalogs(trials, index, collection):
    """A database without damage whose values are of other kinds and lengths."""
    tried = trials("fuzzing", "states: values in catalogs of photos, looks included")
    columns = [("looks", "bits"), ("looks", "digest"), *(("photos", name) for name in COLUMNS)]
    folder, options = index / "copy", BuildOptions(device="cpu")

    @examples(12, 600)
    @given(st.sampled_from(columns), CELLS | st.binary(max_size=40), st.booleans())
    def harness(column, value, signed):
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(index / "whole", folder)
        with closing(sqlite3.connect(folder / "photos.sqlite")) as connection, connection:
            (table, name), key = column, "digest" if column[0] == "looks" else "id"
            first = f"{key} = (SELECT min({key}) FROM {table})"
            change = f"UPDATE OR REPLACE {table} SET {name} = ? WHERE {first}"
            with suppress(sqlite3.IntegrityError):  # a key is never NULL
                connection.execute(change, (value,))
            if signed:
                set_checksums(connection)
        refused_or_read(lambda: use_catalog(folder, collection / "photos"))
        refused_or_read(
            lambda: build_or_update(
                collection / "photos", folder, run=collection / "run", options=options
            )
        )
        assert len(Index.open(folder)) == 17, "photos are lost"
        tried.count("survived")

    harness()


COLUMNS = ("id", "root", "size", "mtime_ns", "digest", "reason")
