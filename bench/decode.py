"""Large JPEGs decoded in full and reduced: time, and how many bits of the codes stay equal.

    python bench/decode.py --photos VOC2012/JPEGImages --model runs/voc
    python bench/decode.py --photos photos/ --model runs/voc --count 3 --rounds 2 --out /tmp/x.json

The photos are enlarged to many megapixels, get the noise of a sensor and are saved as JPEGs. A
collage has 8 x 8 photos at their own size, so its detail is as fine as its pixels. Each JPEG is
decoded and resized to the square of the model in full and with the decoder's own reduction by 2, 4
and 8; all ways take turns. The reduction that `enough_for` chooses is "reduced". A bit of a code is
equal if the square of the full decode gives the same bit.
"""

from __future__ import annotations

import argparse
import io
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import common
import numpy as np
from numpy.typing import NDArray
from PIL import Image

import hadahash as hh
from hadahash.data import images
from hadahash.data.images import image_size, open_image
from hadahash.data.squares import Reduced, enough_for

Pixels = NDArray[np.uint8]
FULL, REDUCED = "full", "reduced"
SCALES = (2, 4, 8)
_FIELD: dict[str, NDArray[np.int16]] = {}
NOISE = 4.0  # standard deviation; a JPEG of 12 megapixels has 2 to 3 MB then


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark and write the result as JSON."""
    options = parse(arguments)
    result = common.begin(options)
    model = load_model(options)
    result |= {
        "rounds": options.rounds,
        "timed": options.timed,
        "side": model.preprocess.side,
        "at_least": enough_for(model.preprocess.side),
        "model": describe(model),
        "cases": [],
    }
    for name, (make, count) in cases(options).items():
        chosen = choose_photos(options)
        files = (make(chosen[number], number) for number in range(count))
        result["cases"].append({"case": name, "photos": count} | measure(files, model, options))
        print(result["cases"][-1], flush=True)
    common.finish(result, options)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Options of the command line."""
    parser = common.make_parser("decode", __doc__)
    parser.add_argument("--photos", type=Path, required=True, help="folder of JPEG photos")
    parser.add_argument("--model", type=Path, required=True, help="run folder of a model")
    parser.add_argument("--count", type=int, default=100, help="photos of the largest cases")
    parser.add_argument("--few", type=int, default=12, help="photos of the others")
    parser.add_argument("--timed", type=int, default=5, help="of these, how many are timed")
    parser.add_argument("--side", type=int, default=256, help="side of the squares")
    parser.add_argument("--crop", type=float, default=0.875, help="part of them that is used")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--megapixels", type=float, default=12.0)
    return common.parse(parser, arguments)


def load_model(options: argparse.Namespace) -> hh.HashModel:
    """The model, with squares as for large photographs."""
    model = hh.HashModel.load(options.model, device="cpu", runtime="torch")
    usual = replace(model.preprocess, side=options.side, crop=options.crop)
    return replace(model, preprocess=usual)


def describe(model: hh.HashModel) -> dict[str, Any]:
    """What the bits are."""
    config = model.config
    return {
        "method": config.method,
        "backbone": config.backbone,
        "bits": model.bits,
        "content_bits": model.content_bits,
        "size": model.preprocess.size,
    }


def choose_photos(options: argparse.Namespace) -> list[list[Path]]:
    """For each image the photos that it is made of: one, or all of a collage."""
    found = sorted(options.photos.glob("*.jpg"))
    rng = np.random.default_rng(options.seed)
    return [
        [found[row] for row in rng.choice(len(found), 64, replace=len(found) < 64)]
        for _ in range(max(options.count, options.few))
    ]


# ---- Large JPEGs ---------------------------------------------------------------------------------

Make = Callable[[list[Path], int], bytes]


def cases(options: argparse.Namespace) -> dict[str, tuple[Make, int]]:
    """How the JPEGs of each case are made, and how many."""
    top, most = options.megapixels, f"{options.megapixels:g} megapixels"
    many, few = options.count, options.few

    def by_area(low: float, high: float, **saved: Any) -> Make:
        def make(photos: list[Path], number: int) -> bytes:
            area = 1e6 * np.random.default_rng(number).uniform(low, high)
            image = read(photos[0])
            return enlarge(image, (area / (image.width * image.height)) ** 0.5, number, **saved)

        return make

    def by_side(photos: list[Path], number: int) -> bytes:
        image = read(photos[0])
        return enlarge(image, 4 * 512 / min(image.size), number)

    return {
        most: (by_area(top, top), many),
        f"{most}, progressive": (by_area(top, top, progressive=True), options.timed),
        f"{most}, collage": (lambda photos, number: collage(photos, top), few),
        "2 to 5 megapixels": (by_area(2, 5), many),
        "short side of 2,048 pixels": (by_side, few),  # the least that is reduced to a quarter
    }


def read(path: Path) -> Image.Image:
    """A photo."""
    return Image.fromarray(open_image(path))


