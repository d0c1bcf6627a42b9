"""The benchmark of the service while something blocks, against a small server."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from benches import ROOT, load_bench


class _Server(ThreadingHTTPServer):
    """Answers everything; the first searches with 503, /metrics late."""

    daemon_threads = True
    request_queue_size = 128
    refused, metrics_seconds = 0, 0.0


class _Handler(BaseHTTPRequestHandler):
    def _answer(self):
        content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        status = 201 if self.path == "/v1/items" else 200
        if self.path == "/metrics":
            time.sleep(self.server.metrics_seconds)
        if self.path == "/v1/search" and b"id" in content and self.server.refused:
            self.server.refused -= 1
            status = 503
        if self.path == "/v1/items":
            time.sleep(0.2)
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_POST = _answer  # noqa: N815

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
    return load_bench("serve_blocked", monkeypatch)


@pytest.fixture
def options(bench):
    return bench.parse(["--limit", "10", "--slow", "0.3", "--stopped", "0.2"])


def test_a_wait_ends_with_the_first_answer(bench, server):
    server.refused = 3
    found = bench.searches(server.server_port, lambda: True, 10.0)
    assert (found["searches"], found["refused_searches"]) == (1, 3)
    assert 3 * bench.PAUSE < found["longest_ms"] / 1000 < 10


def test_no_part_takes_longer_than_the_limit(bench, server):
    server.refused = 10**6
    began = time.perf_counter()
    found = bench.searches(server.server_port, lambda: False, 0.5)
    assert 400 < found["longest_ms"] < 5000 and time.perf_counter() - began < 5


def test_searches_go_on_beside_changes_and_slow_clients(bench, server, options):
    found = bench.writers(server.server_port, options)
    assert (found["added"], found["refused"]) == (70, 0) and found["searches"] > 0
    found = bench.slow_clients(server.server_port, options)
    assert found["clients"] == 64 and found["refused_searches"] == 0 and found["searches"] > 1


def test_health_is_watched_until_the_metrics_are_answered(bench, server, options):
    server.metrics_seconds = 0.5
    found = bench.asked_for_metrics(server.server_port, options)
    assert found["metrics_status"] == 200 and 500 <= found["metrics_ms"] < 10_000
    assert found["healthz"]["count"] > 1 and found["healthz"]["failed"] == 0


def test_the_page_compares_both_versions(bench, monkeypatch):
    def blocked(version, ms):
        searches = {"searches": 5, "refused_searches": 3, "longest_ms": ms}
        return {
            "case": version,
            "milvus": {"metrics_ms": ms, "healthz": {"max_ms": ms}},
            "writers": {"writers": 70, "added": 64} | searches,
            "slow_clients": {"clients": 64} | searches,
        }

    result = json.loads((ROOT / "bench" / "results" / "serve_million.json").read_text())
    result |= {"limit": 120.0, "cases": [blocked("0.1", 101_000.0), blocked("0.2", 9.5)]}
    text = load_bench("page", monkeypatch).render({"serve_blocked": result}, {})
    assert "| Milvus stopped: /healthz, longest | 101,000 ms | 9.5 ms |" in text
    goal = "/healthz while a Milvus server is stopped, longest"
    assert f"| {goal} | < 50 ms | 101,000 ms | 10 ms | yes | serve_blocked |" in text
    assert "| wait for a search beside 70 changes, longest |  | 101,000 ms | 10 ms |" in text
