"""Find the photos of an index that are most similar to an image."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..errors import UsageError, unknown
from ..ranking import Rank
from ..ranking.model import MAX_WEIGHT
from ..ranking.model import check_rank as known_rank

if TYPE_CHECKING:
    from ..index import Index, Neighbor
    from ..index.items import Id, Label
    from ..model import HashModel


class SearchHit(NamedTuple):
    """A photo that was found.

    Attributes:
        id: Its id in the index.
        distance: Number of class bits in which its code differs from the query's.
        labels: Its labels.
        path: Its file, if the index has its path.
        score: The greater, the more similar; None if photos are ordered by distance.
        content_distance: Number of content bits that differ; None without content bits.
        similarity: 0 to 1, in the order of the results; see `hadahash.index.Neighbor`.
        looks_distance: Number of bits of the looks that differ; None if they are not known.
        same_photo: Whether it shows the same photo, by the rule of `hadahash.photos.same_photo`;
            None if the codes tell only classes apart.
    """

    id: Id
    distance: int
    labels: tuple[Label, ...]
    path: str | None
    score: float | None = None
    content_distance: int | None = None
    similarity: float = 0.0
    looks_distance: int | None = None
    same_photo: bool | None = None


def available_ranks(index: Index, *, content: bool = True) -> list[Rank]:
    """The rankings that an index can answer.

    Args:
        index: The index.
        content: Whether the query has content bits.

    Returns:
        Names of `hadahash.ranking.RANKS`.
    """
    ranks: list[Rank] = ["hamming"]
    if index.ranking is not None:
        ranks.append("class")
        if index.content_bits and content:
            ranks.append("photo")
    return ranks


def default_rank(index: Index, *, content: bool = True) -> Rank:
    """The ranking that puts the most similar photos first.

    With content bits it is "photo". Codes made without labels are content themselves: for them it
    is "class", which compares the query's real values with the codes. Otherwise it is "hamming":
    ranked by the probability of sharing a class alone, an image would not even find itself.

    Args:
        index: The index.
        content: Whether the query has content bits.

    Returns:
        A name of `available_ranks`.
    """
    if "photo" in available_ranks(index, content=content):
        return "photo"
    return "class" if is_label_free(index) else "hamming"


def is_label_free(index: Index) -> bool:
    """Whether the codes were made without labels, so that they tell photos apart.

    Args:
        index: The index.

    Returns:
        False for an index with content bits, with classes, or without a ranking.
    """
    ranking = index.ranking
    return ranking is not None and not (
        index.content_bits or ranking.classes or ranking.codewords is not None
    )


def content_weight(index: Index) -> float | None:
    """The default weight of the content for the ranking "photo".

    Args:
        index: The index.

    Returns:
        The weight; None if there are no content bits.
    """
    ranking = index.ranking
    return ranking.content_weight if ranking is not None and index.content_bits else None


def find_similar(
    index: Index,
    model: HashModel,
    image: Any,
    *,
    k: int = 10,
    radius: int | None = None,
    labels: Sequence[str] = (),
    rank: str | None = None,
    weight: float | None = None,
    folder: Path | None = None,
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
        rank: "hamming", "class" or "photo"; the default is that of `default_rank`.
        weight: Weight of the content for "photo"; that of the model by default.
        folder: Folder of the index. Its catalog has what the photos look like, which is compared to
            mark the same photo; without it only content bits are.

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
    label_filter = check_labels(index, labels)
    rank = check_rank(index, rank or default_rank(index))
    queries = model.queries(image if isinstance(image, Path) else source)
    (hits,) = index.neighbors(
        queries, k, radius=radius, labels=label_filter or None, rank=rank, weight=weight
    )
    looks = _looks_of(image) if folder is not None else None
    return _marked(index, [_hit(each) for each in hits], looks, folder)


def find_similar_to(
    index: Index,
    item_id: str,
    *,
    k: int = 10,
    radius: int | None = None,
    labels: Sequence[str] = (),
    rank: str | None = None,
    weight: float | None = None,
    folder: Path | None = None,
) -> list[SearchHit]:
    """Find the photos most similar to a photo of the index. No model is needed.

    Args:
        index: The index to search in.
        item_id: Id of the photo; integers as text.
        k: As for `find_similar`.
        radius: As for `find_similar`.
        labels: As for `find_similar`.
        rank: As for `find_similar`.
        weight: As for `find_similar`.
        folder: As for `find_similar`.

    Returns:
        The other photos, most similar first.

    Raises:
        UsageError: The index has no such id, or no photo has one of the labels.
    """
    from ..index import parse_id
    from .looks import StoredLooks

    own = parse_id(item_id, index.id_type)
    rank = check_rank(index, rank or default_rank(index))
    (hits,) = index.neighbors(
        index.codes([own]),
        k + 1,  # one more: the photo finds itself
        radius=radius,
        labels=check_labels(index, labels) or None,
        rank=rank,
        weight=weight,
    )
    looks = None if folder is None else StoredLooks(folder).of(index.get([own])).get(own)
    return _marked(index, [_hit(each) for each in hits if each.id != own][:k], looks, folder)


def find_by_features(
    index: Index,
    features: Any,
    *,
    k: int = 10,
    labels: Sequence[str] = (),
) -> list[SearchHit]:
    """Find the photos whose content is most similar to features. No model is needed.

    Args:
        index: An index of photos that keeps the projection to content bits.
        features: Features of one image by the original backbone of its model, (d,) or (1, d).
        k: As for `find_similar`.
        labels: As for `find_similar`.

    Returns:
        The photos, most similar first. Only their content is compared, so `distance` is 0.

    Raises:
        UsageError: The index has no projection, or the features have another width.
    """
    projection = index.content_projection
    if projection is None:
        raise UsageError(
            "This index of photos keeps no projection to content bits, so it cannot be searched "
            "by features. Give an image file, or build the index again with content bits."
        )
    rows = np.atleast_2d(np.asarray(features, np.float32))
    if rows.shape != (1, projection.features):
        raise UsageError(f"features must be {projection.features:,} numbers, got {rows.shape}.")
    (hits,) = index.neighbors(
        projection.queries(rows, index.bits),
        k,
        labels=check_labels(index, labels) or None,
        rank="photo",
        weight=MAX_WEIGHT,  # the content alone
    )
    return _marked(index, [_hit(each)._replace(distance=0) for each in hits], None, None)


def check_rank(index: Index, rank: str) -> str:
    """Return the name of a ranking if an index can answer it.

    Args:
        index: The index.
        rank: "hamming", "class" or "photo".

    Returns:
        `rank`.

    Raises:
        UsageError: The name is unknown, or the index has no content bits or no ranking.
    """
    known_rank(rank)
    possible = available_ranks(index)
    if rank not in possible:
        missing = "content bits" if index.ranking else "ranking: it was built by an older version"
        raise UsageError(
            f"rank {rank} is not possible: this index has no {missing}. "
            f"Use {' or '.join(possible)}, or build the index again."
        )
    return rank


def check_labels(
    index: Index,
    texts: Sequence[str],
    *,
    has_label: Callable[[Sequence[Label]], bool] | None = None,
    count: Callable[[], Iterable[Label]] | None = None,
) -> list[Label]:
    """Return the labels that texts refer to, if items of an index have them.

    Args:
        index: The index.
        texts: The labels. One of digits also refers to the integer label.
        has_label: In place of the index's.
        count: In place of the index's `label_counts`; called only to suggest a label.

    Returns:
        The labels.

    Raises:
        UsageError: No item has one of them.
    """
    from ..index import parse_labels

    for text in texts:
        if not (has_label or index.has_label)(parse_labels([text])):
            known = map(str, (count or index.label_counts)())
            raise unknown("label", text, (each for each in known if each != text))
    return parse_labels(texts)


def _hit(found: Neighbor) -> SearchHit:
    return SearchHit(
        found.id,
        found.distance,
        found.labels,
        found.path,
        found.score,
        found.content_distance,
        found.similarity,
    )


def _looks_of(image: Any) -> bytes | None:
    from .looks import image_looks

    return image_looks(Path(image)) if isinstance(image, (str, Path)) else None


def _marked(
    index: Index, hits: list[SearchHit], looks: bytes | None, folder: Path | None
) -> list[SearchHit]:
    """The same results; those that show the same photo are marked."""
    from .looks import StoredLooks
    from .same_photo import judge_same

    known = {}
    if folder is not None and looks is not None:
        known = StoredLooks(folder).of(hits)
    judged = judge_same(index, hits, looks, known)
    return [
        hit._replace(looks_distance=each.looks_distance, same_photo=each.same)
        for hit, each in zip(hits, judged, strict=True)
    ]
