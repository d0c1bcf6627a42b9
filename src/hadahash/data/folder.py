"""A folder of images, and a folder of class folders.

The class of an image is the top-level folder below the root, at any depth.
"""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal

from ..errors import DataError, install_command
from ..lazy import is_installed
from .base import DataWarning, FileImages, ImageSource, LabelledImages, name_ids
from .class_names import require_classes, warn_of_albums
from .formats import HEIF_SUFFIXES, image_suffixes
from .labels import Labels
from .raw import RAW_SUFFIXES

_REPORTED = 1000  # images between two reports of progress


@dataclass
class Listing:
    """The contents of a folder, at any depth.

    Attributes:
        images: Files with an image extension, in order.
        hidden: Number of files and folders whose name begins with a dot.
        others: Files without an image extension.
        excluded: Number of files and folders that match a pattern.
        links: Number of symbolic links that were not followed.
    """

    images: list[Path] = field(default_factory=list)
    hidden: int = 0
    others: list[Path] = field(default_factory=list)
    excluded: int = 0
    links: int = 0

    @property
    def skipped(self) -> str:
        """One sentence about excluded files and those without an image extension, or empty."""
        return skipped_notice(self.others, excluded=self.excluded)

    @property
    def notice(self) -> str:
        """One sentence about all that was left out; empty if nothing was."""
        return skipped_notice(self.others, self.hidden, self.excluded, self.links)


def skipped_notice(
    others: Sequence[Path], hidden: int = 0, excluded: int = 0, links: int = 0
) -> str:
    """Describe files that a listing leaves out.

    Args:
        others: Files without an image extension.
        hidden: Number of hidden files and folders to mention.
        excluded: Number of excluded files and folders to mention.
        links: Number of symbolic links to mention.

    Returns:
        One sentence, or an empty string if there are none.

    Example:
        >>> skipped_notice([Path("a.MOV"), Path("b.mov"), Path("c")], hidden=1)
        'Skipped 3 files of unsupported types (2 .mov, 1 no extension) and 1 hidden file.'
    """
    parts = []
    if others:
        kinds = Counter(path.suffix.lower() or "no extension" for path in others)
        shown = [f"{count:,} {kind}" for kind, count in kinds.most_common(5)]
        more = ["..."] if len(kinds) > len(shown) else []
        parts.append(
            f"{_number(len(others), 'file')} of unsupported types ({', '.join(shown + more)})"
        )
    parts += [_number(hidden, "hidden file")] if hidden else []
    parts += [_number(excluded, "excluded file")] if excluded else []
    parts += [f"{_number(links, 'symbolic link')}"] if links else []
    if not parts:
        return ""
    *first, last = parts
    text = f"Skipped {', '.join(first)}{' and ' if first else ''}{last}."
    return text + _missing_extras({path.suffix.lower() for path in others})


def _missing_extras(suffixes: set[str]) -> str:
    """How to read skipped files for which there is an extra."""
    extras = []
    if suffixes & HEIF_SUFFIXES and not is_installed("pi_heif"):
        extras.append(f"HEIC: {install_command('heif')}")
    if suffixes & RAW_SUFFIXES and not is_installed("rawpy"):
        extras.append(f"RAW: {install_command('raw')}")
    return f" To read {'; '.join(extras)}" if extras else ""


def list_images(root: str | Path) -> list[Path]:
    """List all images below a folder, at any depth.

    Files without an image extension are counted in a `DataWarning`.

    Args:
        root: The folder.

    Returns:
        The images, in an order that depends on their names alone.

    Raises:
        DataError: The folder or one below it cannot be read.
    """
    listing = scan(root)
    warn_of_skipped(root, listing)
    return listing.images