def enlarge(image: Image.Image, factor: float, seed: int, **saved: Any) -> bytes:
    """A photo with `factor` times its sides, with noise, as a JPEG."""
    size = (round(image.width * factor), round(image.height * factor))
    pixels = np.asarray(image.resize(size, Image.Resampling.BICUBIC)).astype(np.int16)
    noise = grain(size, seed)
    return save(Image.fromarray((pixels + noise).clip(0, 255).astype(np.uint8)), **saved)


def grain(size: tuple[int, int], seed: int) -> NDArray[np.int16]:
    """Noise of all colors alike; parts of one large field."""
    rng = np.random.default_rng(seed)
    x, y = rng.integers(0, 500, 2)
    needed = size[1] + 500, size[0] + 500
    if "field" not in _FIELD or any(np.less(_FIELD["field"].shape[:2], needed)):
        sides = np.maximum(needed, 4500)
        values = np.random.default_rng(0).standard_normal(sides, np.float32)[..., None]
        _FIELD["field"] = np.rint(NOISE * values).astype(np.int16)
    return _FIELD["field"][y : y + size[1], x : x + size[0]]


def collage(photos: list[Path], megapixels: float) -> bytes:
    """A page of 8 x 8 photos."""
    width = round((megapixels * 1e6 / 12) ** 0.5 / 8) * 4  # of one photo, 4 : 3
    height = width * 3 // 4
    page = Image.new("RGB", (8 * width, 8 * height))
    for place, path in enumerate(photos):
        photo = read(path)
        if photo.width < photo.height:
            photo = photo.transpose(Image.Transpose.ROTATE_90)
        page.paste(photo.resize((width, height)), (place % 8 * width, place // 8 * height))
    return save(page)


def save(image: Image.Image, **options: Any) -> bytes:
    """The file of an image."""
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=90, **options)
    return buffer.getvalue()


# ---- Measurements --------------------------------------------------------------------------------


def measure(
    files: Iterator[bytes], model: hh.HashModel, options: argparse.Namespace
) -> dict[str, Any]:
    """Times, and equal bits, of one case."""
    side = model.preprocess.side
    times: dict[str, list[float]] = defaultdict(list)
    squares: dict[str, list[Pixels]] = defaultdict(list)
    reduced: dict[str, list[float]] = defaultdict(list)
    sizes, areas = [], []
    for number, data in enumerate(files):
        sizes.append(len(data) / 1e6)
        areas.append(float(np.prod(image_size(data)) / 1e6))
        for _ in range(options.rounds if number < options.timed else 1):
            seen = {}
            for way, at_least in reductions(data, side, number < options.few).items():
                start = time.perf_counter()
                image = decode(data, at_least)
                square = image.square(side, fit=model.preprocess.fit)
                if number < options.timed:
                    times[way].append(time.perf_counter() - start)
                seen[way] = square, image
        for way, (square, image) in seen.items():
            squares[way].append(square)
            reduced[way].append(min(image.size) / image.scale / side)
    return {
        "megabytes": median(sizes),
        "megapixels": [min(areas), max(areas)],
        **timing(times),
        "times_the_side": {way: [min(each), max(each)] for way, each in reduced.items()},
        "equal_bits": equal_bits(squares, model),
    }


def decode(data: bytes, at_least: int | None) -> Reduced:
    """Decode in full, or no smaller than `at_least`."""
    return images._decode(data, images.LIMITS, "refuse", at_least)


def reductions(data: bytes, side: int, every: bool) -> dict[str, int | None]:
    """`at_least` of each way; without `every`, only of the two that are used."""
    used = {FULL: None, REDUCED: enough_for(side)}
    short = min(image_size(data))
    return used | ({f"1/{scale}": short // scale for scale in SCALES} if every else {})


def timing(times: dict[str, list[float]]) -> dict[str, Any]:
    """Median milliseconds of a file, and the ratio of full and reduced, one after the other."""
    return {
        "milliseconds": {way: 1000 * median(each) for way, each in times.items()},
        "milliseconds_quartiles": {
            way: [1000 * value for value in common.quartiles(each)] for way, each in times.items()
        },
        **common.ratios(times, [(FULL, REDUCED)]),
    }


def equal_bits(
    squares: dict[str, list[Pixels]], model: hh.HashModel
) -> dict[str, dict[str, float]]:
    """Fraction of equal bits of each way: class bits, content bits, all; and the worst photo."""
    codes = {way: model.encode(each) for way, each in squares.items()}
    everything = codes.pop(FULL)
    found = {}
    for way, other in codes.items():
        full = everything[: len(other)]
        parts = {"class": differing(full.packed, other.packed) / full.bits}
        if full.content is not None and other.content is not None:
            parts["content"] = differing(full.content, other.content) / full.content_bits
        widths = [full.bits, full.content_bits][: len(parts)]
        parts["all"] = np.average(list(parts.values()), axis=0, weights=widths)
        found[way] = {name: float(1 - each.mean()) for name, each in parts.items()}
        found[way]["worst"] = float(1 - parts["all"].max())
    return found


def differing(first: Pixels, second: Pixels) -> NDArray[np.int64]:
    """The number of differing bits of each row."""
    found: NDArray[np.int64] = np.unpackbits(first ^ second, axis=1).sum(1, dtype=np.int64)
    return found


if __name__ == "__main__":
    main()
