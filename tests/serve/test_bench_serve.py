"""The benchmark of the service, at a small size."""

from __future__ import annotations

import json
from contextlib import contextmanager

import pytest
from benches import load_bench
from serving import ServeConfig, in_thread


def test_the_benchmark_measures_uploads_and_ids(tmp_path, capsys, monkeypatch):
    pytest.importorskip("fastapi")
    bench = load_bench("serve", monkeypatch)

    class BenchPlace:
        def __init__(self, folder):
            self.config = ServeConfig(folder / "index", folder / "run")

    @contextmanager
    def quick_server(folder):  # another process would take seconds to start
        with in_thread(BenchPlace(folder)) as address:
            yield int(address.rsplit(":", 1)[1])

    monkeypatch.setattr(bench, "server", quick_server)
    out = tmp_path / "serve.json"
    arguments = "--seconds 0.3 --items 500 --backbone test_efficientnet --size 32 --clients 1 3"
    bench.main([*arguments.split(), "--out", str(out)])
    result = json.loads(out.read_text())
    assert json.loads(capsys.readouterr().out) == result
    assert {"command", "date", "hardware", "versions", "revision", "load_after"} <= set(result)
    assert [(case["kind"], case["clients"]) for case in result["cases"]] == [
        ("upload", 1),
        ("upload", 3),
        ("id", 1),
        ("id", 3),
    ]
    for case in result["cases"]:
        assert case["requests"] > 0 and case["failed"] == 0 and case["p95_ms"] >= case["p50_ms"] > 0
        low, high = case["quartiles_ms"]
        assert low <= case["p50_ms"] <= high
    assert "| upload | 3 | " in load_bench("page", monkeypatch).render({"serve": result}, {})
