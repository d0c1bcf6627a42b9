"""The Milvus engine beyond the contract, on milvus-lite: pages, ties, unusual text, failures."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
import time

import numpy as np
import pytest
from brute_force import BruteForce, as_lists
from hypothesis import given, settings
from hypothesis import strategies as st
from toys import one_line

from hadahash.codes import Codes
from hadahash.errors import HadaHashError, MissingExtraError, StorageError, UsageError
from hadahash.index import Index
from hadahash.index.engines import milvus_client, milvus_search
from hadahash.index.engines.milvus_client import MilvusServer, MilvusSettings
from hadahash.index.engines.milvus_filter import decode_item, decode_text, encode_text
from hadahash.index.storage.manifest import checksum


def filled(make, rng, n, bits=64, *, text=False, **options):
    ids = rng.permutation(n)
    codes = make(n, bits, np.array([f"p{each}" for each in ids]) if text else ids)
    labels = rng.integers(0, 3, n)
    index, brute = Index.build(codes, labels, engine="milvus", **options), BruteForce(bits)
    brute.put(codes, labels.tolist())
    return index, brute


# ---- the results of brute force ------------------------------------------------------------------


@pytest.mark.parametrize("text", [False, True])
def test_pages_and_ties_of_any_size(make, rng, monkeypatch, text):
    monkeypatch.setattr(milvus_search, "PAGE", 16)
    index, brute = filled(make, rng, 300, 8, text=text)  # 8 bits: far more than 16 ties
    queries = make(2, 8)
    for k in (1, 17, 100, 500):
        for options in ({}, {"radius": 2}, {"labels": [1]}, {"ids": index.ids[:60].tolist()}):
            hits = index.search(queries, k, **options)
            assert as_lists(hits) == brute.search(queries, k, **options) and hits.exact


def test_more_results_than_milvus_returns_at_once(make, rng):
    codes = make(1000, 64)
    index = Index.build(codes, engine="milvus")
    near = Codes(
        packed=np.zeros((17_000, 8), np.uint8), bits=64, ids=rng.permutation(17_000) - 20_000
    )
    index.add(near)
    exact = Index.build(codes)
    exact.add(near)
    query = np.zeros((1, 8), np.uint8)
    for k in (5, 16_384, 17_500):  # 17,000 are at distance 0
        true, hits = exact.search(query, k), index.search(query, k)
        assert np.array_equal(true.ids, hits.ids) and np.array_equal(true.distances, hits.distances)
    assert len(index) == 18_000 and np.array_equal(index.ids, exact.ids)
    assert np.array_equal(index.codes().packed, exact.codes().packed)
    index.drop()


def test_random_steps_against_brute_force(make, rng):
    index, brute = Index.build(make(0, 32), engine="milvus", batch_size=7), BruteForce(32)
    for step in range(45):
        ids = rng.choice(60, rng.integers(1, 20), replace=False)
        known = ids[index.has(ids)]
        assert sorted(known.tolist()) == sorted(set(ids.tolist()) & set(brute.items))
        if step % 3 == 2:
            index.remove(known)
            for each in known.tolist():
                del brute.items[each]
        else:
            codes, labels = make(len(ids), 32, ids), rng.integers(0, 3, len(ids)).tolist()
            index.update(codes, labels)
            brute.put(codes, labels)
        queries = make(2, 32)
        assert as_lists(index.search(queries, 9, labels=1)) == brute.search(queries, 9, labels=[1])
        assert len(index) == len(brute.items)


# ---- text ----------------------------------------------------------------------------------------

UNUSUAL = [
    "",
    "it's",
    'say "x"',
    "back\\slash",
    "new\nline",
    "\r",
    "nul\0x",
    "\1",
    "tab\t0",
    "z\udcff",
    "\ud7ff",
    "\ue000",
    "é😀",
    "a [1] & b!0",
]


@settings(max_examples=300, deadline=None)
@given(st.text(st.characters(exclude_categories=())), st.text(st.characters(exclude_categories=())))
def test_encoded_text_is_reversible_and_keeps_its_order(one, two):
    assert decode_text(encode_text(one)) == one
    assert (one < two) == (encode_text(one) < encode_text(two))
    assert not set(encode_text(one)) & set("\0\n\r\"'\\")
    encode_text(one).encode()


@pytest.mark.parametrize(
    "item",
    [
        '{"path": null, "labels": [""]}',
        '{"path": null, "labels": ["#x"]}',
        "{}",
        "[]",
        "x",
        None,
        {"path": None, "labels": [7]},
        {"path": 5, "labels": []},
        {"path": None},
    ],
)
def test_rows_of_other_programs_are_refused_in_one_line(item):
    with pytest.raises(StorageError, match="row 'a' of the collection was not written") as caught:
        decode_item({"id": "a", "item": item})
    one_line(caught.value)


def test_unusual_ids_labels_and_paths(make, monkeypatch):
    ids = np.array(UNUSUAL)
    labels = [[each, 7] for each in UNUSUAL]
    index = Index.build(
        make(len(UNUSUAL), 16, ids), labels, [f"/p/{each}" for each in UNUSUAL], engine="milvus"
    )
    assert index.ids.tolist() == sorted(UNUSUAL) and index.has(ids).all()
    assert [(item.id, item.path) for item in index.get(ids)] == [
        (each, f"/p/{each}") for each in UNUSUAL
    ]
    for each in UNUSUAL:
        assert index.search(make(1, 16), 3, labels=each).ids[0, 0] == each
        assert index.search(make(1, 16), 3, ids=[each], labels=7).ids[0, 0] == each
    assert index.search(make(1, 16), 3, labels="7").counts[0] == 0  # the label is an integer
    monkeypatch.setattr(milvus_search, "PAGE", 2)
    same = make(1, 16)
    index.update(Codes(packed=np.repeat(same.packed, len(UNUSUAL), 0), bits=16, ids=ids))
    assert index.search(same, 20).ids[0, : len(UNUSUAL)].tolist() == sorted(UNUSUAL)
    index.remove(UNUSUAL[:5])
    assert index.ids.tolist() == sorted(UNUSUAL[5:])


# ---- the folder ----------------------------------------------------------------------------------


def test_the_folder_names_the_server_but_not_the_token(make, tmp_path, monkeypatch):
    monkeypatch.setenv("HADAHASH_MILVUS_TOKEN", "root:secret")
    index = Index.build(make(5), engine="milvus", collection="some_photos", timeout=7)
    index.meta["model"] = "abc"
    index.save(tmp_path / "i")
    written = (tmp_path / "i" / "index.json").read_text()
    manifest = json.loads(written)
    assert (
        manifest["engine"] == "milvus" and manifest["meta"]["milvus"]["collection"] == "some_photos"
    )
    assert manifest["meta"]["milvus"]["uri"] == os.environ["HADAHASH_MILVUS_URI"]
    assert "secret" not in written and "secret" not in repr(index.settings)
    opened = Index.open(tmp_path / "i")
    assert (
        opened.settings == index.settings
        and opened.settings.token == "root:secret"
        and opened.settings.timeout == 7
    )
    assert opened.meta == {"model": "abc"} and len(opened) == 5
    opened.verify()
    opened.drop()
    with pytest.raises(StorageError, match="no collection 'some_photos'"):
        Index.open(tmp_path / "i").verify()


def test_a_folder_of_version_0_1_opens(make, tmp_path):
    """It stored the batch size under another name."""
    index = Index.build(make(5), engine="milvus", batch_size=50)
    index.save(tmp_path / "i")
    manifest = json.loads((tmp_path / "i" / "index.json").read_text())
    stored = manifest["meta"]["milvus"]
    stored["batch"] = stored.pop("batch_size")
    manifest |= {"format": 1, "ids": manifest.pop("id_type"), "codebook": None}
    manifest["crc32"] = checksum(manifest)
    (tmp_path / "i" / "index.json").write_text(json.dumps(manifest))
    opened = Index.open(tmp_path / "i")
    assert opened.settings.batch_size == 50 and len(opened) == 5


def test_several_writers_fill_one_collection(make):
    one = Index.build(make(30), engine="milvus", collection="shared_by_two")
    two = Index.build(make(10, 64, np.arange(30, 40)), engine="milvus", collection="shared_by_two")
    assert len(one) == len(two) == 40
    with pytest.raises(UsageError, match="already has 3"):
        two.add(make(1, 64, [3]))
    two._make_collection(int)  # as if both had started at the same time
    assert len(two) == 40


# ---- invalid arguments and failures --------------------------------------------------------------


def test_invalid_arguments_are_refused_in_one_line(make, monkeypatch):
    Index.build(make(3, 16), engine="milvus", collection="of_16")
    server = MilvusServer(milvus_client.read_settings({"collection": "foreign"}))
    server.call("create_collection", dimension=4)
    calls = [
        (
            lambda: Index.build(make(3, 12), engine="milvus", collection="of_16"),
            "contains codes of 16 bits, got 12 bits",
        ),
        (
            lambda: Index.build(make(3, 24), engine="milvus", collection="of_16"),
            "contains codes of 16 bits, got 24 bits",
        ),
        (
            lambda: Index.build(make(3), engine="milvus", collection="foreign"),
            "not created by hadahash",
        ),
        (lambda: Index.build(make(3), engine="milvus", collection="a b"), "letters, digits and _"),
        (lambda: Index.build(make(3), engine="milvus", colection="x"), "Did you mean 'collection'"),
        (
            lambda: Index.build(make(3), engine="milvus", index_type="HNSW"),
            "BIN_FLAT, BIN_IVF_FLAT",
        ),
        (
            lambda: Index.build(make(3), engine="milvus", index_type="BIN_IVF_FLAT"),
            "only support BIN_FLAT",
        ),  # milvus-lite
        (lambda: Index.build(make(3), engine="milvus", retries=0), "retries must be > 0, got 0"),
        (lambda: Index.build(make(3), engine="milvus", uri="nonsense"), "illegal"),
        (lambda: Index.build(make(3), engine="milvus", uri="/nowhere/at/all.db"), "not exists"),
    ]
    for call, message in calls:
        with pytest.raises(HadaHashError, match=message) as caught:
            call()
        one_line(caught.value)
    monkeypatch.delenv("HADAHASH_MILVUS_URI")
    with pytest.raises(UsageError, match="HADAHASH_MILVUS_URI"):
        Index.build(make(3), engine="milvus")
    monkeypatch.setitem(sys.modules, "pymilvus", None)
    with pytest.raises(MissingExtraError, match=r"hadahash\[milvus\]"):
        Index.build(make(3), engine="milvus", uri="http://localhost:1")


def test_an_unreachable_server(make, monkeypatch):
    pauses = []
    monkeypatch.setattr(milvus_client.time, "sleep", pauses.append)
    with pytest.raises(
        StorageError, match=r"localhost:9 cannot be reached \(3 attempts, deadline 60 s\)"
    ) as caught:
        Index.build(make(3), engine="milvus", uri="http://localhost:9", timeout=1)
    one_line(caught.value)
    assert len(pauses) >= 2 and pauses == sorted(pauses)


@pytest.fixture
def machine(tmp_path):
    """A separate server that can be stopped, killed and restarted."""
    lite = pytest.importorskip("milvus_lite.server")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    server = lite.Server(str(tmp_path / "own.db"), address)
    assert server.start()
    server.uri = f"http://{address}"
    yield server
    if server._p:
        server._p.kill()  # stop() would wait for it
    server.stop()


def test_a_slow_server(make, machine):
    index = Index.build(make(10), engine="milvus", uri=machine.uri, timeout=0.3)
    machine._p.send_signal(signal.SIGSTOP)
    started = time.monotonic()
    with pytest.raises(StorageError, match=r"is too slow \(3 attempts, deadline 60 s\)") as caught:
        index.search(make(1), 3)
    one_line(caught.value)
    assert time.monotonic() - started < 10
    machine._p.send_signal(signal.SIGCONT)
    assert index.search(make(1), 3).counts.tolist() == [3]


def _kill(machine):
    machine._p.kill()
    machine._p.wait()
    machine._p = None


def test_a_server_restart_during_an_insert(make, machine, monkeypatch):
    codes = make(400)
    index = Index.build(
        codes[:1], engine="milvus", uri=machine.uri, batch_size=50, timeout=5, retries=6
    )
    call, upserts = MilvusServer.call, []

    def call_then_kill(self, method, *arguments, **options):
        if method == "upsert":
            upserts.append(1)
            if len(upserts) == 3:
                _kill(machine)
                threading.Timer(0.2, machine.start).start()
        return call(self, method, *arguments, **options)

    monkeypatch.setattr(MilvusServer, "call", call_then_kill)
    index.update(codes)
    assert len(index) == 400
    index.update(codes)
    assert len(index) == 400 and np.array_equal(index.codes().packed, codes.packed)


def test_an_interrupted_insert_can_be_repeated(make, machine, monkeypatch):
    codes = make(400)
    index = Index.build(codes[:1], engine="milvus", uri=machine.uri, batch_size=50, timeout=1)
    call, upserts = MilvusServer.call, []

    def call_then_kill(self, method, *arguments, **options):
        upserts.append(method == "upsert")
        if sum(upserts) == 3:
            _kill(machine)
        return call(self, method, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(MilvusServer, "call", call_then_kill)
        patch.setattr(milvus_client.time, "sleep", lambda seconds: None)
        with pytest.raises(StorageError, match="cannot be reached"):
            index.update(codes)
    assert machine.start()
    index = Index.build(
        codes[:0], engine="milvus", uri=machine.uri, collection=index.settings.collection, retries=6
    )
    assert 1 <= len(index) < 400
    index.update(codes)
    assert len(index) == 400


# ---- BIN_IVF_FLAT, which milvus-lite does not have -----------------------------------------------


def test_all_inverted_lists_are_searched_unless_probes_are_given(make, monkeypatch):
    index = Index.build(make(5), engine="milvus")
    inverted = MilvusSettings(**{**vars(index.settings), "index_type": "BIN_IVF_FLAT", "lists": 64})
    index.settings, index.server.settings = inverted, inverted
    probes_used, call = [], MilvusServer.call

    def keep(self, method, *arguments, **options):
        if method == "search":
            probes_used.append(options["search_params"]["params"].pop("nprobe"))
        return call(self, method, *arguments, **options)

    monkeypatch.setattr(MilvusServer, "call", keep)
    assert index.search(make(1), 3).exact and index.search(make(1), 3, probes=64).exact
    assert not index.search(make(1), 3, probes=8).exact
    assert probes_used == [64, 64, 8]


def test_the_index_of_an_existing_collection_is_used(make):
    """Searches are guaranteed exact only if the number of lists is that of the collection."""
    one = Index.build(make(5), engine="milvus", collection="flat_index")
    two = Index.build(
        make(0), engine="milvus", collection="flat_index", index_type="BIN_IVF_FLAT", lists=4
    )
    assert len(two) == 5 and two.settings.index_type == "BIN_FLAT"
    assert two.search(make(1), 3, probes=1).exact
    two._use_index_of_collection({"index_type": "BIN_IVF_FLAT", "lists": 64})
    assert (two.settings.index_type, two.settings.lists) == ("BIN_IVF_FLAT", 64)
    one._use_index_of_collection({"hadahash bits": 64})  # as version 0.1 described a collection
    assert one.settings.index_type == "BIN_FLAT"


def test_ids_of_another_type_never_drop_the_items_of_others(make):
    """Another writer may have added items to a collection that was just empty."""
    one = Index.build(make(1), engine="milvus", collection="two_writers")
    one.remove([0])
    assert one.id_type is None
    two = Index.build(make(0), engine="milvus", collection="two_writers")
    checked = one._check_id_type

    def check_then_fill(ids):
        checked(ids)
        two.add(make(4))

    one._check_id_type = check_then_fill
    with pytest.raises(UsageError, match=r"is for int ids, got str\. Remove it with drop\(\)"):
        one.update(make(2, 64, ["x", "y"]))
    assert two.ids.tolist() == [0, 1, 2, 3]


def test_a_closed_connection_is_opened_again(make, machine):
    index = Index.build(make(5), engine="milvus", uri=machine.uri)
    index.close()
    assert index.server._client is None
    assert len(index) == 5


def test_label_counts(make):
    index = Index.build(make(4), [["cat", 7], ["cat"], [], ["7"]], engine="milvus")
    assert index.label_counts() == {"cat": 2, 7: 1, "7": 1}


def test_a_label_is_looked_up_without_reading_all_items(make, monkeypatch):
    index = Index.build(make(4), [["cat", 7], ["cat"], [], ["it's"]], engine="milvus")
    monkeypatch.setattr(index, "_pages", None)
    asked, real = [], index.server.call
    monkeypatch.setattr(
        index.server, "call", lambda *each, **given: (asked.append(given), real(*each, **given))[1]
    )
    for labels, expected in ((["cat"], 1), ([7], 1), (["7"], 0), (["7", "it's"], 1), ([], 0)):
        assert index.has_label(labels) == bool(expected)
    assert all(given["limit"] == 1 for given in asked) and len(asked) == 4
