"""The benchmark of the service: /healthz is watched throughout, and failures are seen."""

from __future__ import annotations

import json
import os
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import psutil
import pytest
from benches import ROOT, load_bench

import hadahash as hh
from hadahash.photos.looks import StoredLooks


class _Server(ThreadingHTTPServer):
    """A service that answers everything; /healthz with `health` after `pause` seconds."""

    daemon_threads = True
    health, pause = 200, 0.0
    unknown = 0  # searches that are answered 404 first
    busy, dismissed = 0, ()  # searches for duplicates that are refused first; what was dismissed


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def _answer(self):
        sent = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        status, content = 200, b""
        if self.path == "/healthz":
            time.sleep(self.server.pause)
            status = self.server.health
        elif self.path.startswith("/v1/duplicates/dismiss"):
            self.server.dismissed += (json.loads(sent)["key"],)
        elif self.path.startswith("/v1/duplicates"):
            groups = [{"key": "a"}, {"key": "b"}]
            content = json.dumps({"threshold": 30, "total": 2, "surplus": 3, "groups": groups})
            content = content.encode()
            status, self.server.busy = (
                503 if self.server.busy else 200,
                max(0, self.server.busy - 1),
            )
        elif self.path == "/v1/search" and self.server.unknown:
            status, self.server.unknown = 404, self.server.unknown - 1
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

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


def test_searches_are_watched_during_changes(bench, server, monkeypatch):
    monkeypatch.setattr(bench, "timed_change", lambda port, name: time.sleep(0.01) or 1.0)
    found = bench.searches_beside_changes(server.server_port, "a")
    assert found["changes"] == bench.FEW_CHANGES and found["count"] > 1
    monkeypatch.setattr(bench, "timed_change", lambda port, name: 3000.0)
    assert bench.searches_beside_changes(server.server_port, "a")["changes"] == 2


def test_what_another_process_adds_is_waited_for(bench, server, tmp_path):
    names = np.array(["a", "b"])
    hh.Index.build(hh.Codes(np.zeros((2, 8), np.uint8), 64, names)).save(tmp_path / "index")
    server.pause, server.unknown = 0.02, 3
    found = bench.reload(ROOT, tmp_path / "index", server.server_port)
    assert len(hh.Index.open(tmp_path / "index")) == 3
    assert found["found_after_ms"] >= 3 * 50 and found["healthz_meanwhile"]["max_ms"] >= 20


def test_health_is_watched_during_a_search_for_duplicates(bench, server, tmp_path):
    server.pause, server.busy = 0.02, 2
    (tmp_path / "duplicates.json").write_text("of an earlier run")
    process = psutil.Process(os.getpid())
    found = bench.search_duplicates(server.server_port, process, tmp_path)
    assert not (tmp_path / "duplicates.json").exists()
    assert (found["groups"], found["copies"], found["refused"]) == (2, 3, 2)
    assert found["first_seconds"] >= 0.2 and found["memory"]["server_mb"] > 0
    assert found["healthz_meanwhile"]["max_ms"] >= 20 and found["pages"]["max_ms"] > 0
    assert server.dismissed == ("a", "b") and found["dismiss"]["max_ms"] > 0


def test_the_goal_of_health_during_a_search_for_duplicates(bench, server, tmp_path, monkeypatch):
    section = load_bench("serve_section", monkeypatch)
    found = bench.search_duplicates(server.server_port, psutil.Process(os.getpid()), tmp_path)
    found["healthz_meanwhile"]["max_ms"] = 61.0
    content = {"version": "0.2 with content bits", "content_bits": 128, "duplicates": found}
    result = {"items": 1000, "cases": [{"version": "0.2", "content_bits": 0}, content]}
    name = "/healthz during a search for duplicates, longest"
    goals = [each for each in section.judged(result) if each.name.startswith(name)]
    assert [(each.name, each.now, each.met) for each in goals] == [
        (f"{name}, with content bits", 61.0, False)
    ]
    text = " ".join(section.serve_million(result))
    assert f"| {name} |  | 61.0 ms | < 50 ms |" in text
    assert "| items that are copies of others |  | 3 |" in text
    assert f"- {name}, with content bits: 61.0 ms, goal < 50 ms." in text


def test_every_tenth_photo_of_the_collection_has_a_copy(monkeypatch):
    collection = load_bench("serve_collection", monkeypatch)
    for count in (0, 1, 2, 11, 12, 30):
        rows = collection.copied(np.arange(count)[:, None])[:, 0].tolist()
        assert rows == [row - 1 if row % 10 == 1 else row for row in range(count)]


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
