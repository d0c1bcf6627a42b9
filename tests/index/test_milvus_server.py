"""The Milvus engine on a real server: the contract, both kinds of index, pages, tokens, writers."""

from __future__ import annotations

import json
import threading
import time

import numpy as np
import pytest
from brute_force import BruteForce, as_lists
from milvus_process import TOKEN
from toys import one_line

from hadahash.codes import Codes, pack
from hadahash.errors import StorageError, UsageError
from hadahash.index import Index
from hadahash.index._contract import engine_checks
from hadahash.index._contract_ranked import ranked_checks
from hadahash.index.engines import milvus_client
from hadahash.index.engines.milvus import MilvusIndex
from hadahash.index.engines.milvus_client import MilvusServer
from hadahash.ranking import Ranking

CHECKS = engine_checks()
RANKED = ranked_checks().values()
QUICK = ("filters restrict a search", "rows are marked exact only if they are")


@pytest.fixture
def real(milvus_server, monkeypatch):
    """The engine uses the real server. Collections of the test are dropped after it."""
    monkeypatch.setenv("HADAHASH_MILVUS_URI", milvus_server.uri)
    monkeypatch.setenv("HADAHASH_MILVUS_TOKEN", TOKEN)
    server = MilvusServer(milvus_client.read_settings({}))
    before = server.call_any("list_collections")
    yield milvus_server
    for name in set(server.call_any("list_collections")) - set(before):
        server.call_any("drop_collection", name)


class InvertedIndex(MilvusIndex):
    """The engine with BIN_IVF_FLAT as the default."""

    @classmethod
    def _create(cls, bits, codewords, **options):
        return super()._create(bits, codewords, index_type="BIN_IVF_FLAT", lists=4, **options)


class SessionIndex(MilvusIndex):
    """The engine with another consistency: reads see the writes of this process, and are faster."""

    @classmethod
    def _create(cls, bits, codewords, **options):
        return super()._create(bits, codewords, consistency="Session", **options)


@pytest.mark.parametrize(
    "check",
    [
        pytest.param(check, id=name, marks=pytest.mark.torture if check in RANKED else ())
        for name, check in CHECKS.items()
    ],
)
def test_contract(real, check):
    check(SessionIndex if check in RANKED else MilvusIndex)  # ranked searches read a lot


@pytest.mark.parametrize(
    "check",
    [
        pytest.param(check, id=name, marks=() if name in QUICK else pytest.mark.torture)
        for name, check in CHECKS.items()
    ],
)
def test_contract_with_inverted_lists(real, check):
    check(InvertedIndex)


# ---- both kinds of index -------------------------------------------------------------------------


def flushed(index, lists=None):
    """Wait until the server has built the index of all items; small ones have none."""
    index.server.call("flush")
    while True:
        found = index.server.call("describe_index", index_name="code")
        if found["pending_index_rows"] == 0 and found["indexed_rows"] >= len(index):
            assert found["index_type"] == index.settings.index_type
            assert lists is None or int(found["nlist"]) == lists
            return
        time.sleep(0.1)


@pytest.mark.parametrize(
    "index_type", [pytest.param("BIN_FLAT", marks=pytest.mark.torture), "BIN_IVF_FLAT"]
)
def test_an_index_that_the_server_has_built(real, make, rng, index_type):
    codes, queries, lists = make(3000, 64, flips=0.3), make(4, 64, flips=0.3), 16
    index = Index.build(codes, engine="milvus", index_type=index_type, lists=lists)
    exact = Index.build(codes)
    flushed(index, lists if index_type == "BIN_IVF_FLAT" else None)
    for options in ({}, {"radius": 20}, {"ids": np.arange(0, 3000, 7)}):
        for k in (1, 10, 2000):
            one, other = index.search(queries, k, **options), exact.search(queries, k, **options)
            assert np.array_equal(one.ids, other.ids) and one.exact
            assert np.array_equal(one.distances, other.distances)
    few = index.search(queries, 10, probes=1)
    assert few.exact == (index_type == "BIN_FLAT")
    assert (few.distances >= exact.search(queries, 10).distances).all()
    index.remove(np.arange(0, 3000, 2))
    exact.remove(np.arange(0, 3000, 2))
    one, other = index.search(queries, 50), exact.search(queries, 50)
    assert np.array_equal(one.ids, other.ids) and len(index) == 1500


