"""The benchmark of the service: /healthz is watched throughout, and failures are seen."""

from __future__ import annotations

import os
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import psutil
import pytest
from benches import load_bench

import hadahash as hh
from hadahash.photos.looks import StoredLooks


class _Server(ThreadingHTTPServer):
    """A service that answers everything; /healthz with `health` after `pause` seconds."""

    daemon_threads = True
    health, pause = 200, 0.0


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def _answer(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        status = 200
        if self.path == "/healthz":
            time.sleep(self.server.pause)
            status = self.server.health
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_POST = do_DELETE = _answer  # noqa: N815

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    with _Server(("127.0.0.1", 0), _Handler) as found:
        threading.Thread(target=found.serve_forever, daemon=True).start()
        yield found
        found.shutdown()


@pytest.fixture
def bench(monkeypatch):
    return load_bench("serve_million", monkeypatch)


def test_health_is_watched_during_searches_uploads_and_thumbnails(bench, server):
    server.pause = 0.02
    process, kinds = psutil.Process(os.getpid()), {"id": lambda rng: (b"{}", bench.JSON)}
    found = bench.health_beside(server.server_port, process, kinds, 2, 0.1)
    assert found["id"]["clients"] == 2
    assert found["id"]["count"] >= 10 and found["id"]["max_ms"] >= 20
    thumbnails = bench.thumbnails(server.server_port, b"photo")
    assert thumbnails["thumbnails"] == 200 and thumbnails["healthz_meanwhile"]["max_ms"] >= 20


def test_the_changes_are_many_enough_for_a_merge_of_segments(bench, server, monkeypatch):
    monkeypatch.setattr(bench, "timed_change", lambda port, name: 1.0)
    assert bench.parse([]).changes == 200
    found = bench.changes(server.server_port, 40)
    assert found["count"] == 40 and found["healthz_meanwhile"]["count"] > 0
    monkeypatch.setattr(bench, "timed_change", lambda port, name: 3000.0)
    assert bench.changes(server.server_port, 200)["count"] == 10


def test_a_service_that_does_not_answer_health_fails_the_benchmark(bench, server):
    server.health = 503
    with (
        pytest.raises(SystemExit, match="/healthz was answered 503"),
        bench.watching(server.server_port),
    ):
        time.sleep(0.2)


def test_searches_of_the_collection_find_the_looks_of_its_photos(tmp_path, monkeypatch):
    collection = load_bench("serve_collection", monkeypatch)
    names = [f"class0/{number}.jpg" for number in range(3)]
    codes = hh.Codes(np.zeros((3, 8), np.uint8), 64, names)
    hh.Index.build(codes, ["a", "b", "c"], names).save(tmp_path / "index")
    collection.write_catalog(tmp_path, names, np.random.default_rng(0))
    items = list(hh.Index.open(tmp_path / "index").neighbors(codes[:1], k=3)[0])
    assert sorted(StoredLooks(tmp_path / "index").of(items)) == names
