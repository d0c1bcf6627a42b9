"""What all benchmarks share: the record of a measurement, and the refusal on a busy machine."""

from __future__ import annotations

import json

import pytest
from benches import load_bench

RECORD = {
    "command",
    "date",
    "revision",
    "hardware",
    "versions",
    "native",
    "load_before",
    "load_after",
    "allow_load",
}


@pytest.fixture
def common(monkeypatch, tmp_path):
    """The module, with a folder of results that tests may write to."""
    module = load_bench("common", monkeypatch)
    monkeypatch.setattr(module, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(module, "PATIENCE", 0.0)
    monkeypatch.setattr(module.native, "usable_cores", lambda: 4)
    monkeypatch.setenv("HADAHASH_REVISION", "a" * 40)
    module.environment.source_revision.cache_clear()
    yield module
    module.environment.source_revision.cache_clear()


def _set_load(module, monkeypatch, *loads):
    """Let the load average be these numbers in turn; the last one stays."""
    coming = list(loads)
    monkeypatch.setattr(module, "load", lambda: coming.pop(0) if len(coming) > 1 else coming[0])


def _measure(module, *arguments):
    options = module.parse(module.make_parser("toy", "A toy.\n\nMore."), arguments)
    result = module.begin(options, {"peer": "1.2"})
    module.finish(result, options)
    return json.loads(options.out.read_text())


def test_a_result_records_code_machine_and_load(common, monkeypatch, tmp_path, capsys):
    _set_load(common, monkeypatch, 1.0, 1.0, 1.0, 2.5)
    result = _measure(common)
    assert json.loads(capsys.readouterr().out) == result and set(result) == RECORD
    assert result["command"] == "python bench/toy.py" and result["revision"] == "a" * 40
    assert (result["load_before"], result["load_after"]) == (1.0, 2.5)
    assert not result["allow_load"] and result["versions"]["peer"] == "1.2"
    assert "cores" in result["hardware"] and (tmp_path / "results" / "toy.json").exists()


def test_a_busy_machine_writes_no_result(common, monkeypatch, tmp_path):
    _set_load(common, monkeypatch, 1.3)
    with pytest.raises(SystemExit, match=r"load average is 1\.30 on 4 cores, above 0\.3 per core"):
        _measure(common)
    assert not (tmp_path / "results").exists()


def test_the_load_is_recorded_where_it_is_allowed(common, monkeypatch):
    _set_load(common, monkeypatch, 9.0)
    result = _measure(common, "--allow-load")
    assert result["allow_load"] and result["load_before"] == 9.0
    assert result["command"] == "python bench/toy.py --allow-load"


def test_other_folders_take_results_of_a_busy_machine(common, monkeypatch, tmp_path):
    _set_load(common, monkeypatch, 9.0)
    assert _measure(common, "--out", str(tmp_path / "toy.json"))["load_before"] == 9.0


def test_a_benchmark_waits_for_the_load_of_the_last_one_to_fall(common, monkeypatch):
    _set_load(common, monkeypatch, 3.0, 3.0, 2.0, 1.1)
    pauses = []
    monkeypatch.setattr(common.time, "sleep", pauses.append)
    common.wait_until_quiet(patience=60)
    assert len(pauses) == 2


def test_ratios_are_paired_by_round(common):
    times = {"a": [2.0, 8.0, 6.0], "b": [1.0, 2.0, 3.0]}
    found = common.ratios(times, [("a", "b")])
    assert found == {"ratios": {"a / b": 2.0}, "quartiles": {"a / b": [2.0, 3.0]}}
    assert common.milliseconds(times)["milliseconds_per_query"] == {"a": 6000.0, "b": 2000.0}
    assert common.milliseconds(times)["milliseconds_quartiles"]["b"] == [1500.0, 2500.0]
