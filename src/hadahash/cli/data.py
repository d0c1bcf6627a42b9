from __future__ import annotations

from typing import Annotated

import typer

from ..data import DATASETS, find_dataset
from . import options, show

app = typer.Typer(help="Fetch or check the files of a benchmark.", no_args_is_help=True)


@app.command("get")
def get(
    name: Annotated[str, typer.Argument(help="A data set's name; `hadahash data list` shows them.")],
    data_root: options.Root = None,
) -> None:
    """Find a data set's files, or fetch them, and check them.

    Example: hadahash data get cifar10
    """
    entry = DATASETS.get(name)
    place = entry.get(data_root, download=True, say=show.say)
    images = entry.read(place)
    show.result(f"{name}: {len(images):,} images, {len(images.classes)} classes, in {place}")


@app.command("list")
def list_() -> None:
    """List the data sets that are known by name.

    Example: hadahash data list
    """
    for name in DATASETS.names():
        entry = find_dataset(name)
        show.result(f"{name:<20}protocol {entry.protocol}, mAP@{entry.depth or 'all'}")
