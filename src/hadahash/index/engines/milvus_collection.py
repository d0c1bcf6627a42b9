"""A collection of Milvus that exists: whether it is ours, what it holds, loading it for search."""

from __future__ import annotations

import json
import time
from typing import Any, NamedTuple

from ...errors import StorageError, UsageError
from ..items import Id
from .milvus_client import MilvusServer

_LOAD_PAUSE = 0.2  # seconds between two questions whether a collection is loaded


class Found(NamedTuple):
    """What the server knows about a collection.

    Attributes:
        name: Its own name; aliases are resolved.
        about: What hadahash has written into its description.
        fields: The type of each field, by name.
        aliases: The aliases that name it.
    """

    name: str
    about: dict[str, Any]
    fields: dict[str, str]
    aliases: tuple[str, ...]

    @property
    def id_type(self) -> type[Id]:
        """Type of the ids, int or str."""
        return int if self.fields["id"] == "INT64" else str


def find_collection(server: MilvusServer, name: str) -> Found | None:
    """Look up a collection, or the collection of an alias.

    Returns:
        The collection; None if there is none.

    Raises:
        UsageError: It was not created by hadahash.
        StorageError: The server refuses, or cannot be reached.
    """
    if not server.call_any("has_collection", name):
        return None
    found = server.call_any("describe_collection", name)
    types = {each["name"]: each["type"].name for each in found["fields"]}
    try:
        about = dict(json.loads(found["description"]))
    except (ValueError, TypeError):
        about = {}
    if "hadahash bits" not in about or not {"id", "code", "item"} <= set(types):
        raise UsageError(
            f"{describe(server, name)} was not created by hadahash. "
            "Choose another name with collection=..."
        )
    return Found(found["collection_name"], about, types, tuple(found.get("aliases") or ()))


def check_bits(server: MilvusServer, found: Found, bits: int, content_bits: int) -> None:
    """Refuse a collection of other codes.

    Raises:
        UsageError: It has another number of bits or content bits.
    """
    name, stored = describe(server, server.settings.collection), found.about["hadahash bits"]
    if stored != bits:
        raise UsageError(f"{name} contains codes of {stored} bits, got {bits} bits.")
    stored = found.about.get("content_bits", 0)
    if stored != content_bits:
        raise UsageError(
            f"{name} contains codes with {stored or 'no'} content bits, got "
            f"{content_bits or 'none'}. Choose another name with collection=..."
        )


def check_same_model(server: MilvusServer, found: Found, model: str | None) -> None:
    """Refuse a collection of codes that another model made, as after an upgrade elsewhere.

    Raises:
        UsageError: It records another model.
    """
    stored = found.about.get("model")
    if None not in (stored, model) and stored != model:
        name = describe(server, server.settings.collection)
        raise UsageError(
            f"{name} contains codes of the model {str(stored)[:12]}, got {str(model)[:12]}. If the "
            "index was upgraded on another machine, copy its folder from there."
        )


def describe(server: MilvusServer, name: str) -> str:
    """A collection at the beginning of a sentence."""
    return f"The collection '{name}' at {server.settings.uri}"


def load_collection(server: MilvusServer) -> None:
    """Load the collection for search and wait for it, which takes long if it is large.

    Raises:
        StorageError: It is not loaded after `load_timeout` seconds, or the server refuses.
    """
    end = time.monotonic() + server.settings.load_timeout
    server.call("load_collection", _async=True)
    while True:
        state = server.call("get_load_state")
        if state["state"].name == "Loaded":
            return
        if time.monotonic() >= end:
            raise StorageError(
                f"{describe(server, server.collection)} is not loaded after "
                f"{server.settings.load_timeout:g} s ({state.get('progress', 0)} %). Try again "
                "later, or give it more query nodes or a greater load_timeout."
            )
        time.sleep(_LOAD_PAUSE)
