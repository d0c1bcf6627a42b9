"""Images per second, the share of the network, and progress in a log file."""

from __future__ import annotations

import sys
import time

import pytest
from toys import make_toy, tiny_hasher

from hadahash import messages
from hadahash.cli import output
from hadahash.messages import ProgressLines, reading_bar
from hadahash.pace import NetworkTimer, Pace, measured, total_time


def test_every_encoding_in_the_block_is_counted(fitted, toy_folder, monkeypatch):
    model, images = fitted.model_, make_toy(8, seed=3)[0]
    model.encode(images)
    with measured() as pace:
        model.encode(images)
        with measured() as inner:
            model.encode(images[:2])
        codes = model.encode(toy_folder)
    model.encode(images)
    assert (pace.images, pace.computed) == (8 + len(codes), 8 + len(codes))
    assert (inner.images, inner.computed) == (2, 2)
    assert 0 < pace.network_seconds < pace.seconds
    assert 0 < pace.network_busy < 1
    assert pace.images_per_second == pytest.approx(pace.computed / pace.seconds)


def test_features_from_the_cache_are_not_computed(fitted, toy_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("HADAHASH_FEATURE_CACHE", "1GB")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for computed in (48, 0):
        with measured() as pace:
            fitted.model_.encode(toy_folder)
        assert (pace.images, pace.computed) == (48, computed)
    assert str(pace) == "48 images, with features from the cache"


def test_the_clock_is_that_of_the_blocks():
    with measured() as pace, total_time() as counted:
        counted.images += 3
        time.sleep(0.02)
        timer = NetworkTimer(2)
        time.sleep(0.05)
        timer.stop()
    assert (pace.images, pace.computed) == (3, 2)
    assert 0.05 <= pace.network_seconds <= pace.seconds - 0.02


def test_batches_that_overlap_count_once():
    with measured() as pace, total_time():
        first, second = NetworkTimer(1), NetworkTimer(1)
        time.sleep(0.05)
        first.stop()
        second.stop()
    assert pace.computed == 2 and 0.05 <= pace.network_seconds <= pace.seconds


def test_the_share_of_the_network_is_told_for_long_jobs():
    text = "1,200 images went through the network in 10.0 s: 120.0 images/s"
    busy = "; the network was busy 85% of the time"
    assert str(Pace(1300, 1200, 10.0, 8.5)) == text + busy
    assert str(Pace(5, 5, 1.0, 0.5)) == "5 images went through the network in 1.0 s: 5.0 images/s"


@pytest.fixture
def clock(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(messages.time, "monotonic", lambda: now[0])
    return now


def test_a_log_file_gets_a_line_every_30_seconds(clock):
    lines = []
    advance = ProgressLines("encoding", 10_000, lines.append)
    for _ in range(100):
        clock[0] += 1
        advance(40)
    assert lines == [
        "encoding: 1,200 of 10,000, 40/s, 0:03:40 left",
        "encoding: 2,400 of 10,000, 40/s, 0:03:10 left",
        "encoding: 3,600 of 10,000, 40/s, 0:02:40 left",
    ]
    advance = ProgressLines("reading", None, lines.append)
    clock[0] += 40
    advance(20)
    assert lines[-1] == "reading: 20, 0.5/s"
    clock[0] += 40
    ProgressLines("reading", 5, lines.append)(0)
    advance(0)
    assert lines[-1] == "reading: 20, 0.0/s"


def test_commands_and_reading_write_such_lines_where_there_is_no_terminal(clock, capsys):
    for bar in (output.progress("encoding", 90), reading_bar(90, shown=True)):
        with bar as advance:
            advance(1)
            clock[0] += 30
            advance(59)
            advance(30)
    with reading_bar(90, shown=False) as advance:
        clock[0] += 60
        advance(90)
    assert capsys.readouterr().err.splitlines() == [
        "encoding: 60 of 90, 2.0/s, 0:00:15 left",
        "reading images: 60 of 90, 2.0/s, 0:00:15 left",
    ]
    assert not sys.stderr.isatty()


def test_a_short_training_leaves_no_trace_in_a_log_file(capsys):
    tiny_hasher(frozen=True, epochs=1).fit(*make_toy(40, seed=0), progress=True)
    assert capsys.readouterr().err == ""
