"""Files of embeddings: every format gives the numbers that were written, and one-line errors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from toys import one_line

from hadahash.data.embedding_files import is_embedding_file, open_embeddings, read_values
from hadahash.data.sources import as_images, read_embeddings
from hadahash.errors import DataError, HadaHashError, StorageError, UsageError

VECTORS = np.random.default_rng(0).normal(size=(10, 3)).astype(np.float32)
NAMES = [f"item {number}" for number in range(10)]


def numbers(source) -> np.ndarray:
    """All rows, as a model reads them, in small batches."""
    return np.concatenate([batch.vectors for batch in source.images.batches(4)])


@pytest.fixture
def pa():
    pytest.importorskip("pyarrow.parquet")
    import pyarrow
    import pyarrow.feather
    import pyarrow.ipc

    return pyarrow


def list_table(pa, rows, **columns):
    return pa.table({"vector": pa.array(rows, pa.list_(pa.float32())), **columns})


# ------------------------------------------------------------------ numpy


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("order", ["C", "F"])
def test_npy(tmp_path, kind, order):
    array = np.asarray(VECTORS.astype(kind), order=order)
    np.save(tmp_path / "x.npy", array)
    source = open_embeddings(tmp_path / "x.npy")
    assert source.ids.tolist() == list(range(10))
    assert np.array_equal(numbers(source), array.astype(np.float32))
    assert np.array_equal(numbers(as_images(str(tmp_path / "x.npy"))), numbers(source))
    assert np.array_equal(numbers(source.take([7, 2])), array[[7, 2]].astype(np.float32))


def test_one_vector(tmp_path):
    np.save(tmp_path / "q.npy", VECTORS[3])
    assert np.array_equal(numbers(open_embeddings(tmp_path / "q.npy")), VECTORS[[3]])


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz(tmp_path, save):
    path = tmp_path / "x.npz"
    save(path, vectors=VECTORS, ids=np.array(NAMES), labels=np.arange(10) % 2)
    assert np.array_equal(numbers(open_embeddings(path)), VECTORS)
    source = open_embeddings(path, array="vectors", ids="ids")
    assert source.ids.tolist() == NAMES
    assert read_values(path, "labels").tolist() == [0, 1] * 5
    assert read_embeddings(path, "labels").classes == ("0", "1")


def test_an_array_of_several_must_be_named(tmp_path):
    path = tmp_path / "x.npz"
    np.savez(path, a=VECTORS, b=VECTORS + 1)
    with pytest.raises(
        UsageError, match=r"several float arrays.*a, b. Name one: --array"
    ) as caught:
        open_embeddings(path)
    one_line(caught.value)
    assert np.array_equal(numbers(open_embeddings(path, array="b")), VECTORS + 1)
    with pytest.raises(UsageError, match=r"no array 'c'. Its arrays: a, b"):
        open_embeddings(path, array="c")


# ------------------------------------------------------------------ tables


@pytest.mark.parametrize("kind", ["list", "large_list", "fixed", "half", "double", "columns"])
@pytest.mark.parametrize("suffix", [".parquet", ".arrow", ".feather"])
def test_tables(tmp_path, pa, kind, suffix):
    types = {
        "list": pa.list_(pa.float32()),
        "large_list": pa.large_list(pa.float32()),
        "fixed": pa.list_(pa.float32(), 3),
        "half": pa.list_(pa.float16()),
        "double": pa.list_(pa.float64()),
    }
    expected = VECTORS
    if kind == "columns":
        columns = {f"x{place}": VECTORS[:, place] for place in range(3)}
    else:
        rows = list(VECTORS.astype(np.float16)) if kind == "half" else VECTORS.tolist()
        expected = VECTORS.astype(np.float16).astype(np.float32) if kind == "half" else VECTORS
        columns = {"vector": pa.array(rows, types[kind])}
    write(pa, pa.table({"id": NAMES, **columns}), tmp_path / f"x{suffix}")
    source = open_embeddings(tmp_path / f"x{suffix}")
    assert source.ids.tolist() == NAMES
    assert np.array_equal(numbers(source), expected)


def write(pa, table, path: Path) -> None:
    """Write in parts of four rows."""
    if path.suffix == ".parquet":
        pa.parquet.write_table(table, path, row_group_size=4)
    elif path.suffix == ".feather":
        pa.feather.write_feather(table, path, chunksize=4)
    else:
        with pa.ipc.new_file(path, table.schema) as file:
            file.write_table(table, max_chunksize=4)


def test_a_stream_of_arrow(tmp_path, pa):
    table = list_table(pa, VECTORS.tolist())
    with pa.ipc.new_stream(tmp_path / "x.arrow", table.schema) as file:
        file.write_table(table, max_chunksize=4)
    assert np.array_equal(numbers(open_embeddings(tmp_path / "x.arrow")), VECTORS)


def test_missing_and_short_vectors_are_named_and_keep_their_place(tmp_path, pa):
    rows = [None] * 5 + VECTORS.tolist()
    rows[6], rows[8] = [1.0, None, 2.0], [1.0]
    write(pa, list_table(pa, rows, key=[f"k{i}" for i in range(15)]), tmp_path / "x.parquet")
    source = open_embeddings(tmp_path / "x.parquet", ids="key")
    batches = list(source.images.batches(4))
    failed = [row for batch in batches for row, _ in batch.failed]
    assert failed == [0, 1, 2, 3, 4, 6, 8]
    assert np.array_equal(numbers(source), VECTORS[[0, 2, 4, 5, 6, 7, 8, 9]])
    assert source.ids[5] == "k5"


def test_a_column_of_several_must_be_named(tmp_path, pa):
    table = list_table(pa, VECTORS.tolist(), other=pa.array((VECTORS + 1).tolist()))
    write(pa, table, tmp_path / "x.parquet")
    with pytest.raises(UsageError, match="several columns of vectors: vector, other"):
        open_embeddings(tmp_path / "x.parquet")
    assert np.allclose(numbers(open_embeddings(tmp_path / "x.parquet", array="other")), VECTORS + 1)


def test_labels_and_ids_of_columns(tmp_path, pa):
    table = list_table(pa, VECTORS.tolist(), kind=["a", "b"] * 5, number=list(range(10, 20)))
    write(pa, table, tmp_path / "x.parquet")
    data = read_embeddings(tmp_path / "x.parquet", "kind", ids="number")
    assert data.classes == ("a", "b") and data.ids[0] == "10" and data.name == "x"


def test_a_table_of_images_is_no_file_of_embeddings(tmp_path, pa):
    write(pa, pa.table({"path": ["a.jpg"], "score": [1.0]}), tmp_path / "photos.parquet")
    assert not is_embedding_file(tmp_path / "photos.parquet")
    write(pa, list_table(pa, VECTORS.tolist()), tmp_path / "x.parquet")
    assert is_embedding_file(tmp_path / "x.parquet")
    for other in (None, 5, tmp_path, tmp_path / "missing.npy", "a\0b.npy"):
        assert not is_embedding_file(other)


# ------------------------------------------------------------------ ids, labels and errors


def test_ids_of_a_text_file(tmp_path):
    np.save(tmp_path / "x.npy", VECTORS)
    (tmp_path / "ids.txt").write_text("\n".join(NAMES) + "\n", encoding="utf-8")
    np.save(tmp_path / "ids.npy", np.arange(10) * 7)
    assert open_embeddings(tmp_path / "x.npy", ids=tmp_path / "ids.txt").ids.tolist() == NAMES
    assert open_embeddings(tmp_path / "x.npy", ids=tmp_path / "ids.npy").ids[9] == 63
    (tmp_path / "ids.txt").write_text("only one\n", encoding="utf-8")
    with pytest.raises(DataError, match="has 10 rows, but there are 1 ids"):
        open_embeddings(tmp_path / "x.npy", ids=tmp_path / "ids.txt")


def test_multilabel_labels(tmp_path):
    np.save(tmp_path / "x.npy", VECTORS)
    np.save(tmp_path / "y.npy", np.eye(10, 4, dtype=np.uint8))
    assert read_embeddings(tmp_path / "x.npy", tmp_path / "y.npy").multilabel
    assert read_embeddings(tmp_path / "x.npy").classes == ()


@pytest.mark.parametrize(
    ("name", "content", "error", "message"),
    [
        ("x.npy", b"not numpy", DataError, "cannot be read as arrays"),
        ("x.npz", b"not a zip", DataError, "cannot be read as arrays"),
        ("x.parquet", b"PAR1", DataError, "cannot be read as a table"),
        ("x.arrow", b"ARROW1", DataError, "cannot be read as a table"),
        ("x.txt", b"1 2 3", UsageError, "Embeddings are read from .npy, .npz, .parquet"),
    ],
)
def test_damaged_files_are_one_line_errors(tmp_path, pa, name, content, error, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(error, match=message) as caught:
        open_embeddings(tmp_path / name)
    one_line(caught.value)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((2, 3), np.uint8), "could be codes or pixels"),
        (np.zeros((2, 3, 4), np.float32), "two dimensions"),
        (np.zeros((2, 0), np.float32), "0 feature"),
        (np.array([{"a": 1}]), "cannot be read as arrays"),
    ],
)
def test_arrays_of_another_kind_are_refused(tmp_path, array, message):
    np.save(tmp_path / "x.npy", array, allow_pickle=True)
    with pytest.raises(HadaHashError, match=message) as caught:
        open_embeddings(tmp_path / "x.npy")
    assert "x.npy" in one_line(caught.value)


def test_missing_files_and_columns(tmp_path, pa):
    with pytest.raises(StorageError, match=r"missing.npy"):
        open_embeddings(tmp_path / "missing.npy")
    write(pa, list_table(pa, VECTORS.tolist()), tmp_path / "x.parquet")
    for options in ({"array": "none"}, {"ids": "none"}):
        with pytest.raises(UsageError, match=r"has no column 'none'. Its columns: vector"):
            open_embeddings(tmp_path / "x.parquet", **options)
    write(pa, pa.table({"word": NAMES}), tmp_path / "words.parquet")
    with pytest.raises(DataError, match=r"no column of float vectors. Its columns: word"):
        open_embeddings(tmp_path / "words.parquet")


def test_memory_does_not_grow_with_the_file(tmp_path):
    """Pages of a memory map that were read are given back."""
    shape = (60_000, 256)  # 61 MB
    mapped = np.lib.format.open_memmap(tmp_path / "x.npy", "w+", np.float32, shape)
    for start in range(0, len(mapped), 10_000):
        mapped[start : start + 10_000] = 1
    mapped.flush()
    del mapped
    source = open_embeddings(tmp_path / "x.npy")
    held = [_resident() for _ in source.images.batches()]
    assert max(held) - held[0] < 24 << 20


def _resident() -> int:
    status = Path("/proc/self/statm")
    return int(status.read_text().split()[1]) * 4096 if status.exists() else 0
