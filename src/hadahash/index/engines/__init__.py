"""The index engines. Importing an engine's module registers it."""

from . import exact, milvus, routed

__all__ = ["exact", "milvus", "routed"]
