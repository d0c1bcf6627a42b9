"""Commands that take an index or a folder of photos."""

from __future__ import annotations

from pathlib import Path

from . import output


def as_index(path: Path) -> Path:
    """Return the folder of an index; a folder of photos is indexed first, without a trained model.

    Args:
        path: Folder of an index, or of photos.

    Returns:
        The folder of the index: `path`, or PHOTOS.index beside the folder PHOTOS.

    Raises:
        DataError: The folder contains neither an index nor photos.
    """
    from ..index.storage.manifest import MANIFEST

    if (path / MANIFEST).exists() or not path.is_dir():
        return path
    from ..photos import build_or_update

    return build_or_update(path, bar=output.progress, progress=True, info=output.info)
