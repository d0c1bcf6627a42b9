"""Aliases of collections on a real Milvus server: switched atomically, followed on request."""

from __future__ import annotations

import threading

import pytest
from milvus_process import TOKEN
from toys import one_line

from hadahash.errors import UsageError
from hadahash.index import Index
from hadahash.index.engines.milvus_alias import alias_target, switch_alias


@pytest.fixture
def real(milvus_server, monkeypatch):
    """The engine uses the real server."""
    monkeypatch.setenv("HADAHASH_MILVUS_URI", milvus_server.uri)
    monkeypatch.setenv("HADAHASH_MILVUS_TOKEN", TOKEN)
    return milvus_server


@pytest.fixture
def two(real, make):
    """Two collections of 10 and 20 items; their names begin with the argument."""
    indexes = []

    def build(name):
        for number, count in ((1, 10), (2, 20)):
            codes = make(count)
            indexes.append(Index.build(codes, engine="milvus", collection=f"{name}_v{number}"))
        return indexes

    yield build
    for index in indexes:
        if index.server.call_any("has_collection", index.server.collection):
            index.server.call("drop_collection")


def through(alias, make, **options):
    return Index.build(make(0), engine="milvus", collection=alias, **options)


def test_an_alias_is_created_switched_and_switched_back(two, make):
    old, _ = two("switched")
    server = old.server
    assert alias_target(server, "switched") is None
    assert switch_alias(server, "switched", "switched_v1") is None
    assert len(through("switched", make)) == 10
    assert switch_alias(server, "switched", "switched_v2") == "switched_v1"
    assert switch_alias(server, "switched", "switched_v2") == "switched_v2"  # a repeat is harmless
    assert alias_target(server, "switched") == "switched_v2"
    assert len(through("switched", make)) == 20
    assert switch_alias(server, "switched", "switched_v1") == "switched_v2"
    assert len(through("switched", make)) == 10


@pytest.mark.torture
def test_an_open_index_stays_until_it_is_refreshed(two, make, tmp_path):
    old, _ = two("open")
    switch_alias(old.server, "open", "open_v1")
    index = through("open", make)
    assert index.settings.collection == "open"
    assert len(index) == 10 and index.server.collection == "open_v1"
    index.save(tmp_path / "i")
    switch_alias(old.server, "open", "open_v2")
    assert len(index) == 10 and index.search(make(1), 30).ids.shape == (1, 10)
    assert len(Index.open(tmp_path / "i")) == 20
    index.refresh()
    assert len(index) == 20 and index.server.collection == "open_v2"
    index.update(make(3, ids=[100, 101, 102]))
    assert len(index) == 23 and len(old) == 10


def test_what_is_not_possible_is_refused_in_one_line(two, make):
    old, new = two("refused")
    calls = [
        (lambda: switch_alias(old.server, "refused", "nothing"), "no collection 'nothing'"),
        (lambda: switch_alias(old.server, "refused_v2", "refused_v1"), "has a collection 'refu"),
    ]
    switch_alias(old.server, "refused", "refused_v1")
    calls += [
        (lambda: switch_alias(old.server, "again", "refused"), "no collection 'refused'"),
        (old.drop, "The alias 'refused' names the collection 'refused_v1'"),
        (through("refused", make).drop, "The alias 'refused' names"),
    ]
    for call, message in calls:
        with pytest.raises(UsageError, match=message) as caught:
            call()
        one_line(caught.value)
    assert len(old) == 10
    switch_alias(old.server, "refused", "refused_v2")
    old.drop()
    assert len(new) == 20


@pytest.mark.torture
def test_searches_during_switches_see_one_of_the_two(two, make):
    old, _ = two("live")
    switch_alias(old.server, "live", "live_v1")
    counts, stop = set(), threading.Event()

    def search():
        while not stop.is_set():
            index = through("live", make, consistency="Eventually")
            counts.add(index.search(make(1), 30).ids.shape[1])

    threads = [threading.Thread(target=search) for _ in range(2)]
    for thread in threads:
        thread.start()
    for number in range(10):
        switch_alias(old.server, "live", f"live_v{1 + number % 2}")
    stop.set()
    for thread in threads:
        thread.join()
    assert counts and counts <= {10, 20}
