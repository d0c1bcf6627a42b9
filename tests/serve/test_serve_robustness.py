"""Malicious requests, unusual names, an index that fails or blocks, and unexpected errors."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import pytest
from fastapi.testclient import TestClient
from make_images import encode, picture, png
from serving import (
    WRITE,
    Blocked,
    ToyCollection,
    in_thread,
    opened,
    service_in_thread,
    wait_for,
)
from toys import tiny_hasher

from hadahash import Index
from hadahash.codes import Codes
from hadahash.serve.core import decode_pool
from hadahash.serve.core.collection import resolve_config
from hadahash.serve.core.metrics import Metrics
from hadahash.serve.core.service import Service
from hadahash.serve.http.app import create_app
from hadahash.serve.http.middleware import SecurityMiddleware
from hadahash.serve.settings import ServeSettings

RED = "red/002.png"
AUTH = {"Authorization": f"Bearer {WRITE}"}


def error_code(response, status):
    assert response.status_code == status, response.text
    assert "nosniff" in response.headers["x-content-type-options"]
    return response.json()["error"]["code"]


# ---- forms -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("charset", ["punycode", "undefined", "idna", "utf-7", "nonsense", ""])
def test_forms_are_utf8_only(client, charset):
    """Python would decode some charsets in quadratic time, and raise unusual errors for others."""
    field = b"a" * 32_700 + b"-" + b"b" * 32_700
    part = b'--BB\r\nContent-Disposition: form-data; name="f%d-\xff"\r\n\r\n' + field + b"\r\n"
    body = b"".join(part % number for number in range(20)) + b"--BB--\r\n"
    kind = f"multipart/form-data; boundary=BB; charset={charset}"
    started = time.process_time()
    response = client.post("/v1/search", content=body, headers={"Content-Type": kind})
    assert error_code(response, 400) == "bad_form" and time.process_time() - started < 0.5


@pytest.mark.parametrize("kind", ["; charset=utf-8", "; charset=UTF-8", ""])
def test_forms_in_utf8_are_read(client, toy_collection, kind):
    body = (
        b'--BB\r\nContent-Disposition: form-data; name="image"; filename="x"\r\n\r\n'
        + toy_collection.image(RED)
        + b"\r\n--BB--\r\n"
    )
    headers = {"Content-Type": f"multipart/form-data; boundary=BB{kind}"}
    assert client.post("/v1/search", content=body, headers=headers).status_code == 200


def test_the_last_of_several_charsets_counts(client):
    headers = {"Content-Type": "multipart/form-data; boundary=B; charset=utf-8; charset=punycode"}
    assert error_code(client.post("/v1/search", content=b"--B--", headers=headers), 400)


def test_bodies_are_limited_in_memory_together(collection_copy):
    with opened(collection_copy, upload_memory=2000) as client:
        large = encode(picture(), "PNG") + b"\0" * 2000
        for _ in range(2):
            response = client.post("/v1/search", files={"image": large})
            assert error_code(response, 503) == "busy" and response.headers["retry-after"] == "1"
        assert client.app.state.service.upload_bytes == 0
        assert client.post("/v1/search", json={"id": RED}).status_code == 200


# ---- other sites -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"},
        {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"},  # a form of another site
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://[broken"},
        {"Origin": "http://127.0.0.1:9999"},
    ],
)
def test_cross_site_requests_are_refused(client, toy_collection, headers):
    response = client.post(
        "/v1/search", files={"image": toy_collection.image(RED)}, headers=headers
    )
    assert error_code(response, 403) == "cross_site"


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Sec-Fetch-Site": "same-origin", "Origin": "http://proxy.example"},
        {"Sec-Fetch-Site": "none"},
        {"Origin": "http://127.0.0.1"},
    ],
)
def test_same_origin_requests_are_accepted(client, headers):
    assert client.post("/v1/search", json={"id": RED}, headers=headers).status_code == 200


def test_links_from_other_sites_open_the_page(client):
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert client.get("/", headers=link).status_code == 200
    tab = link | {"Sec-Fetch-Dest": "document"}
    assert client.get("/docs", headers=tab).status_code == 200


@pytest.mark.parametrize("dest", ["document", "iframe", "object"])
@pytest.mark.parametrize(
    "path", ["/v1/duplicates?threshold=4", "/v1/map", "/v1/stats", f"/v1/images/{RED}", "/metrics"]
)
def test_links_and_frames_of_other_sites_make_no_work(client, path, dest):
    link = {
        "Sec-Fetch-Site": "cross-site",
        "Sec-Fetch-Mode": "navigate",
        "Sec-Fetch-Dest": dest,
    }
    assert error_code(client.get(path, headers=link), 403) == "cross_site"


def test_other_sites_cannot_frame_the_page(client):
    frame = {
        "Sec-Fetch-Site": "cross-site",
        "Sec-Fetch-Mode": "navigate",
        "Sec-Fetch-Dest": "iframe",
    }
    assert error_code(client.get("/", headers=frame), 403) == "cross_site"


# ---- images ----------------------------------------------------------------------------------------------------------


def test_images_with_a_very_long_side_are_refused(client):
    """A PNG of 1 x 40,000,000 pixels is small, and takes seconds to decode."""
    narrow = png(1, 40_000, 8, 2, b"\0\0\0\0" * 40_000)
    response = client.post("/v1/search", files={"image": narrow})
    assert error_code(response, 413) == "image_too_large" and "max_side" in response.text


def test_images_are_sent_again_only_if_they_changed(collection_copy):
    with opened(collection_copy, write_token=WRITE) as client:
        first = client.get(f"/v1/thumbnails/{RED}")
        known = {"If-None-Match": first.headers["etag"]}
        assert client.get(f"/v1/thumbnails/{RED}", headers=known).status_code == 304
        media = client.app.state.service.media
        kept = media._thumbnails.currsize
        assert client.post("/v1/items", json={"id": "x", "code": "0000"}, headers=AUTH).is_success
        assert media._thumbnails.currsize == kept > 0, "a write does not empty the cache"
        (collection_copy.root / "photos" / RED).write_bytes(encode(picture(), "PNG"))
        assert client.get(f"/v1/thumbnails/{RED}", headers=known).status_code == 200


# ---- names -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def odd_names(collection_copy) -> ToyCollection:
    """A file name and a folder name that are not UTF-8."""
    photos = os.fsencode(collection_copy.root / "photos")
    folder = photos + b"/l\xe4bel"
    Path(os.fsdecode(folder)).mkdir()
    shutil.copy(photos + b"/red/002.png", folder + b"/caf\xe9.png")
    index = collection_copy.index
    name = os.fsdecode(b"l\xe4bel/caf\xe9.png")
    codes = Codes(index.codes().packed[:1], 16, ids=[name])
    index.add(codes, [os.fsdecode(b"l\xe4bel")], [name])
    index.save(collection_copy.root / "photos.index")
    return collection_copy


def test_names_that_are_not_utf8_can_be_searched_and_shown(odd_names):
    with opened(odd_names, write_token=WRITE) as client:
        stats, points = client.get("/v1/stats").json(), client.get("/v1/map").json()
        label = next(entry["label"] for entry in stats["labels"] if entry["count"] == 1)
        name = next(each for each in points["ids"] if each.startswith("l\ufffd"))
        assert label in points["labels"] and name.startswith(label)
        found = client.post("/v1/search", json={"id": name, "k": 49}).json()
        hit = next(hit for hit in found["hits"] if hit["id"] == name)
        assert hit["labels"] == [label] == found["query"]["labels"] and hit["has_image"]
        assert hit["name"] == name.split("/")[1] and hit["distance"] == 0
        assert client.get(f"/v1/thumbnails/{name}").status_code == 200
        only = client.post("/v1/search", json={"id": RED, "label": [label]}).json()["hits"]
        assert [hit["id"] for hit in only] == [name]
        assert client.delete(f"/v1/items/{name}", headers=AUTH).status_code == 204


def test_large_integer_ids_are_text(collection_copy):
    codes = collection_copy.index.codes()
    ids = np.arange(48) + 2**53 - 2
    Index.build(Codes(codes.packed, 16, ids)).save(collection_copy.root / "photos.index")
    with opened(collection_copy) as client:
        shown = client.get("/v1/map").json()["ids"]
        assert shown == [2**53 - 2, 2**53 - 1, *map(str, range(2**53, 2**53 + 46))]
        found = client.post("/v1/search", json={"id": shown[-1], "k": 48}).json()
        assert found["query"]["id"] == shown[-1] == str(ids[-1])
        assert {hit["id"] for hit in found["hits"]} == set(shown)


def test_labels_are_listed_up_to_a_limit(collection_copy):
    index = collection_copy.index
    names = index.ids.tolist()
    labels = [[name, "~all"] for name in names]
    Index.build(index.codes(), labels, names).save(collection_copy.root / "photos.index")
    with opened(collection_copy, max_listed_labels=10, map_points=20) as client:
        stats, points = client.get("/v1/stats").json(), client.get("/v1/map").json()
        assert len(stats["labels"]) == 10 and stats["label_count"] == 49
        assert stats["labels"][0] == {"label": "~all", "count": 48}
        assert len(points["labels"]) == len(points["ids"]) == 20


# ---- an index that breaks --------------------------------------------------------------------------------------------


def test_the_service_follows_its_index_after_any_error(collection_copy, caplog):
    folder = collection_copy.root / "photos.index"
    with opened(collection_copy, watch_seconds=0.05) as client:
        codes = next(folder.glob("*.codes"))
        aside = collection_copy.root / "aside"
        codes.rename(aside)
        codes.mkdir()
        (folder / "index.json").touch()
        wait_for(lambda: client.get("/readyz").json()["problem"] is not None)
        assert "cannot be opened" in caplog.text and str(collection_copy.root) not in (
            client.get("/readyz").text
        )
        assert client.post("/v1/search", json={"id": RED}).status_code == 200
        codes.rmdir()
        aside.rename(codes)
        index = Index.open(folder)
        index.remove([RED])
        index.save(folder)
        wait_for(lambda: client.get("/v1/stats").json()["items"] == 47)
        wait_for(lambda: client.get("/readyz").json()["problem"] is None)


def test_the_watcher_survives_an_unexpected_error(collection_copy, caplog):
    folder = collection_copy.root / "photos.index"
    with opened(collection_copy, watch_seconds=0.02) as client:
        handle = client.app.state.service.handle
        refresh = handle.refresh

        async def fail():
            raise RuntimeError("unexpected")

        handle.refresh = fail
        wait_for(lambda: client.get("/readyz").json()["problem"] is not None)
        assert "RuntimeError: unexpected" in caplog.text, "with its traceback"
        index = Index.open(folder)
        index.remove([RED])
        index.save(folder)
        handle.refresh = refresh
        wait_for(lambda: client.get("/v1/stats").json()["items"] == 47)
        wait_for(lambda: client.get("/readyz").json()["problem"] is None)


def test_an_error_that_repeats_is_logged_once(collection_copy, caplog):
    with opened(collection_copy, watch_seconds=0.02) as client:
        (collection_copy.root / "photos.index" / "index.json").write_text("{}")
        service, checks = client.app.state.service, []
        refresh = service.handle.refresh

        async def counted():
            checks.append(1)
            return await refresh()

        service.handle.refresh = counted
        wait_for(lambda: len(checks) > 5)
    assert caplog.text.count("cannot be opened") == 1


def test_an_index_of_another_model_is_served_with_that_model(collection_copy, toy):
    """The run that the new index names is loaded; no restart is needed."""
    folder, new = collection_copy.root / "photos.index", collection_copy.root / "new"
    index = collection_copy.index
    index.meta |= {
        "run": str(collection_copy.root / "run"),
        "images": str(collection_copy.root / "photos"),
    }
    index.save(folder)
    model = tiny_hasher(bits=24, epochs=1).fit(*toy).model_
    model.save(new / "run")
    names = index.ids.tolist()
    packed = model.encode([collection_copy.root / "photos" / name for name in names]).packed
    built = Index.build(Codes(packed, 24, names), paths=names)
    built.meta |= {"run": str(new / "run"), "model": model.id, "images": index.meta["images"]}
    built.save(new / "index")
    config = resolve_config(folder)
    service = Service(config, ServeSettings(watch_seconds=0.05))
    with TestClient(create_app(service), base_url="http://127.0.0.1") as client:
        wait_for(lambda: client.get("/readyz").status_code == 200)
        assert client.post("/v1/search", json={"id": RED}).json()["query"]["bits"] == 16
        folder.rename(collection_copy.root / "old.index")
        (new / "index").rename(folder)
        wait_for(lambda: client.get("/v1/stats").json()["bits"] == 24)
        found = client.post("/v1/search", files={"image": collection_copy.image(RED)}).json()
        assert found["hits"][0]["distance"] == 0 and found["query"]["bits"] == 24


def test_a_service_that_cannot_start_is_reported(toy_collection, monkeypatch, caplog):
    monkeypatch.setattr(decode_pool, "COMMAND", ("false",))
    failures = []
    app = create_app(Service(toy_collection.config, ServeSettings()), on_failure=failures.append)
    with TestClient(app, base_url="http://127.0.0.1") as client:
        wait_for(lambda: bool(failures))
        assert error_code(client.get("/readyz"), 503) == "start_failed"
        assert client.get("/healthz").status_code == 200
    assert "cannot start" in str(failures[0]) and "service cannot start" not in caplog.text
    app = create_app(Service(toy_collection.config, ServeSettings()))
    with TestClient(app, base_url="http://127.0.0.1") as client:
        wait_for(lambda: "start_failed" in client.get("/readyz").text)
    assert "service cannot start" in caplog.text


def test_a_run_that_does_not_exist_is_named_once(toy_collection):
    command = [sys.executable, "-m", "hadahash", "serve", toy_collection.root / "photos.index"]
    done = subprocess.run(
        [*map(str, command), "--run", "nosuch", "--port", "0"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode != 0 and done.stderr.count("nosuch") == done.stderr.count("\n") == 1


def test_a_change_that_cannot_be_saved_is_not_served(collection_copy, monkeypatch):
    from hadahash.errors import StorageError

    def full_disk(*arguments):
        raise StorageError("No space left.")

    with opened(collection_copy, write_token=WRITE) as client:
        index = client.app.state.service.handle.current.index
        monkeypatch.setattr(index, "save", full_disk)
        sent = {"id": "new", "code": "0000"}
        assert error_code(client.post("/v1/items", json=sent, headers=AUTH), 503) == "busy"
        assert client.get("/v1/stats").json()["items"] == len(collection_copy.index) == 48
        assert error_code(client.post("/v1/search", json={"id": "new"}), 404) == "unknown_id"
        assert client.post("/v1/items", json=sent, headers=AUTH).status_code == 201
        assert len(collection_copy.index) == 49


def test_changes_of_two_writers_are_both_kept(collection_copy):
    folder = collection_copy.root / "photos.index"
    with opened(collection_copy, write_token=WRITE, watch_seconds=0) as client:
        other = Index.open(folder)
        other.remove([RED])
        other.save(folder)
        sent = {"id": "new", "code": "0000"}
        assert client.post("/v1/items", json=sent, headers=AUTH).status_code == 201
        ids = set(collection_copy.index.ids.tolist())
        assert "new" in ids and RED not in ids


def test_changes_that_wait_are_saved_together(collection_copy, monkeypatch):
    with in_thread(collection_copy, write_token=WRITE) as address:
        saves, real = [], Index.open(collection_copy.root / "photos.index").__class__.save

        def counted(self, folder):
            saves.append(1)
            time.sleep(0.2)  # as on a slow disk
            real(self, folder)

        monkeypatch.setattr(collection_copy.index.__class__, "save", counted)

        def add(number: int) -> int:
            sent = {"id": f"new {number}", "code": "0000"}
            return httpx.post(f"{address}/v1/items", json=sent, headers=AUTH).status_code

        with ThreadPoolExecutor(20) as pool:
            assert list(pool.map(add, range(20))) == [201] * 20
        assert len(saves) < 10
    assert len(collection_copy.index) == 68


# ---- an index that blocks --------------------------------------------------------------------------------------------


def test_health_and_metrics_answer_while_the_index_blocks(collection_copy):
    limits = {"write_token": WRITE, "watch_seconds": 0.05}
    with service_in_thread(collection_copy, **limits) as (address, service):
        collection = service.handle.current
        blocked = collection.index = Blocked(collection.index)
        requests = [
            ("POST", "/v1/search", {"id": RED}),
            ("POST", "/v1/search", {"code": "0000"}),
            ("GET", f"/v1/thumbnails/{RED}", None),
            ("POST", "/v1/items", {"id": "x", "code": "0000"}),
            ("DELETE", "/v1/items/blue/000.png", None),
        ]

        def send(request):
            method, path, body = request
            return httpx.request(method, address + path, json=body, headers=AUTH, timeout=60)

        with ThreadPoolExecutor(len(requests)) as pool:
            waiting = [pool.submit(send, request) for request in requests]
            wait_for(lambda: blocked.calls >= 3)  # both searches share a thread
            for path in ("/healthz", "/readyz", "/metrics", "/v1/stats", "/v1/map", "/"):
                assert httpx.get(address + path, timeout=5).status_code == 200, path
            assert not any(each.done() for each in waiting)
            blocked.release()
            assert [each.result().status_code for each in waiting] == [200, 200, 200, 201, 204]


def test_a_write_does_not_wait_for_the_overview(collection_copy):
    with service_in_thread(collection_copy, write_token=WRITE) as (address, service):
        httpx.get(f"{address}/v1/stats")  # the first overview is there
        started, go_on, real = threading.Event(), threading.Event(), service.overview._build

        def slow():
            started.set()
            return go_on.wait(60) and real()

        service.overview._build = slow
        for number in range(3):
            sent = {"id": f"new {number}", "code": "0000", "label": ["new"]}
            answer = httpx.post(f"{address}/v1/items", json=sent, headers=AUTH)
            assert answer.status_code == 201
        assert started.wait(30)
        stats = httpx.get(f"{address}/v1/stats").json()
        assert stats["items"] == 51 and stats["label_count"] == 4, "the previous overview"
        go_on.set()
        wait_for(lambda: httpx.get(f"{address}/v1/stats").json()["label_count"] == 5)


def test_writers_do_not_use_the_slots_of_searches(collection_copy):
    limits = {"write_token": WRITE, "write_queue": 2, "queue": 2}
    with service_in_thread(collection_copy, **limits) as (address, service):
        go_on, writer = threading.Event(), service.handle._writer
        real = writer._work
        writer._work = lambda changes: go_on.wait(60) and real(changes)

        def add(number: int) -> httpx.Response:
            sent = {"id": f"new {number}", "code": "0000"}
            return httpx.post(f"{address}/v1/items", json=sent, headers=AUTH, timeout=60)

        with ThreadPoolExecutor(2) as pool:
            waiting = [pool.submit(add, number) for number in range(2)]
            wait_for(lambda: service.writes.in_use == 2)
            assert error_code(add(3), 503) == "busy"
            searched = httpx.post(f"{address}/v1/search", json={"id": RED})
            assert searched.status_code == 200
            go_on.set()
            assert [each.result().status_code for each in waiting] == [201, 201]


def test_requests_do_not_wait_for_ever_for_an_index_that_hangs(collection_copy):
    """As Milvus: 503 after `index_seconds`, and /readyz names the reason until it responds."""
    limits = {"write_token": WRITE, "watch_seconds": 0.05, "index_seconds": 0.3}
    with service_in_thread(collection_copy, **limits) as (address, service):
        collection = service.handle.current
        real, service.handle._counted = collection.index, float("-inf")
        blocked = collection.index = Blocked(real)
        requests = [
            ("POST", "/v1/search", {"id": RED}),
            ("POST", "/v1/search", {"code": "0000", "label": ["red"]}),
            ("GET", f"/v1/thumbnails/{RED}", None),
            ("POST", "/v1/items", {"id": "x", "code": "0000"}),
        ]
        for method, path, body in requests:
            answer = httpx.request(method, address + path, json=body, headers=AUTH, timeout=60)
            assert error_code(answer, 503) == "busy" and "does not respond" in answer.text
        assert httpx.get(f"{address}/metrics").status_code == 200
        (collection_copy.root / "photos.index" / "index.json").touch()  # noticed by the watcher
        wait_for(lambda: "does not respond" in httpx.get(f"{address}/readyz").text)
        blocked.release()
        wait_for(lambda: httpx.get(f"{address}/readyz").json()["problem"] is None)
        collection.index = real
        assert httpx.post(f"{address}/v1/search", json={"id": RED}).status_code == 200


def test_a_label_without_items_is_unknown(collection_copy):
    """Also if this service removed the last of its items, or another program did."""
    with opened(collection_copy, write_token=WRITE, watch_seconds=0) as client:
        search = {"id": RED, "label": ["green", "rare"]}
        assert error_code(client.post("/v1/search", json=search), 404) == "unknown_label"
        sent = {"id": "new", "code": "0000", "label": ["rare"]}
        assert client.post("/v1/items", json=sent, headers=AUTH).status_code == 201
        assert client.post("/v1/search", json=search).status_code == 200
        assert client.delete("/v1/items/new", headers=AUTH).status_code == 204
        assert error_code(client.post("/v1/search", json=search), 404) == "unknown_label"
        index = client.app.state.service.handle.current.index
        green = [name for name in index.ids.tolist() if name.startswith("green")]
        search = {"id": RED, "label": ["green"], "k": 3}
        assert len(client.post("/v1/search", json=search).json()["hits"]) == 3
        search["radius"] = 0
        assert client.post("/v1/search", json=search).json()["hits"] == [], "none is so near"
        index.remove(green)  # unknown to the service, as on a Milvus server
        answer = client.post("/v1/search", json=search)
        assert error_code(answer, 404) == "unknown_label" and "blue" in answer.text


def test_a_program_that_keeps_saving_does_not_stop_changes(collection_copy, monkeypatch):
    """Between opening and saving, another program saves twice."""
    folder, conflicts = collection_copy.root / "photos.index", [1, 2]
    with opened(collection_copy, write_token=WRITE, watch_seconds=0) as client:
        kind = type(client.app.state.service.handle.current.index)
        real = kind.save

        def save(self, target):
            if conflicts and threading.current_thread() is not threading.main_thread():
                conflicts.pop()
                other = Index.open(folder)
                other.remove([other.ids[0]])
                real(other, folder)
            real(self, target)

        monkeypatch.setattr(kind, "save", save)
        sent = {"id": "new", "code": "0000"}
        assert client.post("/v1/items", json=sent, headers=AUTH).status_code == 201
    index = collection_copy.index
    assert len(index) == 48 - 2 + 1 and index.has(["new"])[0] and not conflicts


def test_one_address_cannot_fill_a_queue(collection_copy):
    """The client of these tests is not on loopback, so that its address counts."""
    with opened(collection_copy, queue=8, upload_queue=8, write_queue=8, image_queue=8) as client:
        service = client.app.state.service
        held = [service.searches.admit("testclient") for _ in range(2)]
        for each in held:
            each.__enter__()
        answer = client.post("/v1/search", json={"id": RED})
        assert error_code(answer, 503) == "busy" and "this client" in answer.text
        with service.searches.admit("192.0.2.9"):
            assert service.searches.in_use == 3
        for each in held:
            each.__exit__(None, None, None)
        assert client.post("/v1/search", json={"id": RED}).status_code == 200


# ---- unexpected errors -----------------------------------------------------------------------------------------------


def test_an_unexpected_error_is_json_with_headers_and_counted(collection_copy, monkeypatch, caplog):
    with opened(collection_copy) as client:

        async def fail(*arguments):
            raise RuntimeError("secret detail")

        monkeypatch.setattr(client.app.state.service, "search", fail)
        response = client.post("/v1/search", json={"id": RED})
        assert error_code(response, 500) == "internal" and "secret" not in response.text
        assert "content-security-policy" in response.headers and "secret detail" in caplog.text
        text = client.get("/metrics").text
        assert 'hadahash_requests_total{route="/v1/search",status="500"} 1.0' in text


def test_a_request_that_is_cancelled_at_shutdown_is_answered_quietly(caplog):
    async def endless(scope, receive, send):
        await asyncio.Event().wait()

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    async def run():
        sent = []

        async def send(message):
            sent.append(message)

        app = SecurityMiddleware(endless, settings=ServeSettings(), metrics=Metrics())
        headers = [(b"host", b"127.0.0.1")]
        scope = {"type": "http", "method": "POST", "path": "/v1/items", "headers": headers}
        task = asyncio.create_task(app(scope, receive, send))
        await asyncio.sleep(0)
        task.cancel()
        await task
        return sent

    with caplog.at_level(logging.INFO):
        sent = asyncio.run(run())
    assert sent[0]["status"] == 503 and b"shutting down" in sent[1]["body"]
    assert not caplog.records


def test_health_answers_head_requests(client):
    for path in ("/healthz", "/readyz"):
        response = client.head(path)
        assert response.status_code == 200 and response.content == b""
