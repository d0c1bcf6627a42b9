"""The demonstration: real images, a model trained in a minute on a CPU, an honest number and a page to look at."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from .codebooks import codebook, codebook_quality
from .codes import Codes
from .data import LabelledImages, open_dataset
from .encoding import FeatureCache
from .errors import HadaHashError
from .evaluation import Report
from .hasher import Hasher
from .photos import PhotoIndex
from .runs import Source, evaluate_run, read_evaluated, train_run
from .visuals.html import bit_picture, heading, paragraph, sheet, table, write_page
from .visuals.report.neighbours import Pictures, neighbour_rows

Say = Callable[[str], object]

ROWS = 20  # of the sheet of pictures
INDEX = "photos.index"


@dataclass(frozen=True)
class DemoSettings:
    out: Path = Path("demo")
    root: Path | None = None  # where CIFAR-10 is; None: the cache
    bits: int = 64
    size: int = 128  # pixels of the network's input: small, since this is meant for CPUs
    seed: int = 0


@dataclass(frozen=True)
class Contestant:
    """A method that takes part, as the page names it."""

    method: str
    title: str
    settings: dict[str, Any]


CONTESTANTS = (
    Contestant(
        "hcdh", "HCDH, a head trained on the features", {"frozen": True, "epochs": 60, "lr": 0.3}
    ),
    Contestant("lsh", "LSH, random projections of the same features", {}),
)


def run_demo(settings: DemoSettings, say: Say) -> Path:
    """Train, encode, evaluate and write the page; answers where it is."""
    started = time.monotonic()
    dataset, source = _images(settings, say)
    cache, reports, hashers = FeatureCache(), {}, []
    for contestant in CONTESTANTS:
        say(f"{contestant.title} ...")
        hasher = Hasher(
            contestant.method,
            bits=settings.bits,
            seed=settings.seed,
            size=settings.size,
            **contestant.settings,
        )
        run = settings.out / contestant.method
        train_run(hasher, source, run, dataset=dataset, cache=cache)
        reports[contestant.title] = evaluate_run(run, hasher=hasher, dataset=dataset, cache=cache)
        say(f"  mAP {reports[contestant.title].map:.4f}")
        hashers.append(hasher)
    page = settings.out / "index.html"
    _write(page, settings, dataset, reports)
    _build_index(settings.out, dataset, hashers[0])
    say(f"done in {time.monotonic() - started:.0f} s")
    return page


def _build_index(out: Path, dataset: LabelledImages, hasher: Hasher) -> None:
    """Put the database into an index, with its images as files, so that it can be searched and served."""
    run = out / CONTESTANTS[0].method
    codes, images, folder = Codes.load(run / "codes" / "database.npz"), out / "images", out / INDEX
    row_of = {name: row for row, name in enumerate(dataset.ids)}
    rows = [row_of[name] for name in codes.ids]
    labels = [dataset.classes[label] for label in dataset.labels.take(rows).array]
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


def _images(settings: DemoSettings, say: Say) -> tuple[LabelledImages, Source]:
    """CIFAR-10 under a small protocol, or scikit-learn's digits where it cannot be had."""
    try:
        return open_dataset("cifar10", settings.root, info=say), Source(
            "cifar10", protocol="cifar10-demo"
        )
    except HadaHashError as error:
        say(f"CIFAR-10 could not be had: {error}")
        say("Going on with scikit-learn's digits: 1,797 images of 8 x 8 pixels.")
        return open_dataset("digits"), Source("digits")


def _write(
    page: Path, settings: DemoSettings, dataset: LabelledImages, reports: dict[str, Report]
) -> None:
    book = codebook(len(dataset.classes), settings.bits, seed=settings.seed)
    first, shown = (
        next(iter(reports.values())),
        read_evaluated(settings.out / CONTESTANTS[0].method),
    )
    measured = [
        (title, f"{report.map:.4f}", *(f"{report.precision_at[k]:.4f}" for k in (1, 10, 100)))
        for title, report in reports.items()
    ]
    figures = [
        (name.replace("_", " "), f"{value:.4g}")
        for name, value in codebook_quality(book).to_dict().items()
    ]
    sections = [
        paragraph(
            f"{dataset.name}: {first.queries:,} queries searched in {first.database:,} images by codes of {first.bits} bits; "
            f"features of EfficientNet-Lite0 at {settings.size} px, seed {settings.seed}. mAP is the exact expectation over "
            "the order of images at equal distance."
        ),
        heading("How well it finds"),
        table(("method", "mAP", "P@1", "P@10", "P@100"), measured),
        heading("The nearest images (HCDH)"),
        paragraph(
            "The query stands first, with its average precision. ✓ and a solid frame: of the query's class; ✗ and a dashed "
            "frame: not. Under each its class and the bits that differ."
        ),
        sheet(
            neighbour_rows(
                shown, Pictures(dataset), np.linspace(0, len(shown.query) - 1, ROWS).astype(int)
            )
        ),
        heading("The codebook"),
        paragraph("One codeword for each class, which the codes of its images are pulled to."),
        bit_picture(book, dataset.classes),
        table(("figure", "value"), figures),
    ]
    write_page(page, "HadaHash: a first look", sections)
