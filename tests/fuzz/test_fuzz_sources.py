"""Images in archives, in parquet files and at addresses: read, or refused in one line."""

from __future__ import annotations

from functools import partial

import pytest
from fsspec.implementations.local import LocalFileSystem
from fuzzing import CORPUS, EDITS, edited, examples, fuzz_file, refused_or_read
from hypothesis import given
from hypothesis import strategies as st
from storages import image_files, put_folder, tree

from hadahash.data.remote import is_address, list_stored
from hadahash.data.sources import as_images, as_labelled

pytest.importorskip("fsspec")


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with a file beside it, which nobody may touch."""
    (tmp_path / "outside.png").write_bytes((CORPUS / "image.png").read_bytes())
    (tmp_path / "inside").mkdir()
    monkeypatch.chdir(tmp_path / "inside")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "inside" / "cache"))
    return tmp_path / "inside"


def read_source(source):
    """Everything that a source can be used for; each image by itself may be unreadable."""
    refused_or_read(lambda: as_labelled(str(source)))
    found = as_images(str(source))
    assert len(found.ids) == len(found.images)
    for row in range(min(len(found.images), 20)):
        refused_or_read(partial(found.images.read_reduced, row, 8))
    found.fingerprint()


@pytest.mark.parametrize("name", ["archive.tar", "archive.zip", "images.parquet"])
def test_archives(trials, place, name):
    before = tree(place.parent)
    fuzz_file(trials("fuzzing", f"parser: images in {name}"), [name], place, read_source, 2000)
    after = tree(place.parent)
    assert set(after) - set(before) == {f"inside/{name}"}
    assert after["outside.png"] == before["outside.png"]


KINDS = ["memory://", "zip://", "tar://", "file://", "dir://", "local://", "data:", "nowhere://",
         "reference://", "arrow_hdfs://", "libarchive://", "asynclocal://", "x:", "://", ""]  # fmt: skip
NAMES = ["photos", "photos/red/*.png", "archive.zip", "archive.tar", "images.parquet", "*.parquet",
         "a b.zip", "red/002.png", "**", "[", "x.tar", "\0", "é\n", "-", "~", "?", "#", "%2e%2e"]  # fmt: skip


@pytest.fixture
def small_disk(place, monkeypatch):
    """The rest of the disk seems empty: `file:///` would list all of it."""
    for name in ("ls", "find", "glob", "info"):
        method = getattr(LocalFileSystem, name)

        def guarded(self, path, *arguments, method=method, **options):
            if not str(path).startswith(str(place)):
                raise FileNotFoundError(path)
            return method(self, path, *arguments, **options)

        monkeypatch.setattr(LocalFileSystem, name, guarded)


@pytest.mark.usefixtures("small_disk")
def test_addresses(trials, place):
    """Addresses of what is there, with parts exchanged and characters changed."""
    tried = trials("fuzzing", "parser: addresses")
    photos = dict(list(image_files(CORPUS / "photos").items())[:4])
    put_folder("memory://fuzzed/photos", photos)
    for name in ("archive.zip", "archive.tar", "images.parquet"):
        (place / name).write_bytes((CORPUS / name).read_bytes())
    before = tree(place.parent)
    part = st.tuples(st.sampled_from(KINDS), st.sampled_from(NAMES) | st.text(max_size=8))

    @examples(80, 5000)
    @given(st.lists(part, min_size=1, max_size=3), st.none() | EDITS)
    def harness(parts, edits):
        address = "::".join(kind + name for kind, name in parts)
        if edits is not None:
            address = edited(address.encode(), edits).decode("utf-8", "replace")
        if is_address(address):
            refused_or_read(lambda: list_stored(address))
            refused_or_read(lambda: as_images(address))
            tried.count("survived")

    for good in ("memory://fuzzed/photos", "zip://::archive.zip", "archive.tar"):
        assert refused_or_read(partial(read_source, good)) is None, good
    harness()
    assert tree(place.parent) == before
