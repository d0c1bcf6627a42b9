"""Built-in data sets.

A new data set is one file here: a function that locates (or downloads) its files, a function that
reads them, and `DATASETS.register(name)(DatasetInfo(...))`. All modules of this package are
imported.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ...registry import Registry
from ..base import LabelledImages


@dataclass(frozen=True)
class DatasetInfo:
    """How a data set is located and read, and how results on it are measured by default.

    Attributes:
        name: Name of the data set.
        protocol: Name of the split protocol.
        depth: Rank cut-off R of mAP@R; None for the whole ranking.
        read: Takes what `locate` returned and returns the whole data set.
        locate: Called as `locate(root, download=..., info=...)`; returns the folder of the files.
    """

    name: str
    protocol: str
    depth: int | None
    read: Callable[[Path], LabelledImages]
    locate: Callable[..., Path]


DATASETS: Registry[DatasetInfo] = Registry("data set")


def list_datasets() -> list[str]:
    """Return the names of all registered data sets."""
    return DATASETS.names()


for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
