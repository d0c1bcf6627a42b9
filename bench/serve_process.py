"""`hadahash serve` of a version in processes of its own, for the benchmarks of the service."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
from serve_client import TOKEN, connect, send
from serve_collection import LABELS

HERE = Path(__file__).resolve().parent


def environment(source: Path) -> dict[str, str]:
    """Environment of a process that uses these sources."""
    return os.environ | {"PYTHONPATH": str(source / "src"), "HADAHASH_WRITE_TOKEN": TOKEN}


def make(source: Path, folder: Path, items: int, content_bits: int) -> None:
    """Make the collection, unless it is there already."""
    if not (folder / "index").exists():
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, str(HERE / "serve_collection.py"), str(folder)]
        command += [str(items), str(content_bits)]
        subprocess.run(command, check=True, env=environment(source), cwd="/", stdout=sys.stderr)
    if (source / "src" / "hadahash" / "onnx_files.py").exists() and not exported(folder):
        command = [sys.executable, "-m", "hadahash", "export", str(folder / "run"), "--onnx"]
        subprocess.run(command, check=True, env=environment(source), cwd="/", stdout=sys.stderr)


def exported(folder: Path) -> bool:
    """Whether the model was exported. Otherwise the first start does it."""
    return (folder / "run" / "onnx.json").exists()


@contextmanager
def server(source: Path, folder: Path) -> Iterator[tuple[int, psutil.Process, float]]:
    """Run `hadahash serve`; yield its port, its process and the seconds until it was ready."""
    command = [sys.executable, "-m", "hadahash", "serve", str(folder / "index"), "--port", "0"]
    command += ["--run", str(folder / "run"), "--images", str(folder / "photos")]
    cache = folder / f"cache-{time.time_ns()}"  # no thumbnails of earlier runs
    variables = environment(source) | {"XDG_CACHE_HOME": str(cache)}
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=variables, cwd="/")
    try:
        line = process.stdout.readline() if process.stdout else ""
        port = int(line.split("/")[2].split(":")[1])
        while send(connect(port), "GET", "/readyz") != 200:
            time.sleep(0.01)
        yield port, psutil.Process(process.pid), time.perf_counter() - started
    finally:
        process.terminate()
        process.wait()


def memory(process: psutil.Process) -> dict[str, float]:
    """Megabytes of the server and its decoders, apart from mapped files, and with them."""
    own = [_status(process.pid)]
    children = [_status(child.pid) for child in process.children(recursive=True)]
    return {
        "server_mb": own[0]["RssAnon"],
        "server_with_files_mb": own[0]["VmRSS"],
        "server_peak_mb": own[0]["VmHWM"],
        "decoders_mb": round(sum(each["RssAnon"] for each in children), 1),
    }


def _status(pid: int) -> dict[str, float]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    found = dict(line.split(":", 1) for line in lines if ":" in line)
    return {name: round(int(found[name].split()[0]) / 1024, 1) for name in MEMORY}


MEMORY = ("RssAnon", "VmRSS", "VmHWM")


def item_name(number: int) -> str:
    """The id of an item of the collection."""
    return f"class{number % LABELS:04d}/2019-summer-holiday/IMG_{number:08d}.jpg"
