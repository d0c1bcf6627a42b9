"""Groups of files that show the same photo, with a memory of what the user has dismissed.

Two files are linked if their content bits differ in at most `threshold` bits, or if the files are
equal. In the folder of the index, `duplicates.json` keeps the links of the last search, so that a
smaller threshold needs no new search, and `dismissed.json` the groups that are not shown again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import files
from ..codes import Codes
from ..errors import StorageError, UsageError
from .catalog import Catalog

if TYPE_CHECKING:
    from ..index import Index
    from ..index.items import Id

LINKS = "duplicates.json"
DISMISSED = "dismissed.json"
_SAME_PHOTO = 0.125  # fraction of the content bits; see docs/duplicates.md


def default_threshold(bits: int) -> int:
    """The number of differing content bits up to which two files count as one photo.

    Args:
        bits: Number of content bits.

    Returns:
        The threshold.

    Example:
        >>> default_threshold(128), default_threshold(64)
        (16, 8)
    """
    return int(_SAME_PHOTO * bits)
