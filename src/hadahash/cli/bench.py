"""`hadahash bench`: measure search and evaluation speed, or a million photos, on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from .. import native
from ..codebooks import codebook as make_codebook
from ..codes import Codes, pack
from ..evaluation import evaluate
from ..index import Index
from ..settings import require
from . import options, output
from .bench_scale import scale

_CLASSES = 100  # number of codewords
_FLIPPED = 0.05  # fraction of bits that differ from the codeword
_K, _BATCH, _ROUNDS, _BLOCK = 10, 64, 20, 100_000


app = typer.Typer()
app.command("scale")(scale)


@app.callback(invoke_without_command=True)
def bench(
    context: typer.Context,
    codes: Annotated[int, typer.Option(help="Number of codes to search in.")] = 1_000_000,
    bits: options.Bits = 64,
    queries: Annotated[int, typer.Option(help="Number of queries to evaluate.")] = 1_000,
    seed: options.Seed = 0,
    json: options.Json = False,
) -> None:
    """Measure search and evaluation speed on random codes around 100 codewords.

    `hadahash bench scale` measures the steps from a million photos to a search.

    Example: hadahash bench --codes 10000000 --bits 64
    """
    if context.invoked_subcommand is not None:
        return
    for option, value in (("--codes", codes), ("--bits", bits), ("--queries", queries)):
        require(value > 0, f"{option} must be >= 1, got {value}.")
    figures: dict[str, Any] = {"codes": codes, "bits": bits, "seed": seed}
    figures |= {
        "cores": native.usable_cores(),
        "kernels": native.describe(),
        **_measure(codes, bits, queries, seed),
    }
    if json:
        output.as_json(figures)
        return
    for title, figure in figures.items():
        output.result(f"{title:<44}{f'{figure:,.3g}' if isinstance(figure, float) else figure}")


def _measure(count: int, bits: int, queries: int, seed: int) -> dict[str, Any]:
    rng, book = np.random.default_rng(seed), make_codebook(_CLASSES, bits, seed=seed)
    database, labels = _draw(count, book, rng)
    query_codes, query_labels = _draw(max(queries, _BATCH), book, rng)
    engines = {
        "exact": Index.build(database),
        "routed": Index.build(database, engine="routed", codewords=book),
    }
    found = [index.search(query_codes[:_BATCH], k=_K).distances for index in engines.values()]
    figures: dict[str, Any] = {"engines agree": "yes" if (found[0] == found[1]).all() else "NO"}
    for name, index in engines.items():
        search = partial(index.search, k=_K)
        figures[f"{name}, one query, ms"] = _milliseconds(
            search, [query_codes[n : n + 1] for n in range(_ROUNDS)]
        )
        figures[f"{name}, {_BATCH} queries at once, ms each"] = (
            _milliseconds(search, [query_codes[:_BATCH]] * _ROUNDS) / _BATCH
        )
    started = time.perf_counter()
    evaluate(query_codes[:queries], query_labels[:queries], database, labels)
    return figures | {f"mAP of {queries:,} queries, s": time.perf_counter() - started}


def _draw(
    count: int, book: NDArray[np.int8], rng: np.random.Generator
) -> tuple[Codes, NDArray[np.int64]]:
    """Draw codewords with some bits flipped, and their classes.

    In blocks, because the random numbers take 64 times the memory of the codes.
    """
    labels = rng.integers(0, len(book), count)
    packed = pack(book)[labels]
    for start in range(0, count, _BLOCK):
        block = packed[start : start + _BLOCK]
        block ^= pack(np.where(rng.random((len(block), book.shape[1])) < _FLIPPED, 1, -1))
    return Codes(packed, book.shape[1]), labels


def _milliseconds(search: Callable[[Codes], object], query_codes: list[Codes]) -> float:
    """Return the median time of a call."""
    times = []
    for each in query_codes:
        started = time.perf_counter()
        search(each)
        times.append(1000 * (time.perf_counter() - started))
    return median(times)
