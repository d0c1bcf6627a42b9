"""Files and texts that a parser did not survive once."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from fuzzing import CORPUS, refused_or_read
from test_fuzz_files import resign

from hadahash.data.embedding_files import open_embeddings
from hadahash.index import Index
from hadahash.photos.catalog import CATALOG, Catalog
from hadahash.settings import parse_assignments


@pytest.mark.parametrize("positions", [[265, 1, 2], [1, 1, 2]])
def test_positions_of_codes_that_are_no_order(tmp_path, positions):
    """A wrong order with a right checksum gives no wrong answer."""
    folder = shutil.copytree(CORPUS / "text.index", tmp_path / "i")
    (path,) = folder.glob("*.ordinals")
    ordinals = np.fromfile(path, np.uint32)
    ordinals[:3] = positions
    ordinals.tofile(path)
    resign(folder)
    found = refused_or_read(lambda: Index.open(folder).codes())
    assert found is not None and "positions are missing or repeated" in found


def test_lists_of_vectors_with_damaged_offsets(tmp_path):
    """pyarrow ends the process when they are used."""
    pa = pytest.importorskip("pyarrow")
    path = tmp_path / "vectors.arrow"
    table = pa.table({"vector": pa.array(np.ones((6, 5)).tolist(), pa.list_(pa.float32()))})
    with pa.ipc.new_file(path, table.schema) as file:
        file.write_table(table)
    offsets = np.arange(0, 35, 5, dtype=np.int32).tobytes()
    content = path.read_bytes()
    assert content.count(offsets) == 1 and refused_or_read(lambda: open_embeddings(path)) is None
    damaged = np.array([0, 9**9, -7, 15, 20, 25, 30], np.int32).tobytes()
    path.write_bytes(content.replace(offsets, damaged))
    found = refused_or_read(lambda: open_embeddings(path))
    assert found is not None and "cannot be read as a table" in found


@pytest.mark.parametrize("text", [b"\nPRIMARY\nKEY", b"\xc5\xc5\xc5MARY KEY"])
def test_a_catalog_with_a_damaged_schema(tmp_path, text):
    assert refused_or_read(lambda: Catalog(tmp_path).compare([])) is None
    content = (tmp_path / CATALOG).read_bytes()
    assert b"PRIMARY KEY" in content
    (tmp_path / CATALOG).write_bytes(content.replace(b"PRIMARY KEY", text[:11]))
    assert refused_or_read(lambda: Catalog(tmp_path).compare([])) is not None


def test_an_assignment_of_several_lines():
    found = refused_or_read(lambda: parse_assignments(["\n"]))
    assert found is not None and "--set name=value" in found
