"""Hashing methods, one file each. Importing a file registers its methods.

Each file lists the deviations from its authors' paper and code. One is common to all: the authors'
training recipes (optimizer, learning rates, batches, crops, backbone) are not copied. All methods
are trained by the same loop and compared in it.
"""

from . import (
    classify,  # noqa: F401
    csq,  # noqa: F401
    dpsh,  # noqa: F401
    dsdh,  # noqa: F401
    hashnet,  # noqa: F401
    hcdh,  # noqa: F401
    hcdh_plus,  # noqa: F401
    hcsdh,  # noqa: F401
    itq,  # noqa: F401
    ksh,  # noqa: F401
    lsh,  # noqa: F401
    mihash,  # noqa: F401
    orthohash,  # noqa: F401
    sdh,  # noqa: F401
    ssdh,  # noqa: F401
)
from .base import METHODS, Batch, DeepMethod, Method, NoSettings, ShallowMethod, Task
from .codewords import CodewordMethod

__all__ = [
    "METHODS",
    "Batch",
    "CodewordMethod",
    "DeepMethod",
    "Method",
    "NoSettings",
    "ShallowMethod",
    "Task",
    "list_methods",
]


def list_methods(pattern: str = "*") -> list[str]:
    """List the hashing methods, those of installed packages included.

    Args:
        pattern: A name with the wildcards * and ?, such as "hcdh*".

    Returns:
        The matching names in alphabetical order.

    Example:
        >>> list_methods("hcdh*")
        ['hcdh', 'hcdh-2', 'hcdh-c', 'hcdh-far', 'hcdh-h', 'hcdh-plus']
    """
    return METHODS.names(pattern, installed=True)
