"""Names of a package that are imported on first use, and packages that may not be installed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from .errors import missing_module


def is_installed(package: str) -> bool:
    """Whether a package can be imported; it is not imported.

    Args:
        package: Its name in an import statement, without dots.

    Returns:
        False if there is none, or its import is refused.

    >>> is_installed("numpy"), is_installed("no_such_package")
    (True, False)
    """
    try:
        return find_spec(package) is not None
    except (ImportError, ValueError):
        return False


def lazy_names(package: str, exports: Mapping[str, str]) -> Callable[[str], Any]:
    """Make the `__getattr__` of a package that imports its names on first use.

    Args:
        package: Full name of the package.
        exports: For each name, the module below the package that defines it.

    Returns:
        A function that imports a name. It raises AttributeError for other names, and
        MissingExtraError for a name that needs a package of an extra.
    """

    def find(name: str) -> Any:
        if name not in exports:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        try:
            value = getattr(import_module(f".{exports[name]}", package), name)
        except ModuleNotFoundError as error:
            raise missing_module(error) from error
        setattr(sys.modules[package], name, value)
        return value

    return find
