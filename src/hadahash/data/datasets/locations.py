"""Where the files of data sets are: in a given folder, or in the cache folder."""

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
        fits: Tells whether a folder holds the data set.
        below: Folders inside these places to look at, too.
        expected: What the folder must hold and where to get it, for the message.

    Returns:
        The first folder that fits.

    Raises:
        DataError: No folder fits.
    """
    tops = [cache_folder() / name] if root is None else [Path(root), Path(root) / name]
    places = [top / inner for top in tops for inner in ("", *below)]
    if root is None:
        places += [cache_folder() / inner for inner in below]
    for place in places:
        if fits(place):
            return place
    other = "" if root is None else "another "
    raise DataError(
        f"{name} is not in {tops[0]}. {expected} "
        f"Give {other or 'its '}folder with --data-root, or put it into {cache_folder() / name}."
    )
