"""Revisions of an index in one folder: the current one, the next one, and the previous one.

    index.json       the current revision, which everybody opens
    upgrade.json     the next one, while an upgrade prepares it
    previous.json    the one before the last upgrade

Each is a manifest, and their data files share the folder. `switch` makes the next revision the
current one by replacing index.json, atomically: a process that opens it gets the old or the new
revision, with the name of the model that made its codes.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .api import ENGINES, Index
from .items import Ids, empty_ids
from .local import LocalIndex
from .segments import Segment
from .storage.folder import IndexFolder
from .storage.manifest import MANIFEST, NEXT, PREVIOUS, read_manifest

__all__ = ["NEXT", "PREVIOUS", "Changes", "changes", "copy", "exists", "open_revision", "switch"]

_OF_REVISION = ("model", "run", "embeddings", "milvus")  # other values of `meta` are kept


class Changes(NamedTuple):
    """How an index differs from an earlier state of itself.

    Attributes:
        touched: Ids of all items that were added or changed, and perhaps of others.
        removed: Ids of items that were removed; None: not known.
    """

    touched: Ids
    removed: Ids | None


def exists(folder: Path, name: str) -> bool:
    """Return whether a folder has a revision.

    Args:
        folder: The folder of an index.
        name: `NEXT` or `PREVIOUS`.

    Returns:
        Whether there is one. A switch that was interrupted leaves a `PREVIOUS` that is still the
        current revision, which does not count.
    """
    if not (folder / name).is_file():
        return False
    return name != PREVIOUS or generation(folder, name) < generation(folder)


def generation(folder: Path, name: str = MANIFEST) -> int:
    """Return the generation of a revision; it grows with every change.

    Args:
        folder: The folder of an index.
        name: The manifest.

    Returns:
        The number.
    """
    return read_manifest(folder, name).generation


def opened_generation(index: Index) -> int:
    """Return the generation that an index was opened from or last saved as.

    Args:
        index: The index.

    Returns:
        The number; 0 for an index that was never saved.
    """
    revision = getattr(index, "_revision", None)
    return 0 if revision is None else int(revision.generation)


def open_revision(folder: str | Path, name: str) -> Index:
    """Open a revision.

    Args:
        folder: The folder of an index.
        name: `NEXT` or `PREVIOUS`.

    Returns:
        The index.

    Raises:
        StorageError: There is none, or it is damaged.
    """
    loaded = IndexFolder(folder, name).open()
    return ENGINES.get(loaded.manifest.engine)._load(loaded)


def copy(folder: Path, source: str, target: str) -> None:
    """Write a second manifest of a revision; data files are not copied.

    Args:
        folder: The folder of an index.
        source: The manifest to copy.
        target: The manifest to write.
    """
    with IndexFolder(folder).lock():
        read_manifest(folder, source).write(folder, target)


def switch(folder: Path, expected: int) -> bool:
    """Make the next revision the current one, and keep that one as the previous revision.

    Args:
        folder: The folder of the index.
        expected: Generation of the current revision; if it has changed, nothing is done.

    Returns:
        Whether the revisions were switched.

    Raises:
        StorageError: The folder cannot be written; then the current revision is unchanged.
    """
    place = IndexFolder(folder)
    with place.lock():
        current, staged = read_manifest(folder), read_manifest(folder, NEXT)
        if current.generation != expected:
            return False
        current.write(folder, PREVIOUS)
        number = place.next_generation(max(current.generation, staged.generation))
        switched = replace(staged, generation=number, meta=_meta(current.meta, staged.meta))
        switched.write(folder)
        (folder / NEXT).unlink()
        place.vacuum(switched)
    return True


def discard(folder: Path, name: str) -> None:
    """Remove a revision with the files that no other one has.

    Args:
        folder: The folder of an index.
        name: `NEXT` or `PREVIOUS`.
    """
    place = IndexFolder(folder)
    with place.lock():
        (folder / name).unlink(missing_ok=True)
        place.vacuum(read_manifest(folder))


def changes(before: Index, after: Index) -> Changes:
    """Compare an index with an earlier state of itself.

    Local indexes compare their segments: the time grows with the changes, not with the index.

    Args:
        before: The index as it was opened earlier.
        after: The index as it is now.

    Returns:
        The differences. For other engines: all items are touched, and none is known as removed.
    """
    if not (isinstance(before, LocalIndex) and isinstance(after, LocalIndex)):
        return Changes(after.ids, None)
    old = {_key(segment): segment for segment in before._segments}
    new = {_key(segment): segment for segment in after._segments}
    touched = [new[key].live_ids() for key in new.keys() - old.keys()]
    removed = [old[key].live_ids() for key in old.keys() - new.keys()]
    removed += [_deleted_since(old[key], new[key]) for key in old.keys() & new.keys()]
    gone = _joined(removed)
    return Changes(_joined(touched), gone[~after.has(gone)] if len(gone) else gone)


def _key(segment: Segment) -> str:
    """The name of a segment's file; files are never modified."""
    return "" if segment.saved is None else segment.saved.entry.files["items"].name


def _deleted_since(old: Segment, new: Segment) -> Ids:
    live = old.live_ids()
    return live[new.ordinals_of(live) < 0] if new.live_count < old.live_count else live[:0]


def _joined(parts: list[Ids]) -> Ids:
    filled = [part for part in parts if len(part)]
    return np.concatenate(filled) if filled else empty_ids(None)


def _meta(current: dict[str, Any], staged: dict[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in current.items() if key not in _OF_REVISION}
    return kept | {key: staged[key] for key in _OF_REVISION if key in staged}
