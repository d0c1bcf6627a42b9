"""Checks of what clients send, before anything is computed."""

from __future__ import annotations

from ..problem import invalid
from ..settings import ServeSettings
from .collection import Collection
from .query import SearchQuery


def check_search(
    query: SearchQuery, image: bytes | None, collection: Collection, settings: ServeSettings
) -> None:
    """Refuse a search that is not valid.

    Args:
        query: The parameters.
        image: An uploaded image file.
        collection: The collection.
        settings: Limits.

    Raises:
        Problem: 422.
    """
    given = (query.id, query.code, query.values, query.vector, image)
    if sum(value is not None for value in given) != 1:
        hint = 'Send a form with an image, or JSON such as {"id": "..."}.'
        raise invalid("Give exactly one of: an image, a code, an id, values, a vector.", hint)
    if query.looks is not None and query.code is None:
        raise invalid("looks: only with a code.", "Leave it out.")
    check_takes(image, collection)
    if query.k > settings.max_k:
        raise invalid(f"k must be <= {settings.max_k}, got {query.k}.", "Use a smaller k.")
    if query.radius is not None and query.radius > collection.bits:
        hint = "Use a smaller radius."
        raise invalid(f"radius must be <= {collection.bits} (bits), got {query.radius}.", hint)
    if len(query.labels) > settings.max_labels:
        raise invalid(f"At most {settings.max_labels} labels are allowed.", "Use fewer labels.")


def check_takes(image: bytes | None, collection: Collection) -> None:
    """Refuse an image for an index of embeddings.

    Args:
        image: An uploaded image file, or None.
        collection: The collection.

    Raises:
        Problem: 422.
    """
    if image is not None and "embeddings" in collection.index.meta:
        hint = "Search with `vector`, or add items with `code`."
        raise invalid("This index has embeddings, and its model takes no images.", hint)
