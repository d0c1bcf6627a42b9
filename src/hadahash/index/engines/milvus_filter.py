"""Rows and filter expressions of Milvus: text that is safe in filters, ids, labels and items.

Filters have no reliable escape for quotes, backslashes and line ends, and invalid Unicode cannot
be sent at all. Each such character is written as its predecessor and a digit, and the predecessor
gets a digit too: the encoding is reversible and keeps the order of strings.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from ...errors import StorageError
from ..items import Id, Ids, Item, Label
from ..query import Filter

_IDS_PER_FILTER = 1000

_UNSAFE = "\0\n\r\"'\\"
_LEADS = {"\0": "\1"} | {each: chr(ord(each) - 1) for each in _UNSAFE[1:]}  # \0 has no predecessor
_ENCODED = {unsafe: lead + ("0" if unsafe == "\0" else "1") for unsafe, lead in _LEADS.items()}
_ENCODED |= {lead: lead + ("1" if unsafe == "\0" else "0") for unsafe, lead in _LEADS.items()}
_ENCODED |= {chr(each): f"\ud7ff1{each:04x}" for each in range(0xD800, 0xE000)}
_ENCODED |= {"\ud7ff": "\ud7ff0"}
_TABLE = str.maketrans(_ENCODED)
_DECODED = {encoded: each for each, encoded in _ENCODED.items()}
_LEAD_CLASS = "".join(map(re.escape, _LEADS.values()))
_ESCAPES = re.compile(f"[{_LEAD_CLASS}][01]|\ud7ff(?:0|1[0-9a-f]{{4}})")


def encode_text(text: str) -> str:
    """Text as the server stores it: safe in filters, in the same order, mostly unchanged.

    Example:
        >>> encode_text("photos/cat 1.jpg"), encode_text("it's"), decode_text(encode_text("it's"))
        ('photos/cat 1.jpg', 'it&1s', "it's")
    """
    return text.translate(_TABLE)


def decode_text(text: str) -> str:
    """The inverse of `encode_text`."""
    return _ESCAPES.sub(lambda match: _DECODED[match[0]], text)


def encode_id(each: Id) -> Id:
    """An id as the server stores it."""
    return encode_text(each) if isinstance(each, str) else each


def decode_id(each: Id) -> Id:
    """The inverse of `encode_id`."""
    return decode_text(each) if isinstance(each, str) else each


# ---- rows ----------------------------------------------------------------------------------------


def encode_item(item: Item) -> dict[str, Any]:
    """The fields `id` and `item` of a row of the collection."""
    about = {
        "path": None if item.path is None else encode_text(item.path),
        "labels": [_encode_label(each) for each in item.labels],
    }
    return {"id": encode_id(item.id), "item": about}


def decode_item(row: dict[str, Any]) -> Item:
    """The item of a row with the fields `id` and `item`.

    Raises:
        StorageError: Another program wrote the row.
    """
    try:
        about = row["item"] if isinstance(row["item"], dict) else json.loads(row["item"])
        path = None if about["path"] is None else decode_text(about["path"])
        return Item(decode_id(row["id"]), path, tuple(map(_decode_label, about["labels"])))
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise StorageError(
            f"The row {row['id']!r} of the collection was not written by hadahash. Remove it, or "
            "use another collection."
        ) from error


def _encode_label(label: Label) -> str:
    """A label as text that tells 7 from "7"."""
    return f"#{label}" if isinstance(label, int) else f"={encode_text(label)}"


def _decode_label(text: str) -> Label:
    if text[0] not in "#=":
        raise ValueError(text)
    return int(text[1:]) if text[0] == "#" else decode_text(text[1:])


# ---- filters -------------------------------------------------------------------------------------


def id_chunks(ids: Ids) -> Iterator[list[Id]]:
    """Encoded ids in lists that fit into one filter."""
    for start in range(0, len(ids), _IDS_PER_FILTER):
        yield [encode_id(each) for each in ids[start : start + _IDS_PER_FILTER].tolist()]


def id_in(chunk: Iterable[Id]) -> str:
    """A filter for encoded ids."""
    return f"id in {_list(chunk)}"


def id_after(each: Id) -> str:
    """A filter for greater ids."""
    return f"id > {_literal(encode_id(each))}"


def id_up_to(each: Id) -> str:
    """A filter for ids up to this one."""
    return f"id <= {_literal(encode_id(each))}"


def all_of(*filters: str) -> str:
    """The conjunction of filters; empty ones are ignored."""
    return " and ".join(filter(None, filters))


def expressions(chosen: Filter) -> list[str]:
    """Filters whose disjoint union is the chosen items."""
    if chosen.labels is not None and not chosen.labels:
        return []
    labels = ""
    if chosen.labels is not None:
        literal = _list(sorted(map(_encode_label, chosen.labels)))
        labels = f'json_contains_any(item["labels"], {literal})'
    if chosen.ids is None:
        return [labels]
    return [all_of(id_in(chunk), labels) for chunk in id_chunks(chosen.ids)]


def _literal(value: int | str) -> str:
    return str(value) if isinstance(value, int) else f'"{value}"'


def _list(values: Iterable[int | str]) -> str:
    return f"[{', '.join(map(_literal, values))}]"
