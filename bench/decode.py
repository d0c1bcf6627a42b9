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
from pathlib import Path
from statistics import median
from typing import Any

import common
import numpy as np
from numpy.typing import NDArray
from PIL import Image

import hadahash as hh
from hadahash.data.images import enough_for, image_size, open_image, shrink_to_square

Pixels = NDArray[np.uint8]
FULL, REDUCED = "full", "reduced"
SCALES = (2, 4, 8)
NOISE = 6.0  # standard deviation; a JPEG of 12 megapixels has 3 to 4 MB then, as of a phone


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark and write the result as JSON."""
    options = parse(arguments)
    result = common.begin(options)
    model = hh.HashModel.load(options.model, device="cpu")
    chosen = choose_photos(options)
    result |= {
        "photos": options.count,
        "rounds": options.rounds,
        "side": model.preprocess.side,
        "at_least": enough_for(model.preprocess.side),
        "model": describe(model),
        "cases": [],
    }
    for name, make in cases(options).items():
        files = (make(chosen[number], number) for number in range(options.count))
        result["cases"].append({"case": name} | measure(files, model, options))
        print(result["cases"][-1])
    common.finish(result, options)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Options of the command line."""
    parser = common.make_parser("decode", __doc__)
    parser.add_argument("--photos", type=Path, required=True, help="folder of JPEG photos")
    parser.add_argument("--model", type=Path, required=True, help="run folder of a model")
    parser.add_argument("--count", type=int, default=200, help="photos of each case")
    parser.add_argument("--timed", type=int, default=8, help="of these, how many are timed")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--megapixels", type=float, default=12.0)
    return common.parse(parser, arguments)


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
        for _ in range(options.count)
    ]


# ---- Large JPEGs ---------------------------------------------------------------------------------

Make = Callable[[list[Path], int], bytes]


def cases(options: argparse.Namespace) -> dict[str, Make]:
    """How the JPEGs of each case are made."""
    top, most = options.megapixels, f"{options.megapixels:g} megapixels"

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
        most: by_area(top, top),
        f"{most}, progressive": by_area(top, top, progressive=True),
        f"{most}, collage": lambda photos, number: collage(photos, top, number),
        "2 to 5 megapixels": by_area(2, 5),
        "short side of 2,048 pixels": by_side,  # the least that is reduced to a quarter
    }


def read(path: Path) -> Image.Image:
    """A photo."""
    return Image.fromarray(open_image(path))


def enlarge(image: Image.Image, factor: float, seed: int, **saved: Any) -> bytes:
    """A photo with `factor` times its sides, with noise, as a JPEG."""
    size = (round(image.width * factor), round(image.height * factor))
    pixels = np.asarray(image.resize(size, Image.Resampling.LANCZOS), np.float32)
    noise = np.random.default_rng(seed).standard_normal(pixels.shape[:2], np.float32)
    noisy = (pixels + NOISE * noise[..., None]).clip(0, 255)
    return save(Image.fromarray(np.rint(noisy).astype(np.uint8)), **saved)


def collage(photos: list[Path], megapixels: float, seed: int) -> bytes:
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
    side, fit = model.preprocess.side, model.preprocess.fit
    times: dict[str, list[list[float]]] = defaultdict(list)
    squares: dict[str, list[Pixels]] = defaultdict(list)
    ratios: dict[str, list[float]] = defaultdict(list)
    sizes, megapixels = [], []
    for number, data in enumerate(files):
        ways = reductions(data, side)
        sizes.append(len(data) / 1e6)
        megapixels.append(np.prod(image_size(data)) / 1e6)
        rounds = options.rounds if number < options.timed else 1
        spent: dict[str, list[float]] = defaultdict(list)
        for _ in range(rounds):
            for way, at_least in ways.items():
                start = time.perf_counter()
                image = open_image(data, at_least=at_least)
                square = shrink_to_square(image, side, fit=fit)
                spent[way].append(time.perf_counter() - start)
                if way not in squares or len(squares[way]) <= number:
                    squares[way].append(square)
                    ratios[way].append(min(image.shape[:2]) / side)
        if number < options.timed:
            for way, seconds in spent.items():
                times[way].append(seconds)
    return {
        "megabytes": median(sizes),
        "megapixels": median(megapixels),
        **timing(times),
        "times_the_side": {way: [min(each), max(each)] for way, each in ratios.items()},
        "equal_bits": equal_bits(squares, model),
    }


def reductions(data: bytes, side: int) -> dict[str, int | None]:
    """`at_least` of each way; a reduction to less than the side is none."""
    short = min(image_size(data))
    fixed = {f"1/{scale}": short // scale for scale in SCALES}
    return {FULL: None, REDUCED: enough_for(side)} | fixed


def timing(times: dict[str, list[list[float]]]) -> dict[str, Any]:
    """Median milliseconds of a file, and the ratio of each pair of neighbors in time."""
    flat = {way: np.ravel(each).tolist() for way, each in times.items()}
    return {
        "milliseconds": {way: 1000 * median(each) for way, each in flat.items()},
        "milliseconds_quartiles": {
            way: [1000 * value for value in common.quartiles(each)] for way, each in flat.items()
        },
        **common.ratios(flat, [(FULL, REDUCED)]),
    }


def equal_bits(
    squares: dict[str, list[Pixels]], model: hh.HashModel
) -> dict[str, dict[str, float]]:
    """The share of equal bits of each way: class bits, content bits, all; and the worst photo."""
    codes = {way: model.encode(list(each)) for way, each in squares.items()}
    full = codes.pop(FULL)
    found = {}
    for way, other in codes.items():
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
    return np.unpackbits(first ^ second, axis=1).sum(1, dtype=np.int64)


if __name__ == "__main__":
    main()
