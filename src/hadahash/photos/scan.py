"""Find the photos in a folder and assign their ids."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ..errors import UsageError


class Photo(NamedTuple):
    """An image file and its id in the index.

    Attributes:
        id: Path below `root`, with slashes, after an optional prefix.
        path: The file.
        root: The folder it was found in.
        label: The top-level folder below `root`, if there is one.
    """

    id: str
    path: Path
    root: Path
    label: str | None


@dataclass(frozen=True, eq=False)
class Scan:
    """What a scan found.

    Attributes:
        photos: The image files, in an order that depends on their names alone.
        unsupported: Files that have no suffix of a supported image type.
        hidden: Number of files and folders whose names begin with a dot.
    """

    photos: list[Photo]
    unsupported: list[Path]
    hidden: int

    @property
    def notice(self) -> str | None:
        """One sentence about the files that were left out, or None if there are none.

        >>> Scan([], [Path("a.HEIC"), Path("b.mov"), Path("c.heic")], 1).notice
        'Skipped 3 files of unsupported types (2 .heic, 1 .mov) and 1 hidden file.'
        """
        from ..data.folder import skipped_notice

        return skipped_notice(self.unsupported, self.hidden) or None


def scan_folder(folder: str | Path, *, prefix: str = "") -> Scan:
    """Find all images below a folder.

    Args:
        folder: The folder, searched recursively.
        prefix: Put before each id.

    Returns:
        The images, and what was left out.

    Raises:
        DataError: The folder cannot be read.
    """
    from ..data.folder import scan  # imported here: commands that scan nothing start faster

    root = _resolve(folder)
    listing = scan(root)
    photos = [_photo(path, root, prefix) for path in listing.images]
    return Scan(photos, listing.others, listing.hidden)


def scan_paths(
    sources: Iterable[str | Path], *, home: Path | None = None, prefix: str = ""
) -> Scan:
    """Find the images among files and folders.

    Args:
        sources: Image files, and folders that are searched recursively.
        home: The folder an index was built from. Files below it get the same ids as in a build.
        prefix: Put before each id.

    Returns:
        The images, and what was left out.

    Raises:
        DataError: A file or folder cannot be read.
        UsageError: Two files would have the same id.
    """
    from ..data.folder import scan

    found: dict[str, Photo] = {}
    unsupported: list[Path] = []
    hidden = 0
    for source in map(_resolve, sources):
        if source.is_file():
            root, images = source.parent, [source]
        else:
            listing = scan(source)
            root, images = source, listing.images
            unsupported += listing.others
            hidden += listing.hidden
        if home is not None and source.is_relative_to(home):
            root = home
        for path in images:
            photo = _photo(path, root, prefix)
            if found.setdefault(photo.id, photo).path != path:
                raise UsageError(
                    f"Two files would get the id '{photo.id}': {found[photo.id].path} and {path}. "
                    "Add them one at a time, with different prefixes."
                )
    return Scan(list(found.values()), unsupported, hidden)


def _resolve(path: str | Path) -> Path:
    try:
        return Path(path).resolve()
    except (OSError, RuntimeError):  # a symbolic link loop, or a name that is too long
        return Path(path).absolute()  # scanning it reports the reason


def _photo(path: Path, root: Path, prefix: str) -> Photo:
    parts = path.relative_to(root).parts
    return Photo(prefix + "/".join(parts), path, root, parts[0] if len(parts) > 1 else None)
