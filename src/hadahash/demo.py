"""`hadahash demo`: train on real images in a minute on a CPU, evaluate, and write a page."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from .codebooks import codebook
from .codes import Codes
from .data import LabelledImages, open_dataset
from .encoding import FeatureCache
from .errors import HadaHashError
from .evaluation import Report
from .hasher import Hasher
from .photos import PhotoIndex
from .runs import Source, evaluate_run, read_evaluated, train_run
from .visuals.demo_page import DemoResult, write_demo_page
from .visuals.report.neighbours import Pictures, neighbour_rows

Info = Callable[[str], object]

QUERIES = 20  # queries on the page
INDEX = "photos.index"


@dataclass(frozen=True)
class DemoSettings:
    """Settings of the demo.

    Attributes:
        out: Folder for the runs, the index and the page.
        root: Folder that holds CIFAR-10; None: the cache.
        bits: Code length.
        size: Input size of the network in pixels: small, since the demo is meant for CPUs.
        seed: Random seed.
    """

    out: Path = Path("demo")
    root: Path | None = None
    bits: int = 64
    size: int = 128
    seed: int = 0


@dataclass(frozen=True)
class ComparedMethod:
    """A method in the comparison.

    Attributes:
        method: Name in the registry.
        title: Name on the page.
        settings: Settings that differ from the defaults.
    """

    method: str
    title: str
    settings: dict[str, Any]


COMPARED_METHODS = (
    ComparedMethod(
        "hcdh",
        "HCDH, a head trained on frozen features",
        {"frozen": True, "epochs": 60, "lr": 0.3},
    ),
    ComparedMethod("lsh", "LSH, random projections of the same features", {}),
)


def run_demo(settings: DemoSettings, info: Info) -> Path:
    """Train, encode and evaluate the compared methods, build an index and write a page.

    Args:
        settings: Settings of the demo.
        info: Called with lines about the progress.

    Returns:
        The page.

    Raises:
        HadaHashError: If a step fails. Without CIFAR-10 the demo uses scikit-learn's digits.
    """
    started = time.monotonic()
    dataset, source = _open_images(settings, info)
    cache, reports, hashers = FeatureCache(), {}, []
    for compared in COMPARED_METHODS:
        info(f"{compared.title} ...")
        hasher = Hasher(
            compared.method,
            bits=settings.bits,
            seed=settings.seed,
            size=settings.size,
            **compared.settings,
        )
        run = settings.out / compared.method
        train_run(hasher, source, run, dataset=dataset, cache=cache)
        reports[compared.title] = evaluate_run(run, hasher=hasher, dataset=dataset, cache=cache)
        info(f"  mAP {reports[compared.title].map:.4f}")
        hashers.append(hasher)
    page = settings.out / "index.html"
    _write_page(page, settings, dataset, reports)
    _build_index(settings.out, dataset, hashers[0])
    info(f"done in {time.monotonic() - started:.0f} s")
    return page


def _build_index(out: Path, dataset: LabelledImages, hasher: Hasher) -> None:
    """Index the database, with its images as files, so that it can be searched and served."""
    run = out / COMPARED_METHODS[0].method
    codes, images, folder = Codes.load(run / "codes" / "database.npz"), out / "images", out / INDEX
    row_of = {name: row for row, name in enumerate(dataset.ids)}
    rows = [row_of[name] for name in codes.ids]
    labels = [dataset.classes[dataset.labels[row]] for row in rows]
    names = [
        f"{label}/{name.replace('/', '-')}.png"
        for label, name in zip(labels, codes.ids, strict=True)
    ]
    for row, name in zip(rows, names, strict=True):
        (images / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(dataset.images[row]).save(images / name)
    shutil.rmtree(folder, ignore_errors=True)
    index = PhotoIndex.make(folder, hasher, run, images, engine="routed").index
    index.update(
        Codes(codes.packed, codes.bits, np.array(names)),
        labels,
        [str((images / name).resolve()) for name in names],
    )
    index.save(folder)


def _open_images(settings: DemoSettings, info: Info) -> tuple[LabelledImages, Source]:
    """CIFAR-10 with a small protocol, or scikit-learn's digits if it is not available."""
    try:
        dataset = open_dataset("cifar10", settings.root, say=info)
        return dataset, Source("cifar10", protocol="cifar10-demo")
    except HadaHashError as error:
        info(f"CIFAR-10 is not available: {error}")
        info("Using scikit-learn's digits instead: 1,797 images of 8 x 8 pixels.")
        return open_dataset("digits"), Source("digits")


def _write_page(
    page: Path, settings: DemoSettings, dataset: LabelledImages, reports: dict[str, Report]
) -> None:
    run = read_evaluated(settings.out / COMPARED_METHODS[0].method)
    shown = np.linspace(0, len(run.query) - 1, QUERIES).astype(int)
    ap = next(iter(reports.values())).average_precision
    result = DemoResult(
        dataset=dataset.name,
        description=f"Features of EfficientNet-Lite0 at {settings.size} px, seed {settings.seed}.",
        reports=reports,
        rows=neighbour_rows(run, Pictures(dataset, photo=False), shown.tolist(), ap),
        codebook=codebook(len(dataset.classes), settings.bits, seed=settings.seed),
        classes=dataset.classes,
    )
    write_demo_page(page, result)
