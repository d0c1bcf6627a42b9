"""What /readyz reports, background tasks that fail, several workers, and bodies that wait."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

import httpx
import numpy as np
import pytest
from fastapi.testclient import TestClient
from make_images import encode, picture
from serving import WRITE, opened, service_in_thread, wait_for

from hadahash import Index
from hadahash.index.local import LocalIndex
from hadahash.serve.core import service as service_module
from hadahash.serve.core.handle import IndexHandle
from hadahash.serve.core.service import Service
from hadahash.serve.core.shared import Shared
from hadahash.serve.http.app import create_app
from hadahash.serve.problem import busy
from hadahash.serve.settings import ServeSettings

AUTH = {"Authorization": f"Bearer {WRITE}"}
RED = "red/002.png"


@contextmanager
def two_workers(collection, folder, **settings):
    """Two services that share a folder, as two worker processes do."""
    limits = {"write_token": WRITE, "watch_seconds": 0} | settings
    with (
        service_in_thread(collection, shared=Shared(folder), **limits) as one,
        service_in_thread(collection, shared=Shared(folder), **limits) as other,
    ):
        yield one, other


def test_a_reload_reaches_every_worker_and_once(collection_copy, tmp_path, monkeypatch):
    opened_by, real = [], IndexHandle._open

    def counted(handle, **options):
        opened_by.append(handle)
        return real(handle, **options)

    with two_workers(collection_copy, tmp_path) as ((address, _), (other, service)):
        before = service.handle.current
        monkeypatch.setattr(IndexHandle, "_open", counted)
        assert httpx.post(f"{address}/v1/reload", headers=AUTH).json() == {"items": 48}
        for each in (address, other) * 2:
            assert httpx.post(f"{each}/v1/search", json={"id": RED}).status_code == 200
        assert service.handle.current is not before
        assert len(opened_by) == 2 and opened_by[1] is service.handle
        assert service.handle.current.index is not before.index, "every file is opened again"


def test_a_worker_that_changes_the_index_first_makes_a_reload_of_another_one(
    collection_copy, tmp_path
):
    with two_workers(collection_copy, tmp_path) as ((address, _), (other, service)):
        before = service.handle.current
        assert httpx.post(f"{address}/v1/reload", headers=AUTH).json() == {"items": 48}
        sent = {"id": "new", "code": "0000", "label": []}
        assert httpx.post(f"{other}/v1/items", json=sent, headers=AUTH).status_code == 201
        assert service.handle.current.index is not before.index, "every file is opened again"


def test_a_reload_that_fails_first_reaches_every_worker(collection_copy, tmp_path):
    """Each of them tries again until the files can be opened."""
    with two_workers(collection_copy, tmp_path, watch_seconds=0.05) as services:
        addresses = [address for address, _ in services]
        before = [service.handle.current.index for _, service in services]
        codes = next((collection_copy.root / "photos.index").glob("*.codes"))
        content = codes.read_bytes()
        codes.unlink()
        assert httpx.post(f"{addresses[0]}/v1/reload", headers=AUTH).status_code >= 400
        for address in addresses:
            wait_for(lambda at=address: "cannot be opened" in httpx.get(f"{at}/readyz").text)
            assert httpx.post(f"{address}/v1/search", json={"id": RED}).status_code == 200
        codes.write_bytes(content)
        for address in addresses:
            wait_for(lambda at=address: httpx.get(f"{at}/readyz").json()["problem"] is None)
        after = [service.handle.current.index for _, service in services]
        assert all(new is not old for new, old in zip(after, before, strict=True))
        assert Shared(tmp_path).reloads == 1


def test_the_overview_follows_a_change_by_another_worker(collection_copy, tmp_path):
    with two_workers(collection_copy, tmp_path) as ((address, _), (other, _)):
        assert httpx.get(f"{other}/v1/stats").json()["label_count"] == 4
        sent = {"id": "new", "code": "0000", "label": ["new"]}
        assert httpx.post(f"{address}/v1/items", json=sent, headers=AUTH).status_code == 201
        assert httpx.post(f"{other}/v1/search", json={"id": "new"}).status_code == 200
        wait_for(lambda: httpx.get(f"{other}/v1/stats").json()["label_count"] == 5, 20)


def labels_and_items(address) -> tuple[int, int]:
    """The number of labels in the overview, and of items on its map."""
    stats, points = (httpx.get(f"{address}/v1/{name}").json() for name in ("stats", "map"))
    return stats["label_count"], points["total"]


def test_the_overview_follows_a_change_that_a_failed_write_finds(collection_copy):
    """Another program changed the index: it is opened again, and then the write fails."""
    folder = collection_copy.root / "photos.index"
    with service_in_thread(collection_copy, write_token=WRITE, watch_seconds=0) as (address, _):
        assert labels_and_items(address) == (4, 48)
        other = Index.open(folder)
        other.add(replace(other.codes([RED]), ids=np.array(["new"])), [["new"]])
        other.save(folder)
        assert httpx.delete(f"{address}/v1/items/none", headers=AUTH).status_code == 404
        wait_for(lambda: labels_and_items(address) == (5, 49))
        assert "hadahash_index_reloads_total 1.0" in httpx.get(f"{address}/metrics").text


@pytest.mark.parametrize("change", ["add", "remove"])
def test_the_overview_follows_a_change_that_is_saved_late(collection_copy, monkeypatch, change):
    """The request is answered 503 before, but the change is made."""
    limits = {"index_seconds": 0.2, "watch_seconds": 0, "write_token": WRITE}
    with service_in_thread(collection_copy, **limits) as (address, _):
        assert labels_and_items(address) == (4, 48)
        go_on, real = threading.Event(), LocalIndex.save
        monkeypatch.setattr(LocalIndex, "save", lambda *given: go_on.wait(60) and real(*given))
        if change == "add":
            sent = {"json": {"id": "new", "code": "0000", "label": ["new"]}}
            answer = httpx.post(f"{address}/v1/items", headers=AUTH, **sent)
        else:
            answer = httpx.delete(f"{address}/v1/items/{RED}", headers=AUTH)
        assert answer.status_code == 503
        go_on.set()
        wait_for(lambda: labels_and_items(address) == ((5, 49) if change == "add" else (4, 47)))


def test_a_reload_that_fails_is_shown_until_one_succeeds(collection_copy):
    """Also if index.json has not changed, so that the watcher sees nothing."""
    with opened(collection_copy, write_token=WRITE, watch_seconds=0.05) as client:
        codes = next((collection_copy.root / "photos.index").glob("*.codes"))
        content = codes.read_bytes()
        codes.unlink()
        assert client.post("/v1/reload", headers=AUTH).status_code >= 400
        checks, refresh = [], client.app.state.service.handle.refresh

        async def counted():
            checks.append(1)
            return await refresh()

        client.app.state.service.handle.refresh = counted
        wait_for(lambda: len(checks) > 3)
        assert "cannot be opened" in client.get("/readyz").json()["problem"]
        assert client.post("/v1/search", json={"id": RED}).status_code == 200
        codes.write_bytes(content)
        wait_for(lambda: client.get("/readyz").json()["problem"] is None)


def test_decoders_that_do_not_start_are_shown_until_they_do(toy_collection, monkeypatch):
    monkeypatch.setattr(service_module, "_RETRY_SECONDS", 0.05, raising=False)
    service = Service(toy_collection.config, ServeSettings(watch_seconds=0.02))
    broken, real = threading.Event(), service._stored.start
    broken.set()

    async def start():
        if broken.is_set():
            raise busy("No image decoder could be started.")
        await real()

    service._stored.start = start
    with TestClient(create_app(service), base_url="http://127.0.0.1") as client:
        wait_for(lambda: client.get("/readyz").status_code == 200)
        wait_for(lambda: "decoder" in str(client.get("/readyz").json()["problem"]), 5)
        for _ in range(20):
            assert "decoder" in client.get("/readyz").json()["problem"], "not hidden by the watcher"
        broken.clear()
        wait_for(lambda: client.get("/readyz").json()["problem"] is None)


@pytest.mark.parametrize("part", ["watch", "overview"])
def test_a_background_task_that_fails_ends_the_server(toy_collection, caplog, part):
    service, failures = Service(toy_collection.config, ServeSettings()), []

    async def fail():
        raise RuntimeError("unexpected")

    if part == "watch":
        service.watch = fail
    else:
        service.overview.run = fail
    app = create_app(service, on_failure=failures.append)
    with TestClient(app, base_url="http://127.0.0.1"):
        wait_for(lambda: bool(failures), 20)
    assert "RuntimeError: unexpected" in caplog.text, "with its traceback"
    assert len(failures) == 1 and "unexpected" in str(failures[0])


def test_metrics_are_collected_in_a_thread(collection_copy):
    with service_in_thread(collection_copy) as (address, service):
        threads, real = [], service.metrics.text

        def text():
            try:
                asyncio.get_running_loop()
            except RuntimeError:
                threads.append(True)
            return real()

        service.metrics.text = text
        answer = httpx.get(f"{address}/metrics")
        assert threads == [True]
        assert "hadahash_index_items 48.0" in answer.text
        assert "hadahash_queue_requests 0.0" in answer.text


@pytest.mark.parametrize("route", ["/v1/search", "/v1/encode", "/v1/items"])
def test_bodies_that_wait_count_until_they_are_decoded(collection_copy, route):
    image = encode(picture(), "PNG") + b"\0" * 50_000
    limits = {"write_token": WRITE, "upload_memory": 2 * len(image) + 2000}
    with service_in_thread(collection_copy, **limits) as (address, service):
        go_on, real = threading.Event(), service._encoder.encode

        async def slow(*arguments):
            await asyncio.to_thread(go_on.wait, 60)
            return await real(*arguments)

        service._encoder.encode = slow

        def send(number: int) -> int:
            data = {"id": f"new {number}"} if route == "/v1/items" else {}
            sent = {"files": {"image": image}, "data": data, "headers": AUTH, "timeout": 60}
            return httpx.post(address + route, **sent).status_code

        with ThreadPoolExecutor(2) as pool:
            waiting = [pool.submit(send, number) for number in range(2)]
            wait_for(lambda: service.uploads.in_use == 0 and service.upload_bytes > 0, 10)
            wait_for(lambda: service.upload_bytes >= 2 * len(image), 10)
            assert send(3) == 503
            assert httpx.get(f"{address}/v1/thumbnails/{RED}").status_code == 200
            go_on.set()
            assert {each.result() for each in waiting} <= {200, 201}
        assert service.upload_bytes == 0 and send(4) in (200, 201)
