"""`hadahash demo`: train on real images in a minute on a CPU, evaluate, and write a page."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from .building import make_config
from .data import LabelledImages, open_dataset
from .errors import HadaHashError
from .evaluation import Report
from .model import HashModel
from .photos import PhotoIndex
from .runs import DataSpec, evaluate_run, read_evaluated_run, train_run
from .shared_features import SharedFeatures
from .visuals.demo_page import DemoResult, write_demo_page
from .visuals.report.neighbors import Pictures, neighbor_rows

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
    dataset, spec = _open_images(settings, info)
    cache, reports, models = SharedFeatures(), {}, []
    for compared in COMPARED_METHODS:
        info(f"{compared.title} ...")
        run = settings.out / compared.method
        config = make_config(
            compared.method,
            bits=settings.bits,
            seed=settings.seed,
            content_bits=None,  # the default: 128 beside class bits, none for random projections
            settings=compared.settings | {"size": settings.size},
        )
        known: Any = {"dataset": dataset, "cache": cache}
        model = train_run(config, spec, run, overwrite=True, **known)
        reports[compared.title] = evaluate_run(run, model=model, **known)
        report = reports[compared.title]
        info(f"  mAP {report.map:.4f}. {report.summary()}")
        models.append(model)
    page = settings.out / "index.html"
    _write_page(page, settings, dataset, reports, models[0])
    _build_index(settings.out, dataset, models[0])
    info(f"done in {time.monotonic() - started:.0f} s")
    return page


def _build_index(out: Path, dataset: LabelledImages, model: HashModel) -> None:
    """Index the database, with its images as files, so that it can be searched and served."""
    run, images, folder = out / COMPARED_METHODS[0].method, out / "images", out / INDEX
    codes = read_evaluated_run(run).database
    row_of = {name: row for row, name in enumerate(dataset.ids)}
    rows = [row_of[name] for name in codes.ids]
    labels = [dataset.classes[label] for label in dataset.labels.take(rows).array]
    names = [
        f"{label}/{str(name).replace('/', '-')}.png"
        for label, name in zip(labels, codes.ids, strict=True)
    ]
    for row, name in zip(rows, names, strict=True):
        (images / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(dataset.images[row]).save(images / name)
    shutil.rmtree(folder, ignore_errors=True)
    index = PhotoIndex.create(folder, model, run, images, engine="routed").index
    index.update(
        replace(codes, ids=np.array(names), skipped=()),
        labels,
        [str((images / name).resolve()) for name in names],
    )
    index.save(folder)


def _open_images(settings: DemoSettings, info: Info) -> tuple[LabelledImages, DataSpec]:
    """CIFAR-10 with a small protocol, or scikit-learn's digits if it is not available."""
    try:
        dataset = open_dataset("cifar10", settings.root, info=info)
        return dataset, DataSpec("cifar10", _root(settings), protocol="cifar10-demo")
    except HadaHashError as error:
        info(f"CIFAR-10 is not available: {error}")
        info("Using scikit-learn's digits instead: 1,797 images of 8 x 8 pixels.")
        return open_dataset("digits"), DataSpec("digits")


def _root(settings: DemoSettings) -> str | None:
    return None if settings.root is None else str(settings.root)


def _write_page(
    page: Path,
    settings: DemoSettings,
    dataset: LabelledImages,
    reports: dict[str, Report],
    model: HashModel,
) -> None:
    run = read_evaluated_run(settings.out / COMPARED_METHODS[0].method)
    shown = np.linspace(0, len(run.query) - 1, QUERIES).astype(int)
    ap = next(iter(reports.values())).average_precision
    pictures, rows = Pictures(dataset, photo=False), shown.tolist()
    result = DemoResult(
        dataset=dataset.name,
        description=f"Features of EfficientNet-Lite0 at {settings.size} px, seed {settings.seed}.",
        reports=reports,
        rows=neighbor_rows(run, pictures, rows, ap, ranking=model.ranking),
        plain_rows=neighbor_rows(run, pictures, rows, ap),
        codebook=model.codewords(),
        classes=dataset.classes,
    )
    write_demo_page(page, result)
