"""Compile time: the first step of a new process, without a cache and with it.

bench/gpu.py starts this file for each of its processes. It prints one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import gpu_encode
import gpu_train
import torch
from gpu_plan import SMOKE, Case, Plan, Session

STEPS = 4
PROCESSES = ("first", "cached")
THREADS = "TORCHINDUCTOR_COMPILE_THREADS"


def cases(session: Session) -> Iterator[Case]:
    """The default batch at the smallest size, which is that of the fits on CIFAR-10."""

    def run(result: dict[str, Any]) -> None:
        measure(session, result)

    yield Case("compile", "compile", 1, run)


def measure(session: Session, result: dict[str, Any]) -> None:
    """Time the start of training in new processes: the first fills an empty cache."""
    size, batch = session.plan.sizes[-1], session.plan.train_batches[0]
    found: dict[str, Any] = {"size": size, "batch": batch}
    if (session.cache / "hadahash" / "compiled").exists():
        raise FileExistsError(f"{session.cache} has compiled code. Give another --cache.")
    result["compile"] = found
    for name in PROCESSES:
        began = time.perf_counter()
        facts = run_child(session, "train", size, batch)
        found[name] = facts | {"process_seconds": time.perf_counter() - began}
        result["compile_seconds"] = found["first"]["start_seconds"]
        session.compiled.add(gpu_train.name_of(size, batch))


Shape = tuple[str, int, int]  # part, input size, batch size


def shapes_of(session: Session, cases: Sequence[Case]) -> dict[str, Shape]:
    """What has to be compiled for some cases, by their names."""
    plan = session.plan
    batches = {
        ("encode", gpu_encode.name_of): plan.encode_batches,
        ("train", gpu_train.name_of): dict.fromkeys(plan.sizes, plan.train_batches),
    }
    known = {
        name_of(size, batch): (part, size, batch)
        for (part, name_of), by_size in batches.items()
        for size, own in by_size.items()
        for batch in own
    }
    return {case.name: known[case.name] for case in cases if case.name in known}


def fill_cache(session: Session, shapes: Mapping[str, Shape], patience: float) -> None:
    """Compile for several shapes at once, each in a process of its own.

    Args:
        session: The run; receives the names of the cases whose code is in the cache.
        shapes: The shapes, by the name of the case.
        patience: Seconds after which processes that are not done are stopped.
    """
    missing = {name: shape for name, shape in shapes.items() if name not in session.compiled}
    threads = max(2, (os.cpu_count() or 1) // max(1, len(missing)))
    started = {
        name: subprocess.Popen(
            command(session, *shape),
            stdout=subprocess.DEVNULL,
            env=os.environ | {THREADS: str(threads)},
            start_new_session=True,
        )
        for name, shape in missing.items()
    }
    end = time.monotonic() + patience
    for name, process in started.items():
        try:
            if process.wait(max(0.0, end - time.monotonic())) == 0:
                session.compiled.add(name)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def run_child(session: Session, part: str, size: int, batch: int) -> dict[str, Any]:
    """Run this file in a new process and return what it prints."""
    return told_by(command(session, part, size, batch), session)


def told_by(words: Sequence[str], session: Session, **environment: str) -> dict[str, Any]:
    """What a new process prints as its last line, which is JSON.

    Args:
        words: Its command line.
        session: The run; the process is stopped when its time is over.
        **environment: Variables that differ from those of this process.

    Raises:
        subprocess.SubprocessError: The process failed or was stopped.
    """
    done = subprocess.run(
        words,
        stdout=subprocess.PIPE,
        env=os.environ | environment,
        text=True,
        check=True,
        timeout=max(1.0, session.left()),
    )
    facts: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return facts


def command(session: Session, part: str, size: int, batch: int) -> list[str]:
    """The command line of a new process; it inherits the folder of the cache."""
    words = [sys.executable, __file__, part, str(size), str(batch)]
    words += ["--device", session.device.type, "--weights", session.weights]
    return words + (["--smoke"] if session.plan is SMOKE else [])


def main(arguments: Sequence[str] | None = None) -> None:
    """Compile for one shape, and print the seconds until training runs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("part", choices=("encode", "train"))
    parser.add_argument("size", type=int)
    parser.add_argument("batch", type=int)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--weights", default="none")
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args(arguments)
    plan, device = SMOKE if options.smoke else Plan(), torch.device(options.device)
    session = Session(plan, device, options.weights, Path(), time.monotonic())
    if options.part == "encode":
        gpu_encode.compile_once(session, options.size, options.batch)
        print(json.dumps({}))
        return
    facts = gpu_train.fit(session, options.size, options.batch, gpu_train.CIFAR, steps=STEPS)
    running = STEPS * options.batch / facts["images_per_second"]
    print(json.dumps({"start_seconds": facts["train_seconds"] - running}))


if __name__ == "__main__":
    main()
