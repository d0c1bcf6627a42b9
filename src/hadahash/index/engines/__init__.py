"""The index engines. Importing an engine's module registers it."""

from ..api import ENGINES
from . import exact, routed

ENGINES.register_module("milvus", "hadahash.index.engines.milvus")

__all__ = ["exact", "routed"]
