"""What is written to a collection on a server while an upgrade switches to the next one.

A server has no generations: a write can reach a collection after its items were compared with
those of the next one, and before the switch. The ids that were compared are in a file until such
writes were taken over, so that the next command completes an upgrade that was killed in between.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..errors import DataError, StorageError, UsageError
from ..files import locked, read_checked, write_json
from ..index import Index, revisions
from ..index.items import Id, Ids, id_array
from ..index.revisions import PREVIOUS
from .catalog import Catalog
from .kept import add_dropped, clean
from .models import load_model_of
from .staging import STAGE, Originals, PhotoFiles, Staging, originals_of

_FILE = "compared.json"


class Late(NamedTuple):
    """What was written to a collection after its items were compared with those of the next one.

    Attributes:
        before: The previous revision.
        added: Ids of items that were added.
        removed: Ids of items that were removed.
    """

    before: Index
    added: Ids
    removed: Ids


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


def compare(folder: Path, known: Ids) -> Late:
    """Find what was written between the comparison and the switch.

    Args:
        folder: The folder of the index.
        known: The ids that were compared.

    Returns:
        The changes.
    """
    before = revisions.open_revision(folder, PREVIOUS)
    now = before.ids
    return Late(before, np.setdiff1d(now, known), np.setdiff1d(known, now))


def take_late(stage: Staging, late: Late) -> dict[Id, str]:
    """Take over what was written between the comparison and the switch.

    Args:
        stage: The new revision, which is the current one now.
        late: The changes.

    Returns:
        Items that cannot be encoded, and why. They stay in the previous revision.
    """
    stage.switched = True
    others = set(stage.missing)
    if len(late.removed):
        stage.remove(late.removed)
    if len(late.added):
        stage.catch_up(late.before, late.added)
    return {each: why for each, why in stage.missing.items() if each not in others}


def settle(folder: Path, missing: Iterable[Id]) -> None:
    """Note that the late changes are taken over, apart from items that are left out.

    Args:
        folder: The folder of the index.
        missing: Items that stay in the previous revision; a rollback brings them back.
    """
    add_dropped(folder, missing)
    (folder / STAGE / _FILE).unlink(missing_ok=True)


def finish(
    folder: Path, *, drop_missing: bool, embeddings: Path | None, device: str
) -> Staging | None:
    """Complete an upgrade that was killed right after its switch.

    Args:
        folder: The folder of the index.
        drop_missing: Leave out items that cannot be encoded, instead of refusing.
        embeddings: File of the embeddings, for an index of embeddings.
        device: "auto", "cpu" or "cuda".

    Returns:
        The new revision, with what was encoded and what is missing; None if no upgrade was killed.

    Raises:
        DataError: Items cannot be encoded. They are still in the previous revision.
        UsageError: It is an index of embeddings, and they are not given.
    """
    known = unfinished(folder)
    if known is None:
        return None
    with locked(folder / STAGE):
        live, late = Index.open(folder), compare(folder, known)
        originals: Originals = PhotoFiles()
        if len(late.added):
            originals = originals_of(folder, live, embeddings)
        stage = Staging(folder, live, load_model_of(live, folder, device=device), originals)
        missing = take_late(stage, late)
        if missing and not drop_missing:
            left = id_array([each for each in late.before.ids.tolist() if each not in missing])
            remember(folder, late.before, left)
            raise _refused(folder, missing)
        settle(folder, missing)
        clean(folder)
        Catalog(folder).adopt(stage.catalog)
        live.made_current()
        shutil.rmtree(folder / STAGE, ignore_errors=True)
    return stage


def _refused(folder: Path, missing: dict[Id, str]) -> DataError:
    each, reason = next(iter(missing.items()))
    return DataError(
        f"{len(missing):,} items that were added while {folder} was upgraded cannot be encoded, "
        f"such as '{each}': {reason}. They are only in the codes before. Restore the files, go "
        "back with --rollback, or leave them out with --drop-missing."
    )
