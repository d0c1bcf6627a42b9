"""A small collection: photos, archives of them, a run, and an index that was upgraded once.

The run is that of tests/fuzz/corpus. Its backbone is that of `toys.use_smallest_backbone`, which
must be in use.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from hadahash.photos import BuildOptions, build_or_update
from hadahash.photos.duplicates import PhotoDuplicates
from hadahash.photos.upgrade import UpgradeOptions, upgrade

CORPUS = Path(__file__).parent / "fuzz" / "corpus"
ARCHIVES = ("archive.tar", "archive.zip", "images.parquet")


def small_collection(root: Path) -> Path:
    """Write `photos` (17 files, two of them equal), `run`, archives and `photos.index`.

    The index has a catalog with looks, a search for duplicates, a dismissed group, and the codes of
    16 bits before it was upgraded to 8.
    """
    for name in ("photos", "run"):
        shutil.copytree(CORPUS / name, root / name)
    for name in ARCHIVES:
        shutil.copy(CORPUS / name, root / name)
    index = root / "photos.index"
    build_or_update(root / "photos", index, run=root / "run", options=BuildOptions(device="cpu"))
    upgrade(index, root / "run", options=UpgradeOptions(bits=8, device="cpu"))
    duplicates = PhotoDuplicates(index)
    duplicates.read(duplicates.unread())
    duplicates.dismiss(duplicates.find(20)[0])
    duplicates.find(20)
    return root
