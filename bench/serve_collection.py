"""Make the collection of `bench/serve_million.py`: a run, an index and some photos.

    python bench/serve_collection.py FOLDER ITEMS CONTENT_BITS

It uses what version 0.1 has, so that `PYTHONPATH` chooses the version; where there is a catalog
that searches read, it is written as `hadahash index build` does. The model is trained on noise for
one epoch: speed does not depend on the weights. The codes are random; every tenth photo has the
content bits and the looks of the one before, for searches for duplicates. Ids are those of a large
photo folder, with one label and one path per item; the first items have files, JPEGs of 12
megapixels.
"""

from __future__ import annotations

import hashlib
import io
import sys
from pathlib import Path

import numpy as np
from PIL import Image

import hadahash as hh

BITS, LABELS, FILES = 64, 100, 200
WIDTH, HEIGHT = 4000, 3000
_PART = 8192  # rows of the catalog written at once


def main(folder: Path, items: int, content_bits: int) -> None:
    """Write `run`, `index`, `photos` and `query.jpg` to a folder."""
    rng = np.random.default_rng(0)
    names = [f"class{i % LABELS:04d}/2019-summer-holiday/IMG_{i:08d}.jpg" for i in range(items)]
    write_photos(folder, names, rng)
    more = {"content_bits": content_bits} if content_bits else {}
    hasher = hh.Hasher(
        bits=BITS,
        backbone="efficientnet_lite0",
        weights="none",
        size=224,
        side=256,
        frozen=True,
        epochs=1,
        device="cpu",
        **more,
    )
    pixels = rng.integers(0, 256, (64, 64, 64, 3), dtype=np.uint8)
    hasher.fit(pixels, np.arange(64) % 2).save(folder / "run")
    packed = rng.integers(0, 256, (items, BITS // 8), dtype=np.uint8)
    options = {}
    if content_bits:
        content = copied(rng.integers(0, 256, (items, content_bits // 8), dtype=np.uint8))
        codes = hh.Codes(packed, BITS, names, content=content, content_bits=content_bits)
        options["ranking"] = hasher.model_.ranking
    else:
        codes = hh.Codes(packed=packed, bits=BITS, ids=names)
    labels = [name.partition("/")[0] for name in names]
    hh.Index.build(codes, labels, names, **options).save(folder / "index")
    write_catalog(folder, names, rng)


def copied(rows: np.ndarray) -> np.ndarray:
    """Bits of photos, of which every tenth is a copy of the one before."""
    rows[1::10] = rows[: len(rows) - 1 : 10]
    return rows


def write_catalog(folder: Path, names: list[str], rng: np.random.Generator) -> None:
    """Write what is known of the files: size, time, digest, and what each looks like."""
    try:
        from hadahash.photos.catalog import Catalog, CatalogRow, FileStat
    except ImportError:  # version 0.1, whose searches read no catalog
        return
    catalog, root = Catalog(folder / "index"), folder / "photos"
    looks = copied(rng.integers(0, 256, (len(names), 8), dtype=np.uint8))
    digests = [hashlib.sha256(name.encode()).digest() for name in names]
    for start in range(0, len(names), _PART):
        part = slice(start, start + _PART)
        rows = zip(names[part], digests[part], strict=True)
        catalog.write({name: CatalogRow(root, FileStat(1, 1), each, None) for name, each in rows})
        seen = zip(digests[part], looks[part], strict=True)
        catalog.write_looks({digest: row.tobytes() for digest, row in seen})


def write_photos(folder: Path, names: list[str], rng: np.random.Generator) -> None:
    """Write the files of the first items, and a photo to search with."""
    small = rng.integers(0, 256, (30, 40, 3), dtype=np.uint8)
    query = Image.fromarray(small).resize((640, 480), Image.Resampling.BICUBIC)
    query.save(folder / "query.jpg", quality=90)
    buffer = io.BytesIO()
    large = Image.fromarray(small).resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC)
    large.save(buffer, "JPEG", quality=90)
    for name in names[:FILES]:
        path = folder / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(buffer.getvalue())


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
