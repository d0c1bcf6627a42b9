"""An index on a disk that is really full: a small tmpfs in a namespace of this process.

`unshare -rm python small_disk.py SEED COUNT FOLDER` prints one JSON list [outcome, message] per
trial. The disk is filled with changes until one is refused, and is then made larger.
"""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from fault_jobs import _outcome
from index_states import Step, after, build, perform, random_step, read_state

from hadahash.errors import HadaHashError
from hadahash.index import Index

SIZES = (64, 96, 128, 192, 256, 512, 1024)  # KB


def main() -> None:
    seed, count, folder = sys.argv[1:]
    disk = Path(folder)
    for number in range(int(count)):
        rng = np.random.default_rng([int(seed), number])
        size = SIZES[rng.integers(len(SIZES))]
        _call("mount", "-t", "tmpfs", "-o", f"size={size}k", "tmpfs", disk)
        try:
            print(json.dumps(_outcome(partial(fill, rng, disk), f"{size} KB")), flush=True)
        finally:
            _call("umount", "--lazy", disk)  # an index that was read may still be mapped


def fill(rng: np.random.Generator, disk: Path) -> None:
    """Change an index until there is no space; then there is, and the change is repeated."""
    engine, ids = str(rng.choice(["exact", "routed"])), 20
    state: dict[int, int] | None = None
    for version in range(1, 500):
        step = _next_step(rng, state, version, ids)
        ids = min(ids * 5 // 4, 5000)
        done = after(state or {}, step)
        try:
            _change(disk, engine, step)
        except HadaHashError as error:
            text = str(error)
            assert "\n" not in text and ("full" in text or "space" in text), text
            assert _state(disk) == state, f"not the old index after: {text}"
            _call("mount", "-o", "remount,size=64m", disk)
            _change(disk, engine, step)
            assert _state(disk) == done, "after there was space"
            assert not list(disk.rglob("*.part")), "temporary files are left"
            return
        state = done
        assert _state(disk) == state
    raise AssertionError("the disk was never full")


def _next_step(rng: np.random.Generator, state: Any, version: int, ids: int) -> Step:
    if state is None:
        size = int(rng.choice([20, 2000]))  # the larger one does not fit on most disks
        return Step("build", tuple(range(size)), version)
    return random_step(rng, state, version, range(ids), builds=False)


def _change(disk: Path, engine: str, step: Step) -> None:
    folder = disk / "i"
    if step.kind == "build":
        build(after({}, step), engine).save(folder)
    else:
        perform(Index.open(folder), step, folder)


def _state(disk: Path) -> dict[int, int] | None:
    return read_state(disk / "i") if (disk / "i" / "index.json").exists() else None


def _call(*command: object) -> None:
    subprocess.run([str(each) for each in command], check=True)


if __name__ == "__main__":
    main()
