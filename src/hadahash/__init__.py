"""HadaHash: supervised image hashing with Hadamard codebooks.

The public names below are imported on first use, so `import hadahash` is fast and does not import
torch. Everything else is internal and may change between versions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import errors as errors
from ._version import __version__
from .lazy import lazy_names

if TYPE_CHECKING:
    from .codebooks.designs import codebook as codebook
    from .codebooks.hadamard import hadamard as hadamard
    from .codes import Codes as Codes
    from .data import list_datasets as list_datasets
    from .evaluation import Report as Report
    from .evaluation import evaluate as evaluate
    from .hasher import Hasher as Hasher
    from .index import Hits as Hits
    from .index import Index as Index
    from .index import list_engines as list_engines
    from .methods import list_methods as list_methods
    from .model import HashModel as HashModel
    from .networks import list_backbones as list_backbones
    from .queries import Queries as Queries
    from .ranking import Ranking as Ranking

# Public name -> the module that defines it.
_EXPORTS = {
    "Codes": "codes",
    "HashModel": "model",
    "Hasher": "hasher",
    "Hits": "index",
    "Index": "index",
    "Queries": "queries",
    "Ranking": "ranking",
    "Report": "evaluation",
    "codebook": "codebooks.designs",
    "evaluate": "evaluation",
    "hadamard": "codebooks.hadamard",
    "list_backbones": "networks",
    "list_datasets": "data",
    "list_engines": "index",
    "list_methods": "methods",
}

__all__ = [
    "Codes",
    "HashModel",
    "Hasher",
    "Hits",
    "Index",
    "Queries",
    "Ranking",
    "Report",
    "__version__",
    "codebook",
    "errors",
    "evaluate",
    "hadamard",
    "list_backbones",
    "list_datasets",
    "list_engines",
    "list_methods",
]

__getattr__ = lazy_names(__name__, _EXPORTS)


def __dir__() -> list[str]:
    return sorted(__all__)
