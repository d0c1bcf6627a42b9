"""Kills, a full disk and a lost cache at every call that changes a file."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from trials import is_long

HERE = Path(__file__).parent
TITLES = {
    "kill": "kill -9 before a call that changes a file",
    "full": "disk full from a call on; then space, and again",
    "once": "one call fails for want of space",
    "replay": "power cut: unflushed calls lost or reordered",
}
NAMES = {
    "index": ("index", "index"),
    "new-index": ("index", "new index"),
    "codes": ("files", "file of codes"),
    "parquet": ("files", "parquet file of codes"),
    "photos": ("index", "index of photos with its catalog"),
    "json": ("files", "JSON file"),
    "model": ("training", "saved model"),
    "run": ("training", "second training into a run, continued"),
}
LONG = {"index": 40, "new-index": 10, "codes": 20, "parquet": 10, "photos": 2, "json": 10, "model": 2,
        "run": 1}  # fmt: skip
LONG_ONLY = ("parquet", "photos", "model", "run")

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("gcc") is None, reason="needs Linux and gcc"
)


@pytest.fixture(scope="session")
def shim(tmp_path_factory):
    library = tmp_path_factory.mktemp("faults") / "faults.so"
    command = ["gcc", "-shared", "-fPIC", "-O1", "-o", library, HERE / "faults.c", "-ldl"]
    subprocess.run(command, check=True)
    return library


@pytest.fixture
def scratch(tmp_path):
    """A folder in memory where there is one: calls are made thousands of times."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    folder = memory / f"hadahash-{os.getpid()}"
    folder.mkdir(exist_ok=True)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def outcomes(shim, *arguments):
    command = [sys.executable, str(HERE / "fault_jobs.py"), *map(str, arguments)]
    return outcomes_of(command, LD_PRELOAD=str(shim))


def outcomes_of(command, **variables):
    """What a program prints: lists of an outcome and a text."""
    modules = os.pathsep.join([str(HERE.parent), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | variables | {"PYTHONPATH": modules}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    if done.returncode:
        found.append(["crashed", f"the program ended with {done.returncode}: {done.stderr[-500:]}"])
    return found


@pytest.mark.parametrize("fault", TITLES)
@pytest.mark.parametrize(
    "job",
    [pytest.param(job, marks=pytest.mark.torture if job in LONG_ONLY else ()) for job in NAMES],
)
def test_faults_at_every_call(trials, shim, scratch, job, fault):
    area, name = NAMES[job]
    tried = trials(area, f"{name}: {TITLES[fault]}")
    for trial in tried.numbers(1, LONG[job]):
        for outcome, text in outcomes(shim, job, fault, trial.number, 1, scratch):
            tried.count(outcome)
            if outcome != "survived":
                tried.failures.append(f"{job} {fault} seed {trial.number}: {text}")


def test_a_lost_flush_is_found(shim, scratch, monkeypatch):
    """The replay finds what it must find: without fsync, files are empty after a power cut."""
    if is_long():
        pytest.skip("part of the short tests")
    monkeypatch.setenv("HADAHASH_TORTURE_NO_FLUSH", "1")
    found = outcomes(shim, "json", "replay", 0, 1, scratch)
    assert any(outcome != "survived" for outcome, _ in found)


def why_no_small_disk(folder):
    """Why no disk can be mounted in a namespace of its own; empty if it can."""
    if shutil.which("unshare") is None:
        return "unshare is not installed"
    command = ["unshare", "-rm", "mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stderr.strip()


def test_a_small_disk(trials, tmp_path):
    """Real calls on a real full disk, at growing sizes of the index."""
    if reason := why_no_small_disk(tmp_path):
        pytest.skip(f"a disk cannot be mounted: {reason}")
    tried = trials("index", "a small disk that is full: the old index; then space, and again")
    for trial in tried.numbers(1, 20):
        count = 30 if is_long() else 2
        program = [sys.executable, HERE / "small_disk.py", trial.number, count, tmp_path]
        for outcome, text in outcomes_of(["unshare", "-rm", *map(str, program)]):
            tried.count(outcome)
            if outcome != "survived":
                tried.failures.append(f"seed {trial.number}: {text}")
