"""Search in Hamming space: build, open, change, save and search an index of binary codes."""

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
from .engines import (
    exact,  # noqa: F401
    milvus,  # noqa: F401
    routed,  # noqa: F401
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
