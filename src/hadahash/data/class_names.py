"""Which folders can be classes: neither splits nor albums."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from pathlib import Path

from ..errors import DataError
from .base import DataWarning

_SPLITS = frozenset(
    ("train", "training", "test", "testing", "val", "valid", "validation", "query", "database")
)


# Dates, and names that cameras, phones and programs give to folders.
_ALBUM = re.compile(
    r"^(19|20)\d\d([-_. ]?[01]\d)?([-_. ]?[0-3]\d)?\b|\b(19|20)\d\d$|^\d{3}[A-Z_]{5}$|^DCIM$"
    r"|camera|screenshots|whatsapp|downloads|^(my )?(photos|pictures|album)",
    re.IGNORECASE,
)


def warn_of_albums(root: str | Path, classes: tuple[str, ...]) -> None:
    """Warn if the folders look like albums: a model would learn to tell the albums apart.

    Args:
        root: The folder or address.
        classes: The names of its folders.
    """
    albums = [name for name in classes if _ALBUM.search(name)]
    if 2 * len(albums) >= len(classes):
        warnings.warn(
            f"{len(albums)} of the {len(classes)} folders of {root} look like albums, not classes "
            f"({_some(albums)}). To search photos without classes: hadahash index build {root}",
            DataWarning,
            stacklevel=3,
        )


def require_classes(
    root: str | Path, classes: tuple[str, ...], parts: Sequence[tuple[str, ...]]
) -> None:
    """Check that folders can be classes.

    Args:
        root: The folder or address.
        classes: The names of its folders.
        parts: The parts of the path of each image below the root.

    Raises:
        DataError: There are no folders, images outside of them, folders without images, fewer than
            two, or folders that look like splits.
    """
    stray = [part[0] for part in parts if len(part) == 1]
    if not classes:
        raise DataError(
            f"{root} contains {len(stray)} images but no class folders. "
            f"Put each image into {root}/<class>/."
        )
    if stray:
        raise DataError(
            f"{root} contains {len(stray)} images outside the class folders ({_some(stray)}). "
            "Move each into the folder of its class, or elsewhere."
        )
    if all(name.casefold() in _SPLITS for name in classes):
        raise DataError(
            f"The folders of {root} ({_some(classes)}) look like split names, not class names. "
            "Give one of them, or write a table with a column split."
        )
    filled = {part[0] for part in parts}
    empty = [name for name in classes if name not in filled]
    if empty:
        raise DataError(
            f"{len(empty)} class folders of {root} contain no images ({_some(empty)}). "
            "Fill or remove them."
        )
    if len(classes) < 2:
        raise DataError(f"{root} has only the class {_some(classes)}. At least 2 are needed.")


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:3])
    return shown + (", ..." if len(names) > 3 else "")
