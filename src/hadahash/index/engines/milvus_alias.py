"""Aliases of Milvus collections: one name that is switched from a collection to the next.

    index = Index.build(codes, engine="milvus", collection="photos_v1")
    switch_alias(index.server, "photos", "photos_v1")
    Index.build(codes[:0], engine="milvus", collection="photos")  # the items of photos_v1

An open index stays with the collection that its alias named at the first use, so a search never
mixes two collections. Open the index again, or call `refresh`, to follow the alias.
"""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import count

from ...errors import StorageError, UsageError
from .milvus_client import MilvusServer, MilvusSettings


def alias_target(server: MilvusServer, alias: str) -> str | None:
    """The collection that an alias names.

    Args:
        server: The connection.
        alias: An alias, or the name of a collection, which names itself.

    Returns:
        The name of the collection, or None if there is no such alias and no such collection.

    Raises:
        StorageError: The server refuses, or cannot be reached.
    """
    if not server.call_any("has_collection", alias):
        return None
    return str(server.call_any("describe_collection", alias)["collection_name"])


def switch_alias(server: MilvusServer, alias: str, collection: str) -> str | None:
    """Make an alias name a collection, atomically. Idempotent.

    Args:
        server: The connection.
        alias: The alias; it is created if there is none.
        collection: Name of an existing collection.

    Returns:
        The collection that the alias named before, to switch back to; None if it is new.

    Raises:
        UsageError: There is no such collection, or a collection is called like the alias.
        StorageError: The server refuses, or cannot be reached.
    """
    where = f"Milvus at {server.settings.uri}"
    if alias_target(server, collection) != collection:
        raise UsageError(f"{where} has no collection '{collection}'. Build it first.")
    before = alias_target(server, alias)
    if before == alias:
        raise UsageError(
            f"{where} has a collection '{alias}', so no alias can have this name. Choose another."
        )
    if before != collection:
        try:
            server.call_any("alter_alias" if before else "create_alias", collection, alias)
        except StorageError:
            # A lost response, or another process that has created the alias.
            if alias_target(server, alias) != collection:
                raise
    return before


def next_name(server: MilvusServer) -> str:
    """A name for the collection after that of the settings, which is not in use.

    Args:
        server: The connection.

    Returns:
        As photos_v2 after photos, or after the alias photos.

    Raises:
        StorageError: The server refuses, or cannot be reached.
    """
    chosen = server.settings
    base = chosen.alias or re.sub(r"_v\d+$", "", chosen.collection)
    names = (f"{base}_v{number}" for number in count(2))
    return next(name for name in names if alias_target(server, name) is None)


def without_alias(server: MilvusServer) -> MilvusSettings:
    """The settings with the collection that their alias names.

    Args:
        server: The connection.

    Returns:
        The settings, with the alias as `alias`; unchanged if they name a collection.

    Raises:
        StorageError: The server refuses, or cannot be reached.
    """
    chosen = server.settings
    target = alias_target(server, chosen.collection)
    if target in (None, chosen.collection):
        return chosen
    return replace(chosen, collection=str(target), alias=chosen.collection)
