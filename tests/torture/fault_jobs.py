"""Kills, full disks and lost caches at every call that changes a file.

Run as a program with faults.c in LD_PRELOAD: `python fault_jobs.py JOB FAULT SEED COUNT FOLDER`
prints one JSON list [outcome, message] per line and trial. A job is a sequence of changes with
known states; a fault is one of

    kill     the process is killed before a call; half of a write may be done
    full     the disk is full from a call on; then there is space, and the change is repeated
    once     a single call fails
    replay   the calls are recorded, and every prefix is replayed as a disk that lost some or all
             of what was not flushed, in any order
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from disk_replay import crash_states, read_log
from fault_work import JOBS
from trials import Lost, is_long

from hadahash.errors import HadaHashError

RECORD, KILL, FULL, ONCE = range(4)
MANY = 1500  # calls; of longer sequences only some cuts are tried


class Job(Protocol):
    """Changes of a folder.

    Attributes:
        states: The state at first and after each change.
        sweeps: Whether a change removes temporary files of processes that were killed.
    """

    states: list[Any]
    sweeps: bool

    def prepare(self, folder: Path) -> None: ...
    def change(self, folder: Path, number: int) -> None: ...
    def read(self, folder: Path) -> Any: ...


def main() -> None:
    name, fault, seed, count, folder = sys.argv[1:]
    shim = ctypes.CDLL(None)
    for number in range(int(count)):
        rng = np.random.default_rng([int(seed), number])
        for outcome in FAULTS[fault](JOBS[name], rng, Path(folder), shim):
            print(json.dumps(outcome), flush=True)


def _outcome(check: Callable[[], None], what: str) -> list[str]:
    try:
        check()
        return ["survived", what]
    except Lost as error:
        return ["lost", f"{what}: {error}"]
    except AssertionError as error:
        return ["wrong", f"{what}: {error}"]
    except Exception as error:
        return ["crashed", f"{what}: {type(error).__name__}: {error}"]


def _expect(job: Job, folder: Path, done: int, *, next_too: bool = True) -> None:
    found = job.read(folder)
    if found == job.states[done]:
        return
    if next_too and done + 1 < len(job.states) and found == job.states[done + 1]:
        return
    where = [number for number, state in enumerate(job.states) if state == found]
    kind = Lost if not where or where[0] < done else AssertionError
    raise kind(f"state {where} instead of {done}")


def _arm(shim: ctypes.CDLL, folder: Path, mode: int, at: int, log: str = "") -> None:
    shim.faults_arm(os.fsencode(folder), os.fsencode(log), mode, ctypes.c_long(at))


def _fork(work: Callable[[], int]) -> int:
    """The exit status of `work` in a child process."""
    child = os.fork()
    if child == 0:
        status = 99
        try:
            status = work()
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _number_of_calls(job: Job, base: Path, shim: ctypes.CDLL) -> int:
    """How many calls a whole sequence of changes makes."""
    folder, log = base / "count", base / "log"
    _fresh(folder)
    job.prepare(folder)

    def work() -> int:
        _arm(shim, folder, RECORD, 0)
        for number in range(len(job.states) - 1):
            job.change(folder, number)
        log.write_text(str(shim.faults_count()))
        return 0

    assert _fork(work) == 0
    return int(log.read_text())


def _fresh(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)


def _points(rng: np.random.Generator, calls: int) -> list[int]:
    """Every call of a short sequence; 60 of a long one, or 12 in short tests."""
    scale = float(os.environ.get("HADAHASH_TORTURE_SCALE", "1"))
    most = max(12, round(60 * scale)) if is_long() else 12
    return sorted(rng.choice(calls, min(calls, most), replace=False).tolist())


def kills(make: Callable[..., Job], rng: Any, base: Path, shim: ctypes.CDLL) -> Iterator[list[str]]:
    job = make(rng)
    for at in _points(rng, _number_of_calls(job, base, shim)):
        folder, acknowledged = base / "kill", base / "done"
        _fresh(folder)
        job.prepare(folder)
        acknowledged.write_bytes(b"")

        def work(at: int = at, folder: Path = folder, report: Path = acknowledged) -> int:
            _arm(shim, folder, KILL, at)
            for number in range(len(job.states) - 1):
                job.change(folder, number)
                with report.open("ab") as file:
                    file.write(b".")
            return 0

        _fork(work)
        done = len(acknowledged.read_bytes())

        def check(folder: Path = folder, done: int = done) -> None:
            _expect(job, folder, done)
            for number in range(done, len(job.states) - 1):  # the remedy: do it again
                job.change(folder, number)
            _expect(job, folder, len(job.states) - 1)
            parts = [path.name for path in folder.rglob("*.part")]
            assert not parts or not job.sweeps, f"left over: {parts}"

        yield _outcome(check, f"killed at call {at}")


def _full(make: Callable[..., Job], rng: Any, base: Path, shim: Any, mode: int) -> Iterator[Any]:
    job = make(rng)
    for at in _points(rng, _number_of_calls(job, base, shim)):
        folder = base / "full"
        _fresh(folder)
        job.prepare(folder)

        def check(at: int = at, folder: Path = folder) -> None:
            _arm(shim, folder, mode, at)
            try:
                done = _until_an_error(job, folder)
            finally:
                shim.faults_disarm()
            _expect(job, folder, done)
            for number in range(done, len(job.states) - 1):  # the remedy: there is space again
                job.change(folder, number)
            _expect(job, folder, len(job.states) - 1)

        yield _outcome(check, f"no space from call {at}")


def _until_an_error(job: Job, folder: Path) -> int:
    """Number of changes before the first that was refused, in one line that says why."""
    for number in range(len(job.states) - 1):
        try:
            job.change(folder, number)
        except HadaHashError as error:
            text = str(error)
            assert "\n" not in text and ("full" in text or "space" in text), text
            return number
    return len(job.states) - 1


def full(make: Callable[..., Job], rng: Any, base: Path, shim: ctypes.CDLL) -> Iterator[list[str]]:
    yield from _full(make, rng, base, shim, FULL)


def once(make: Callable[..., Job], rng: Any, base: Path, shim: ctypes.CDLL) -> Iterator[list[str]]:
    yield from _full(make, rng, base, shim, ONCE)


def replay(make: Callable[..., Job], rng: Any, base: Path, shim: Any) -> Iterator[list[str]]:
    job, folder, log = make(rng), base / "record", base / "calls"
    _fresh(folder)
    job.prepare(folder)
    first = base / "first"
    shutil.rmtree(first, ignore_errors=True)
    shutil.copytree(folder, first, symlinks=True)
    inodes = {path.stat().st_ino: path for path in folder.rglob("*") if path.is_file()}

    def work() -> int:
        _arm(shim, folder, RECORD, 0, str(log))
        for number in range(len(job.states) - 1):
            job.change(folder, number)
            shim.faults_mark()
        return 0

    assert _fork(work) == 0
    calls = read_log(log)
    some = range(len(calls)) if len(calls) < MANY else _points(rng, len(calls))
    for state in crash_states(calls, folder, first, inodes, rng, set(some)):
        target = base / "replayed"
        _fresh(target)
        state.write(target)

        def check(target: Path = target, done: int = state.marks) -> None:
            _expect(job, target, done)

        yield _outcome(check, state.description)


FAULTS = {"kill": kills, "full": full, "once": once, "replay": replay}

if __name__ == "__main__":
    main()