@pytest.mark.torture
def test_the_lists_of_an_existing_collection_are_searched(real, make):
    """Opened with other settings, a search is nevertheless exact."""
    options = {"engine": "milvus", "collection": "inverted"}
    codes = make(2500, 64, flips=0.3)
    flushed(Index.build(codes, index_type="BIN_IVF_FLAT", lists=32, **options))
    index, exact = Index.build(codes[:0], **options), Index.build(codes)
    one, other = index.search(codes[:20], 30), exact.search(codes[:20], 30)
    assert (index.settings.index_type, index.settings.lists) == ("BIN_IVF_FLAT", 32)
    assert np.array_equal(one.ids, other.ids) and one.exact
    assert not index.search(codes[:1], 3, probes=2).exact


# ---- pages ---------------------------------------------------------------------------------------


def test_more_results_than_the_server_returns_at_once(real, make, rng):
    codes = make(1000, 64)
    near = Codes(np.zeros((17_000, 8), np.uint8), 64, rng.permutation(17_000) - 20_000)
    index, exact = Index.build(codes, engine="milvus"), Index.build(codes)
    for each in (index, exact):
        each.add(near)
    query = np.zeros((1, 8), np.uint8)
    for k in (5, 16_384, 17_500):  # 17,000 are at distance 0
        true, hits = exact.search(query, k), index.search(query, k)
        assert np.array_equal(true.ids, hits.ids) and np.array_equal(true.distances, hits.distances)
    assert len(index) == 18_000 and np.array_equal(index.ids, exact.ids)
    assert np.array_equal(index.codes().packed, exact.codes().packed)


# ---- token and version ---------------------------------------------------------------------------


def test_a_wrong_token(real, make, tmp_path, monkeypatch):
    index = Index.build(make(3), engine="milvus")
    index.save(tmp_path / "i")
    for token in ("root:wrong", "nobody:Milvus", ""):
        monkeypatch.setenv("HADAHASH_MILVUS_TOKEN", token)
        with pytest.raises(StorageError, match="rejects the token") as caught:
            len(Index.open(tmp_path / "i"))
        text = one_line(caught.value)
        assert "Set HADAHASH_MILVUS_TOKEN" in text and "wrong" not in text
    assert len(index) == 3


def test_a_collection_whose_name_looks_like_a_refusal(real, make):
    """Errors about a collection of authors are not about authentication."""
    index = Index.build(make(3), engine="milvus", collection="authors")
    Index.build(make(0), engine="milvus", collection="authors").drop()
    with pytest.raises(StorageError, match="collection 'authors'"):
        index.search(make(1), 3)


@pytest.mark.parametrize(
    ("version", "refused"),
    [("2.2.16", True), ("v2.3.5-lite", False), ("3.0.1", False), ("4.0.0", True), ("dev", False)],
)
def test_versions_of_the_server(real, make, monkeypatch, version, refused):
    from pymilvus import MilvusClient

    monkeypatch.setattr(MilvusClient, "get_server_version", lambda self, **options: version)
    if not refused:
        assert len(Index.build(make(2), engine="milvus")) == 2
        return
    with pytest.raises(StorageError, match=f"has version {version}; supported are 2.3") as caught:
        Index.build(make(2), engine="milvus")
    one_line(caught.value)


# ---- several writers, and older collections ------------------------------------------------------


