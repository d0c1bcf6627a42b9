"""`hadahash bench scale`: time and peak memory of every step with a million photos."""

from __future__ import annotations

import json as json_module
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Optional

import typer

from .. import files
from ..config import differences
from ..errors import StorageError, UsageError
from ..lazy import is_installed
from ..settings import require
from . import options, output
from .scale_steps import SIDE, Options, Place

TINY_TRAINING = (  # options of `hadahash train`
    *("--method", "hcdh", "--backbone", "test_efficientnet", "--weights", "none"),
    *("--set", "epochs=1", "--set", "size=32", "--set", "frozen=false", "--device", "cpu"),
)
_MARKER = "scale.json"  # in a folder of measurements: their options

Photos = Annotated[int, typer.Option(help="Number of photos.")]
Run = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(help="Run whose model encodes; default: a tiny network with random weights."),
]
Codes = Annotated[
    str,
    typer.Option(help="network: encode the photos; random: index random codes, without a network."),
]
Folder = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(
        help="Where the photos are written, about 5 kB each: an empty folder, or one of an earlier "
        "measurement with the same options. Default: a temporary one."
    ),
]
Train = Annotated[bool, typer.Option("--train", help="Also train one epoch on all photos.")]
Threshold = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option(help="Maximum distance of duplicates; default: that of `hadahash duplicates`."),
]


class Step(NamedTuple):
    """One measurement.

    Attributes:
        title: What is measured.
        command: Arguments of Python.
        whole: Whether the time is that of the whole process, as of a command; else of the step.
    """

    title: str
    command: list[str]
    whole: bool = False


def scale(
    photos: Photos = 1_000_000,
    run: Run = None,
    codes: Codes = "network",
    folder: Folder = None,
    train: Train = False,
    threshold: Threshold = None,
    seed: options.Seed = 0,
    json: options.Json = False,
) -> None:
    """Write small photos; measure time and peak memory of indexing, searching and training.

    Each step runs in a process of its own. The photos are removed at the end, unless --folder is
    given; a second measurement then takes them from there.

    Example: hadahash bench scale --photos 100000
    """
    require(photos >= 100, f"--photos must be >= 100, got {photos}.")
    if codes not in ("network", "random"):
        raise UsageError(f"--codes must be network or random, got '{codes}'.")
    require(run is None or run.is_dir(), f"--run must be the folder of a run, got {run}.")
    asked = Options(photos, seed, str(run.resolve()) if run else "", codes, threshold)
    with _workplace(folder, asked) as place:
        figures = _measure_all(place, asked, train, json)
    if json:
        output.as_json(figures)


@contextmanager
def _workplace(folder: Path | None, asked: Options) -> Iterator[Path]:
    if folder is not None:
        _claim(folder, asked)
        yield folder.resolve()
        return
    with tempfile.TemporaryDirectory(prefix="hadahash-scale-") as name:
        yield Path(name)


def _claim(folder: Path, asked: Options) -> None:
    """Mark a new or empty folder as that of a measurement; refuse one with anything else."""
    marker = folder / _MARKER
    options = asdict(asked) | {"threshold": None}  # which may change: the files are the same
    try:
        if marker.exists():
            changed = differences(files.read_checked(marker, {}, "Give another folder."), options)
            problem = f"a measurement with other options ({'; '.join(changed)})"
        else:
            changed = sorted(path.name for path in folder.iterdir()) if folder.exists() else []
            problem = f"other files ({', '.join(changed[:1])})"
    except OSError as error:
        raise files.storage_error("read", folder, error) from error
    require(not changed, f"{folder} has {problem}. Give an empty or a new --folder.")
    files.write_json(marker, options)


def _measure_all(folder: Path, asked: Options, train: bool, json: bool) -> dict[str, Any]:
    from .. import environment, native

    found: dict[str, Any] = {
        "photos": asked.photos,
        "pixels": SIDE,
        "codes": asked.codes,
        "cores": native.usable_cores(),
        "versions": environment.versions(),
        "load_before": os.getloadavg()[0],
        "steps": [],
    }
    for step in steps(folder, asked, train):
        found["steps"].append(measure(step))
        if not json:
            output.result(_line(found["steps"][-1]))
    return found | {"load_after": os.getloadavg()[0]}


