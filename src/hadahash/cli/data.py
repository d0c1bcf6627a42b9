"""The commands `hadahash data list`, `data get` and `data prepare`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import HadaHashError
from . import options, output

if TYPE_CHECKING:
    from ..data import DatasetInfo

app = typer.Typer(help="List, download, check or prepare data sets.", no_args_is_help=True)


@app.command("get")
def get(
    name: Annotated[str, typer.Argument(help="Name of a data set; see `hadahash data list`.")],
    data_root: options.Root = None,
) -> None:
    """Find or download the files of a data set, and check them.

    Example: hadahash data get cifar10
    """
    from ..data import DATASETS, make_split

    entry = DATASETS.get(name)
    place = entry.locate(data_root, download=True, info=output.info)
    images = entry.read(place)
    output.result(f"{name}: {len(images):,} images, {len(images.classes)} classes, in {place}")
    sizes = make_split(images, entry.protocol).sizes
    shown = ", ".join(f"{part} {size:,}" for part, size in sizes.items())
    output.result(f"protocol {entry.protocol}: {shown}; mAP@{entry.depth or 'all'}")


@app.command("list")
def list_(data_root: options.Root = None) -> None:
    """List the built-in data sets and the location of their files.

    Example: hadahash data list
    """
    from ..data import DATASETS

    for name in DATASETS.names():
        entry = DATASETS.get(name)
        measure = f"protocol {entry.protocol}, mAP@{entry.depth or 'all'}"
        output.result(f"{name:<20}{measure:<42}{_place(entry, data_root)}")


@app.command("prepare")
def prepare(
    name: Annotated[str, typer.Argument(help="voc2012-112px or tinyimagenet100.")],
    source: Annotated[Path, typer.Argument(help="Folder of the data set as published.")],
    dest: Annotated[Path, typer.Argument(help="Folder for the copy; must be empty or not exist.")],
) -> None:
    """Make a copy of a data set as the published results use it.

    Example: hadahash data prepare voc2012-112px VOCdevkit voc112
    """
    from ..data import prepare as preparations

    count = preparations.prepare(name, source, dest, info=output.info)
    output.result(f"{name}: {count:,} images in {dest}")


def _place(entry: DatasetInfo, root: Path | None) -> str:
    try:
        place = entry.locate(root, download=False)
    except HadaHashError:
        return "not found"
    return "needs no files" if place == Path() else f"in {place}"
