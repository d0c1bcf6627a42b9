"""What is kept of the revision before an upgrade, for a rollback.

Its manifest is previous.json. The folder `previous` has its catalog, under the number of its
generation, and dropped.json, the items that the upgrade had to leave out.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import StorageError
from ..files import read_checked, write_json
from ..index import Index, revisions
from ..index.items import Id
from ..index.revisions import NEXT, PREVIOUS
from .catalog import Catalog

if TYPE_CHECKING:
    from .staging import Staging

KEPT = "previous"  # folder in the folder of the index
_DROPPED = "dropped.json"
_GENERATION = re.compile(r"\d{6,}")  # name of a folder in it


def _kept(folder: Path) -> Path:
    """Folder of what belongs to the previous revision, beside its manifest."""
    return folder / KEPT / f"{revisions.generation(folder, PREVIOUS):06d}"


def kept_catalog(folder: Path) -> Catalog:
    """Return the catalog of the previous revision."""
    return Catalog(_kept(folder)) if _kept(folder).is_dir() else Catalog(folder)


def dropped(folder: Path) -> list[Any]:
    """Return the ids of the items of the previous revision that the upgrade left out.

    Raises:
        StorageError: The list is damaged.
    """
    path = _kept(folder) / _DROPPED
    remedy = "Restore it, or remove it: items that were left out are then removed."
    return list(read_checked(path, [(int, str)], remedy)) if path.exists() else []


def keep(folder: Path, live: Index, stage: Staging) -> None:
    """Keep the catalog of the current revision, before a switch.

    Args:
        folder: The folder of the index.
        live: The current revision.
        stage: The next revision.
    """
    target = folder / KEPT / f"{revisions.opened_generation(live):06d}"
    catalog = Catalog(folder)
    (catalog if catalog.path.exists() else stage.catalog).copy(target)
    write_json(target / _DROPPED, list(stage.missing))


def add_dropped(folder: Path, ids: Iterable[Id]) -> None:
    """Note items of the previous revision that were left out after the switch, for a rollback.

    Args:
        folder: The folder of the index.
        ids: Their ids.
    """
    known = dropped(folder)
    new = [each for each in ids if each not in set(known)]
    if new:
        write_json(_kept(folder) / _DROPPED, known + new)


def clean(folder: Path) -> None:
    """Remove what belongs to revisions before the previous one; a linked folder is left alone."""
    kept, place = _kept(folder).name, folder / KEPT
    for path in () if place.is_symlink() else place.iterdir():
        if _GENERATION.fullmatch(path.name) and path.name != kept:
            shutil.rmtree(path, ignore_errors=True)


def elsewhere(folder: Path, name: str) -> list[Index]:
    """Return the index of a revision whose codes are on a server, and of no other revision.

    Args:
        folder: The folder of the index.
        name: `NEXT` or `PREVIOUS`.

    Returns:
        The index, or nothing.
    """
    if not (folder / name).exists():
        return []
    index = revisions.open_revision(folder, name)
    others = [other for other in (NEXT, PREVIOUS) if other != name and (folder / other).exists()]
    used = [Index.open(folder), *(revisions.open_revision(folder, other) for other in others)]
    return [] if index.location in (None, *(each.location for each in used)) else [index]


def discard(folder: Path, name: str) -> None:
    """Remove a revision, with its collection if it is on a server.

    Args:
        folder: The folder of the index.
        name: `NEXT` or `PREVIOUS`.
    """
    for index in elsewhere(folder, name):
        with suppress(StorageError):  # the server is gone
            index.drop()
    revisions.discard(folder, name)
