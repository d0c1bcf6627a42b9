"""Both runtimes on one CPU: install size, start, speed, equal bits, and int8.

    hadahash export runs/voc --onnx
    python bench/runtime.py --photos VOC2012/JPEGImages --model runs/voc

Bits are compared twice: those of a projection of the features of the ready-made network, also for
networks of 8-bit integers; and, with --model, the packed codes of a trained model, class bits and
content bits, from image files to bytes.

Rounds of the runtimes alternate, with as many threads each. On a busy machine compare the CPU time,
which other processes change little.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib.metadata import distribution
from pathlib import Path
from statistics import median
from typing import Any

import common
import numpy as np
from numpy.typing import NDArray

sys.path.append(str(common.ROOT / "tests"))
# As the command line does: threads that spin while they wait would count as work.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

from decode import describe
from light_install import packages_of

from hadahash.data.decode import decode
from hadahash.data.preprocess import Preprocess, center_array
from hadahash.data.sources import as_images
from hadahash.model import HashModel
from hadahash.onnx_files import export_onnx, make_ready
from hadahash.ready_models import load_ready, ready_folder
from hadahash.runtime.onnx import LinearHead, open_session

Pixels = NDArray[np.uint8]
STARTED = {"torch": ("train", "serve", "offline"), "onnx": ("onnx",)}
SETS = {**STARTED, "container": ("onnx", "milvus")}
START = """
import os, sys
import numpy as np
from hadahash.model import HashModel
model = HashModel.load(sys.argv[1], device="cpu", runtime=sys.argv[2])
model.encode(np.zeros((1, 256, 256, 3), np.uint8))
status = open("/proc/self/status").read()  # the peak of a child in wait4 is that of its parent
print(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")))
"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and write the result."""
    parser = common.make_parser("runtime", __doc__)
    parser.add_argument("--photos", type=Path, required=True, help="folder of photographs")
    parser.add_argument("--count", type=int, default=256, help="number of photos")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--model", type=Path, help="run folder of a trained, exported model")
    parser.add_argument("--int8", action="store_true", help="also measure quantized networks")
    options = common.parse(parser, arguments)
    versions = {name: distribution(name).version for name in ("onnx", "onnxruntime")}
    result = common.begin(options, versions)
    result["install"] = {name: install_size(extras) for name, extras in SETS.items()}
    if not (ready_folder() / "model.json").exists():
        make_ready()
    pixels = read(options.photos, options.count)
    result["photos"], result["threads"] = len(pixels), options.threads
    result |= compare(pixels, options.rounds, options.threads, int8=options.int8)
    if options.model is not None:
        result["trained"] = trained(options.model, options.photos, options.count)
    result["start"] = {name: start(name, options.rounds) for name in STARTED}
    common.finish(result, options)


def install_size(extras: Sequence[str]) -> dict[str, Any]:
    """Packages and bytes that an installation takes, hadahash itself included.

    The ready-made model is not counted: it is exported after the installation.
    """
    sizes = {name: _size(name) for name in packages_of(extras)}
    own = sum(
        path.stat().st_size
        for path in (common.ROOT / "src" / "hadahash").rglob("*")
        if path.is_file() and not {"__pycache__", "lite0.onnx"} & set(path.parts)
    )
    largest = dict(sorted(sizes.items(), key=lambda entry: -entry[1])[:6])
    return {
        "extras": list(extras),
        "packages": len(sizes) + 1,
        "bytes": sum(sizes.values()) + own,
        "hadahash_bytes": own,
        "largest": largest,
    }


def _size(name: str) -> int:
    package = distribution(name)
    paths = (Path(str(package.locate_file(file))) for file in package.files or ())
    return sum(path.stat().st_size for path in paths if path.is_file())


def start(runtime: str, rounds: int) -> dict[str, Any]:
    """A new process that loads the ready-made model and encodes one image."""
    command = [sys.executable, "-c", START, str(ready_folder()), runtime]
    wall, cpu, memory = [], [], []
    for _ in range(rounds):
        began = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        peak = process.stdout.read() if process.stdout is not None else ""
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"{runtime} does not start.")
        wall.append(time.perf_counter() - began)
        cpu.append(usage.ru_utime + usage.ru_stime)
        memory.append(int(peak) * 1024)
    return {
        "seconds": median(wall),
        "seconds_quartiles": common.quartiles(wall),
        "cpu_seconds": median(cpu),
        "cpu_seconds_quartiles": common.quartiles(cpu),
        "peak_bytes": int(median(memory)),
    }


def read(folder: Path, count: int) -> Pixels:
    """Squares of some photos, evenly spaced by name."""
    parts = decode(as_images(choose(folder, count)).images, Preprocess(), batch_size=count)
    return np.concatenate([part.pixels for part in parts])


def choose(folder: Path, count: int) -> list[Path]:
    """Some photos, evenly spaced by name."""
    paths = sorted(path for path in folder.rglob("*") if path.suffix in (".jpg", ".png"))
    return [paths[row] for row in np.linspace(0, len(paths) - 1, count).astype(int)]