def scan(
    root: str | Path,
    *,
    exclude: Sequence[str] = (),
    links: Literal["all", "inside"] = "all",
    progress: Callable[[int], object] = lambda count: None,
) -> Listing:
    """List a folder without opening any file; damaged images are detected when they are read.

    Args:
        root: The folder.
        exclude: Patterns (`*`, `?`, `[...]`) of files and folders to leave out. A pattern without
            a slash is compared with each name, one with a slash with the path below `root`.
        links: Symbolic links to follow: "all", except to a folder that contains the link; or
            "inside", only links to files below `root`.
        progress: Called with the number of images found since the last call, now and then.

    Returns:
        The images and the other files.

    Raises:
        DataError: The folder or one below it cannot be read.
    """
    root, listing = _require_folder(root), Listing()
    suffixes = image_suffixes()
    for path in _walk(root, _Rules(root, exclude, links), listing):
        if path.name.startswith("."):
            listing.hidden += 1
        elif path.suffix.lower() in suffixes:
            listing.images.append(path)
            if not len(listing.images) % _REPORTED:
                progress(_REPORTED)
        else:
            listing.others.append(path)
    progress(len(listing.images) % _REPORTED)
    return listing


def warn_of_skipped(root: str | Path, listing: Listing) -> None:
    """Warn of excluded files, and files that have no image extension, such as videos.

    Args:
        root: The folder that was listed.
        listing: Its contents.
    """
    if listing.skipped:
        warnings.warn(f"{root}: {listing.skipped}", DataWarning, stacklevel=3)


def no_images(root: str | Path, listing: Listing) -> DataError:
    """Make the error for a folder without images.

    Args:
        root: The folder.
        listing: Its contents.

    Returns:
        The error; it lists the supported extensions.
    """
    known = ", ".join(sorted(image_suffixes() - RAW_SUFFIXES))
    known += " or a suffix of RAW photos" if is_installed("rawpy") else ""
    parts = [f"{root} contains no images.", listing.skipped, f"Image files end in {known}."]
    return DataError(" ".join(part for part in parts if part))


def read_images(root: str | Path, *, exclude: Sequence[str] = ()) -> ImageSource:
    """Read the images below a folder, without labels.

    Args:
        root: The folder.
        exclude: Patterns of files and folders to leave out; see `scan`.

    Returns:
        The images. Ids are paths below the root, with slashes.

    Raises:
        DataError: There are no images.
    """
    root, listing = Path(root), scan(root, exclude=exclude)
    if not listing.images:
        raise no_images(root, listing)
    warn_of_skipped(root, listing)
    names = (image.relative_to(root).as_posix() for image in listing.images)
    return ImageSource(FileImages(listing.images), name_ids(names))


def read_folder(root: str | Path, *, exclude: Sequence[str] = ()) -> LabelledImages:
    """Read the labelled images of `root/<class>/.../<image>`.

    Args:
        root: The folder that holds the class folders.
        exclude: Patterns of files and folders to leave out; see `scan`. A class folder that
            matches one is no class.

    Returns:
        The images. Ids are paths below the root, with slashes; classes are in the order of their
        names.

    Raises:
        DataError: There are no images, images outside the class folders, class folders without
            images, or fewer than two classes.
    """
    root = Path(root)
    listing = scan(root, exclude=exclude)
    if not listing.images:
        raise no_images(root, listing)
    parts = [path.relative_to(root).parts for path in listing.images]
    classes = class_folders(root, exclude=exclude)
    require_classes(root, classes, parts)
    warn_of_skipped(root, listing)
    warn_of_albums(root, classes)
    number = {name: label for label, name in enumerate(classes)}
    return LabelledImages(
        images=FileImages(listing.images),
        ids=name_ids("/".join(part) for part in parts),
        labels=Labels.from_array([number[part[0]] for part in parts], len(classes)),
        classes=classes,
        name=Path(os.path.abspath(root)).name,  # noqa: PTH100
    )


