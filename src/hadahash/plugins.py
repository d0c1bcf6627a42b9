"""Plugins: methods and engines in a user's own files."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Iterable
from pathlib import Path

from .errors import UsageError

_loaded: set[str] = set()


def load_plugins(paths: Iterable[str | Path]) -> None:
    """Import files and modules, which register their methods, engines or codebook designs.

    Each is imported once per process; later calls do nothing.

    Args:
        paths: Paths of .py files, or names of importable modules.

    Raises:
        UsageError: If a file is missing or an import fails.

    Example:
        >>> load_plugins(["no_such_file.py"])
        Traceback (most recent call last):
        ...
        hadahash.errors.UsageError: There is no plugin file no_such_file.py.
    """
    for path in paths:
        text = str(path)
        is_file = isinstance(path, Path) or text.endswith(".py") or "/" in text or "\\" in text
        key = str(Path(path).expanduser().resolve()) if is_file else text
        if key in _loaded:
            continue
        try:
            if is_file:
                _import_file(text, Path(key))
            else:
                importlib.import_module(text)
        except UsageError:
            raise
        except Exception as error:
            reason = " ".join(str(error).split())
            raise UsageError(
                f"Cannot load the plugin {text}: {type(error).__name__}: {reason}"
            ) from error
        _loaded.add(key)


def _import_file(given: str, path: Path) -> None:
    if not path.is_file():
        raise UsageError(f"There is no plugin file {given}.")
    # A name of its own, so that a plugin never hides another module.
    digest = hashlib.sha256(str(path).encode("utf-8", "surrogateescape")).hexdigest()[:8]
    name = f"hadahash_plugin_{path.stem}_{digest}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"The plugin {given} is not a Python file (.py).")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
