"""Settings: frozen dataclasses with ranges as data, filled from text, checked in one place.

A group of settings is a frozen dataclass whose fields are declared with `setting(...)`.
`hadahash settings` shows their help texts, defaults and ranges.
"""

from __future__ import annotations

import dataclasses
import math
import numbers
import os
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, Literal, TypeVar

from .errors import UsageError, unknown

S = TypeVar("S")

_BOOLEANS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
_COMPARISONS: dict[str, tuple[str, Callable[[Any, Any], bool]]] = {
    "ge": (">=", lambda value, bound: value >= bound),
    "gt": (">", lambda value, bound: value > bound),
    "le": ("<=", lambda value, bound: value <= bound),
    "lt": ("<", lambda value, bound: value < bound),
}
_TYPE_NAMES = {int: "an integer", float: "a number", bool: "true or false", str: "text"}


def setting(default: Any, help: str, **bounds: float) -> Any:  # noqa: A002 - as in argparse
    """Declare a dataclass field with a help text and a range.

    Args:
        default: The default value.
        help: One sentence about what the setting does.
        **bounds: Range of the value: `ge`, `gt`, `le`, `lt` (as in >=, >, <=, <).

    Returns:
        A dataclass field.
    """
    return field(default=default, metadata={"help": help, "bounds": bounds})


def check_ranges(instance: Any) -> None:
    """Check every field of a settings dataclass against its declared range.

    Raises:
        UsageError: A value is out of range; the message has name, range and value.
    """
    for each in dataclasses.fields(instance):
        value = getattr(instance, each.name)
        bounds = each.metadata.get("bounds", {})
        if isinstance(value, numbers.Real) and bounds:
            require(
                _inside(value, bounds), f"{each.name} must be {range_text(bounds)}, got {value}."
            )


def _inside(value: Any, bounds: Mapping[str, float]) -> bool:
    return math.isfinite(value) and all(_COMPARISONS[k][1](value, b) for k, b in bounds.items())


def range_text(bounds: Mapping[str, float]) -> str:
    """A range as text.

    >>> range_text({"ge": 0, "lt": 1})
    '>= 0 and < 1'
    """
    return " and ".join(f"{_COMPARISONS[key][0]} {bound:g}" for key, bound in bounds.items())


class Checked:
    """Base class of settings dataclasses: checks all ranges when an instance is created."""

    def __post_init__(self) -> None:
        check_ranges(self)


def fields_of(*kinds: type) -> dict[str, type]:
    """The names of all settings of these dataclasses, each with the dataclass it belongs to."""
    return {each.name: kind for kind in kinds for each in dataclasses.fields(kind)}


def parse_into(values: Mapping[str, Any], *kinds: type[Any]) -> list[Any]:
    """Fill several settings dataclasses from one flat mapping.

    Args:
        values: Setting names and values; values may be text.
        *kinds: The dataclasses, which share no field name.

    Returns:
        One instance per dataclass.

    Raises:
        UsageError: An unknown name, or a value of the wrong type or out of range.

    >>> @dataclasses.dataclass(frozen=True)
    ... class Size:
    ...     width: int = 3
    >>> parse_into({"width": "5"}, Size)
    [Size(width=5)]
    """
    owners = fields_of(*kinds)
    for key in values:
        if key not in owners:
            raise unknown("setting", key, owners)
    return [
        from_mapping(kind, {key: value for key, value in values.items() if owners[key] is kind})
        for kind in kinds
    ]


def from_mapping(kind: type[S], values: Mapping[str, Any]) -> S:
    """An instance of the dataclass `kind`, each value converted to the type of its field.

    Raises:
        UsageError: An unknown name, or a value of the wrong type or out of range.
    """
    hints = typing.get_type_hints(kind)
    for key in values:
        if key not in hints:
            raise unknown("setting", key, hints)
    return kind(**{key: convert(key, value, hints[key]) for key, value in values.items()})


def convert(key: str, value: Any, hint: Any) -> Any:
    """Convert `value` (text from the command line, or a Python or numpy value) to the type `hint`.

    Args:
        key: Name of the setting, for the error message.
        value: The value.
        hint: int, float, bool, str, a Literal, a tuple or an optional one of these.

    Returns:
        The converted value.

    Raises:
        UsageError: The value does not have that type.
    """
    origin, options = typing.get_origin(hint), typing.get_args(hint)
    if hasattr(value, "tolist"):  # numpy and torch
        value = value.tolist()
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if origin is Literal:
        if value in options:
            return value
        raise UsageError(f"{key} must be one of {', '.join(map(str, options))}, got {value}.")
    if origin in (typing.Union, types.UnionType):
        if value is None or (isinstance(value, str) and value.lower() == "none"):
            return None
        return convert(key, value, next(each for each in options if each is not type(None)))
    try:
        if origin is tuple:
            parts = value.split(",") if isinstance(value, str) else value
            return tuple(convert(key, part, options[0]) for part in parts)
        return _convert_scalar(value, hint)
    except (KeyError, OverflowError, TypeError, ValueError):
        name = _TYPE_NAMES.get(hint, str(hint))
        raise UsageError(f"{key} must be {name}, got {value}.") from None


def _convert_scalar(value: Any, hint: Any) -> Any:
    """Convert to bool, int, float or str without changing the meaning of the value."""
    if hint is bool:
        return _BOOLEANS[str(value).lower()]
    lossy = hint is int and isinstance(value, float) and value != int(value)
    if isinstance(value, bool) or lossy or (hint is str and not isinstance(value, str)):
        raise ValueError(value)
    return hint(value)


def parse_assignments(pairs: Sequence[str]) -> dict[str, str]:
    """Parse the arguments of --set.

    Raises:
        UsageError: An argument has no equals sign.

    >>> parse_assignments(["lr=0.1", "epochs=3"])
    {'lr': '0.1', 'epochs': '3'}
    """
    for pair in pairs:
        if "=" not in pair:
            given = " ".join(pair.split())
            raise UsageError(f"--set {given}: write it as --set name=value.")
    return dict(typing.cast("tuple[str, str]", tuple(pair.split("=", 1))) for pair in pairs)


def require(condition: bool, message: str) -> None:
    """Raise a UsageError with this one-line message unless the condition holds."""
    if not condition:
        raise UsageError(message)
