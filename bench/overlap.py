"""Share of the time in which the network is busy while photos are read, decoded and resized.

    hadahash export runs/voc --onnx
    python bench/overlap.py --photos VOC2012/JPEGImages --model runs/voc

Photos as they are, and photos enlarged to 12 megapixels, go through `HashModel.encode` as in
`hadahash index build`, with the cache of features empty and with the runtime that it chooses. The
network is busy while a batch is in it; the rest of the time it waits for pixels.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import common
import decode as photos_of

import hadahash as hh
from hadahash.data.base import ImageSource, name_ids
from hadahash.pace import measured
from hadahash.photos.digests import DigestingImages


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark and write the result as JSON."""
    options = parse(arguments)
    result = common.begin(options)
    model = hh.HashModel.load(options.model, device="cpu", runtime=options.runtime)
    about = {**photos_of.describe(model), "side": model.preprocess.side}
    result |= {"model": about, "runtime": model.runtime.name, "cases": []}
    small = sorted(options.photos.glob("*.jpg"))[: options.count]
    with tempfile.TemporaryDirectory() as folder:
        large = enlarge(small[: options.distinct], Path(folder), options)
        for name, paths in (("as they are", small), (f"{options.megapixels:g} megapixels", large)):
            os.environ["HADAHASH_FEATURE_CACHE"] = "1GB"
            os.environ["XDG_CACHE_HOME"] = f"{folder}/{len(paths)}"
            result["cases"].append({"case": name} | measure(model, paths))
            print(result["cases"][-1], flush=True)
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


def measure(model: hh.HashModel, paths: list[Path]) -> dict[str, Any]:
    """Images per second, and the share of the time in the network."""
    source = ImageSource(DigestingImages(paths), name_ids(str(path) for path in paths))
    with measured() as pace:
        model.encode(source)
    return {
        "photos": pace.computed,
        "seconds": pace.seconds,
        "images_per_second": pace.images_per_second,
        "network_busy": pace.network_busy,
    }


if __name__ == "__main__":
    main()
