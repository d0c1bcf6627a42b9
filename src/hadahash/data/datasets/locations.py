"""Locate the files of data sets, in a given folder or in the cache folder."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from ...errors import DataError


def cache_folder() -> Path:
    """Return the folder of data sets: the variable HADAHASH_DATA, or ~/.cache/hadahash."""
    return Path(os.environ.get("HADAHASH_DATA") or Path.home() / ".cache" / "hadahash")


def locate_dataset(
    name: str,
    root: str | Path | None,
    fits: Callable[[Path], bool],
    *,
    below: Sequence[str] = (),
    expected: str,
) -> Path:
    """Find the folder of a data set that is not downloaded automatically.

    Args:
        name: Name of the data set.
        root: Where to look; None for the folder `name` in the cache folder.
        fits: Returns whether a folder contains the data set.
        below: Subfolders to search as well.
        expected: What the folder must hold and where to get it, for the message.

    Returns:
        The first folder that fits.

    Raises:
        DataError: No folder fits.
    """
    tops = [cache_folder() / name] if root is None else [Path(root), Path(root) / name]
    candidates = [top / inner for top in tops for inner in ("", *below)]
    if root is None:
        candidates += [cache_folder() / inner for inner in below]
    for candidate in candidates:
        if fits(candidate):
            return candidate
    other = "" if root is None else "another "
    raise DataError(
        f"{name} is not in {tops[0]}. {expected} "
        f"Give {other or 'its '}folder with --data-root, or put it into {cache_folder() / name}."
    )
