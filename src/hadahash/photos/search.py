"""Find the photos of an index that are most similar to an image."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import UsageError, unknown

if TYPE_CHECKING:
    from ..index import Index
    from ..index.items import Id, Label
    from ..model import HashModel


class SearchHit(NamedTuple):
    """A photo that was found.

    Attributes:
        id: Its id in the index.
        distance: Number of bits in which its code differs from the query's.
        labels: Its labels.
        path: Its file, if the index has its path.
    """

    id: Id
    distance: int
    labels: tuple[Label, ...]
    path: str | None


def find_similar(
    index: Index,
    model: HashModel,
    image: Any,
    *,
    k: int = 10,
    radius: int | None = None,
    labels: Sequence[str] = (),
) -> list[SearchHit]:
    """Find the photos most similar to one image.

    Args:
        index: The index to search in.
        model: The model that made it.
        image: One image: a file, or anything else that `HashModel.encode` takes.
        k: Number of results.
        radius: Maximum Hamming distance.
        labels: Only photos with one of these labels. A label of digits also matches the integer
            label.

    Returns:
        The photos, most similar first.

    Raises:
        UsageError: `image` is not exactly one image, or no photo has one of the labels.
        ImageError: The image cannot be read.
    """
    from ..data.sources import as_images

    if isinstance(image, (str, Path)) and Path(image).is_dir():
        raise UsageError(f"Give one image file, got the folder {str(image)!r}.")
    source = as_images(Path(image) if isinstance(image, str) else image)
    if len(source.images) != 1:
        raise UsageError(f"Give exactly one image, got {len(source.images):,}.")
    label_filter = _parse_labels(index, labels)
    codes = model.encode(image if isinstance(image, Path) else source)
    (hits,) = index.neighbors(codes, k, radius=radius, labels=label_filter or None)
    return [SearchHit(hit.id, hit.distance, hit.labels, hit.path) for hit in hits]


def _parse_labels(index: Index, texts: Sequence[str]) -> list[Label]:
    from ..index import parse_labels

    known = index.label_counts() if texts else {}
    for text in texts:
        if not any(label in known for label in parse_labels([text])):
            raise unknown("label", text, map(str, known))
    return parse_labels(texts)
