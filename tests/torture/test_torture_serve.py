"""Hostile clients, thousands of connections and requests, and an index that is replaced meanwhile."""

from __future__ import annotations

import sys
import time

import httpx
import numpy as np
import psutil
import pytest
from clients import CLIENTS, HOST, SEARCH, good_search, post, sent, statuses
from serving import WRITE, ToyCollection, running, wait_for
from toys import make_toy, write_folder
from trials import Crashed, is_long

from hadahash import Index

pytest.importorskip("fastapi")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="counts memory and connections")


@pytest.fixture(scope="module")
def collection(fitted, tmp_path_factory):
    """Photos with links out of their folder."""
    root = tmp_path_factory.mktemp("tortured")
    photos = write_folder(root / "photos", *make_toy(24, seed=2))
    fitted.save(root / "run")
    codes = fitted.encode(photos)
    labels = [name.split("/")[0] for name in codes.ids.tolist()]
    Index.build(codes, labels, codes.ids.tolist()).save(root / "photos.index")
    (root / "secret.png").write_bytes((photos / "red" / "002.png").read_bytes())
    (photos / "linked.png").symlink_to(root / "secret.png")
    (photos / "linked").symlink_to(root, target_is_directory=True)
    return ToyCollection(root)


@pytest.fixture(scope="module")
def server(collection):
    options = (
        "--set",
        "header_seconds=5",
        "--set",
        "upload_seconds=5",
        "--set",
        "watch_seconds=0.5",
    )
    with running(collection, *options, ready=False, HADAHASH_WRITE_TOKEN=WRITE) as server:
        ready = f"{server.url}/readyz"  # the machine may be busy with other tests
        wait_for(lambda: httpx.get(ready, timeout=60).status_code == 200, seconds=300)
        yield server


def alive(server):
    if server.process.poll() is not None:
        raise Crashed(f"the service ended with {server.process.returncode}")


def resident(server):
    """Memory of the service itself, in MB."""
    return psutil.Process(server.process.pid).memory_info().rss / 2**20


def test_hostile_clients(trials, server):
    tried = trials("service", "hostile clients: framing, encodings, tokens, sites, paths, kills")
    names = list(CLIENTS)
    for trial in tried.numbers(len(names), 1200):
        name = names[trial.number % len(names)]
        with trial:
            try:
                CLIENTS[name](server, trial.rng)
            except AssertionError as error:
                raise AssertionError(f"{name}: {error}") from error
            alive(server)
            if trial.number % 10 == 0:
                good_search(server)
    good_search(server)


def test_an_index_that_is_replaced(trials, server, collection):
    """Every answer is that of an index that was there, and the last one is served in the end."""
    tried = trials("service", "index replaced, emptied or damaged while it is served")
    folder = collection.root / "photos.index"
    good = {path.name: path.read_bytes() for path in folder.iterdir()}
    whole = Index.open(folder)
    codes, ids = whole.codes(), whole.ids.tolist()
    for trial in tried.numbers(3, 60):
        with trial:
            kind = trial.number % 3
            if kind == 0:  # another version
                labels = ["x"] * len(codes)
                Index.build(codes, labels, ids).save(folder)
            elif kind == 1:  # damaged, then whole again
                (folder / "index.json").write_text("[" * 1000)
                time.sleep(float(trial.rng.uniform(0, 1)))
                good_search(server)
                Index.build(codes, ["y"] * len(codes), ids).save(folder)
            else:  # gone, then there
                away = folder.rename(folder.with_name("away"))
                time.sleep(float(trial.rng.uniform(0, 1)))
                good_search(server)
                away.rename(folder)
            good_search(server)
            alive(server)
    for path in folder.iterdir():
        path.unlink()
    for name, content in good.items():
        (folder / name).write_bytes(content)


def test_a_thousand_connections(trials, server):
    """Idle connections cost little, and a search is answered beside them."""
    tried = trials("service", "1,000 idle connections, and a search beside them")
    count = 1000 if is_long() else 200
    for trial in tried.numbers(1, 3):
        with trial:
            held = [server.connect() for _ in range(count)]
            before = resident(server)
            good_search(server)
            assert resident(server) - before < 50
            for connection in held:
                connection.close()
            alive(server)
    deadline = time.monotonic() + 30
    process = psutil.Process(server.process.pid)
    while process.num_fds() > 200 and time.monotonic() < deadline:
        time.sleep(0.2)
    assert process.num_fds() <= 200, "closed connections are forgotten"


def test_memory_is_flat(trials, server):
    """Requests of several kinds on connections that stay open."""
    tried = trials("service", "requests in a row; memory stays flat")
    rng = np.random.default_rng(0)
    search = post(SEARCH).replace(b"Connection: close\r\n", b"")
    lines = [
        "/healthz",
        "/v1/stats",
        "/v1/thumbnails/red/002.png",
        "/v1/thumbnails/x",
        "/v1/nothing",
    ]
    gets = [f"GET {line} HTTP/1.1\r\n{HOST}\r\n".encode() for line in lines]
    kinds = [search, search, *gets, post(b"{").replace(b"Connection: close\r\n", b"")]
    batch, after_warming = 100, None
    for trial in tried.numbers(6, 1000):
        with trial:
            data = b"".join(kinds[each] for each in rng.integers(len(kinds), size=batch))
            last = f"GET /healthz HTTP/1.1\r\n{HOST}Connection: close\r\n\r\n".encode()
            found = statuses(sent(server, data + last))
            assert len(found) == batch + 1 and max(found) < 500, sorted(set(found))
            tried.count("survived", batch - 1)
            if trial.number == (50 if is_long() else 3):
                after_warming = resident(server)
    if after_warming is not None:
        assert resident(server) - after_warming < 40, "memory in MB"
