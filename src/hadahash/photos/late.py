"""What is written to a collection on a server while an upgrade switches to the next one.

A server has no generations: a write can reach a collection after its items were compared with
those of the next one, and before the switch. The ids that were compared are in a file until such
writes were taken over, so that the next command completes an upgrade that was killed in between.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..errors import StorageError, UsageError
from ..files import read_checked, write_json
from ..index import revisions
from ..index.items import Ids, id_array
from ..index.revisions import PREVIOUS
from .staging import STAGE, Staging

if TYPE_CHECKING:
    from ..index import Index

_FILE = "compared.json"


def remember(folder: Path, live: Index, ids: Ids) -> None:
    """Keep the ids that were compared, before a switch.

    Args:
        folder: The folder of the index.
        live: The current revision.
        ids: Its ids.
    """
    compared = {"generation": revisions.opened_generation(live), "ids": ids.tolist()}
    write_json(folder / STAGE / _FILE, compared)


def unfinished(folder: Path) -> Ids | None:
    """Return the ids that were compared before a switch after which nothing was taken over.

    Args:
        folder: The folder of the index.

    Returns:
        The ids; None if there was no such switch.

    Raises:
        StorageError: The file of the ids is damaged.
    """
    path = folder / STAGE / _FILE
    if not path.exists() or not revisions.exists(folder, PREVIOUS):
        return None
    remedy = "Restore it, or remove it and bring the index up to date: hadahash index build"
    compared = read_checked(path, {"generation": int, "ids": [(int, str)]}, remedy)
    if revisions.generation(folder, PREVIOUS) != compared["generation"]:
        return None
    try:
        return id_array(compared["ids"])
    except UsageError as error:  # of two kinds, or too large
        raise StorageError(f"{path} is damaged ({str(error).rstrip('.')}). {remedy}") from error


def take_late(stage: Staging, known: Ids) -> int:
    """Take over what was written between the comparison and the switch.

    Args:
        stage: The new revision, which is the current one now.
        known: The ids that were compared.

    Returns:
        Number of items that cannot be encoded. They stay in the previous revision.
    """
    stage.switched = True
    before = revisions.open_revision(stage.folder, PREVIOUS)
    now, missing = before.ids, len(stage.missing)
    added = np.setdiff1d(now, known)
    if len(added):
        stage.catch_up(before, added)
    removed = np.setdiff1d(known, now)
    if len(removed):
        stage.remove(removed)
    (stage.folder / STAGE / _FILE).unlink(missing_ok=True)
    return len(stage.missing) - missing
