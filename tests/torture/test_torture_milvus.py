"""kill -9 of a real Milvus server in the middle of inserts, deletes and searches."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from milvus_process import RESTARTED, TOKEN, MilvusProcess
from trials import Lost, is_long

from hadahash.codes import Codes, hamming
from hadahash.errors import StorageError
from hadahash.index import Index

BATCH, BITS = 40, 64


@pytest.fixture
def own(milvus_server, tmp_path, monkeypatch):
    """A server of this test, which can be killed."""
    server = MilvusProcess(tmp_path / "milvus", milvus_server.binaries, RESTARTED)
    server.start()
    monkeypatch.setenv("HADAHASH_MILVUS_URI", server.uri)
    monkeypatch.setenv("HADAHASH_MILVUS_TOKEN", TOKEN)
    yield server
    server.kill()


def code_of(number):
    """The code of an item, always the same."""
    return np.random.default_rng(number).integers(0, 256, BITS // 8, np.uint8)


def items(start, count=BATCH):
    ids = np.arange(start, start + count)
    return codes_of(ids)


def codes_of(ids):
    packed = np.array([code_of(each) for each in np.asarray(ids).tolist()], np.uint8)
    return Codes(packed.reshape(-1, BITS // 8), BITS, np.asarray(ids, np.int64))


class Client:
    """Writes and searches until an error occurs; remembers what the server has acknowledged."""

    def __init__(self, collection, first):
        options = {"engine": "milvus", "collection": collection, "retries": 1, "deadline": 20}
        self.index = Index.build(items(0, 0), **options)
        self.next = first
        self.stored, self.removed, self.unknown = set(), set(), set()
        self.error = None

    def write(self):
        """Add a batch, and remove a quarter of the one before, until an error occurs."""
        try:
            while True:
                new, old = range(self.next, self.next + BATCH), sorted(self.stored)[-BATCH::4]
                self.unknown = set(new)
                self.index.update(items(self.next))
                self.stored |= self.unknown
                self.next += BATCH
                self.unknown = set(old)
                self.index.remove(old)
                self.stored -= self.unknown
                self.removed |= self.unknown
                self.unknown = set()
        except StorageError as error:
            self.error = error

    def search(self):
        """Search until an error occurs; each answer must be right."""
        try:
            while True:
                query = items(0, 2)
                hits = self.index.search(query, 5)
                known = [[code_of(int(each)) for each in row] for row in hits.ids]
                for row, near in enumerate(known):
                    expected = hamming(query.packed[[row]], np.stack(near))[0] if near else []
                    assert hits.distances[row].tolist() == list(expected)
        except StorageError as error:
            self.error = error


def check(index, clients):
    """Everything acknowledged is there, everything removed is not, and nothing is twice."""
    found = index.codes()
    ids = set(found.ids.tolist())
    stored = set().union(*(each.stored - each.unknown for each in clients))
    removed = set().union(*(each.removed - each.unknown for each in clients))
    if stored - ids:
        raise Lost(f"{len(stored - ids)} of {len(stored)} acknowledged items")
    if removed & ids:
        raise Lost(f"{len(removed & ids)} of {len(removed)} acknowledged removals")
    unknown = set().union(*(each.unknown for each in clients))
    assert ids <= stored | unknown, "items that nobody has written"
    assert len(found) == len(ids) == len(index), "an item is there twice"
    assert np.array_equal(found.packed, codes_of(found.ids).packed)


def run_until_killed(server, clients, seconds):
    """Let all clients work; kill the server after these seconds."""
    threads = [threading.Thread(target=each.write) for each in clients]
    threads.append(threading.Thread(target=clients[0].search))
    for thread in threads:
        thread.start()
    time.sleep(seconds)
    server.kill()
    for thread in threads:
        thread.join(120)
    assert not any(thread.is_alive() for thread in threads), "a call hangs"


@pytest.mark.torture
def test_killed_in_the_middle_of_inserts_deletes_and_searches(own, trials):
    tried = trials(
        "Milvus", "kill -9 of the server during inserts, deletes and searches, 2 writers"
    )
    Index.build(items(0, 30), engine="milvus", collection="killed")
    settled = Client("killed", 0)
    settled.stored = set(range(30))
    for trial in tried.numbers(1, 20):
        with trial:
            first = 1_000_000 * (trial.number + 1)
            clients = [Client("killed", first), Client("killed", first + 500_000)]
            run_until_killed(own, clients, float(trial.rng.uniform(0.5, 4)))
            for each in clients:
                assert "\n" not in str(each.error) and "update() with the same" in str(each.error)
            own.start()
            index = Index.build(items(0, 0), engine="milvus", collection="killed", retries=9)
            check(index, [settled, *clients])
            again = sorted(set().union(*(each.stored for each in clients)))
            index.update(codes_of(again))  # a repeat is harmless
            settled.stored |= set(again)
            settled.removed |= set().union(*(each.removed for each in clients)) - set(again)
            left = sorted(set().union(*(each.unknown for each in clients)) - settled.stored)
            index.remove(np.array(left, np.int64)[index.has(left)])
            check(index, [settled])
    assert is_long() or sum(tried.outcomes.values()) == 1
