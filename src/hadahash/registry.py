"""Registries: classes and functions of one kind by name, such as methods, designs and engines."""

from __future__ import annotations

import sys
from collections.abc import Callable
from fnmatch import fnmatchcase
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from .errors import UsageError, unknown

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

T = TypeVar("T")


class Registry(Generic[T]):
    """A dictionary filled by a decorator; an unknown name raises an error with a suggestion.

    Installed packages can add entries: a name that is not registered is looked up among the entry
    points of the registry's group.

    Args:
        kind: What is registered, for error messages.
        entry_point_group: Group of entry points to look up, or None.

    Example:
        >>> shapes = Registry("shape")
        >>> @shapes.register("circle")
        ... class Circle: ...
        >>> shapes.names()
        ['circle']
    """

    def __init__(self, kind: str, *, entry_point_group: str | None = None) -> None:
        self.kind, self.entry_point_group = kind, entry_point_group
        self._entries: dict[str, T] = {}
        self._modules: dict[str, str] = {}  # imported when their name is first asked for

    def register(self, name: str) -> Callable[[T], T]:
        """Return a decorator that registers a class or function.

        Args:
            name: The name to register under.

        Returns:
            A decorator that returns its argument unchanged.

        Raises:
            UsageError: When it is applied, if something else has this name. Running the same
                definition again, such as the cell of a notebook, replaces it.
        """

        def keep(entry: T) -> T:
            owner = self._owner_besides(name, entry)
            if owner is not None:
                raise UsageError(
                    f"The {self.kind} '{name}' is already registered "
                    f"(by {owner}). Choose another name."
                )
            self._entries[name] = entry
            return entry

        return keep

    def register_module(self, name: str, module: str) -> None:
        """Register a name whose module is imported when the name is first asked for.

        Args:
            name: The name.
            module: Full name of the module. Importing it must register `name`.
        """
        self._modules[name] = module

    def get(self, name: str) -> T:
        """Return the entry of a name.

        Args:
            name: A registered name, or the name of an entry point, which is then loaded.

        Returns:
            The entry.

        Raises:
            UsageError: If the name is unknown, or its entry point cannot be loaded.
        """
        if name not in self._entries:
            if name in self._modules:
                import_module(self._modules[name])
            else:
                self._load_entry_point(name)
        return self._entries[name]

    def __contains__(self, name: object) -> bool:
        """Return whether a name is registered; entry points are not looked up."""
        return name in self._entries or name in self._modules

    def names(self, pattern: str = "*", *, installed: bool = False) -> list[str]:
        """List the registered names.

        Args:
            pattern: A name with the wildcards * and ?.
            installed: Also list the entry points of installed packages, without loading them.

        Returns:
            The matching names in alphabetical order.
        """
        names = {*self._entries, *self._modules, *(self._entry_points() if installed else ())}
        return sorted(name for name in names if fnmatchcase(name, pattern))

    def _entry_points(self) -> dict[str, EntryPoint]:
        if self.entry_point_group is None:
            return {}
        from importlib.metadata import entry_points

        return {point.name: point for point in entry_points(group=self.entry_point_group)}

    def _owner_besides(self, name: str, entry: T) -> str | None:
        """The module of another entry with this name, if there is one."""
        if name in self._entries:
            old = self._entries[name]
            return None if _same_definition(old, entry) else _origin(old)
        module = self._modules.get(name)
        return None if module == _origin(entry) else module

    def _load_entry_point(self, name: str) -> None:
        available = self._entry_points()
        if name not in available:
            raise unknown(self.kind, name, {*self._entries, *self._modules, *available})
        point = available[name]
        try:
            entry = point.load()  # its decorator may have registered it already
            if point.name not in self._entries:
                self.register(point.name)(entry)
        except Exception as error:
            raise UsageError(
                f"Cannot load the {self.kind} '{point.name}' from {point.value}: "
                f"{type(error).__name__}: {' '.join(str(error).split())}"
            ) from error


def _origin(entry: object) -> str:
    return str(getattr(entry, "__module__", None) or type(entry).__name__)


def _same_definition(old: object, new: object) -> bool:
    """Whether both come from one definition, possibly imported under two module names."""
    names = [getattr(entry, "__qualname__", None) for entry in (old, new)]
    if None in names or names[0] != names[1]:
        return False
    if _origin(old) == _origin(new):
        return True
    sources = [_source_file(entry) for entry in (old, new)]
    return sources[0] is not None and sources[0] == sources[1]


def _source_file(entry: object) -> Path | None:
    module = sys.modules.get(_origin(entry))
    file = getattr(module, "__file__", None)
    return Path(file).resolve() if file else None
