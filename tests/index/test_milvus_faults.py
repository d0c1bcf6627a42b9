"""The Milvus engine when the network or the server fails: an answer, or one line, in time."""

from __future__ import annotations

import contextlib
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from milvus_process import TOKEN
from tcp_proxy import TcpProxy
from toys import one_line

from hadahash.errors import StorageError
from hadahash.index import Index
from hadahash.index.engines.milvus_client import MilvusServer, read_settings

LATEST = 30  # seconds for a call with a deadline of 2 seconds, on a busy machine


@pytest.fixture
def proxy(milvus_server, monkeypatch):
    """A proxy in front of the real server, which the engine uses."""
    proxy = TcpProxy(milvus_server.uri)
    monkeypatch.setenv("HADAHASH_MILVUS_URI", proxy.uri)
    monkeypatch.setenv("HADAHASH_MILVUS_TOKEN", TOKEN)
    yield proxy
    proxy.close()
    server = MilvusServer(read_settings({"uri": milvus_server.uri}))
    for name in server.call_any("list_collections"):
        server.call_any("drop_collection", name)


@contextlib.contextmanager
def ends_in_time(match):
    """The calls inside end with one line."""
    started = time.monotonic()
    with pytest.raises(StorageError, match=match) as caught:
        yield
    one_line(caught.value)
    assert time.monotonic() - started < LATEST


def impatient(index):
    """The index with a deadline of 2 seconds from now on."""
    index.server.settings = replace(index.server.settings, deadline=2)
    return index


def same(index, codes):
    assert len(index) == len(codes)
    assert np.array_equal(index.codes().packed, codes.packed)


def test_a_cut_network_and_one_that_works_again(make, proxy):
    codes = make(100)
    index = impatient(Index.build(codes, engine="milvus"))
    proxy.cut = True
    for call in (
        lambda: len(index),
        lambda: index.search(codes[:1], 3),
        lambda: index.update(codes),
        lambda: index.remove([3]),
        lambda: index.codes(),
        index.verify,
    ):
        with ends_in_time(r"(is too slow|cannot be reached) \(\d attempts?, deadline 2 s\)"):
            call()
    proxy.cut = False
    proxy.reset()
    index.server.settings = index.settings  # patient again
    same(index, codes)
    index.update(codes)
    same(index, codes)


def test_no_thread_waits_for_the_attempts_of_others(make, proxy):
    """They connect one after the other, each for at most its own deadline."""
    proxy.cut = True
    errors, started = [], time.monotonic()

    def build():
        try:
            Index.build(make(3), engine="milvus", deadline=2)
        except StorageError as error:
            errors.append(error)

    threads = [threading.Thread(target=build) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(errors) == 8 and time.monotonic() - started < LATEST
    assert all("cannot be reached" in one_line(each) for each in errors)


def test_a_lost_answer_is_asked_for_again_and_nothing_is_doubled(make, proxy, monkeypatch):
    codes = make(300)
    index = Index.build(codes[:1], engine="milvus", batch_size=50, timeout=2, retries=9)
    call, lost = MilvusServer.call, []

    def lose_answer(self, method, *arguments, **options):
        if method in ("upsert", "delete") and method not in lost:
            lost.append(method)
            proxy.silent, before = True, proxy.received
            threading.Thread(target=restore, args=(before,)).start()
        return call(self, method, *arguments, **options)

    def restore(before):
        while proxy.received < before + 100:  # the request has gone to the server
            time.sleep(0.01)
        time.sleep(0.3)
        proxy.silent = False
        proxy.reset()

    monkeypatch.setattr(MilvusServer, "call", lose_answer)
    index.update(codes)
    same(index, codes)
    index.remove(codes.ids[:100])
    same(index, codes[100:])
    assert lost == ["upsert", "delete"]


def test_connections_that_are_reset_all_the_time(make, proxy):
    codes, more = make(600), make(600, ids=np.arange(600, 1200))
    index = Index.build(codes, engine="milvus", batch_size=40, retries=50)
    stop = threading.Event()

    def disturb():
        while not stop.wait(0.15):
            proxy.reset()

    thread = threading.Thread(target=disturb)
    thread.start()
    try:
        index.update(more)
        index.remove(codes.ids[:300])
        hits = index.search(more[:4], 5)
        assert hits.distances[:, 0].tolist() == [0] * 4 and hits.exact
    finally:
        stop.set()
        thread.join()
    assert index.ids.tolist() == list(range(300, 1200))
    assert np.array_equal(index.codes(more.ids).packed, more.packed)


def test_a_slow_network_gives_the_same_answers(make, proxy):
    codes = make(500)
    index, exact = Index.build(codes, engine="milvus"), Index.build(codes)
    proxy.delay = 0.05
    one, other = index.search(codes[:5], 20), exact.search(codes[:5], 20)
    assert np.array_equal(one.ids, other.ids) and np.array_equal(one.distances, other.distances)
    index.remove([0, 1])
    same(index, codes[2:])


def test_a_server_that_hangs(make, proxy, milvus_server):
    """As for `GET /metrics`: the number of items is asked for while the server stands still."""
    index = impatient(Index.build(make(10), engine="milvus"))
    milvus_server.pause()
    try:
        with ends_in_time(r"(is too slow|cannot be reached) \(\d attempts?, deadline 2 s\)"):
            len(index)
    finally:
        milvus_server.resume()
    index.server.settings = index.settings
    assert len(index) == 10


def test_an_address_that_refuses_connections(make, proxy):
    index = impatient(Index.build(make(10), engine="milvus"))
    proxy.close()
    with ends_in_time(r"cannot be reached \(\d attempts?, deadline 2 s\)\. Check its address"):
        index.search(make(1), 3)


def disturb(proxy, fault, after, seconds):
    """After some time, a fault of the network that passes."""
    time.sleep(after)
    if fault == "delay":
        proxy.delay = 0.3
    elif fault != "reset":
        setattr(proxy, fault, True)
    proxy.reset() if fault == "reset" else time.sleep(seconds)
    proxy.delay, proxy.cut, proxy.silent = 0.0, False, False
    proxy.reset()


@pytest.mark.torture
def test_random_faults_of_the_network(trials, make, proxy):
    """A change is made or refused in one line; repeated, it is made, and nothing else has changed."""
    tried = trials("Milvus", "the network is cut, silent, slow or reset at a random moment")
    index = Index.build(make(400), engine="milvus", batch_size=40, retries=2)
    stored = dict(zip(range(400), index.codes().packed, strict=True))
    for trial in tried.numbers(2, 40):
        with trial:
            rng, new = trial.rng, make(120, ids=np.sort(trial.rng.choice(400, 120, replace=False)))
            removes = rng.random() < 0.4

            def change(new=new, removes=removes):
                if removes:
                    index.remove(new.ids[index.has(new.ids)])
                else:
                    index.update(new)

            fault = str(rng.choice(["cut", "silent", "delay", "reset"]))
            moments = float(rng.uniform(0, 0.3)), float(rng.uniform(0.2, 3))
            thread = threading.Thread(target=disturb, args=(proxy, fault, *moments))
            impatient(index)
            thread.start()
            try:
                change()
            except StorageError as error:
                one_line(error)
            finally:
                thread.join()
                index.server.settings = index.settings
            change()
            for row, each in enumerate(new.ids.tolist()):
                stored.pop(each, None)
                stored |= {} if removes else {each: new.packed[row]}
            found = index.codes()
            assert found.ids.tolist() == sorted(stored)
            assert np.array_equal(found.packed, [stored[each] for each in sorted(stored)])
