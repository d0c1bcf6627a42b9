"""The steps of a million photos, as `hadahash bench scale` measures them, with the usual record.

    python bench/scale.py --codes random --train --old /tmp/old
    python bench/scale.py --photos 10000 --codes random --out small.json

Options that are not listed by --help go to `hadahash bench scale`. The photos are written below
--folder, and removed. With --old, version 0.1 (see
bench/serve_million.py) then does the same steps with the same photos, as far as it has them; its
index has random codes, as that of `--codes random`, but no content bits.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import common
import versions

from hadahash.cli.bench_scale import TINY_TRAINING
from hadahash.errors import StorageError

LONG_ID = ("one id of 4,000 characters among 150,000", "long id")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and write the result."""
    parser = common.make_parser("scale", __doc__)
    versions.add_option(parser)
    parser.add_argument("--folder", type=Path, help="where the photos are written")
    given = sys.argv[1:] if arguments is None else list(arguments)
    options, others = parser.parse_known_args(given)
    options.command = shlex.join(["python", "bench/scale.py", *given])
    result = common.begin(options)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        result = scale([*others, "--folder", folder]) | result
        result["steps"].append(versions.Version(common.ROOT).step(*LONG_ID))
        if options.old:
            old = versions.Version(options.old)
            result["before"] = before(old, Path(folder), train="--train" in others)
    common.finish(result, options)


def scale(options: Sequence[str]) -> dict[str, Any]:
    """The result of `hadahash bench scale`."""
    environment = os.environ | {"PYTHONPATH": str(common.ROOT / "src")}
    command = [sys.executable, "-m", "hadahash", "bench", "scale", "--json", *options]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def before(old: versions.Version, folder: Path, *, train: bool = False) -> list[dict[str, Any]]:
    """The steps of version 0.1, named as those of `hadahash bench scale`.

    A step that fails is stored as failed: what was measured before it took most of an hour.
    """
    photos, run, index = folder / "photos", folder / "old-run", folder / "old.index"
    build = ("index", "build", run, photos, "--out", index)
    steps: list[partial[dict[str, Any]]] = [
        partial(old.step, "scan the folder", "scan", photos),
        partial(old.step, "read the table", "table", folder / "photos.csv"),
        partial(old.step, "train a network on noise", "run", run),
        partial(old.step, "index of random codes", "index", run, photos, index),
        partial(old.command, "index add, one photo", "index", "add", index, folder / "one.jpg"),
        partial(old.command, "index build again, nothing new", *build),
        partial(old.step, "open the index, first search", "open", index),
        partial(old.step, *LONG_ID),
    ]
    if train:
        command = ("train", photos, "--out", folder / "old", *TINY_TRAINING)
        steps.append(partial(old.command, "train, one epoch", *command))
    return [attempt(step) for step in steps]


def attempt(step: partial[dict[str, Any]]) -> dict[str, Any]:
    """What a step measured, or why it failed."""
    try:
        return step()
    except StorageError as error:
        print(error, file=sys.stderr)
        return {"step": step.args[0], "failed": str(error)}


if __name__ == "__main__":
    main()
