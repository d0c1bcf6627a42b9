"""JSON text in parts: `json.dumps` of a long list stops all other threads until it is done."""

from __future__ import annotations

import json
from collections.abc import Iterator

_PART = 4096  # values of a list at once


def json_parts(value: object, *, sort_keys: bool = False) -> Iterator[str]:
    """Write JSON as `json.dumps` does.

    Args:
        value: JSON values. Long lists are written in parts, except lists in lists.
        sort_keys: Write objects in the order of their keys.

    Yields:
        The parts of the text.

    Example:
        >>> "".join(json_parts({"b": [1, 2], "a": "x"}, sort_keys=True))
        '{"a": "x", "b": [1, 2]}'
    """
    if isinstance(value, list) and len(value) > _PART:
        for start in range(0, len(value), _PART):
            text = json.dumps(value[start : start + _PART], sort_keys=sort_keys)
            yield (", " if start else "[") + text[1:-1]
        yield "]"
    elif isinstance(value, dict) and value and all(type(key) is str for key in value):
        for number, key in enumerate(sorted(value) if sort_keys else value):
            yield f"{', ' if number else '{'}{json.dumps(key)}: "
            yield from json_parts(value[key], sort_keys=sort_keys)
        yield "}"
    else:
        yield json.dumps(value, sort_keys=sort_keys)
