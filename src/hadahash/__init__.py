"""HadaHash: supervised image hashing with Hadamard codebooks.

The public names are imported when they are first used, so `import hadahash` is quick and does not import torch.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ._version import __version__

if TYPE_CHECKING:
    from .codebook.design import codebook as codebook
    from .codebook.hadamard import hadamard as hadamard
    from .codes import Codes as Codes
    from .data import datasets as datasets
    from .evaluation import Report as Report
    from .evaluation import evaluate as evaluate
    from .hasher import Hasher as Hasher
    from .index import Hits as Hits
    from .index import Index as Index
    from .index import index_engines as index_engines
    from .methods import methods as methods
    from .networks import backbones as backbones

_HOMES = {
    "Codes": "codes",
    "Hasher": "hasher",
    "Hits": "index",
    "Index": "index",
    "Report": "evaluation",
    "backbones": "networks",
    "codebook": "codebook",
    "datasets": "data",
    "evaluate": "evaluation",
    "hadamard": "codebook",
    "index_engines": "index",
    "methods": "methods",
}

__all__ = [
    "Codes",
    "Hasher",
    "Hits",
    "Index",
    "Report",
    "__version__",
    "backbones",
    "codebook",
    "datasets",
    "evaluate",
    "hadamard",
    "index_engines",
    "methods",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'hadahash' has no attribute '{name}'")
    value = getattr(import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


class _Package(ModuleType):
    """Importing the subpackage `codebook` or `methods` must not hide the function of the same name."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _HOMES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
