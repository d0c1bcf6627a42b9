"""Several worker processes over one index."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import psutil
import pytest
from serving import WRITE, running, service_in_thread, wait_for

from hadahash import Index
from hadahash.serve.core.shared import Shared

AUTH = {"Authorization": f"Bearer {WRITE}"}
RED = "red/002.png"


@pytest.fixture(scope="module")
def served(tmp_path_factory, toy_collection):
    import shutil

    from serving import ToyCollection

    root = tmp_path_factory.mktemp("workers") / "own"
    shutil.copytree(toy_collection.root, root, symlinks=True)
    own = ToyCollection(root)
    limits = ("--set", "decode_workers=1", "--set", "thumbnail_workers=1")
    options = ("--workers", "2", *limits)
    with running(own, *options, ready=False, HADAHASH_WRITE_TOKEN=WRITE) as server:
        wait_for(lambda: all(ready(server) for _ in range(30)), seconds=120)
        yield server, own


def ready(server) -> bool:
    """Whether the worker that accepts this connection is ready."""
    return httpx.get(f"{server.url}/readyz", timeout=60).status_code == 200


def workers(server) -> list[psutil.Process]:
    """The worker processes; the others are helpers of multiprocessing and decoders."""
    children = psutil.Process(server.process.pid).children()
    return [child for child in children if "spawn_main" in " ".join(child.cmdline())]


def post(server, path: str, **body) -> httpx.Response:
    """A request with a connection of its own, which any worker may accept."""
    return httpx.post(f"{server.url}{path}", headers=AUTH, timeout=60, **body)


def test_every_change_is_seen_by_every_worker(served):
    server, collection = served

    def change(number: int) -> None:
        name = f"new {number}"
        sent = {"id": name, "code": "abcd", "label": [name]}
        assert post(server, "/v1/items", json=sent).status_code == 201
        for _ in range(6):
            found = post(server, "/v1/search", json={"id": name, "label": [name]}).json()
            assert [hit["id"] for hit in found["hits"]] == [name]
        assert httpx.delete(f"{server.url}/v1/items/{name}", headers=AUTH).status_code == 204
        for _ in range(6):
            answer = post(server, "/v1/search", json={"id": RED, "label": [name]})
            assert answer.json()["error"]["code"] == "unknown_label"

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(change, range(8)))
    assert len(Index.open(collection.root / "photos.index")) == 48


def test_a_worker_that_ends_is_replaced(served):
    server, _ = served
    before = workers(server)
    os.kill(before[0].pid, signal.SIGKILL)
    before[0].wait(30)
    assert post(server, "/v1/search", json={"id": RED}).status_code == 200
    wait_for(
        lambda: len({each.pid for each in workers(server)} - {each.pid for each in before}) == 1
    )


def test_metrics_are_those_of_all_workers(served):
    server, _ = served

    def answered() -> float:
        text = httpx.get(f"{server.url}/metrics", timeout=60).text
        line = next(each for each in text.splitlines() if '"/healthz"' in each and "_total" in each)
        return float(line.split()[-1])

    assert httpx.get(f"{server.url}/healthz").status_code == 200
    start = answered()
    for _ in range(20):
        httpx.get(f"{server.url}/healthz", timeout=60)
    assert answered() == start + 20


def gauge(server, name: str) -> float:
    text = httpx.get(f"{server.url}/metrics", timeout=60).text
    line = next(each for each in text.splitlines() if each.startswith(f"hadahash_{name} "))
    return float(line.split()[-1])


def test_gauges_show_the_present_state_of_all_workers(served):
    """Whichever worker answers, and though the others were asked before."""
    server, _ = served

    def search(_: int) -> float:
        assert post(server, "/v1/search", json={"id": RED}).status_code == 200
        return gauge(server, "queue_requests")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(search, range(80)))
    sent = {"id": "counted", "code": "abcd"}
    assert post(server, "/v1/items", json=sent).status_code == 201
    assert {gauge(server, "index_items") for _ in range(20)} == {49}
    assert httpx.delete(f"{server.url}/v1/items/counted", headers=AUTH).status_code == 204
    assert {gauge(server, "index_items") for _ in range(20)} == {48}
    assert {gauge(server, "queue_requests") for _ in range(20)} == {0}


def test_sigterm_ends_all_processes(served):
    server, _ = served
    children = psutil.Process(server.process.pid).children(recursive=True)
    server.process.send_signal(signal.SIGHUP)
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(30) == 0
    assert not psutil.wait_procs(children, timeout=15)[1]


def test_a_start_that_fails_is_reported_in_one_line(toy_collection, tmp_path):
    command = [sys.executable, "-m", "hadahash", "serve", toy_collection.root / "photos.index"]
    (tmp_path / "run").mkdir()
    options = ["--run", tmp_path / "run", "--port", "0", "--workers", "2"]
    done = subprocess.run(
        [*map(str, [*command, *options])], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and "trained model" in done.stderr


def test_changes_are_counted_across_openings(tmp_path):
    one, other = Shared(tmp_path), Shared(tmp_path)
    assert one.changes == other.changes == 0
    entered = threading.Event()

    def write() -> None:
        with other.writing():
            entered.set()
            other.count_change()

    thread = threading.Thread(target=write)
    with one.writing():
        thread.start()
        one.count_change()
        assert other.changes == 1 and not entered.wait(0.2)
    thread.join(30)
    assert one.changes == 2


class Hanging:
    """Blocks a method of an object in its thread until it is released."""

    def __init__(self, owner: object, name: str) -> None:
        self.calls, self._released, self._real = 0, threading.Event(), getattr(owner, name)
        setattr(owner, name, self)

    def __call__(self) -> object:
        self.calls += 1
        assert self._released.wait(60)
        return self._real()

    def release(self) -> None:
        self._released.set()


def test_requests_share_a_refresh_that_hangs_and_do_not_wait_for_ever(collection_copy, tmp_path):
    """As with a Milvus server that does not respond, after a change by another worker."""
    shared = Shared(tmp_path)
    limits = {"index_seconds": 0.5, "watch_seconds": 0, "write_token": WRITE}
    with service_in_thread(collection_copy, shared=shared, **limits) as (address, service):
        hanging = Hanging(service.handle, "_refresh")
        shared.count_change()
        requests = [
            ("POST", "/v1/search", {"id": RED}),
            ("POST", "/v1/search", {"code": "0000"}),
            ("GET", f"/v1/thumbnails/{RED}", None),
            ("GET", "/v1/duplicates", None),
            ("POST", "/v1/duplicates/dismiss", {"ids": ["a", "b"]}),
        ]

        def send(request: tuple[str, str, object]) -> httpx.Response:
            method, path, body = request
            return httpx.request(method, address + path, json=body, headers=AUTH, timeout=10)

        with ThreadPoolExecutor(10) as pool:
            answers = list(pool.map(send, requests * 2))
        assert [answer.status_code for answer in answers] == [503] * 10
        assert all("does not respond" in answer.text for answer in answers)
        assert hanging.calls == 1
        hanging.release()
        wait_for(lambda: send(requests[0]).status_code == 200)
        assert hanging.calls <= 3


def test_an_unexpected_error_of_a_refresh_does_not_end_requests(collection_copy, tmp_path, caplog):
    shared = Shared(tmp_path)
    with service_in_thread(collection_copy, shared=shared, watch_seconds=0) as (address, service):

        def fail() -> bool:
            raise RuntimeError("unexpected")

        service.handle._refresh = fail
        shared.count_change()
        assert httpx.post(f"{address}/v1/search", json={"id": RED}).status_code == 200
        assert "RuntimeError: unexpected" in caplog.text, "with its traceback"


def test_a_reload_does_not_wait_for_ever(collection_copy):
    """It is made once the index responds."""
    limits = {"index_seconds": 0.3, "watch_seconds": 0, "write_token": WRITE}
    with service_in_thread(collection_copy, **limits) as (address, service):
        hanging = Hanging(service.handle, "_reload")
        for _ in range(5):
            answer = httpx.post(f"{address}/v1/reload", headers=AUTH, timeout=10)
            assert answer.status_code == 503 and "does not respond" in answer.text
        hanging.release()
        wait_for(lambda: hanging.calls == 2)
        assert httpx.post(f"{address}/v1/reload", headers=AUTH).json() == {"items": 48}
        assert "hadahash_index_reloads_total 3.0" in httpx.get(f"{address}/metrics").text
