"""One million embeddings from a file: fit, encode, index and search in bounded memory.

    python bench/embeddings.py

A file of --rows vectors of --width floats is made first (seeded; correlated dimensions, far from
the origin, as features after a ReLU): .npy, or a table with a column of lists, which is copied to a
temporary file when it is opened. Everything after that runs in a process of its own, whose peak of
resident memory is measured after each step. The file is removed at the end. Cases of the stored
result that are not measured again are kept.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import chain, product
from pathlib import Path
from typing import Any

import common
import numpy as np
from numpy.typing import NDArray

import hadahash as hh
from hadahash import files
from hadahash.data.embedding_files import open_embeddings

QUERIES, K = 100, 10


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark and write the result as JSON."""
    parser = common.make_parser("embeddings", __doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--bits", type=int, nargs="+", default=[128])
    parser.add_argument("--types", nargs="+", default=["float32", "float16"])
    parser.add_argument("--formats", nargs="+", default=["npy", "parquet", "arrow"])
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    options = common.parse(parser, arguments)
    if options.worker is not None:
        print(json.dumps(measure(options.worker, options.bits[0])))
        return
    result = common.begin(options)
    stored = files.read_json(options.out)["cases"] if options.out.exists() else []
    cases = {(case.get("format", "npy"), case["type"], case["bits"]): case for case in stored}
    for form, kind in product(options.formats, options.types):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"x.{form}"
            write_vectors(path, vectors(options.rows, options.width, kind), options.rows)
            for bits in options.bits:
                found = {"load": common.load(), **run_worker(path, bits)}
                cases[form, kind, bits] = {"format": form, "type": kind, "bits": bits, **found}
    result |= {"rows": options.rows, "width": options.width, "cases": list(cases.values())}
    common.finish(result, options)


def vectors(rows: int, width: int, kind: str) -> Iterator[NDArray[Any]]:
    """Correlated vectors around a common mean, in batches."""
    rng = np.random.default_rng(0)
    mixing = rng.normal(size=(64, width)).astype(np.float32) / 8
    for start in range(0, rows, 10_000):
        count = min(10_000, rows - start)
        hidden = rng.standard_normal((count, 64), np.float32)
        noise = rng.standard_normal((count, width), np.float32)
        yield (2 + hidden @ mixing + 0.5 * noise).astype(kind)


def write_vectors(path: Path, batches: Iterator[NDArray[Any]], rows: int) -> None:
    """Write a .npy, .parquet or .arrow file."""
    first = next(batches)
    if path.suffix == ".npy":
        mapped = np.lib.format.open_memmap(path, "w+", first.dtype, (rows, first.shape[1]))
        start = 0
        for batch in chain([first], batches):
            mapped[start : start + len(batch)] = batch
            start += len(batch)
        mapped.flush()
        return
    import pyarrow as pa
    from pyarrow import ipc, parquet

    kind = pa.list_(pa.from_numpy_dtype(first.dtype), first.shape[1])
    schema = pa.schema([("vector", kind)])
    make = parquet.ParquetWriter if path.suffix == ".parquet" else ipc.new_file
    with make(str(path), schema) as writer:
        for batch in chain([first], batches):
            column = pa.FixedSizeListArray.from_arrays(pa.array(batch.ravel()), batch.shape[1])
            writer.write_batch(pa.record_batch([column], schema=schema))


def run_worker(path: Path, bits: int) -> dict[str, Any]:
    """Measure in a new process, whose peak of memory is its own."""
    command = [sys.executable, __file__, "--worker", str(path), "--bits", str(bits)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def measure(path: Path, bits: int) -> dict[str, Any]:
    """Fit, encode, index and search; seconds, and the peak of memory after each step."""
    steps: dict[str, dict[str, float]] = {"imports": {"peak_mb": peak()}}
    folder = path.parent

    def step(name: str, started: float) -> None:
        steps[name] = {"seconds": round(time.perf_counter() - started, 2), "peak_mb": peak()}

    started = time.perf_counter()
    source = open_embeddings(path)
    step("open", started)
    started = time.perf_counter()
    hasher = hh.Hasher("itq", bits=bits, device="cpu").fit(source)
    step("fit", started)
    started = time.perf_counter()
    codes = hasher.model_.encode_to_file(source, folder / "codes.npz")
    step("encode", started)
    started = time.perf_counter()
    hh.Index.build(codes, ranking=hasher.model_.ranking).save(folder / f"{bits}.index")
    step("index", started)
    index = hh.Index.open(folder / f"{bits}.index")
    queries = hasher.queries(source.take(np.arange(QUERIES)))
    for name, query in (("hamming", queries.codes()), ("class", queries)):
        index.search(query[[0]], K, rank=name)  # not counted
        started = time.perf_counter()
        found = index.search(query, K, rank=name)
        step(f"search {name}", started)
        if not (found.ids[:, 0] == np.arange(QUERIES)).mean() > 0.9:
            raise SystemExit(f"{name}: queries do not find themselves")
    return {
        "file_mb": round(path.stat().st_size / 1e6),
        "fitted_on": hasher.model_.info["train_images"],
        "codes": len(codes),
        "queries": QUERIES,
        "steps": steps,
    }


def peak() -> int:
    """The peak of resident memory of this process in MB; ru_maxrss would include the parent's."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(found[1]) // 1024 if found else 0


if __name__ == "__main__":
    main()
