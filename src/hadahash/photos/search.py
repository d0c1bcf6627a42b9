"""Find the photos of an index that are most similar to an image."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import UsageError

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
        path: Its file, if the index knows it.
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
        labels: Only photos with one of these labels. A label in digits also means the number.

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
    wanted = [*labels, *(int(label) for label in labels if label.isdecimal())]
    codes = model.encode(image if isinstance(image, Path) else source)
    hits = index.search(codes, k, radius=radius, labels=wanted or None)
    ids, distances = hits.ids[0, : hits.counts[0]], hits.distances[0, : hits.counts[0]].tolist()
    items = index.get(ids) if len(ids) else []
    return [
        SearchHit(item.id, distance, item.labels, item.path)
        for item, distance in zip(items, distances, strict=True)
    ]
