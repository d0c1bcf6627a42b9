"""Exact search in Hamming space. Importing an engine's file registers it."""

from .api import ENGINES, Hits, Index
from .engines import (
    exact,  # noqa: F401
    milvus,  # noqa: F401
    routed,  # noqa: F401
)
from .items import Item

__all__ = ["ENGINES", "Hits", "Index", "Item", "list_engines"]


def list_engines() -> list[str]:
    """The names of all index engines."""
    return ENGINES.names()
