"""Version 0.1 on the same GPU: encoding, training and compile time, in processes of its own."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import common
import gpu_compile
import gpu_encode
from gpu_plan import BITS, CLASSES, OLD_RANK, Case, Session

STEPS = Path(__file__).resolve().parent / "gpu_old_steps.py"
LEAST = {"encode": 40.0, "train": 100.0}  # seconds; training compiles first


def cases(session: Session, source: Path | None) -> Iterator[Case]:
    """Encoding and training at each size; compile time at that of the part `compile`, first."""
    if source is None:
        return
    for step, run, sizes in (
        ("encode", encode, session.plan.sizes),
        ("train", train, reversed(session.plan.sizes)),
    ):
        for size in sizes:
            measure = partial(run, session, source, size)
            yield Case("old", f"{step} {size} px, version 0.1", OLD_RANK, measure, LEAST[step])


def encode(session: Session, source: Path, size: int, result: dict[str, Any]) -> None:
    """Images per second of `Hasher.encode`, as `gpu_encode.whole` measures them."""
    plan = session.plan
    settings = common_settings(session, size) | {
        "side": round(size / gpu_encode.PHOTO),
        "images": plan.images,
        "rounds": gpu_encode.ROUNDS,
        "seconds": plan.seconds,
    }
    store(result, "encode", size, run(session, source, "encode", settings))


def train(session: Session, source: Path, size: int, result: dict[str, Any]) -> None:
    """Images per second of training on images of 32 pixels, and the time until it runs.

    The cache of compiled code is empty at first.
    """
    plan = session.plan
    settings = common_settings(session, size) | {
        "images": plan.train_images,
        "batch": plan.train_batches[0],
        "epochs": plan.epochs[size],
        "fits": plan.fits,
    }
    began = time.perf_counter()
    facts = run(session, source, "train", settings)
    facts["process_seconds"] = time.perf_counter() - began
    store(result, "train", size, facts)
    if size == plan.sizes[-1]:
        result["before"]["compile_seconds"] = facts["start_seconds"]


def common_settings(session: Session, size: int) -> dict[str, Any]:
    """What both steps are given."""
    return {
        "backbone": session.plan.backbone,
        "weights": session.weights,
        "device": session.device.type,
        "size": size,
        "bits": BITS,
        "classes": CLASSES,
    }


def run(session: Session, source: Path, step: str, settings: dict[str, Any]) -> dict[str, Any]:
    """What a step in a new process measures, with an empty cache of compiled code."""
    paths = [str(source / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    with tempfile.TemporaryDirectory() as cache:
        return gpu_compile.told_by(
            [sys.executable, str(STEPS), step, json.dumps(settings)],
            session,
            PYTHONPATH=os.pathsep.join(paths),
            TORCHINDUCTOR_CACHE_DIR=cache,
            TRITON_CACHE_DIR=str(Path(cache) / "triton"),
        )


def store(result: dict[str, Any], step: str, size: int, facts: dict[str, Any]) -> None:
    """Keep the rates of a step as a median with quartiles."""
    rates = facts.pop("rates")
    found = {"images_per_second": median(rates), "quartiles": common.quartiles(rates), **facts}
    result.setdefault("before", {}).setdefault(step, {})[str(size)] = found
