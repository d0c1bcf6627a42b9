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


def case_of(version, factor):
    searches = [
        {"kind": kind, "clients": clients, "per_second": 10 * factor}
        | {"p50_ms": 80 / factor, "p95_ms": 90 / factor, "processor_ms": 3.0}
        for kind in ("id", "label", "upload")
        for clients in (1, 32)
    ]
    change = {"p50_ms": 80.0 / factor, "p95_ms": 90.0 / factor, "max_ms": 95.0 / factor}
    return {
        "version": version,
        "ready_seconds": [4.0 / factor, 5.0 / factor, 90.0],
        "memory_ready": {"server_mb": 800.0 / factor},
        "memory_after": {"server_mb": 900.0 / factor},
        "reload": {"found_after_ms": 900.0, "healthz_meanwhile": change},
        "searches_beside_changes": change,
        "changes": {"add": change, "remove": change, "healthz_meanwhile": change},
        "searches": searches,
        "healthz": dict.fromkeys(("id", "label", "upload"), change),
        "thumbnails": {"upload_beside_ms": 20.0, "healthz_meanwhile": change},
    }


def test_the_page_compares_versions_and_names_missed_goals(monkeypatch):
    section = load_bench("serve_section", monkeypatch)
    cases = [case_of("0.1", 1), case_of("0.2", 4)]
    text = "\n".join(section.serve_million({"items": 1000, "cases": cases}))
    assert "| searches by id, 32 clients | 10.0 /s | 40.0 /s | >= 3 | 4.00 |" in text
    assert "| ready | 5.0 s | 1.2 s | < 2 s | 0.25 |" in text and "All goals are reached." in text
    cases[1] = case_of("0.2", 2)
    text = "\n".join(section.serve_million({"items": 1000, "cases": cases, "note": "Busy."}))
    missed = " ".join(text.partition("Goals that are missed")[2].split())
    assert "- ready: 2.5 s, 0.50 times version 0.1, goal < 2 s. Imports" in missed
    assert "- searches by id, 32 clients: 20.0 /s" in missed
    assert "uploads" not in missed and "Busy." in missed
    alone = "\n".join(section.serve_million({"items": 1000, "cases": cases[1:]}))
    assert "uploads, 32 clients | 20.0 /s | >= 2 |  |" in alone
