"""Which items of an index are the files that its catalog lists.

The catalog knows files by id. A client of the service, or another program, can remove the item of a
file and give its id to something else. Such an item has no path, and what the catalog has under its
id is about other content.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..errors import UsageError
from ..index.items import id_array

if TYPE_CHECKING:
    from ..index import Index, Item
    from ..index.items import Ids

_PART = 4096  # items in memory at once; more would stop the threads of a service
_ATTEMPTS = 5


def ids_of_files(index: Index, ids: Iterable[str]) -> set[str]:
    """Return the ids under which an index has a file.

    Args:
        index: The index.
        ids: Ids of the catalog.

    Returns:
        Those of items that have a path.
    """
    wanted = list(ids)
    if index.id_type is not str:
        return set()
    found: set[str] = set()
    for start in range(0, len(wanted), _PART):
        items = items_of(index, id_array(wanted[start : start + _PART]))
        found.update(str(item.id) for item in items if item.path is not None)
    return found


def items_of(index: Index, ids: Ids) -> list[Item]:
    """Return items by id.

    Args:
        index: The index.
        ids: The ids.

    Returns:
        The items, without those that are unknown or that another process removes meanwhile.
    """
    for _ in range(_ATTEMPTS):
        if not len(ids):
            break
        try:
            return index.get(ids)
        except UsageError:
            ids = ids[index.has(ids)]
    return []
