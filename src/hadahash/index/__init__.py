"""Search in Hamming space: build, open, change, save and search an index of binary codes."""

from typing import TYPE_CHECKING

from ..lazy import lazy_names
from . import engines as engines  # registers the engines
from .api import (
    ENGINES,
    Filter,
    Hit,
    Hits,
    Index,
    Item,
    Neighbor,
    SearchRequest,
    parse_id,
    parse_labels,
)

if TYPE_CHECKING:
    from .dismissed import Dismissed
    from .duplicates import DuplicateGroup, Duplicates, find_duplicates

__all__ = [
    "ENGINES",
    "Dismissed",
    "DuplicateGroup",
    "Duplicates",
    "Filter",
    "Hit",
    "Hits",
    "Index",
    "Item",
    "Neighbor",
    "SearchRequest",
    "find_duplicates",
    "list_engines",
    "parse_id",
    "parse_labels",
]


__getattr__ = lazy_names(
    __name__,
    {
        "Dismissed": "dismissed",
        "DuplicateGroup": "duplicates",
        "Duplicates": "duplicates",
        "find_duplicates": "duplicates",
    },
)


def list_engines() -> list[str]:
    """The names of all index engines."""
    return ENGINES.names()
