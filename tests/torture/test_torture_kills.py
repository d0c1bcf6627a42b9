"""kill -9 at random moments, of one writer and of two, with readers throughout."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from contextlib import suppress

import numpy as np
import pytest
from index_states import State, Step, after, build, perform, random_step, read_state
from trials import Crashed, Lost

from hadahash.errors import StorageError, UsageError
from hadahash.index import Index

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs fork and signals")

IDS = 120


def child(work):
    """Run work(send) in a forked process: (process id, its pipe)."""
    reader, writer = os.pipe()
    process = os.fork()
    if process:
        os.close(writer)
        return process, reader
    os.close(reader)
    try:
        work(lambda value: os.write(writer, (json.dumps(value) + "\n").encode()))
    except BaseException as error:
        os.write(writer, (json.dumps(f"{type(error).__name__}: {error}") + "\n").encode())
    os._exit(0)


def write_on(folder, state, ids, seed, builds):
    """A writer: announces each change, makes it, and acknowledges it, until it is killed."""

    def work(send):
        rng, now, version = np.random.default_rng(seed), dict(state), seed % 10**6
        index = Index.open(folder)
        while True:
            version += 1
            step = random_step(rng, now, version, ids, builds=builds)
            send(["begin", *step])
            while True:
                try:
                    index = perform(index, step, folder)
                    break
                except (StorageError, UsageError) as error:
                    if "Open it again and repeat" not in str(error):
                        raise
                    index = Index.open(folder)  # the remedy
            now = after(now, step)
            send("done")

    return work


def read_on(folder):
    """A reader: opens and searches, and reports only what is wrong."""

    def work(send):
        count = 0
        while True:
            try:
                read_state(folder)
            except Exception as error:
                send(f"{type(error).__name__}: {error}")
            count += 1

    return work


def received(pipe):
    with os.fdopen(pipe, "rb") as file:
        lines = file.read().split(b"\n")
    return [json.loads(line) for line in lines[:-1]]


def progress(messages, state):
    """Acknowledged steps applied to the state, and the step that may have been made."""
    pending: Step | None = None
    for message in messages:
        if message == "done":
            state, pending = after(state, pending), None
        elif isinstance(message, list):
            pending = Step(message[1], tuple(message[2]), message[3])
        else:
            raise Crashed(message)
    return state, pending


def restricted(state: State, ids: range) -> State:
    return {each: version for each, version in state.items() if each in ids}


def run_writers(folder, state, parts, rng, seeds, seconds):
    """Let writers work on their ids; kill each at a random moment. Their messages."""
    builds = len(parts) == 1
    readers = [child(read_on(folder)) for _ in range(2)]
    writers = [
        child(write_on(folder, restricted(state, ids), ids, seed, builds))
        for ids, seed in zip(parts, seeds, strict=True)
    ]
    moments = np.sort(rng.uniform(0.02, 1, len(writers)) * seconds)
    started = time.monotonic()
    for (process, _), moment in zip(writers, moments, strict=True):
        time.sleep(max(0.0, started + moment - time.monotonic()))
        os.kill(process, signal.SIGKILL)
    for process, _ in [*writers, *readers]:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
    wrong = [message for _, pipe in readers for message in received(pipe)]
    assert not wrong, f"a reader: {wrong[0]}"
    return [received(pipe) for _, pipe in writers]


@pytest.mark.parametrize("writers", [1, 2])
@pytest.mark.parametrize("engine", ["exact", "routed"])
def test_kills_at_random_moments(trials, tmp_path, engine, writers):
    tried = trials("index", f"kill -9 at a random moment: {writers} writer(s), 2 readers, {engine}")
    folder = tmp_path / "i"
    size = IDS // writers
    parts = [range(number * size, (number + 1) * size) for number in range(writers)]
    state: State = dict.fromkeys(range(0, IDS, 3), 1)
    build(state, engine).save(folder)
    for trial in tried.numbers(3, 300):
        with trial:
            state = read_state(folder)  # a trial that failed may have changed it
            seeds = trial.rng.integers(1, 2**40, writers).tolist()
            messages = run_writers(folder, state, parts, trial.rng, seeds, 0.5)
            found = read_state(folder)
            for ids, said in zip(parts, messages, strict=True):
                done, pending = progress(said, restricted(state, ids))
                allowed = [done] if pending is None else [done, after(done, pending)]
                if restricted(found, ids) not in allowed:
                    raise Lost(f"ids {ids}: not the acknowledged state, nor the next")
            state = found
    if not tried.failures:
        index = Index.open(folder)
        index.update(index.codes())
        index.save(folder)
        assert not list(folder.glob(".*.part")), "leftovers of killed writers are removed"


def test_waiting_writers_are_not_starved(tmp_path):
    """Two writers that repeat after each refusal both get on."""
    folder = tmp_path / "i"
    build(dict.fromkeys(range(0, IDS, 3), 1), "exact").save(folder)
    parts = [range(60), range(60, 120)]
    writers = [child(write_on(folder, {}, ids, 5, False)) for ids in parts]
    done = {pipe: 0 for _, pipe in writers}
    deadline = time.monotonic() + 60
    while min(done.values()) < 3 and time.monotonic() < deadline:
        for pipe in select.select(list(done), [], [], 1)[0]:
            done[pipe] += os.read(pipe, 65_536).count(b'"done"')
    for process, pipe in writers:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        os.close(pipe)
    assert min(done.values()) >= 3
