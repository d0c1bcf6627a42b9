"""Encoding and training of version 0.1 on a GPU. PYTHONPATH has its sources.

    python bench/gpu_old_steps.py encode|train SETTINGS

prints rates in images per second as JSON. `bench/gpu_old.py` runs it, with the settings as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

AT_ONCE = 4000  # images that are drawn at once
SMALL = 32


def encode(settings: dict[str, Any]) -> dict[str, Any]:
    """Images per second of `Hasher.encode` in each round, all images at least once."""
    side = settings["side"]
    hasher = make(settings, side=side, frozen=True, epochs=1)
    few = draw(settings["classes"], side, settings["device"])
    hasher.fit(few, np.arange(len(few)))
    pixels, rates = draw(settings["images"], side, settings["device"]), []
    batch = hasher.encoder().batch
    for number in range(settings["rounds"] + 1):
        began, count = time.perf_counter(), 0
        given = pixels if number else pixels[: 4 * batch]  # the first round is a warm-up
        while not count or (number and time.perf_counter() - began < settings["seconds"]):
            count += len(hasher.encode(given))
        rates.append(count / (time.perf_counter() - began))
    return {"rates": rates[1:], "batch": batch, "side": hasher.preprocess.side}


def train(settings: dict[str, Any]) -> dict[str, Any]:
    """Images per second of fits with random images, and the seconds until the first one runs."""
    names = ("batch", "epochs")
    given = {name: settings[name] for name in names} | {"compile": True, "lr": 0.001}
    pixels = draw(settings["images"], SMALL, settings["device"])
    labels = np.arange(len(pixels)) % settings["classes"]
    outcomes = []
    for _ in range(settings["fits"]):
        outcomes.append(make(settings, **given).fit(pixels, labels).outcome)
    first = outcomes[0]
    batch = min(settings["batch"], len(pixels))
    running = first.steps * batch / first.images_per_second
    return {
        "rates": [each.images_per_second for each in outcomes],
        "batch": batch,
        "start_seconds": first.seconds - running,
    }


def make(settings: dict[str, Any], **others: Any) -> Any:
    """A model that is not trained."""
    import hadahash as hh

    names = ("backbone", "weights", "device", "size", "bits")
    return hh.Hasher("hcdh", **{name: settings[name] for name in names}, **others)


def draw(count: int, side: int, device: str) -> NDArray[np.uint8]:
    """Random images."""
    parts = [
        torch.randint(
            256, (min(AT_ONCE, count - start), side, side, 3), dtype=torch.uint8, device=device
        )
        .cpu()
        .numpy()
        for start in range(0, count, AT_ONCE)
    ]
    return np.concatenate(parts)


STEPS = {"encode": encode, "train": train}


if __name__ == "__main__":
    import hadahash

    found = STEPS[sys.argv[1]](json.loads(sys.argv[2]))
    print(json.dumps(found | {"version": hadahash.__version__}))
