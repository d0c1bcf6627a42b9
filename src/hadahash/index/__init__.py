"""Search in Hamming space: build, open, change, save and search an index of binary codes."""

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

__all__ = [
    "ENGINES",
    "Filter",
    "Hit",
    "Hits",
    "Index",
    "Item",
    "Neighbor",
    "SearchRequest",
    "list_engines",
    "parse_id",
    "parse_labels",
]


def list_engines() -> list[str]:
    """The names of all index engines."""
    return ENGINES.names()
