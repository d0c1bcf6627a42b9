"""Hostile clients, thousands of connections and requests, and an index that is replaced meanwhile."""

from __future__ import annotations

import json
import sys
import time
from contextlib import suppress

import httpx
import numpy as np
import psutil
import pytest
from clients import CLIENTS, HOST, SEARCH, good_search, post, sent, statuses
from make_images import encode
from serving import WRITE, ToyCollection, running, wait_for
from toys import make_toy, write_folder
from trials import Crashed, is_long

from hadahash import Codes, Index

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
    """Memory of the service and of its child processes, in MB."""
    service = psutil.Process(server.process.pid)
    total = 0
    for process in (service, *service.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):  # a decoder that was replaced
            total += process.memory_info().rss
    return total / 2**20


def labels_served(server):
    """The labels of the results of a search; none while it is refused."""
    answer = sent(server, post(SEARCH))
    if statuses(answer) != [200]:
        return set()
    hits = json.loads(answer.partition(b"\r\n\r\n")[2])["hits"]
    return {label for hit in hits for label in hit["labels"]}


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
            kind, label = trial.number % 3, f"version {trial.number}"
            new = Index.build(codes, [label] * len(codes), ids)
            if kind == 0:  # another version
                new.save(folder)
            elif kind == 1:  # damaged, then whole again
                (folder / "index.json").write_text("[" * 1000)
                time.sleep(float(trial.rng.uniform(0, 1)))
                good_search(server)
                new.save(folder)
            else:  # gone, then another version is there
                away = folder.rename(folder.with_name("away"))
                time.sleep(float(trial.rng.uniform(0, 1)))
                good_search(server)
                new.save(away)
                away.rename(folder)
            wait_for(lambda label=label: labels_served(server) == {label})
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


def add_photo(collection, rng, name):
    """A new file and its item, which the service finds in the index."""
    content = encode(rng.integers(0, 256, (48, 48, 3), np.uint8), "PNG")
    (collection.root / "photos" / name).write_bytes(content)
    index = collection.index
    code = Codes(rng.integers(0, 256, (1, index.bits // 8), np.uint8), index.bits, [name])
    index.update(code, ["new"], [name])
    index.save(collection.root / "photos.index")


KINDS, SHARES = ["plain", "thumbnail", "search", "item"], [0.9, 0.05, 0.04, 0.01]


def some_requests(rng, count, new):
    """Requests of several kinds; some of them upload images, or add them as items."""
    lines = ["/healthz", "/v1/stats", "/v1/thumbnails/red/002.png", "/v1/thumbnails/x", "/v1/no"]
    plain = [f"GET {line} HTTP/1.1\r\n{HOST}\r\n".encode() for line in lines]
    plain += [post(SEARCH), post(SEARCH), post(b"{")]
    token = f"Authorization: Bearer {WRITE}"
    requests = [post(b"", token).replace(b"/v1/search", b"/v1/reload")]  # the new photo is there
    for kind in ["search", "item", "thumbnail", *rng.choice(KINDS, count - 4, p=SHARES)]:
        if kind == "thumbnail":
            line = f"/v1/thumbnails/{new[rng.integers(len(new))]}"
            requests.append(f"GET {line} HTTP/1.1\r\n{HOST}\r\n".encode())
        elif kind == "plain":
            requests.append(plain[rng.integers(len(plain))])
        else:
            body = encode(rng.integers(0, 256, (40, 40, 3), np.uint8), "PNG")
            upload = post(body, "Content-Type: image/png", token)
            path = f"/v1/items?id=upload-{rng.integers(2**60)}".encode()
            requests.append(upload.replace(b"/v1/search", path, 1) if kind == "item" else upload)
    return [each.replace(b"Connection: close\r\n", b"", 1) for each in requests]


def test_memory_is_flat(trials, server, collection):
    """Requests of several kinds on connections that stay open."""
    tried = trials("service", "requests in a row, images among them; memory stays flat")
    batch, after_warming, new = 100, None, []
    last = f"GET /healthz HTTP/1.1\r\n{HOST}Connection: close\r\n\r\n".encode()
    for trial in tried.numbers(6, 1000):
        with trial:
            new = [*new[-20:], f"red/new-{trial.number}.png"]
            add_photo(collection, trial.rng, new[-1])
            answers = sent(server, b"".join(some_requests(trial.rng, batch, new)) + last)
            found = statuses(answers)
            assert len(found) == batch + 1 and max(found) < 500, sorted(set(found))
            assert 201 in found and b"content-type: image/" in answers
            tried.count("survived", batch - 1)
            if trial.number == (50 if is_long() else 3):
                after_warming = resident(server)
    if after_warming is not None:
        assert resident(server) - after_warming < 40, "memory in MB"
