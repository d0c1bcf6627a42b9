from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..data import DATASETS, DatasetInfo, make_split
from ..errors import HadaHashError
from . import options, output

app = typer.Typer(help="Fetch or check the files of a benchmark.", no_args_is_help=True)


@app.command("get")
def get(
    name: Annotated[
        str, typer.Argument(help="A data set's name; `hadahash data list` shows them.")
    ],
    data_root: options.Root = None,
) -> None:
    """Find a data set's files, or fetch them, and check them.

    Example: hadahash data get cifar10
    """
    entry = DATASETS.get(name)
    place = entry.locate(data_root, download=True, info=output.info)
    images = entry.read(place)
    output.result(f"{name}: {len(images):,} images, {len(images.classes)} classes, in {place}")
    sizes = ", ".join(
        f"{part} {size:,}" for part, size in make_split(images, entry.protocol).sizes.items()
    )
    output.result(f"protocol {entry.protocol}: {sizes}; mAP@{entry.depth or 'all'}")


@app.command("list")
def list_(data_root: options.Root = None) -> None:
    """List the data sets that are known by name, and where their files are; `data get NAME` shows the sizes of one.

    Example: hadahash data list
    """
    for name in DATASETS.names():
        entry = DATASETS.get(name)
        measure = f"protocol {entry.protocol}, mAP@{entry.depth or 'all'}"
        output.result(f"{name:<20}{measure:<42}{_place(entry, data_root)}")


def _place(entry: DatasetInfo, root: Path | None) -> str:
    try:
        place = entry.locate(root, download=False)
    except HadaHashError:
        return "not here"
    return "needs no files" if place == Path() else f"in {place}"