def class_folders(root: Path, *, exclude: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the names of the folders in a folder, in order, without hidden and excluded ones."""
    rules = _Rules(root, exclude, "all")
    folders = (entry for entry in _entries(root) if _is_visible_folder(entry))
    return tuple(sorted(entry.name for entry in folders if not rules.excludes(entry)))


def _require_folder(root: str | Path) -> Path:
    root = Path(root)
    try:
        is_folder = root.is_dir()
        root.stat()
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"Cannot read the folder {root}: {reason}. Check the path.") from error
    if not is_folder:
        raise DataError(
            f"{root} is a file, not a folder. Give the folder that contains the images."
        )
    return root


def matches(name: str, patterns: Sequence[str]) -> bool:
    """Return whether patterns exclude a file.

    Args:
        name: Its path below the root, with slashes.
        patterns: As for `scan`.

    Returns:
        Whether a pattern matches the file or a folder above it.

    Example:
        >>> matches("cat/small/1.jpg", ["small"]), matches("cat/1.jpg", ["dog/*"])
        (True, False)
    """
    above = [name[:place] for place, letter in enumerate(name) if letter == "/"]
    for pattern in filter(None, (each.strip("/") for each in patterns)):
        for path in (*above, name):
            text = path if "/" in pattern else path.rpartition("/")[2]
            if fnmatchcase(text, pattern):
                return True
    return False


class _Rules:
    """Decides which entries of a folder are listed."""

    def __init__(self, root: Path, exclude: Sequence[str], links: str) -> None:
        patterns = [pattern.strip("/") for pattern in exclude]
        self._names = [pattern for pattern in patterns if pattern and "/" not in pattern]
        self._paths = [pattern for pattern in patterns if "/" in pattern]
        self._root = os.fspath(root)
        self._inside = None if links == "all" else os.path.realpath(root)

    def excludes(self, entry: os.DirEntry[str]) -> bool:
        """Whether a pattern matches the entry."""
        if any(fnmatchcase(entry.name, pattern) for pattern in self._names):
            return True
        if not self._paths:
            return False
        below = os.path.relpath(entry.path, self._root).replace(os.sep, "/")
        return any(fnmatchcase(below, pattern) for pattern in self._paths)

    def follows(self, entry: os.DirEntry[str]) -> bool:
        """Whether the entry is no link, or a link to follow."""
        if self._inside is None or not entry.is_symlink():
            return True
        if os.path.isdir(entry.path):  # noqa: PTH112 - its files are listed where they are
            return False
        folder = os.path.join(self._inside, "")  # noqa: PTH118
        return os.path.realpath(entry.path).startswith(folder)


def _walk(root: Path, rules: _Rules, listing: Listing) -> Iterator[Path]:
    """All files below a folder and the hidden folders, by name (code point), depth first."""
    above: frozenset[tuple[int, int]] = frozenset()  # the folders that contain the entry
    waiting = [(os.fspath(root), True, above)]
    while waiting:
        name, is_folder, above = waiting.pop()
        path = Path(name)
        if not is_folder:
            yield path
            continue
        here = _identity(path)
        if here in above:
            listing.links += 1
            continue
        inner = above | {here}
        for entry in reversed(_listed(path, rules, listing)):
            waiting.append((entry.path, _is_visible_folder(entry), inner))


def _listed(path: Path, rules: _Rules, listing: Listing) -> list[os.DirEntry[str]]:
    """The entries of a folder that the rules allow; the others are counted."""
    kept = []
    for entry in _entries(path):
        if rules.excludes(entry):
            listing.excluded += 1
        elif not rules.follows(entry):
            listing.links += 1
        else:
            kept.append(entry)
    return kept


def _identity(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError as error:
        raise _unreadable(path, error) from error
    return status.st_dev, status.st_ino


def _entries(path: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(path) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> DataError:
    return DataError(
        f"Cannot read the folder {path}: {error.strerror}. Check its permissions, move it, or "
        "leave it out with --exclude."
    )


def _is_visible_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return not entry.name.startswith(".") and entry.is_dir()
    except OSError:  # a symbolic link loop
        return False


def _number(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
