"""Settings are frozen dataclasses beside their user; this module fills them from text and refuses what they don't know."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal, TypeVar

from .errors import UsageError, unknown

S = TypeVar("S")


def fields_of(*kinds: type) -> dict[str, type]:
    """The names of all settings of these dataclasses, each with the dataclass it belongs to."""
    return {field.name: kind for kind in kinds for field in dataclasses.fields(kind)}


def split(values: Mapping[str, Any], *kinds: type[Any]) -> list[Any]:
    """Make one instance of each dataclass out of one flat mapping; a key that none of them has is refused.

    >>> @dataclasses.dataclass(frozen=True)
    ... class Size:
    ...     width: int = 3
    >>> split({"width": "5"}, Size)
    [Size(width=5)]
    """
    owners = fields_of(*kinds)
    for key in values:
        if key not in owners:
            raise unknown("setting", key, owners)
    return [
        make(kind, {key: value for key, value in values.items() if owners[key] is kind})
        for kind in kinds
    ]


def make(kind: type[S], values: Mapping[str, Any]) -> S:
    """An instance of the dataclass `kind` with each value turned into its field's type."""
    hints = typing.get_type_hints(kind)
    for key in values:
        if key not in hints:
            raise unknown("setting", key, hints)
    return kind(**{key: convert(key, value, hints[key]) for key, value in values.items()})


def convert(key: str, value: Any, hint: Any) -> Any:
    """`value` (text from the command line, or already typed) as the type `hint` asks for."""
    origin, options = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        if value in options:
            return value
        raise UsageError(
            f"{key}={value} is not possible. Choose one of: {', '.join(map(str, options))}."
        )
    if origin in (typing.Union, types.UnionType):
        if value is None or (isinstance(value, str) and value.lower() == "none"):
            return None
        return convert(key, value, next(option for option in options if option is not type(None)))
    try:
        if origin is tuple:
            parts = value.split(",") if isinstance(value, str) else value
            return tuple(convert(key, part, options[0]) for part in parts)
        if hint is bool and isinstance(value, str):
            return {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}[
                value.lower()
            ]
        if hint is int and isinstance(value, float) and value != int(value):
            raise ValueError(value)
        return hint(value)
    except (KeyError, OverflowError, TypeError, ValueError):
        raise UsageError(f"{key}={value} is not possible: {key} must be {_words(hint)}.") from None


def parse_assignments(pairs: list[str]) -> dict[str, str]:
    """['lr=0.1', 'epochs=3'] -> {'lr': '0.1', 'epochs': '3'}"""
    for pair in pairs:
        if "=" not in pair:
            raise UsageError(f"--set {pair}: write it as --set name=value.")
    return dict(typing.cast("tuple[str, str]", tuple(pair.split("=", 1))) for pair in pairs)


def require(condition: bool, message: str) -> None:
    """Raise a UsageError with this one-line message unless the condition holds."""
    if not condition:
        raise UsageError(message)


def _words(hint: Any) -> str:
    return {int: "a whole number", float: "a number", bool: "true or false"}.get(hint, str(hint))