def steps(folder: Path, asked: Options, train: bool) -> list[Step]:
    """The steps of a measurement.

    Args:
        folder: Where the files are.
        asked: What is measured.
        train: Whether a network is trained on all photos.

    Returns:
        The steps, in order.
    """
    place = Place(folder, asked)

    def own(name: str, title: str | None = None) -> Step:
        module = f"{__package__}.scale_steps"
        return Step(title or name, ["-m", module, name, str(folder), asked.to_text()])

    def command(title: str, *arguments: object) -> Step:
        return Step(title, ["-m", "hadahash", *map(str, arguments)], whole=True)

    build = ("index", "build", place.run, place.photos, "--out", place.index)
    found = [] if place.one.exists() else [own("photos", "write the photos")]
    found += [own("scan", "scan the folder")]
    found += [] if place.table.exists() else [own("table written", "write the table")]
    found += [own("table", "read the table")]
    found += [] if place.run.exists() else [own("network", "train a tiny network on 400 photos")]
    exports = not asked.run and is_installed("onnx") and is_installed("onnxruntime")
    if exports and not (place.run / "onnx.json").exists():
        found += [command("export --onnx", "export", place.run, "--onnx")]
    if asked.codes == "random":
        found += [own("index of random codes")]
    else:
        found += [command("index build", *build)]
    found += [
        command("index add, one photo", "index", "add", place.index, place.one),
        command("index build again, nothing new", *build),
        own("open", "open the index, first search"),
        own("search"),
        own("duplicates"),
        command("duplicates again, from the stored search", "duplicates", place.index, "--json"),
    ]
    return found + ([command("train, one epoch", *_training(place))] if train else [])


def _training(place: Place) -> list[str]:
    where = [str(place.photos), "--out", str(place.trained), "--overwrite"]
    return ["train", *where, *TINY_TRAINING]


def measure(step: Step, *, environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Run a step in a process of its own.

    Args:
        step: The step. Unless it is a command, it prints a JSON object with its seconds.
        environment: Variables that differ from those of this process.

    Returns:
        Title, seconds, processor time, peak memory, and what the step printed.

    Raises:
        StorageError: The step failed.
    """
    variables = {**os.environ, "HADAHASH_FEATURE_CACHE": "off", **(environment or {})}
    with tempfile.TemporaryFile() as errors:
        started = time.perf_counter()
        process = subprocess.Popen(  # noqa: S603
            [sys.executable, *step.command], stdout=subprocess.PIPE, stderr=errors, env=variables
        )
        printed = process.stdout.read() if process.stdout else b""
        _, status, usage = os.wait4(process.pid, 0)  # the peak memory of this process alone
        seconds = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        errors.seek(0)
        last = errors.read().decode(errors="replace").strip().rpartition("\n")[2]
    if process.returncode:
        raise StorageError(f"The step '{step.title}' failed: {last or process.returncode}")
    told = {} if step.whole else json_module.loads(printed)
    return {
        "step": step.title,
        "seconds": seconds if step.whole else told.pop("seconds"),
        "cpu_seconds": usage.ru_utime + usage.ru_stime,
        "peak_megabytes": usage.ru_maxrss / 1024,
        **told,
    }


def _line(figures: dict[str, Any]) -> str:
    shown = ("step", "seconds", "cpu_seconds", "peak_megabytes")
    more = ", ".join(f"{name} {_short(figures[name])}" for name in figures if name not in shown)
    times = f"{figures['seconds']:>9,.1f} s {figures['peak_megabytes']:>8,.0f} MB"
    return f"{figures['step']:<42}{times}  {more}".rstrip()


def _short(value: Any) -> str:
    return f"{value:,.3g}" if isinstance(value, float) else str(value)
