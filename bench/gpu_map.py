"""Training time until codes of CIFAR-10 reach a mean average precision."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpu_plan import BITS, MAP_RANK, METHOD, Case, Session

from hadahash.reproduce.cells import RunContext
from hadahash.reproduce.measures import measure
from hadahash.reproduce.provenance import source_revision
from hadahash.reproduce.recipes import Cell
from hadahash.reproduce.trainer import Trainer

NO_DATA = "skipped: give the folder of CIFAR-10 as --data-root"
NO_WEIGHTS = "skipped: there are no pretrained weights; give a file as --weights"


def cases(session: Session, data_root: Path | None, revision: str | None) -> Iterator[Case]:
    """All fits, in one process after one another."""

    def run(result: dict[str, Any]) -> None:
        if data_root is None:
            result["map"] = {"note": NO_DATA}
        elif session.weights == "none" and session.on_gpu:
            result["map"] = {"note": NO_WEIGHTS}
        else:
            measure_fits(session, data_root, revision, result)

    yield Case("map", "map", MAP_RANK, run)


def measure_fits(
    session: Session, data_root: Path, revision: str | None, result: dict[str, Any]
) -> None:
    """Fit with each number of epochs; the first fit, which compiles, does not count."""
    plan, fits = session.plan, list[dict[str, Any]]()
    with tempfile.TemporaryDirectory() as folder:
        roots, device = {"cifar10": str(data_root)}, session.device.type
        context = RunContext(Path(folder), Path(folder), roots, session.weights, device)
        trainer = Trainer(context, source_revision(revision))
        fit(session, trainer, plan.map_epochs[0], plan.seeds[0])
        longest = 0.0
        for epochs in plan.map_epochs:
            for seed in plan.seeds:
                if session.left() < 1.5 * longest:
                    break
                began = time.monotonic()
                fits.append(fit(session, trainer, epochs, seed))
                longest = max(longest, time.monotonic() - began)
    result["map"] = {
        "goal": plan.goal,
        "method": METHOD,
        "bits": BITS,
        "backbone": plan.backbone,
        "settings": plan.settings,
        "protocol": plan.protocol,
        "fits": sorted(fits, key=lambda each: (each["epochs"], each["seed"])),
    }
    reached = seconds_to(plan.goal, fits, len(plan.seeds))
    result.pop("seconds_to_map", None)
    if reached is not None:
        result["seconds_to_map"] = reached


def fit(session: Session, trainer: Trainer, epochs: int, seed: int) -> dict[str, Any]:
    """Train and evaluate one cell, with the pixels on the device."""
    plan = session.plan
    settings = {"epochs": epochs, "ema": 0.99, "compile": True, **plan.settings}
    cell = Cell("cifar10", METHOD, BITS, plan.backbone, seed, plan.protocol, settings=settings)
    record, coded = trainer.run(cell)
    if coded is None:
        reason = record.get("diverged") or record.get("failed")
        return {"epochs": epochs, "seed": seed, "failed": reason}
    zero = {"zero": coded.codes["zero"]}
    alone = replace(coded, codes=zero, second_database=None, prefixes=(), rankings={})
    return {
        "epochs": epochs,
        "seed": seed,
        "train_seconds": record["train_seconds"],
        "images_per_second": record["images_per_second"],
        "map": measure(alone)["map"],
    }


def seconds_to(goal: float, fits: list[dict[str, Any]], seeds: int) -> float | None:
    """The shortest training whose codes reach the goal with each seed; the slower seed counts.

    Args:
        goal: The mAP to reach.
        fits: Results of `fit`.
        seeds: Number of seeds that have to reach it.

    Returns:
        Seconds; None if no number of epochs reaches it.
    """
    reached: dict[int, list[float]] = {}
    for each in fits:
        if each.get("map", -1.0) >= goal:
            reached.setdefault(each["epochs"], []).append(each["train_seconds"])
    return min((max(each) for each in reached.values() if len(each) == seeds), default=None)
