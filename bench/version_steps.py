"""Steps of version 0.1, for the benchmarks that compare it. PYTHONPATH has the sources.

    python bench/version_steps.py STEP ARGUMENT...

prints what the step measured as JSON, with its seconds. `bench/versions.py` runs the steps.
"""

from __future__ import annotations

import json
import sys
import time
from argparse import Namespace
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from search_codes import Maker, codeword_signs

Result = dict[str, Any]
BITS = 64
SHORT_IDS = 100_000  # beside a long one
SOME = 1000  # items that are added and removed: one, then the rest
REPEATED = 8
QUERIES = 64


def make_run(run: str) -> Result:
    """A run with random weights: speed does not depend on them."""
    import hadahash as hh

    make = {"backbone": "efficientnet_lite0", "weights": "none", "frozen": True, "epochs": 1}
    hasher = hh.Hasher(bits=BITS, size=224, side=256, device="cpu", **make)
    pixels = np.random.default_rng(0).integers(0, 256, (64, 64, 64, 3), dtype=np.uint8)
    hasher.fit(pixels, np.arange(64) % 2).save(run)
    return {}


def index_random_codes(run: str, photos: str, out: str) -> Result:
    """An index of the photos with random codes, and the ledger of their files."""
    import hadahash as hh
    from hadahash.photos import Entry, PhotoIndex, _stamp, _write_entries, photos_of

    found = photos_of(photos)
    made = PhotoIndex.make(out, hh.Hasher.load(run, device="cpu"), run, photos)
    packed = np.random.default_rng(0).integers(0, 256, (len(found), BITS // 8), dtype=np.uint8)
    codes = hh.Codes(packed=packed, bits=BITS, ids=np.array([photo.id for photo in found]))
    labels = [photo.label for photo in found]
    made.index.add(codes, labels, [str(photo.path) for photo in found])
    made.index.save(out)
    entries = {
        photo.id: Entry(photo.root, _stamp(photo.path), photo.id.encode(), None) for photo in found
    }
    with made._ledger() as ledger:
        _write_entries(ledger, entries)
    return {"items": len(made.index)}


def scan_photos(photos: str) -> Result:
    """List the folder."""
    from hadahash.photos import photos_of

    return {"found": len(photos_of(photos))}


def read_the_table(table: str) -> Result:
    """Read the table, with checks of all rows."""
    from hadahash.data.table import read_table

    return {"rows": len(read_table(Path(table)))}


def open_the_index(index: str) -> Result:
    """Open the index and search once."""
    import hadahash as hh

    opened = hh.Index.open(index)
    opened.search(np.zeros((1, BITS // 8), np.uint8), 10)
    return {"items": len(opened)}


def add_a_long_id() -> Result:
    """Add an item with an id of 4,000 characters, then so many others that segments are merged.

    Version 0.2 can do this step, too.
    """
    import hadahash as hh

    def codes(ids: list[str]) -> Any:
        return hh.Codes(packed=np.zeros((len(ids), BITS // 8), np.uint8), bits=BITS, ids=ids)

    index = hh.Index.build(codes([f"{number}.jpg" for number in range(SHORT_IDS)]))
    index.add(codes(["d/" * 1990 + "x.jpg"]))
    index.add(codes([f"{number}.png" for number in range(SHORT_IDS // 2)]))
    return {"items": len(index)}


def add_an_item(index: str, item: str) -> Result:
    """Add an item with the code of another one to an index, and save it."""
    import hadahash as hh

    opened = hh.Index.open(index)
    codes = opened.codes(opened.ids[:1])
    opened.add(replace(codes, ids=np.array([item])))
    opened.save(index)
    return {"items": len(opened)}


def index_on_milvus(index: str, items: str) -> Result:
    """An index of random codes on the Milvus server that the environment names."""
    import hadahash as hh

    packed = np.random.default_rng(0).integers(0, 256, (int(items), BITS // 8), dtype=np.uint8)
    codes = hh.Codes(packed=packed, bits=BITS, ids=[f"{n}.jpg" for n in range(len(packed))])
    labels = ["a"] * len(packed)
    hh.Index.build(codes, labels, engine="milvus", collection="photos").save(index)
    return {"items": len(packed)}


def search_random(codes: str, bits: str, k: str, rounds: str, *threads: str) -> Result:
    """Search random codes with single queries, in turns with faiss: the seconds of each round."""
    import search_turns

    import hadahash as hh

    make, width = Maker("random", int(bits)), int(bits)
    packed = make(int(codes))
    index = hh.Index.build(hh.Codes(packed=packed, bits=width))
    engines = {"exact": search_turns.ours(index, int(k))}
    engines |= search_turns.flat_scans(packed, width, int(k))
    options = Namespace(rounds=int(rounds), threads=[int(each) for each in threads])
    queries = make(search_turns.QUERIES)
    times, _, right = search_turns.measure(engines, queries, 1, options, None, "faiss flat")
    turns = [[name, used, seconds] for (name, used), seconds in times.items()]
    return {"turns": turns, "rows_with_the_true_distances": min(right.values())}


def build_index(photos: str, run: str, out: str) -> Result:
    """Index a folder of photos with the network."""
    import hadahash as hh
    from hadahash.photos import PhotoIndex, photos_of

    hasher = hh.Hasher.load(run, device="cpu")
    started = time.perf_counter()
    index = PhotoIndex.open_or_make(out, hasher, run, photos)
    plan = index.plan(photos_of(photos), vanished_from=index.home)
    encoded = index.apply(plan, hasher).encoded
    return {"photos": encoded, "images_per_second": encoded / (time.perf_counter() - started)}


def search_large(codes: str, engine: str) -> Result:
    """Search a large collection with one query, add items and remove others."""
    import hadahash as hh

    kind = "random" if engine == "exact" else "clustered"
    make, count = Maker(kind, BITS), int(codes)
    words = {"codebook": codeword_signs(BITS)} if engine == "routed" else {}
    index = hh.Index.build(hh.Codes(packed=make(count), bits=BITS), engine=engine, **words)
    queries, times = make(QUERIES), []
    for row in range(len(queries)):
        started = time.perf_counter()
        index.search(queries[row : row + 1], 10)
        times.append(1000 * (time.perf_counter() - started))
    return {"engine": engine, "one query": median(times[1:]), "milliseconds": _change(index, make)}


def _change(index: Any, make: Callable[[int], Any]) -> dict[str, float]:
    """Median milliseconds of the changes that `bench/search_large.py` makes, in its order."""
    import hadahash as hh

    found: dict[str, list[float]] = {}
    count = len(index)
    spread = np.random.default_rng(2).permutation(count // SOME)[:REPEATED] * SOME
    for number, first in enumerate(spread.tolist()):
        for many, start in ((1, first), (SOME - 1, first + 1)):
            new_ids = np.arange(many) + count + number * SOME + (many > 1)
            new = hh.Codes(packed=make(many), bits=BITS, ids=new_ids)
            old = np.arange(start, start + many)
            changes = (("add", index.add, new, 1), ("remove", index.remove, old, 2))
            for name, step, given, searches in changes:
                started = time.perf_counter()
                step(given)
                found.setdefault(f"{name} {many}", []).append(time.perf_counter() - started)
                for _ in range(searches):  # as 0.2 does; the first one may prepare the next change
                    index.search(new.packed[:1], 10)
    return {name: 1000 * median(each) for name, each in found.items()}


STEPS: dict[str, Callable[..., Result]] = {
    "run": make_run,
    "index": index_random_codes,
    "scan": scan_photos,
    "table": read_the_table,
    "open": open_the_index,
    "long id": add_a_long_id,
    "add": add_an_item,
    "milvus": index_on_milvus,
    "random": search_random,
    "build": build_index,
    "large": search_large,
}


if __name__ == "__main__":
    started_at = time.perf_counter()
    result = STEPS[sys.argv[1]](*sys.argv[2:])
    print(json.dumps({"seconds": time.perf_counter() - started_at} | result))
