"""An HTML page with groups of duplicates, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..data.images import open_reduced
from ..errors import ImageError
from .templating import write_page
from .thumbnails import data_uri, shrink

_SIDE = 320  # pixels of a picture on the longest side


@dataclass(frozen=True)
class ShownFile:
    """A file of a group.

    Attributes:
        id: Id in the index.
        path: The image file.
        size: Its size in bytes; None if it is not known.
    """

    id: str
    path: str
    size: int | None = None


@dataclass(frozen=True)
class ShownGroup:
    """A group as shown on the page.

    Attributes:
        number: Number of the group, for --dismiss.
        about: What the files have in common.
        files: The files.
    """

    number: int
    about: str
    files: Sequence[ShownFile]


@dataclass(frozen=True)
class _Picture:
    name: str
    folder: str
    facts: str
    source: str | None
    problem: str = ""


def write_duplicates_sheet(
    path: str | Path, groups: Sequence[ShownGroup], *, title: str
) -> list[str]:
    """Write groups of duplicates as one self-contained HTML page.

    Args:
        path: The page to write.
        groups: The groups.
        title: Title of the page.

    Returns:
        One line for each image that could not be read; the page shows a placeholder for it.

    Raises:
        StorageError: If the page cannot be written.
    """
    shown = [(group, [_show(file) for file in group.files]) for group in groups]
    write_page(path, "duplicates_sheet.html.j2", title=title, groups=shown)
    return [each.problem for _, files in shown for each in files if each.problem]


def describe_size(size: int) -> str:
    """Describe the size of a file.

    Args:
        size: Number of bytes.

    Returns:
        The text.

    Example:
        >>> describe_size(812), describe_size(81_200), describe_size(8_120_000)
        ('812 bytes', '81 kB', '8.1 MB')
    """
    if size < 1000:
        return f"{size} bytes"
    return f"{size / 1000:.0f} kB" if size < 999_500 else f"{size / 1e6:.1f} MB"


def _show(file: ShownFile) -> _Picture:
    place = Path(file.path)
    folder = "" if str(place.parent) == "." else str(place.parent)
    size = [] if file.size is None else [describe_size(file.size)]
    try:
        image = open_reduced(place, _SIDE, preview=True)
    except ImageError as error:
        return _Picture(place.name, folder, "".join(size), None, str(error))
    facts = [f"{image.size[1]} x {image.size[0]} pixels", *size]
    source = data_uri(shrink(image.pixels, _SIDE), photo=True)
    return _Picture(place.name, folder, ", ".join(facts), source)
