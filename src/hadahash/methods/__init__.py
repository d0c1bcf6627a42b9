"""Hashing methods, one file each. Importing a file registers its methods."""

from . import classify, csq, dpsh, dsdh, hashnet, hcdh, hcsdh, itq, ksh, lsh, mihash, orthohash, sdh, ssdh  # noqa: F401
from .base import METHODS, Batch, DeepMethod, Method, ShallowMethod, Task

__all__ = ["METHODS", "Batch", "DeepMethod", "Method", "ShallowMethod", "Task", "methods"]


def methods() -> list[str]:
    """The names of all hashing methods."""
    return METHODS.names()
