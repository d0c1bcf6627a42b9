"""The table of docs/reliability.md is that of the stored rows; trials count what they should."""

from __future__ import annotations

import pytest
from benches import load_bench
from trials import Crashed, Lost, Trials, is_long


@pytest.fixture
def bench(monkeypatch):
    return load_bench("reliability", monkeypatch)


def test_the_page_has_the_stored_rows(bench):
    if is_long():
        pytest.skip("rows are being added")
    text = bench.PAGE.read_text(encoding="utf-8")
    assert bench.page(text, bench.read_rows()) == text, "run bench/reliability.py"


def test_the_last_run_of_each_kind_and_earlier_failures(bench):
    row = dict.fromkeys(("lost", "wrong", "crashed"), 0) | {"area": "index", "what": "kills"}
    row |= {"tried": 2000, "survived": 2000, "date": "2026-01-02 10:00", "commit": "abc"}
    earlier = row | {"tried": 5, "survived": 4, "lost": 1, "date": "2026-01-01 10:00"}
    lines = bench.table([earlier | {"failures": ["x"]}, row | {"failures": []}]).splitlines()
    assert lines[2] == (
        "| index | kills | 2,000 | 2,000 | 0 | 0 | 0 | 2026-01-02 10:00, abc | 2,005 in 2 |"
    )
    assert "- 2026-01-01 10:00, abc, kills: 5 tried, 4 survived, 1 lost." in lines


def test_outcomes_of_trials(monkeypatch):
    monkeypatch.delenv("HADAHASH_TORTURE", raising=False)
    errors = [None, Lost("gone"), AssertionError("other"), Crashed("dead"), ValueError("bug")]
    tried = Trials("x", "y")
    for trial in tried.numbers(5, 500):
        with trial:
            if errors[trial.number] is not None:
                raise errors[trial.number]
    assert tried.outcomes == {"survived": 1, "lost": 1, "wrong": 1, "crashed": 2}
    assert "trial 1: lost: Lost: gone" in tried.failures[0]
    with pytest.raises(AssertionError, match="trial 4: crashed: ValueError: bug"):
        tried.finish()


def test_trials_can_be_repeated(monkeypatch):
    draws = [trial.rng.random() for trial in Trials("x", "y").numbers(3, 3)]
    monkeypatch.setenv("HADAHASH_TORTURE_ONLY", "2")
    assert [trial.rng.random() for trial in Trials("x", "y").numbers(3, 3)] == draws[2:]
