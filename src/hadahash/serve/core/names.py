"""Ids and labels as JSON values, and back.

File names that are not valid UTF-8 contain lone surrogates in Python, which JSON cannot carry. Each
of them is written as U+FFFD followed by its code point in four hexadecimal digits, and so is a
U+FFFD that the name itself contains. The encoding is reversible. Other names are unchanged.

Integers from 2**53 on are written as text, because JavaScript would round them.
"""

from __future__ import annotations

import re

from ... import index
from ...errors import UsageError

Id = int | str

_LARGEST_EXACT = 2**53
_UNSAFE = re.compile("[\ud800-\udfff\ufffd]")
_ESCAPED = re.compile("\ufffd(D[89A-F][0-9A-F]{2}|FFFD)")


def to_json(value: Id) -> Id:
    r"""Return an id or a label as a JSON value.

    >>> to_json("caf\udce9.png") == "caf\ufffdDCE9.png"
    True
    >>> to_json("cat.png"), to_json(7), to_json(2**60)
    ('cat.png', 7, '1152921504606846976')
    """
    if isinstance(value, int):
        return value if abs(value) < _LARGEST_EXACT else str(value)
    if value.isascii():
        return value
    return _UNSAFE.sub(lambda found: f"\ufffd{ord(found[0]):04X}", value)


def from_json(text: str) -> str:
    r"""Return the name that `to_json` wrote.

    >>> from_json(to_json("caf\udce9.png")) == "caf\udce9.png"
    True
    """
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), text)


def parse_id(value: Id, id_type: type[Id] | None) -> Id | None:
    """Return an id that a client sent as an id of the index.

    Args:
        value: An integer or text.
        id_type: Type of the ids of the index; None if the index is empty.

    Returns:
        The id, or None if the value is not a valid id of this type.

    >>> parse_id("77", int), parse_id(" 77 ", int), parse_id(77, str)
    (77, None, '77')
    """
    if isinstance(value, int) and id_type is not str:
        return value if -(2**63) <= value < 2**63 else None
    try:
        return index.parse_id(from_json(str(value)), id_type)
    except UsageError:
        return None
