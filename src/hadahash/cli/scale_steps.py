"""The steps of `hadahash bench scale`; each one runs in a process of its own.

    python -m hadahash.cli.scale_steps STEP FOLDER OPTIONS

prints what the step measured as JSON. The folder is the same for all steps of a measurement; a
step takes what earlier ones left there.
"""

from __future__ import annotations

import io
import json
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from ..codes import Codes

Result = dict[str, Any]

_PER_FOLDER = 1000  # photos of one class folder; fewer if there are few photos
SIDE = 24  # of a photo in pixels
BITS, CONTENT_BITS = 64, 128
_PART = 8192  # photos indexed between two saves
_COPIES = 0.01  # fraction of random codes that are altered copies of others
_QUERIES = 64


@dataclass(frozen=True)
class Options:
    """What is measured.

    Attributes:
        photos: Number of photos.
        seed: Seed of photos and codes.
        run: Folder of a run; empty: a tiny network.
        codes: "network", or "random" for codes without a network.
        threshold: Maximum distance of duplicates in bits; None: the default of the command.
    """

    photos: int = 1_000_000
    seed: int = 0
    run: str = ""
    codes: str = "network"
    threshold: int | None = None

    def to_text(self) -> str:
        """The options as the argument of a step."""
        return json.dumps(asdict(self))


