"""A folder of images, and a folder of class folders: the class of an image is the name of the folder below the root."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import DataError
from .base import DataWarning, FileImages, LabelledImages, name_ids
from .images import IMAGE_SUFFIXES
from .labels import Labels

_SPLITS = (
    "train",
    "training",
    "test",
    "testing",
    "val",
    "valid",
    "validation",
    "query",
    "database",
)


@dataclass
class Listing:
    """What a folder holds, at any depth: the images in order, and what was passed over."""

    images: list[Path] = field(default_factory=list)
    hidden: int = 0  # files and folders whose name begins with a dot
    others: list[Path] = field(default_factory=list)  # files without the suffix of an image


def list_images(root: str | Path) -> list[Path]:
    """All images below a folder, at any depth, in an order that depends on their names alone."""
    return scan(root).images


def scan(root: str | Path) -> Listing:
    """List a folder by the names in it; no file is opened, so a broken one is found when it is read.

    Linked folders are followed, unless they lead back to a folder they lie in.
    """
    listing = Listing()
    for path in _walk(_require_folder(root)):
        if path.name.startswith("."):
            listing.hidden += 1
        elif path.suffix.lower() in IMAGE_SUFFIXES:
            listing.images.append(path)
        else:
            listing.others.append(path)
    return listing


def read_folder(root: str | Path) -> LabelledImages:
    """The labelled images of `root/<class>/.../<image>`; an id is the path below the root, with slashes.

    Classes are numbered in the order of their names. Images that lie in no class folder and class folders without
    images are errors: they would be left out without a word otherwise.
    """
    root = Path(root)
    listing = scan(root)
    if not listing.images:
        passed = f"{len(listing.others)} other and {listing.hidden} hidden files were passed over"
        raise DataError(
            f"{root} holds no images ({passed}). Images end in: {', '.join(sorted(IMAGE_SUFFIXES))}."
        )
    parts = [path.relative_to(root).parts for path in listing.images]
    classes = class_folders(root)
    _require_classes(root, classes, parts)
    _warn_of_others(root, listing.others)
    number = {name: label for label, name in enumerate(classes)}
    return LabelledImages(
        images=FileImages(listing.images),
        ids=name_ids("/".join(part) for part in parts),
        labels=Labels.from_array([number[part[0]] for part in parts], len(classes)),
        classes=classes,
        name=root.resolve().name,
    )


def _require_classes(root: Path, classes: tuple[str, ...], parts: list[tuple[str, ...]]) -> None:
    stray = [part[0] for part in parts if len(part) == 1]
    if not classes:
        raise DataError(
            f"{root} holds {len(stray)} images but no class folders. Put each image into {root}/<class>/."
        )
    if stray:
        raise DataError(
            f"{len(stray)} images lie in {root} itself, beside the class folders ({_some(stray)}). "
            "Move each into the folder of its class, or away."
        )
    if all(name.casefold() in _SPLITS for name in classes):
        raise DataError(
            f"The folders of {root} ({_some(classes)}) are called like splits, not like classes. Give one of them, or write a "
            "table with a column split."
        )
    filled = {part[0] for part in parts}
    empty = [name for name in classes if name not in filled]
    if empty:
        raise DataError(
            f"{len(empty)} class folders of {root} hold no images ({_some(empty)}). Fill or remove them."
        )
    if len(classes) < 2:
        raise DataError(
            f"{root} has one class only ({_some(classes)}): hashing needs at least 2 class folders in it."
        )


def _warn_of_others(root: Path, others: list[Path]) -> None:
    if others:
        example = others[0].relative_to(root)
        text = f"{root}: {len(others):,} files do not end like an image and are passed over, for example {example}."
        warnings.warn(text, DataWarning, stacklevel=3)


def class_folders(root: Path) -> tuple[str, ...]:
    """The names of the folders in a folder, in order, without hidden ones."""
    with os.scandir(root) as entries:
        return tuple(sorted(entry.name for entry in entries if _is_shown_folder(entry)))


def _require_folder(root: str | Path) -> Path:
    root = Path(root)
    try:
        root.stat()
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"Cannot read the folder {root}: {reason}. Check the path.") from error
    if not root.is_dir():
        raise DataError(f"{root} is a file, not a folder. Give the folder that holds the images.")
    return root


def _walk(root: Path) -> Iterator[Path]:
    """All files below a folder and the hidden folders, each folder's entries by name (by code point), depth first."""
    above: frozenset[tuple[int, int]] = (
        frozenset()
    )  # the folders that hold the entry, to notice links that go round
    waiting = [(os.fspath(root), True, above)]
    while waiting:
        name, is_folder, above = waiting.pop()
        path = Path(name)
        if not is_folder:
            yield path
            continue
        status = path.stat()
        here = (status.st_dev, status.st_ino)
        if here not in above:
            waiting += [
                (entry.path, _is_shown_folder(entry), above | {here}) for entry in _entries(path)
            ]


def _entries(path: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(path) as entries:
            return sorted(entries, key=lambda entry: entry.name, reverse=True)
    except OSError as error:
        raise DataError(
            f"Cannot read the folder {path}: {error.strerror}. Allow it to be read, or move it away."
        ) from error


def _is_shown_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return not entry.name.startswith(".") and entry.is_dir()
    except OSError:  # a link that leads to itself
        return False


def _some(names: tuple[str, ...] | list[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:3])
    return shown + (", ..." if len(names) > 3 else "")
