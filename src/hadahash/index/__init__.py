"""Exact search in Hamming space. Importing an engine's file registers it."""

from . import exact, milvus, routed  # noqa: F401 - importing registers
from .base import ENGINES, Hits, Index
from .items import Item

__all__ = ["ENGINES", "Hits", "Index", "Item", "index_engines"]


def index_engines() -> list[str]:
    """The names of all index engines."""
    return ENGINES.names()