class Place:
    """The files of a measurement.

    Args:
        folder: The folder.
        options: What is measured.
    """

    def __init__(self, folder: Path, options: Options) -> None:
        self.options = options
        self.photos, self.one = folder / "photos", folder / "one.jpg"
        self.index, self.table = folder / "photos.index", folder / "photos.csv"
        self.trained = folder / "trained"
        self.per_folder = min(_PER_FOLDER, options.photos // 4)
        self.run = Path(options.run) if options.run else folder / "run"

    def ids(self) -> Iterator[str]:
        """The id of each photo: class folder, and name."""
        return (_id(number, self.per_folder) for number in range(self.options.photos))


def make_photos(place: Place) -> Result:
    """Write the photos, and one more."""
    options, count = place.options, place.options.photos
    starts = range(0, count, place.per_folder)
    with ProcessPoolExecutor() as pool:
        ends = [min(start + place.per_folder, count) for start in starts]
        write = partial(_write_folder, place.photos, place.per_folder, options.seed)
        for _ in pool.map(write, starts, ends):
            pass
    place.one.write_bytes(_jpeg(np.full((2, 2, 3), (7, 99, 200), np.uint8)))
    return {"folders": len(starts)}


def write_table(place: Place) -> Result:
    """Write a table with path and label of each photo."""
    with place.table.open("w", encoding="utf-8") as file:
        file.write("path,label\n")
        for each in place.ids():
            file.write(f"photos/{each},{each.split('/')[0]}\n")
    return {"megabytes": place.table.stat().st_size / 1e6}


def scan_photos(place: Place) -> Result:
    """List the folder."""
    from ..photos import scan_source

    return {"found": len(scan_source(place.photos).photos)}


def read_the_table(place: Place) -> Result:
    """Read the table, with checks of all rows."""
    from ..data.table import read_table

    return {"rows": len(read_table(place.table))}


def make_network(place: Place) -> Result:
    """Train a tiny network on a few photos."""
    from ..hasher import Hasher

    few = list(place.ids())[:: max(1, place.options.photos // 400)]
    hasher = Hasher(
        "hcdh",
        bits=BITS,
        content_bits=CONTENT_BITS,
        backbone="test_efficientnet",
        weights="none",
        device="cpu",
        size=32,
        epochs=1,
    )
    paths = [place.photos / each for each in few]
    hasher.fit(paths, [each.split("/")[0] for each in few])
    hasher.save(place.run)
    return {"network": "test_efficientnet, random weights, 32 pixels"}


def index_random_codes(place: Place) -> Result:
    """Make the index of the photos with random codes: all of a build but the network."""
    from ..model import HashModel
    from ..photos import PhotoIndex, scan_source
    from ..photos.catalog import CatalogRow
    from ..photos.digests import file_stat

    found = scan_source(place.photos)
    model = HashModel.load(place.run, device="cpu")
    photos = PhotoIndex.create(place.index, model, place.run, place.photos)
    codes, looks = random_photos(len(found.photos), place.options.seed)
    for start in range(0, len(codes), _PART):
        part = found.photos[start : start + _PART]
        ids = np.array([photo.id for photo in part], object)
        photos.index.add(
            _named(codes[start : start + _PART], ids),
            [list(photo.labels) for photo in part],
            [str(photo.path) for photo in part],
        )
        photos.index.save(place.index)
        rows = {p.id: CatalogRow(p.root, file_stat(p.path), _digest(p.id), None) for p in part}
        photos.catalog.write(rows)
        seen = looks[start : start + _PART]
        photos.catalog.write_looks(
            {_digest(photo.id): row.tobytes() for photo, row in zip(part, seen, strict=True)}
        )
    return {"items": len(photos.index)}


def open_the_index(place: Place) -> Result:
    """Open the index and search once."""
    from ..index import Index

    index = Index.open(place.index)
    index.search(random_photos(1, 1)[0], k=10)
    return {"items": len(index)}


def search_the_index(place: Place) -> Result:
    """Search: one query, and 64 at once."""
    from ..index import Index

    index, queries = Index.open(place.index), random_photos(_QUERIES, 1)[0]
    index.search(queries, k=10)
    times = {}
    for name, asked in (("one query", queries[:1]), (f"{_QUERIES} queries", queries)):
        started = time.perf_counter()
        for _ in range(10):
            index.search(asked, k=10)
        times[f"{name}, ms"] = 100 * (time.perf_counter() - started)
    return times


def find_the_duplicates(place: Place) -> Result:
    """Find duplicates."""
    from ..photos import PhotoDuplicates

    found = PhotoDuplicates(place.index).find(place.options.threshold)
    return {"groups": len(found), "threshold": found.threshold, "bits": found.bits}


STEPS: dict[str, Callable[[Place], Result]] = {
    "photos": make_photos,
    "scan": scan_photos,
    "table written": write_table,
    "table": read_the_table,
    "network": make_network,
    "index of random codes": index_random_codes,
    "open": open_the_index,
    "search": search_the_index,
    "duplicates": find_the_duplicates,
}


def random_photos(count: int, seed: int) -> tuple[Codes, NDArray[np.uint8]]:
    """Uniformly random codes and looks; some are copies of others with a few other bits.

    Args:
        count: Number of photos.
        seed: Seed.

    Returns:
        The codes, with content bits, and the looks, uint8 (count, 8).
    """
    from ..codes import Codes
    from ..photos.same_photo import LOOKS_BITS

    rng = np.random.default_rng(seed)
    packed, content, looks = (
        rng.integers(0, 256, (count, bits // 8), dtype=np.uint8)
        for bits in (BITS, CONTENT_BITS, LOOKS_BITS)
    )
    copies = rng.choice(count, int(_COPIES * count), replace=False)
    sources = rng.integers(0, count, len(copies))
    for each in (content, looks):
        each[copies] = each[sources] ^ _few_bits(len(copies), 8 * each.shape[1], rng)
    return Codes(packed, BITS, content=content, content_bits=CONTENT_BITS), looks


def _few_bits(count: int, bits: int, rng: np.random.Generator) -> NDArray[np.uint8]:
    return np.packbits(rng.random((count, bits)) < 3 / bits, axis=1)


def _named(codes: Codes, ids: NDArray[Any]) -> Codes:
    from dataclasses import replace

    return replace(codes, ids=ids)


def _digest(name: str) -> bytes:
    import hashlib

    return hashlib.sha256(name.encode()).digest()


def _write_folder(photos: Path, per_folder: int, seed: int, start: int, end: int) -> None:
    corners = np.random.default_rng((seed, start)).integers(
        0, 256, (end - start, 2, 2, 3), dtype=np.uint8
    )
    for number, each in zip(range(start, end), corners, strict=True):
        path = photos / _id(number, per_folder)
        if number == start:
            path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(_jpeg(each))


def _id(number: int, per_folder: int) -> str:
    return f"class{number // per_folder:04d}/IMG_{number:08d}.jpg"


def _jpeg(corners: NDArray[np.uint8]) -> bytes:
    """A small photo: a gradient between four colors."""
    from PIL import Image

    image = Image.fromarray(corners).resize((SIDE, SIDE), Image.Resampling.BILINEAR)
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=75)
    return buffer.getvalue()


def main(arguments: list[str]) -> None:
    """Run one step and print what it measured.

    Args:
        arguments: Name of the step, folder, and options as JSON.
    """
    name, folder, options = arguments
    place = Place(Path(folder), Options(**json.loads(options)))
    started = time.perf_counter()
    result = STEPS[name](place)
    result = {"seconds": time.perf_counter() - started, **result}
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