def together(*actions):
    """Run the actions at the same time; return what they raise."""
    errors = [None] * len(actions)
    barrier = threading.Barrier(len(actions))

    def run(number):
        barrier.wait()
        try:
            actions[number]()
        except Exception as error:
            errors[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(actions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors


def test_two_writers_create_one_collection(real, make):
    parts = [make(200, 64, np.arange(200) + 200 * number) for number in range(3)]
    build = [
        lambda part=part: Index.build(part, engine="milvus", collection="shared", batch_size=50)
        for part in parts
    ]
    assert together(*build) == [None] * 3
    index = Index.build(make(0), engine="milvus", collection="shared")
    assert index.ids.tolist() == list(range(600))
    assert np.array_equal(index.codes().packed, np.concatenate([part.packed for part in parts]))


@pytest.mark.parametrize("difference", ["ids", "bits", "index"])
def test_two_writers_that_differ(real, make, difference):
    """One of them creates the collection; the other adapts or is refused, and nothing is lost."""
    name = f"differs_in_{difference}"
    other = {
        "ids": lambda: Index.build(make(5, 64, list("abcde")), engine="milvus", collection=name),
        "bits": lambda: Index.build(make(5, 32), engine="milvus", collection=name),
        "index": lambda: Index.build(
            make(5), engine="milvus", collection=name, index_type="BIN_IVF_FLAT", lists=8
        ),
    }[difference]
    errors = together(lambda: Index.build(make(5), engine="milvus", collection=name), other)
    refused = [each for each in errors if each is not None]
    assert len(refused) == (difference != "index")
    for error in refused:
        assert isinstance(error, UsageError), repr(error)
        one_line(error)
    bits = 32 if difference == "bits" and errors[0] else 64
    index = Index.build(make(0, bits), engine="milvus", collection=name)
    assert len(index) == 5 and index.search(make(1, bits), 5).exact


def test_a_collection_of_version_0_1(real, make):
    """Its description has the number of bits only."""
    from pymilvus import DataType, MilvusClient

    server = MilvusServer(milvus_client.read_settings({"collection": "older"}))
    schema = MilvusClient.create_schema(
        auto_id=False, enable_dynamic_field=False, description=json.dumps({"hadahash bits": 64})
    )
    schema.add_field("id", DataType.INT64, is_primary=True)
    schema.add_field("code", DataType.BINARY_VECTOR, dim=64)
    schema.add_field("item", DataType.JSON)
    params = MilvusClient.prepare_index_params()
    params.add_index("code", index_type="BIN_IVF_FLAT", metric_type="HAMMING", params={"nlist": 24})
    server.call("create_collection", schema=schema, consistency_level="Strong")
    server.call("create_index", params, sync=False)
    index, brute, codes = (
        Index.build(make(0), engine="milvus", collection="older"),
        BruteForce(64),
        make(50),
    )
    index.add(codes)
    brute.put(codes, [()] * 50)
    assert (index.settings.index_type, index.settings.lists) == ("BIN_IVF_FLAT", 24)
    assert as_lists(index.search(codes[:3], 9)) == brute.search(codes[:3], 9)


@pytest.mark.torture
def test_a_collection_without_an_index(real, make):
    """A writer was killed before it had created the index."""
    index = Index.build(make(5), engine="milvus", collection="halfway")
    index.server.call("release_collection")
    index.server.call("drop_index", "code")
    again = Index.build(make(5, 64, np.arange(5, 9 + 1)), engine="milvus", collection="halfway")
    assert len(again) == 10 and again.search(make(1), 10).exact


@pytest.mark.torture
def test_a_collection_that_was_dropped_by_another(real, make):
    index = Index.build(make(5), engine="milvus", collection="dropped")
    Index.build(make(0), engine="milvus", collection="dropped").drop()
    for call in (lambda: index.search(make(1), 3), lambda: index.update(make(2)), index.verify):
        with pytest.raises(StorageError, match="dropped") as caught:
            call()
        one_line(caught.value)
    assert len(index) == 0  # verify() has looked again
    index.update(make(2))
    assert len(index) == 2


@pytest.mark.torture
def test_an_empty_collection_for_ids_of_another_type(real, make):
    index = Index.build(make(2), engine="milvus", collection="emptied")
    index.remove([0, 1])
    assert index.has(["a"]).tolist() == [False]
    assert index.search(make(1), 3, ids=["a"]).counts.tolist() == [0]
    with pytest.raises(UsageError, match=r"is for int ids, got str\. Remove it with drop\(\)"):
        index.add(make(1, 64, ["a"]))
    index.drop()
    index.add(make(1, 64, ["a"]))
    assert index.ids.tolist() == ["a"]


# ---- prefixes, two-part codes and rankings -------------------------------------------------------


@pytest.mark.torture
def test_prefixes_of_two_part_codes_in_every_order(real, rng):
    """Shorter codes, whose bits do not fill a byte, and their ranking; class and photo order."""
    ranking = Ranking(np.random.default_rng(2).choice([-1, 1], (6, 64)), class_weight=3)
    words = ranking.codewords[rng.integers(0, 6, 300)]
    signs = words * rng.choice([1, -1], words.shape, p=[0.95, 0.05])
    content = pack(rng.standard_normal((300, 20)))
    whole = Codes(pack(signs), 64, None, (), content, 20)
    for bits in (33, 64):
        codes, order = whole.prefix(bits), ranking.prefix(bits)
        options = {"ranking": order, "codewords": order.codewords}
        index = Index.build(codes, engine="milvus", **options)
        exact = Index.build(codes, **options)
        assert index.content_bits == codes.content_bits
        for rank in ("hamming", "class", "photo") if codes.content_bits else ("hamming", "class"):
            one = index.search(codes[:3], 12, rank=rank)
            other = exact.search(codes[:3], 12, rank=rank)
            assert np.array_equal(one.ids, other.ids) and one.exact
            assert np.array_equal(one.distances, other.distances)
            assert rank == "hamming" or np.array_equal(one.scores, other.scores)
