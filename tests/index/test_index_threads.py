"""Concurrent readers and writers: a search sees the index before a write or after it."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from brute_force import LOCAL_ENGINES
from long_runs import usually

from hadahash.codes import Codes
from hadahash.errors import UsageError
from hadahash.index import Index

VERSIONS = 6


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("engine", LOCAL_ENGINES)
def test_readers_see_the_index_before_or_after_a_write(make, rng, engine, stored, tmp_path):
    versions = [make(60, 64) for _ in range(VERSIONS)]
    others = make(2000, 64, np.arange(100, 2100))
    queries = make(3, 64)

    def built(number):
        index = Index.build(others, engine=engine, codewords=rng.choice([-1, 1], (6, 64)))
        index.update(versions[number])
        return index

    answers = {built(number).search(queries, 20).ids.tobytes() for number in range(VERSIONS)}
    assert len(answers) == VERSIONS
    index = built(0)
    if stored:
        index.save(tmp_path / "i")
        index = Index.open(tmp_path / "i")
    stop, wrong, reads = threading.Event(), [], []

    def read():
        count = 0
        while not stop.is_set():
            try:
                if index.search(queries, 20, threads=1).ids.tobytes() not in answers:
                    wrong.append("another answer")
                if index.has(np.arange(60)).sum() != 60:
                    wrong.append("an id was missing")
            except Exception as error:
                wrong.append(repr(error))
            count += 1
        reads.append(count)

    threads = [threading.Thread(target=read) for _ in range(16)]
    for thread in threads:
        thread.start()
    until, writes = time.monotonic() + usually(2, long=60), 0
    while time.monotonic() < until:
        writes += 1
        index.update(versions[writes % VERSIONS])
        if stored and writes % 5 == 0:
            index.save(tmp_path / "i")
    stop.set()
    for thread in threads:
        thread.join()
    assert not wrong and writes > 5 and sum(reads) > 50
    assert len(reads) == 16


def test_many_writers_lose_nothing(make):
    index = Index.build(make(0, 16))

    def write(start):
        for number in range(start, start + 40):
            index.add(Codes(packed=np.full((1, 2), number % 256, np.uint8), bits=16, ids=[number]))

    threads = [threading.Thread(target=write, args=(start,)) for start in range(0, 400, 100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(index) == 160


@pytest.mark.parametrize("method", ["add", "update"])
def test_writers_never_mix_ids_of_two_types(make, method):
    """Of two writers to an empty index, one with integer and one with string ids, one is refused."""
    for _ in range(100):
        index, start, refused = Index.build(make(0, 16)), threading.Barrier(2), []

        def write(ids, index=index, start=start, refused=refused):
            codes = make(3, 16, ids)
            start.wait()
            try:
                getattr(index, method)(codes)
            except UsageError:
                refused.append(1)

        pair = [threading.Thread(target=write, args=(ids,)) for ids in ([1, 2, 3], ["a", "b", "c"])]
        for thread in pair:
            thread.start()
        for thread in pair:
            thread.join()
        assert len(refused) == 1 and index.ids.tolist() in ([1, 2, 3], ["a", "b", "c"])


def test_items_are_loaded_once(make, tmp_path, monkeypatch):
    Index.build(make(3000)).save(tmp_path / "i")
    index, loads = Index.open(tmp_path / "i"), []
    items = index._segments[0].items
    column = items._column
    monkeypatch.setattr(items, "_column", lambda name: (loads.append(name), column(name))[1])
    threads = [threading.Thread(target=items.table) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(loads) == ["id", "path"]
