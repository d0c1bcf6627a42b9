"""What an index records about its photos: where they are, and what is left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..codes import Codes
from ..index import Index
from ..index.storage.manifest import MANIFEST
from .plan import SyncPlan
from .scan import ScanOptions, outermost

_DATASET = "dataset:"
_CHECKED_PHOTOS = 20


def home_path(images: str | Path) -> Path:
    """Return what an index records as the origin of its photos.

    Args:
        images: A folder, a table, or `Scan.home`.

    Returns:
        The absolute path; `dataset:NAME` and addresses unchanged.
    """
    elsewhere = str(images).startswith(_DATASET) or shown(Path(images)) != str(Path(images))
    return Path(images) if elsewhere else Path(images).resolve()


def shown(path: Path) -> str:
    """Return the text of a path, or of an address that a `Path` holds."""
    from ..data.remote.address import shown  # commands that read no photo start faster

    return shown(path)


def image_folders(meta: Mapping[str, Any]) -> list[Path]:
    """Return the folders that contain the photos of an index.

    Args:
        meta: `Index.meta`.

    Returns:
        The folders of the last build and of `hadahash index add`.
    """
    recorded = meta.get("folders")
    if recorded is None:  # an index of version 0.1
        recorded = [meta["images"]] if "images" in meta else []
    return [Path(each) for each in recorded]


def missing_photos(
    index: Index, folder: str | Path, roots: Sequence[Path] | None = None
) -> str | None:
    """Check whether the photos of an index are where it expects them.

    Args:
        index: The index.
        folder: Its folder, for the message.
        roots: Folders of the photos; by default those that the index records.

    Returns:
        One line that names the folders and the remedy, or None: a folder does not exist, or no
        photo of a small sample does.
    """
    roots = image_folders(index.meta) if roots is None else roots
    roots = [root for root in roots if not _is_stored(root)]
    gone = [root for root in roots if not root.is_dir()]
    sample = _sample(index) if roots and not gone else []
    if gone:
        problem = f"Photos are missing: {_listed(gone)} does not exist."
    elif sample and not any(_exists(root / name) for root in roots for name in sample):
        problem = f"Photos are missing: {_listed(roots)} contains none of those that were checked."
    else:
        return None
    return (
        f"{problem} If the folder was moved: hadahash index build FOLDER --out {folder} --moved, "
        f"or once: hadahash serve {folder} --images FOLDER"
    )


def _is_stored(root: Path) -> bool:
    """Whether photos are at an address or in an archive, which are not checked."""
    if root.is_dir():
        return False
    from ..data.remote import is_stored

    return is_stored(shown(root))


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # not a valid file name
        return False


def _listed(folders: Sequence[Path]) -> str:
    return ", ".join(map(str, folders))


def _sample(index: Index) -> list[str]:
    """Paths of some photos, and their ids, which are paths in the folder of the photos."""
    rows = np.random.default_rng(0).integers(0, 2, (_CHECKED_PHOTOS, index.bits))
    found = index.neighbors(Codes.from_bits(rows), 1)
    photos = [hits[0] for hits in found if hits and hits[0].path is not None]
    return [name for photo in photos for name in (str(photo.path), str(photo.id))]


def scan_options(
    meta: Mapping[str, Any],
    *,
    exclude: list[str] | None = None,
    follow_links: bool | None = None,
    data_root: Path | None = None,
    pictures: Path | None = None,
) -> ScanOptions:
    """Complete the options of a scan by those of the last build.

    Args:
        meta: `Index.meta`; empty for a new index.
        exclude: Patterns; None: those of the last build.
        follow_links: Whether links are followed; None: as in the last build.
        data_root: See `ScanOptions`.
        pictures: See `ScanOptions`.

    Returns:
        The options.
    """
    return ScanOptions(
        tuple(filter(None, meta.get("exclude", ()) if exclude is None else exclude)),
        bool(meta.get("follow_links", False) if follow_links is None else follow_links),
        data_root,
        pictures,
    )


def recorded_meta(index: Path) -> Mapping[str, Any]:
    """Return `Index.meta` of the index in a folder; empty if there is none.

    Args:
        index: The folder.

    Returns:
        The values.

    Raises:
        StorageError: The index is damaged.
    """
    return Index.open(index).meta if (index / MANIFEST).exists() else {}


def recorded(meta: Mapping[str, Any], plan: SyncPlan) -> dict[str, Any]:
    """Return the values of `Index.meta` after a sync.

    Args:
        meta: The values before it.
        plan: What was done.

    Returns:
        All values, the changed ones included.
    """
    changed = dict(meta)
    folders = image_folders(meta)
    if plan.home is not None:
        home = meta.get("images")
        if home is not None and home != shown(plan.home):
            folders = [each for each in folders if not each.is_relative_to(home)]
        options = plan.options
        changed |= {"images": shown(plan.home), "exclude": list(options.exclude)}
        changed["follow_links"] = options.follow_links
    changed["folders"] = [str(each) for each in outermost([*folders, *plan.folders])]
    return changed
