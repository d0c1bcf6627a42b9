"""Named things of one kind: methods, backbones, data sets, index engines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from .errors import unknown

T = TypeVar("T")


class Registry(Generic[T]):
    """A dictionary that is filled by a decorator and answers an unknown name with a helpful error.

    >>> shapes = Registry("shape")
    >>> @shapes.register("circle")
    ... class Circle: ...
    >>> shapes.names()
    ['circle']
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._entries: dict[str, T] = {}

    def register(self, name: str) -> Callable[[T], T]:
        def keep(entry: T) -> T:
            if name in self._entries:
                raise KeyError(f"two {self.kind}s are called '{name}'")
            self._entries[name] = entry
            return entry

        return keep

    def get(self, name: str) -> T:
        if name not in self._entries:
            raise unknown(self.kind, name, self._entries)
        return self._entries[name]

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def names(self) -> list[str]:
        return sorted(self._entries)
