"""Contract tests for your own methods and index engines.

Example:
    >>> from hadahash.testing import check_method
    >>> check_method("lsh")
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .methods import METHODS, Method
from .methods._contract import method_checks
from .plugins import load_plugins

__all__ = ["check_engine", "check_method"]


def check_method(method: str | type[Method], *, plugins: Iterable[str | Path] = ()) -> None:
    """Check that a method satisfies the contract of `hadahash.methods.Method`.

    The checks build the method for a few small tasks, train it for a few steps and check its loss,
    gradients, values, state and codewords. They take a few seconds.

    Args:
        method: A registered name, or a class.
        plugins: Files or modules to import first, which define the method.

    Raises:
        AssertionError: If the method violates the contract; names the check and the reason.
        UsageError: If the name is unknown.
    """
    load_plugins(plugins)
    kind = METHODS.get(method) if isinstance(method, str) else method
    _run(method_checks(), kind)


def check_engine(engine: str | type[Any]) -> None:
    """Check that an index engine satisfies the contract of `hadahash.index.Index`.

    The checks compare its results with brute force while items are added and removed.

    Args:
        engine: A registered name, or a class.

    Raises:
        AssertionError: If the engine violates the contract; names the check and the reason.
        UsageError: If the name is unknown.
    """
    from .index import ENGINES
    from .index._contract import engine_checks

    kind = ENGINES.get(engine) if isinstance(engine, str) else engine
    _run(engine_checks(), kind)


def _run(checks: dict[str, Any], kind: type[Any]) -> None:
    for name, check in checks.items():
        try:
            check(kind)
        except AssertionError as error:
            label = name.replace("_", " ")
            raise AssertionError(f"{kind.__name__}, {label}: {error}") from error
