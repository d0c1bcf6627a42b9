"""Hashing methods, one file each. Importing a file registers its methods.

Each file says where its method differs from its authors' paper and code. In one thing they all do: the authors' recipes
(optimiser, rates, batches, crops, backbone) are not copied; all methods are trained by the same loop and compared in it.
"""

from . import classify, csq, dpsh, dsdh, hashnet, hcdh, hcsdh, itq, ksh, lsh, mihash, orthohash, sdh, ssdh  # noqa: F401
from .base import METHODS, Batch, DeepMethod, Method, ShallowMethod, Task

__all__ = ["METHODS", "Batch", "DeepMethod", "Method", "ShallowMethod", "Task", "methods"]


def methods() -> list[str]:
    """The names of all hashing methods."""
    return METHODS.names()
