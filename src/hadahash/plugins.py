"""Plugins: methods and engines in a user's own files.

Importing a plugin runs its code. A plugin that the user names (`--plugin`, `plugins=`) is imported
and remembered with its digest in the user's configuration folder. A plugin that a saved model names
is imported only if it was remembered on this machine and has not changed since, so that opening a
model from elsewhere never runs code that the user has not named.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import sys
from collections.abc import Iterable
from pathlib import Path

from . import files
from .errors import HadaHashError, UsageError

_loaded: set[str] = set()


def load_plugins(paths: Iterable[str | Path]) -> None:
    """Import files and modules, which register their methods, engines or codebook designs.

    Each is imported once per process; later calls do nothing. Call this only with plugins that the
    user named: it runs their code, and models may name them from now on.

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
        name = plugin_name(path)
        if name in _loaded:
            continue
        try:
            if _is_file(name):
                _import_file(str(path), Path(name))
            else:
                importlib.import_module(name)
        except UsageError:
            raise
        except Exception as error:
            reason = " ".join(str(error).split())
            raise UsageError(
                f"Cannot load the plugin {path}: {type(error).__name__}: {reason}"
            ) from error
        _loaded.add(name)
        _remember(name)


def load_recorded_plugins(paths: Iterable[str]) -> None:
    """Import the plugins that a saved model names.

    Args:
        paths: Plugins as `plugin_name` writes them.

    Raises:
        UsageError: If a plugin is missing, was never named by the user on this machine, or has
            changed since.
    """
    for name in paths:
        if name in _loaded:
            continue
        if _is_file(name) and not Path(name).is_file():
            raise UsageError(f"There is no plugin file {name}.")
        if _remembered().get(name) != _digest(name):
            raise UsageError(
                f"The plugin {name} is new or has changed since it was last used here, and loading "
                "it runs its code."
            )
        load_plugins([name])


def _trusted_file() -> Path:
    folder = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(folder).expanduser() / "hadahash" / "plugins.json"


def _remembered() -> dict[str, str]:
    """The digests of the plugins that were named on this machine."""
    try:
        stored = files.read_json(_trusted_file())
    except HadaHashError:
        return {}
    return stored if isinstance(stored, dict) else {}


def _remember(name: str) -> None:
    known = _remembered()
    if known.get(name) == _digest(name):
        return
    try:
        files.write_json(_trusted_file(), {**known, name: _digest(name)})
    except HadaHashError:  # a read-only home folder: the plugin must be named each time
        return


def _digest(name: str) -> str:
    """sha256 of a plugin file; a module is identified by its name."""
    return hashlib.sha256(Path(name).read_bytes()).hexdigest() if _is_file(name) else "module"


def plugin_name(path: str | Path) -> str:
    """Return the name under which a plugin is recorded, valid in any working directory.

    Args:
        path: Path of a .py file, or name of a module.

    Returns:
        The absolute path of a file, or the name of a module as it is.

    Example:
        >>> plugin_name("my_package.hinge")
        'my_package.hinge'
    """
    is_file = isinstance(path, Path) or _is_file(path)
    return str(Path(path).expanduser().resolve()) if is_file else str(path)


def _is_file(name: str) -> bool:
    return name.endswith(".py") or "/" in name or "\\" in name


def _import_file(source: str, path: Path) -> None:
    if not path.is_file():
        raise UsageError(f"There is no plugin file {source}.")
    # A unique module name, so that a plugin never hides another module.
    digest = hashlib.sha256(str(path).encode("utf-8", "surrogateescape")).hexdigest()[:8]
    name = f"hadahash_plugin_{path.stem}_{digest}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"The plugin {source} is not a Python file (.py).")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
