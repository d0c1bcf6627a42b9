"""Where the files of a data set are: in the folder that is given, or in the cache folder."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from ...errors import DataError


def cache_folder() -> Path:
    """Where data sets are kept: the environment variable HADAHASH_DATA, or ~/.cache/hadahash."""
    return Path(os.environ.get("HADAHASH_DATA") or Path.home() / ".cache" / "hadahash")


def locate_dataset(
    name: str,
    root: str | Path | None,
    fits: Callable[[Path], bool],
    *,
    below: Sequence[str] = (),
    expected: str,
) -> Path:
    """The first folder that `fits`: `root`, or NAME in the cache folder, or a folder of theirs named in `below`.

    For data sets that are not fetched, so the error says what is `expected` there and where one gets it.
    """
    tops = [cache_folder() / name] if root is None else [Path(root), Path(root) / name]
    places = [top / inner for top in tops for inner in ("", *below)]
    if root is None:
        places += [cache_folder() / inner for inner in below]
    for place in places:
        if fits(place):
            return place
    remedy = (
        "Name its folder with --data-root"
        if root is None
        else "Name another folder with --data-root"
    )
    raise DataError(
        f"{name} is not in {tops[0]}. {expected} {remedy}, or put it into {cache_folder() / name}."
    )
