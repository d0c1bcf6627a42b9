"""How fast `hadahash index build` indexes photos, beside the network alone and the processor.

    hadahash export runs/voc --onnx
    python bench/overlap.py --photos VOC2012/JPEGImages --model runs/voc --old /tmp/old

Photos as they are, and photos enlarged to 12 megapixels, are indexed as by `hadahash index build`,
with the cache of features empty and with the runtime that it chooses. The network is busy while a
batch is in it; the rest of the time it waits for pixels. A batch takes longer while the decoders
use the same cores, so three more numbers are measured: the network alone, on pixels in memory; the
processor time of an image in it and of an image that is only decoded and resized; and what follows
from these: more images than (cores / processor time of an image) cannot be indexed per second.
With --old, version 0.1 (see bench/serve_million.py) indexes the same photos with a network of the
same size; its codes have no content bits.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# As the command line does: threads that spin while they wait would count as work.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import common
import decode as photos_of
import numpy as np
import versions

import hadahash as hh
from hadahash.data.base import ImageSource, name_ids
from hadahash.data.decode import decode
from hadahash.native import usable_cores
from hadahash.pace import measured
from hadahash.photos.build import Build, BuildOptions
from hadahash.photos.digests import DigestingImages

BATCH = 64  # images of a batch on a CPU


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark and write the result as JSON."""
    options = parse(arguments)
    result = common.begin(options)
    if options.runtime:
        os.environ["HADAHASH_RUNTIME"] = options.runtime
    model = hh.HashModel.load(options.model, device="cpu", runtime=options.runtime)
    about = {**photos_of.describe(model), "side": model.preprocess.side}
    result |= {"model": about, "runtime": model.runtime.name, "cores": usable_cores()}
    result |= {"distinct": options.distinct, "copies": options.copies}
    alone = network_alone(model, options.batches)
    result |= {"network_alone": alone, "cases": []}
    small = sorted(options.photos.glob("*.jpg"))[: options.count]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        copied, large = folder / "small", folder / "large"
        copied.mkdir()
        large.mkdir()
        for path in small:
            shutil.copyfile(path, copied / path.name)
        enlarge(small[: options.distinct], large, options)
        old = versions.Version(options.old) if options.old else None
        if old:
            old.step("train on noise", "run", folder / "old-run")
        for name, photos in (
            ("as they are", copied),
            (f"{options.megapixels:g} megapixels", large),
        ):
            os.environ["HADAHASH_FEATURE_CACHE"] = "1GB"
            os.environ["XDG_CACHE_HOME"] = str(folder / f"cache-{photos.name}")
            row = {"case": name} | build(photos, options.model, folder / f"{photos.name}.index")
            row["decode_cpu_ms"] = decode_alone(photos, model)
            used = row["decode_cpu_ms"] + alone["cpu_ms"]
            row["most_per_second"] = 1000 * usable_cores() / used
            if old:
                index = folder / f"old-{photos.name}.index"
                row["before"] = old.step(name, "build", photos, folder / "old-run", index)
            result["cases"].append(row)
            print(row, flush=True)
    common.finish(result, options)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Options of the command line."""
    parser = common.make_parser("overlap", __doc__)
    parser.add_argument("--photos", type=Path, required=True, help="folder of JPEG photos")
    parser.add_argument("--model", type=Path, required=True, help="run folder of a model")
    parser.add_argument("--count", type=int, default=2000, help="number of small photos")
    parser.add_argument("--distinct", type=int, default=12, help="number of distinct large photos")
    parser.add_argument("--copies", type=int, default=64, help="files of each large photo")
    parser.add_argument("--megapixels", type=float, default=12.0)
    parser.add_argument("--batches", type=int, default=20, help="batches of the network alone")
    versions.add_option(parser)
    parser.add_argument("--runtime", help="torch or onnx; default: as hadahash chooses")
    return common.parse(parser, arguments)


def enlarge(photos: list[Path], folder: Path, options: argparse.Namespace) -> list[Path]:
    """Large photos; the copies differ in bytes after the end of the image."""
    paths = []
    for number, path in enumerate(photos):
        image = photos_of.read(path)
        factor = (options.megapixels * 1e6 / (image.width * image.height)) ** 0.5
        data = photos_of.enlarge(image, factor, number)
        for copy in range(options.copies):
            paths.append(folder / f"{number}-{copy}.jpg")
            paths[-1].write_bytes(data + bytes([copy]))
    return paths


def build(photos: Path, run: Path, out: Path) -> dict[str, Any]:
    """Index a folder: images per second, and the share of the time in the network."""
    started = time.perf_counter()
    with measured() as pace:
        Build.prepare(photos, out, run=run, options=BuildOptions(device="cpu")).apply()
    return {
        "photos": pace.computed,
        "build_seconds": time.perf_counter() - started,
        "seconds": pace.seconds,
        "images_per_second": pace.images_per_second,
        "network_busy": pace.network_busy,
    }


def network_alone(model: hh.HashModel, batches: int) -> dict[str, float]:
    """Images per second and processor time of an image in the network, without decoding."""
    side, runtime = model.preprocess.side, model.runtime
    pixels = np.random.default_rng(0).integers(0, 256, (BATCH, 3, side, side), dtype=np.uint8)
    for number in range(batches + 1):
        if number == 1:  # the first batch is a warm-up
            started, used = time.perf_counter(), time.process_time()
        runtime.start(runtime.load(pixels))()
    images = batches * BATCH
    return {
        "images_per_second": images / (time.perf_counter() - started),
        "cpu_ms": 1000 * (time.process_time() - used) / images,
    }


def decode_alone(photos: Path, model: hh.HashModel) -> float:
    """Milliseconds of processor time to read, decode and resize a photo."""
    paths = sorted(photos.iterdir())[: 4 * BATCH]
    source = ImageSource(DigestingImages(paths), name_ids(str(path) for path in paths))
    used = time.process_time()
    for _ in decode(source.images, model.preprocess, batch_size=BATCH):
        pass
    return 1000 * (time.process_time() - used) / len(paths)


if __name__ == "__main__":
    main()
