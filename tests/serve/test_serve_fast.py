"""What makes the service quick: onnxruntime, lookups in batches, few processes at the start."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from serving import opened, wait_for

from hadahash import HashModel, Index
from hadahash.codes import Codes
from hadahash.errors import StorageError
from hadahash.index import Item, Neighbor
from hadahash.photos import CATALOG, StoredLooks
from hadahash.photos.catalog import Catalog, CatalogRow, FileStat
from hadahash.runtime import choice
from hadahash.serve.core.batcher import Batcher
from hadahash.serve.core.collection import Collection
from hadahash.serve.core.decode_pool import DecodedImage, DecodePool
from hadahash.serve.core.encode import Encoder
from hadahash.serve.core.results import Found, Shown, show
from hadahash.serve.core.search import IdJob, Options, SearchJob, run_jobs, run_searches
from hadahash.serve.core.timing import settled
from hadahash.serve.http import schema
from hadahash.serve.http.routes_search import answer_body, answer_of
from hadahash.serve.problem import Problem
from hadahash.serve.settings import ServeSettings

OPTIONS = Options(5, None, None, "hamming", None)


# ---- the runtime ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def exported(toy_collection, tmp_path_factory):
    """The run, exported."""
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    folder, run = tmp_path_factory.mktemp("exported"), toy_collection.root / "run"
    return shutil.copytree(run, folder / "run")


@pytest.fixture
def without_gpu(monkeypatch):
    monkeypatch.setattr(choice, "has_gpu", lambda: False)
    monkeypatch.delenv("HADAHASH_RUNTIME", raising=False)


def test_the_exported_model_answers_as_torch_does(toy_collection, exported, without_gpu, tmp_path):
    shutil.copytree(toy_collection.root, tmp_path / "own", symlinks=True)
    shutil.rmtree(tmp_path / "own" / "run")
    shutil.copytree(exported, tmp_path / "own" / "run")
    own = type(toy_collection)(tmp_path / "own")
    name = str(own.index.ids[0])
    with opened(own, decode_workers=1) as client:
        model = client.app.state.service.handle.current.model
        found = client.post("/v1/search", files={"image": own.image(name)}).json()
    assert model.runtime.name == "onnx"
    assert found["hits"][0]["distance"] <= 1
    assert found["query"]["model"] == HashModel.load(exported, runtime="torch").id


def test_images_are_encoded_in_small_batches_on_a_cpu():
    sizes = []

    class Pool:
        async def decode_for_model(self, image, preprocess, client):
            return DecodedImage(np.zeros((4, 4, 3), np.uint8), bytes(8))

    def queries(pixels):
        from hadahash.queries import Queries

        return Queries(np.ones((len(pixels), 8), np.float32))

    async def encode(device):
        sizes.clear()
        timer = SimpleNamespace(skip=lambda: None, stage=lambda name: None)
        model = SimpleNamespace(
            preprocess=None, queries=queries, runtime=SimpleNamespace(device=device)
        )
        encoder = Encoder(Pool(), max_batch=32, on_batch=sizes.append)
        await asyncio.gather(*(encoder.encode(b"", model, timer) for _ in range(20)))
        encoder.close()
        return max(sizes)

    assert asyncio.run(encode("cpu")) == 2 and asyncio.run(encode("cuda")) > 2


# ---- searches by id ------------------------------------------------------------------------------


def test_items_of_waiting_searches_are_looked_up_together(toy_collection):
    index = toy_collection.index
    collection, known = Collection(index, SimpleNamespace(), []), index.ids[:6].tolist()
    looked_up, real = [], index.lookup
    index.lookup = lambda ids: (looked_up.append(len(ids)), real(ids))[1]
    found = run_searches([IdJob(collection, each, OPTIONS) for each in [*known, known[0]]])
    assert looked_up == [6]
    for given, result in zip([*known, known[0]], found, strict=True):
        assert result.item.id == given and len(result.hits) == 5
        alone = index.neighbors(result.query, 5)[0]
        assert [each.neighbor.id for each in result.hits] == [each.id for each in alone]


def test_one_unknown_item_does_not_reach_the_other_searches(toy_collection):
    index = toy_collection.index
    collection, known = Collection(index, SimpleNamespace(), []), index.ids[:3].tolist()
    jobs = [IdJob(collection, each, OPTIONS) for each in (known[0], "nosuch", known[1])]
    one, unknown, other = run_searches(jobs)
    assert isinstance(unknown, Problem) and unknown.status == 404
    assert (one.item.id, other.item.id) == (known[0], known[1])


def test_searches_for_many_results_are_not_joined_with_others(tmp_path):
    codes = Codes(np.random.default_rng(0).integers(0, 256, (3000, 8), dtype=np.uint8), 64)
    Index.build(codes, ["cat"] * 3000).save(tmp_path)
    index = Index.open(tmp_path)
    asked, real = [], index.neighbors
    index.neighbors = lambda queries, k, **given: (
        asked.append((len(queries), k)),
        real(queries, k, **given),
    )[1]
    collection = Collection(index, SimpleNamespace(), [])
    sizes = [10] * 20 + [1000] * 12 + [33, 64, 65, 7]
    jobs = [SearchJob(collection, codes[[n]], k, *OPTIONS[1:]) for n, k in enumerate(sizes)]
    found = run_jobs(jobs)
    assert sorted(asked) == [(1, 65), (2, 64), (4, 1000), (8, 1000), (21, 10)]
    assert index._segments[0].items._table is None, "not all items are read"
    for number in (0, 19, 20, 31, 32, 33, 34, 35):
        (alone,) = Index.open(tmp_path).neighbors(codes[[number]], sizes[number])
        assert len(found[number]) == sizes[number]
        assert [(each.id, each.labels) for each in found[number]] == [
            (each.id, each.labels) for each in alone
        ]


def test_an_index_that_cannot_be_read_is_an_error_of_each_search(toy_collection):
    index = toy_collection.index

    def lookup(ids):
        raise StorageError("damaged")

    collection, index.lookup = Collection(index, SimpleNamespace(), []), lookup
    found = run_searches([IdJob(collection, each, OPTIONS) for each in index.ids[:2].tolist()])
    assert [type(each) for each in found] == [StorageError, StorageError]


@pytest.mark.parametrize("count", [3, 250, 1001])
def test_long_answers_are_written_in_parts(count):
    query = Codes(np.zeros((1, 2), np.uint8), 16)
    item = Item("é", "a/é.png", ("x", 7))
    neighbors = [
        Neighbor(f"b/{n}", n, np.array([n % 256, 1], np.uint8), None, ("y",), None, None, 0.5)
        for n in range(count)
    ]
    hits = [Shown(each, True, None, 3) for each in neighbors]
    found = Found(item, query, "hamming", None, hits, b"ABCDEFGH", "m")
    timer = SimpleNamespace(
        elapsed=lambda: dict.fromkeys(("decode", "encode", "search", "total"), 1.5)
    )

    async def written():
        turns, running = [], asyncio.create_task(answer_body(found, timer))
        while not running.done():
            turns.append(1)
            await asyncio.sleep(0)
        return running.result(), len(turns)

    body, turns = asyncio.run(written())
    answer = schema.SearchAnswer.model_validate_json(body)
    assert [hit.id for hit in answer.hits] == [f"b/{n}" for n in range(count)]
    assert body == schema.PLAIN_VALUES.dump_json(answer_of(found, timer))
    assert turns >= count // 100, "other requests have their turn meanwhile"


def test_a_search_that_takes_too_long_is_answered_503():
    go_on = threading.Event()

    async def search():
        batcher = Batcher(
            lambda jobs: [go_on.wait(30) and job for job in jobs], max_batch=4, on_batch=len_of
        )
        with pytest.raises(Problem) as caught:
            await settled(batcher.enqueue(1), 0.05)
        go_on.set()
        return caught.value, await settled(batcher.enqueue(2), 30)

    problem, result = asyncio.run(search())
    assert problem.status == 503 and result == 2


def len_of(size):
    return size


def test_a_change_keeps_what_other_segments_have_in_memory(tmp_path):
    codes = Codes(np.random.default_rng(0).integers(0, 256, (301, 8), dtype=np.uint8), 64)
    index = Index.build(codes[:300], ["ab"[row % 2] for row in range(300)])
    index.save(tmp_path)
    index.search(codes[:1], 5, labels=["a"])
    (large,) = index._segments
    index.add(codes[300:], ["a"])
    index.save(tmp_path)
    assert index._segments[0] is large and large._label_bitmaps
    index.remove([7])
    index.save(tmp_path)
    assert index._segments[0] is not large and Index.open(tmp_path).has([7, 300]).tolist() == [
        False,
        True,
    ]


def test_filters_by_label_are_kept_until_the_index_changes():
    codes = Codes(np.random.default_rng(0).integers(0, 256, (300, 8), dtype=np.uint8), 64)
    index = Index.build(codes, ["ab"[row % 2] for row in range(300)])
    before = index.search(codes[:3], 5, labels=["a"]).ids
    (segment,) = index._segments
    (kept,) = segment._label_bitmaps.values()
    assert (index.search(codes[:3], 5, labels=["a"]).ids == before).all()
    assert [*segment._label_bitmaps.values()] == [kept]
    index.remove([int(before[0, 0])])
    after = index.search(codes[:3], 5, labels=["a"]).ids
    assert before[0, 0] not in after and (after % 2 == 0).all()
    assert set(index._segments[0]._label_bitmaps) == {frozenset("a")}
    for number in range(600):
        index.search(codes[:1], 1, labels=[f"none {number}"])
    assert len(index._segments[0]._label_bitmaps) <= 256


def test_searches_do_not_wait_for_a_program_that_writes_the_catalog(tmp_path, monkeypatch):
    looks, items = StoredLooks(tmp_path, wait_seconds=0.01), [Item("a.jpg", "/a.jpg", ())]
    with closing(sqlite3.connect(tmp_path / CATALOG, isolation_level=None)) as writer:
        catalog = Catalog(tmp_path)
        catalog.write({"a.jpg": CatalogRow(Path("/"), FileStat(1, 1), b"x", None)})
        catalog.write_looks({b"x": bytes(range(1, 9))})
        writer.execute("BEGIN EXCLUSIVE")
        assert looks.of(items) == {}
        writer.execute("COMMIT")
        assert looks.of(items) == {}, "not asked again at once"
        monkeypatch.setattr(looks, "_pause_until", 0.0)
        assert looks.of(items) == {"a.jpg": bytes(range(1, 9))}


@pytest.mark.parametrize("content_bits", [0, 64])
def test_looks_of_results_are_read_only_where_photos_are_compared(content_bits):
    packed = np.random.default_rng(0).integers(0, 256, (20, 8), dtype=np.uint8)
    content = packed if content_bits else None
    codes = Codes(packed, 64, content=content, content_bits=content_bits)
    index, asked = Index.build(codes), []
    (item,), (found,) = index.get([3]), index.neighbors(codes[[3]], 5)

    def looks_of(items):
        asked[:] = [each.id for each in items]
        return {each.id: bytes(8) for each in items}

    collection = SimpleNamespace(index=index, looks=looks_of, has_image=lambda each: False)
    results = [each.id for each in found] if content_bits else []
    looks, shown = show(collection, item, found, None)
    assert looks == bytes(8) and asked == [3, *results]
    assert [each.same_photo for each in shown] == ([True] + 4 * [False] if results else 5 * [None])
    _, shown = show(collection, None, found, bytes(8))
    assert asked == results and {each.looks_distance for each in shown} == {0 if results else None}
    _, shown = show(collection, None, found, None)
    assert asked == [] and {each.looks_distance for each in shown} == {None}


# ---- the start -----------------------------------------------------------------------------------


def test_one_decoder_is_started_before_the_service_is_ready(toy_collection):
    with opened(toy_collection, decode_workers=3, thumbnail_workers=2) as client:
        pools = client.app.state.service._uploaded, client.app.state.service._stored
        assert pools[0]._workers[0].pid is not None
        wait_for(lambda: all(each.pid for pool in pools for each in pool._workers))


def test_a_decoder_that_is_starting_is_not_started_twice():
    async def start():
        pool = DecodePool(ServeSettings(), 2)
        await asyncio.gather(pool.start(1), pool.start(), pool.start(1))
        pids = [worker.pid for worker in pool._workers]
        await pool.start()
        same = pids == [worker.pid for worker in pool._workers]
        free = len(pool.turns.free)
        await pool.close()
        return pids, same, free

    pids, same, free = asyncio.run(start())
    assert len(set(pids)) == 2 and same and free == 2


def test_the_service_starts_without_torch(exported):
    code = (
        "import sys; from pathlib import Path\n"
        "import hadahash.serve.server\n"
        "from hadahash import HashModel\n"
        f"run = Path({str(exported)!r})\n"
        "HashModel.load(run, device='cpu').encode([])\n"
        "print([name for name in ('torch', 'timm', 'scipy', 'sklearn') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_decoder_ends_silently_when_the_service_has_gone():
    command = [sys.executable, "-m", "hadahash.serve.core.decode_worker", "2000000000", "0"]
    pipe = subprocess.PIPE
    worker = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe)
    worker.stdout.close()  # nobody reads that it is ready
    assert worker.stderr.read() == b""
    assert worker.wait() == 1
    worker.stdin.close()
    worker.stderr.close()
