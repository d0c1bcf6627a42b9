"""An HTML page with the query image and its nearest images."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, Protocol

from ..data.images import open_reduced
from ..errors import ImageError
from .templating import write_page
from .thumbnails import data_uri, shrink

_SIDE = 360  # pixels of a picture on the longest side
_ORDERS = {
    "hamming": "by the Hamming distance of the codes",
    "class": "by the probability of showing the same kind",
    "photo": "by kind and content",
}


class SheetHit(Protocol):
    """A search result as shown on the sheet."""

    @property
    def id(self) -> Any:
        """Id in the index."""
        ...

    @property
    def distance(self) -> int:
        """Hamming distance to the query."""
        ...

    @property
    def labels(self) -> Iterable[Any]:
        """Labels, possibly none."""
        ...

    @property
    def path(self) -> Any:
        """The image file; None: the id is the path."""
        ...


@dataclass(frozen=True)
class SheetPicture:
    """An image on the sheet.

    Attributes:
        name: File name.
        folder: Folder of the file.
        source: Data URI; None if the file cannot be read.
        problem: Why the file cannot be read.
        labels: Labels, separated by commas.
        distance: Text about the distance; empty for the query.
    """

    name: str
    folder: str
    source: str | None
    problem: str = ""
    labels: str = ""
    distance: str = ""


def write_search_sheet(
    path: str | Path,
    query: str | Path,
    hits: Sequence[SheetHit],
    *,
    bits: int | None = None,
    content_bits: int = 0,
    rank: str = "hamming",
) -> list[str]:
    """Write the query and its results as one self-contained HTML page.

    Args:
        path: The page to write.
        query: File of the query image.
        hits: Results, most similar first.
        bits: Code length, to show distances as "3 of 64 bits differ".
        content_bits: Number of content bits; 0 without.
        rank: How the results are ordered: "hamming", "class" or "photo".

    Returns:
        One line for each image that could not be read; the sheet shows a placeholder for it.

    Raises:
        StorageError: If the page cannot be written.
    """
    shown = _picture(Path(query))
    pictures = [
        _picture(
            Path(str(hit.id if hit.path is None else hit.path)),
            labels=", ".join(map(str, hit.labels)),
            distance=_describe(hit, bits, content_bits),
        )
        for hit in hits
    ]
    write_page(
        path,
        "search_sheet.html.j2",
        title=f"Similar to {shown.name}",
        query=shown,
        hits=pictures,
        order=_ORDERS[rank],
    )
    return [each.problem for each in (shown, *pictures) if each.problem]


def describe_distance(distance: int, bits: int | None = None) -> str:
    """Describe a Hamming distance.

    Args:
        distance: Number of bits that differ.
        bits: Code length, if known.

    Returns:
        The text.

    Example:
        >>> describe_distance(0), describe_distance(1), describe_distance(3, 64)
        ('same code', '1 bit differs', '3 of 64 bits differ')
    """
    if distance == 0:
        return "same code"
    count = (
        f"{distance} of {bits} bits" if bits else "1 bit" if distance == 1 else f"{distance} bits"
    )
    return f"{count} differs" if distance == 1 else f"{count} differ"


def _describe(hit: SheetHit, bits: int | None, content_bits: int) -> str:
    text = describe_distance(int(hit.distance), bits)
    content = getattr(hit, "content_distance", None)
    if content is not None:
        text = f"{text}; {content} of {content_bits} content bits"
    similarity = getattr(hit, "similarity", None)
    return text if similarity is None else f"{100 * similarity:.0f} % alike; {text}"


def _picture(file: Path, *, labels: str = "", distance: str = "") -> SheetPicture:
    folder = str(PurePath(file).parent)
    place = {"name": file.name, "folder": "" if folder == "." else folder}
    try:
        pixels = open_reduced(file, _SIDE, preview=True).pixels
        source = data_uri(shrink(pixels, _SIDE), photo=True)
    except ImageError as error:
        return SheetPicture(
            **place, source=None, problem=str(error), labels=labels, distance=distance
        )
    return SheetPicture(**place, source=source, labels=labels, distance=distance)
