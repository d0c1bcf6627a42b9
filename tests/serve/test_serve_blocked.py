"""Every route, and the time of /healthz, while the index does not respond."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any, NamedTuple

import httpx
import numpy as np
from make_images import encode, picture
from serving import WRITE, Blocked, service_in_thread, wait_for
from test_serve_embeddings import _Collection

from hadahash.data.sources import open_embeddings
from hadahash.index import duplicates as index_duplicates
from hadahash.photos.vectors import build_vector_index
from hadahash.serve.core import duplicates
from hadahash.serve.core.collection import resolve_config
from hadahash.serve.core.service import Service
from hadahash.serve.http import routes_duplicates
from hadahash.serve.http.app import create_app

AUTH = {"Authorization": f"Bearer {WRITE}"}
RED, GREEN, IMAGE = "red/002.png", "green/001.png", encode(picture(), "PNG")


class Sent(NamedTuple):
    """A request to a route: its parameters, its answer, and whether it waits for the index."""

    method: str
    route: str
    options: dict[str, Any] = {}  # noqa: RUF012
    status: int = 200
    waits: bool = False
    id: str = ""

    def send(self, address: str) -> int:
        url = address + self.route.replace("{id:path}", self.id)
        answer = httpx.request(self.method, url, headers=AUTH, timeout=60, **self.options)
        return answer.status_code


REQUESTS = [  # the first one holds the lock for which a reload waits
    Sent("POST", "/v1/items", {"json": {"id": "x", "code": "0000"}}, 201, waits=True),
    Sent("POST", "/v1/search", {"json": {"id": RED}}, waits=True),
    Sent("POST", "/v1/search", {"json": {"code": "0000"}}, waits=True),
    Sent("POST", "/v1/search", {"json": {"code": "0000", "label": ["red"]}}, waits=True),
    Sent("POST", "/v1/search", {"files": {"image": IMAGE}}, waits=True),
    Sent("POST", "/v1/encode", {"files": {"image": IMAGE}}),
    Sent("GET", "/v1/duplicates", waits=True),
    Sent("POST", "/v1/duplicates/dismiss", {"json": {"ids": [RED, GREEN]}}, waits=True),
    Sent("DELETE", "/v1/items/{id:path}", {}, 204, waits=True, id="blue/000.png"),
    Sent("POST", "/v1/reload", waits=True),
    Sent("GET", "/v1/images/{id:path}", waits=True, id=RED),
    Sent("GET", "/v1/thumbnails/{id:path}", waits=True, id=RED),
    *(Sent("GET", path) for path in ("/v1/map", "/v1/stats", "/healthz", "/readyz", "/metrics")),
    *(Sent("GET", path) for path in ("/", "/docs", "/openapi.json")),
    *(Sent("HEAD", path) for path in ("/healthz", "/readyz", "/openapi.json")),
]


def routes(service: Service) -> set[tuple[str, str]]:
    """Method and path of every route, without the files of the page."""
    found = create_app(service).routes
    pairs = {(method, route.path) for route in found for method in route.methods}
    return {(method, path) for method, path in pairs if not path.startswith("/static/")}


def timed_health(client: httpx.Client) -> float:
    """The seconds of a request to /healthz."""
    time.sleep(0.01)
    started = time.perf_counter()
    assert client.get("/healthz", timeout=5).status_code == 200
    return time.perf_counter() - started


def check_all(address: str, blocked: Blocked, requests: Sequence[Sent]) -> None:
    """Send all requests after the first one waits, and time /healthz until the index responds."""
    before = blocked.calls
    with ThreadPoolExecutor(len(requests)) as pool, httpx.Client(base_url=address) as client:
        answers = [pool.submit(requests[0].send, address)]
        wait_for(lambda: blocked.calls > before)
        answers += [pool.submit(each.send, address) for each in requests[1:]]
        pairs = list(zip(requests, answers, strict=True))
        deadline = time.monotonic() + 40
        while late := [each for each, answer in pairs if not (each.waits or answer.done())]:
            assert timed_health(client) < 5 and time.monotonic() < deadline, late
        seconds = [timed_health(client) for _ in range(50)]
        assert [each for each, answer in pairs if each.waits and answer.done()] == []
        assert statistics.median(seconds) < 0.05, "the machine may be busy with other work"
        blocked.release()
        assert [each.result() for each in answers] == [each.status for each in requests]


def test_every_route_while_the_index_blocks(collection_copy, monkeypatch):
    limits = {"write_token": WRITE, "watch_seconds": 0.05, "index_seconds": 120}
    with service_in_thread(collection_copy, **limits) as (address, service):
        assert {(each.method, each.route) for each in REQUESTS} == routes(service)
        wait_for(lambda: httpx.get(f"{address}/v1/map").json()["total"] == 48)
        collection = service.handle.current
        blocked = collection.index = Blocked(collection.index)
        real = duplicates.PhotoDuplicates
        monkeypatch.setattr(
            duplicates, "PhotoDuplicates", lambda folder: len(blocked) and real(folder)
        )
        check_all(address, blocked, REQUESTS)


def test_pages_of_duplicates_are_made_beside_the_event_loop(collection_copy, monkeypatch):
    waits, entered = threading.Event(), threading.Event()
    real = routes_duplicates._group

    def slow(listed):
        entered.set()
        assert waits.wait(60)
        return real(listed)

    monkeypatch.setattr(routes_duplicates, "_group", slow)
    with (
        service_in_thread(collection_copy, index_seconds=60) as (address, _),
        ThreadPoolExecutor(1) as pool,
        httpx.Client(base_url=address) as client,
    ):
        answer = pool.submit(httpx.get, f"{address}/v1/duplicates?threshold=3", timeout=60)
        wait_for(entered.is_set)
        seconds = [timed_health(client) for _ in range(30)]  # while the page waits
        assert statistics.median(seconds) < 2
        assert not answer.done()
        waits.set()
        assert answer.result().json()["groups"]


def test_a_page_of_thousands_of_files_leaves_the_event_loop_alone(collection_copy, monkeypatch):
    """Groups, keys, surplus and JSON of 100 groups are all made in the thread of the searches."""
    threads = set()
    for module, name in ((routes_duplicates, "_answer"), (index_duplicates, "group_key")):
        real = getattr(module, name)
        seen = lambda given, real=real: threads.add(threading.get_ident()) or real(given)  # noqa: E731
        monkeypatch.setattr(module, name, seen)
    real_surplus = index_duplicates.Duplicates.surplus.func
    counted = []
    surplus = cached_property(lambda self: counted.append(1) or real_surplus(self))
    surplus.__set_name__(index_duplicates.Duplicates, "surplus")
    monkeypatch.setattr(index_duplicates.Duplicates, "surplus", surplus)
    with service_in_thread(collection_copy, index_seconds=60) as (address, service):
        for skip in (0, 0, 1):
            answer = httpx.get(f"{address}/v1/duplicates?threshold=3&skip={skip}", timeout=60)
            assert answer.status_code == 200
        assert len(counted) == 1
        (worker,) = service.duplicates._thread._threads
        assert threads == {worker.ident}


def test_searches_with_a_vector_while_the_index_blocks(tmp_path):
    vectors = np.random.default_rng(0).normal(size=(300, 24)).astype(np.float32)
    np.save(tmp_path / "x.npy", vectors)
    build_vector_index(tmp_path / "x.index", open_embeddings(tmp_path / "x.npy"), device="cpu")
    config = resolve_config(tmp_path / "x.index", None, ())
    with service_in_thread(_Collection(config), device="cpu") as (address, service):
        collection = service.handle.current
        blocked = collection.index = Blocked(collection.index)
        body = {"json": {"vector": vectors[7].tolist()}}
        check_all(address, blocked, [Sent("POST", "/v1/search", body, waits=True)])