def trained(run: Path, folder: Path, count: int) -> dict[str, Any]:
    """Equal bits of the packed codes of a trained model with both runtimes, from image files."""
    if not (run / "onnx.json").exists():
        raise SystemExit(f"{run} is not exported. Run: hadahash export {run} --onnx")
    photos = choose(folder, count)
    codes = {}
    for name in STARTED:
        model = HashModel.load(run, device="cpu", runtime=name)
        if model.runtime.name != name:
            raise SystemExit(f"{run} was loaded with {model.runtime.name}, not {name}.")
        codes[name] = model.encode(photos)
    one, other = codes.values()
    same = {"class": _same(one.packed, other.packed, one.bits)}
    if one.content is not None:
        same["content"] = _same(one.content, other.content, one.content_bits)
    same["all"] = np.concatenate(list(same.values()), axis=1)
    return {
        "model": describe(model),
        "photos": len(one),
        "equal": {name: float(bits.mean()) for name, bits in same.items()},
        "images_with_all_equal": float(same["all"].all(axis=1).mean()),
    }


def _same(one: Pixels, other: Pixels, bits: int) -> NDArray[np.bool_]:
    return np.unpackbits(one ^ other, axis=1)[:, :bits] == 0


def compare(pixels: Pixels, rounds: int, threads: int, *, int8: bool) -> dict[str, Any]:
    """Speed and bits of torch, onnxruntime, and onnxruntime with int8."""
    import torch

    torch.set_num_threads(threads)
    model = HashModel.pretrained(device="cpu")
    linear = load_ready("cpu").network.linear
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        whole, _ = export_onnx(model, folder / "whole.onnx")
        network = ready_folder() / load_ready("cpu").network.facts.graphs["network"].file
        sessions = {
            "onnx": open_session(network.read_bytes(), "cpu", threads),
            "onnx, whole graph": open_session(whole.read_bytes(), "cpu", threads),
            **({} if not int8 else _sessions(quantized(network, folder, pixels[:16]), threads)),
        }
        ways = {"torch": lambda batch: model.runtime.start(model.runtime.load(batch))()[0]}
        ways |= {name: _runner(session) for name, session in sessions.items()}
        found = {name: run(pixels) for name, run in ways.items()}
        bits = {name: agreement(found["torch"], own, linear) for name, own in found.items()}
        print(bits, file=sys.stderr, flush=True)
        print("speed", file=sys.stderr, flush=True)
        speed = {f"batch {size}": timed(ways, pixels[:size], rounds) for size in (1, 32)}
    return {"bits": bits, "speed": speed}


def _sessions(paths: dict[str, Path], threads: int) -> dict[str, Any]:
    return {name: open_session(path.read_bytes(), "cpu", threads) for name, path in paths.items()}


def quantized(network: Path, folder: Path, sample: Pixels) -> dict[str, Path]:
    """The network with weights of 8 bits, and with weights and activations of 8 bits."""
    from onnxruntime.quantization import (
        CalibrationDataReader,
        QuantFormat,
        QuantType,
        quantize_dynamic,
        quantize_static,
    )
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Reader(CalibrationDataReader):
        def __init__(self) -> None:
            views = center_array(sample, Preprocess())
            self.rows = iter({"view": views[row : row + 1]} for row in range(len(views)))

        def get_next(self) -> Any:
            return next(self.rows, None)

    ready, static, dynamic = (folder / f"{name}.onnx" for name in ("ready", "static", "dynamic"))
    quant_pre_process(str(network), str(ready), skip_symbolic_shape=True)
    quantize_static(
        str(ready),
        str(static),
        Reader(),
        quant_format=QuantFormat.QDQ,
        per_channel=True,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
    )
    quantize_dynamic(str(ready), str(dynamic), weight_type=QuantType.QUInt8)
    return {"int8, static": static, "int8, dynamic": dynamic}


def _runner(session: Any) -> Callable[[Pixels], Any]:
    name = session.get_inputs()[0].name

    def run(batch: Pixels) -> Any:
        given = center_array(batch, Preprocess()) if name == "view" else batch
        parts = [given[start : start + 64] for start in range(0, len(given), 64)]
        return np.concatenate([session.run(["features"], {name: part})[0] for part in parts])

    return run


def timed(ways: dict[str, Callable[[Pixels], Any]], batch: Pixels, rounds: int) -> dict[str, Any]:
    """Wall and CPU time per image, in alternating rounds."""
    wall: dict[str, list[float]] = {name: [] for name in ways}
    cpu: dict[str, list[float]] = {name: [] for name in ways}
    repeat = max(1, 8 // len(batch))
    for number in range(rounds + 1):
        for name, run in ways.items():
            began, used = time.perf_counter(), _cpu()
            for _ in range(repeat):
                run(batch)
            if number:  # the first round is a warm-up
                wall[name].append((time.perf_counter() - began) / repeat / len(batch))
                cpu[name].append((_cpu() - used) / repeat / len(batch))
    return {
        name: {
            "milliseconds_per_image": 1000 * median(wall[name]),
            "quartiles": [1000 * value for value in common.quartiles(wall[name])],
            "cpu_milliseconds_per_image": 1000 * median(cpu[name]),
            "cpu_quartiles": [1000 * value for value in common.quartiles(cpu[name])],
            "cpu_against_torch": median(cpu["torch"]) / median(cpu[name]),
            "against_torch": median(wall["torch"]) / median(wall[name]),
        }
        for name in ways
    }


def _cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def agreement(expected: Any, found: Any, head: LinearHead) -> dict[str, float]:
    """Share of equal bits of the ready-made projection."""
    one, other = (head(each, None, scores=False).values >= 0 for each in (expected, found))
    return {
        "equal": float((one == other).mean()),
        "images_with_all_equal": float((one == other).all(axis=1).mean()),
    }


if __name__ == "__main__":
    main()
