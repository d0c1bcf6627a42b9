"""Which photos are the same: one rule for searches and for duplicates.

The content bits of two photos, or their codes if they were made without labels, are compared
together with the 64 bits of what they look like (`looks.py`): they are the same if at most 5/32 of
all bits differ. Where the looks of one are not known, or are not compared because the codes are
very long, at most 1/16 of the content bits may differ.
docs/ranking.md has how these numbers were chosen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ..index.checks import MAX_BITS
from .search import is_label_free

if TYPE_CHECKING:
    from ..index import Index, Neighbor
    from ..index.items import Id
    from .search import SearchHit

LOOKS_BITS = 64
_WITH_LOOKS, _WITHOUT_LOOKS = 5 / 32, 1 / 16


class Sameness(NamedTuple):
    """Whether a result shows the same photo as the query.

    Attributes:
        same: None if the codes tell only classes apart or are of embeddings, or the query has no
            content bits.
        looks_distance: Number of bits of the looks that differ; None if those of query or item are
            not known.
    """

    same: bool | None
    looks_distance: int | None


_UNKNOWN = Sameness(None, None)


def default_threshold(bits: int, *, looks: bool = False) -> int:
    """The number of differing bits up to which two images count as the same photo.

    Args:
        bits: Number of bits that are compared.
        looks: Whether they include the looks.

    Returns:
        The threshold.

    Example:
        >>> default_threshold(128), default_threshold(64), default_threshold(192, looks=True)
        (8, 4, 30)
    """
    return int((_WITH_LOOKS if looks else _WITHOUT_LOOKS) * bits)


def compared_bits(index: Index) -> int:
    """The number of bits that tell the photos of an index apart, without looks.

    Args:
        index: The index.

    Returns:
        The number of content bits, or of bits of label-free codes; 0 if the codes tell only classes
        apart.
    """
    return index.content_bits or (index.bits if is_label_free(index) else 0)


def compares_looks(index: Index) -> bool:
    """Whether looks are compared together with the bits of an index, in searches and duplicates.

    Args:
        index: The index.

    Returns:
        False if its codes tell only classes apart or are of embeddings, or are so long that no
        index could hold them together with the looks.
    """
    bits = compared_bits(index)
    return 0 < bits <= MAX_BITS - LOOKS_BITS and "embeddings" not in index.meta


def same_photo_threshold(index: Index, *, looks: bool = True) -> int | None:
    """The default threshold of an index.

    Args:
        index: The index.
        looks: Whether the looks of both photos are known; see `compares_looks`.

    Returns:
        The number of bits that may differ; None if the codes tell only classes apart.
    """
    bits, looks = compared_bits(index), looks and compares_looks(index)
    return default_threshold(bits + LOOKS_BITS * looks, looks=looks) if bits else None


def judge_same(
    index: Index,
    found: Sequence[Neighbor | SearchHit],
    looks: bytes | None,
    known: dict[Id, bytes],
) -> list[Sameness]:
    """Decide which results of a search show the same photo as the query.

    Args:
        index: The index that was searched.
        found: The results.
        looks: What the query looks like, 8 bytes; None if that is not known.
        known: What items look like, by id, as far as it is known.

    Returns:
        One entry per result.
    """
    with_looks, without = (same_photo_threshold(index, looks=each) for each in (True, False))
    if with_looks is None or without is None or "embeddings" in index.meta:  # no photos
        return [_UNKNOWN] * len(found)
    query, compared = None if looks is None else int.from_bytes(looks, "big"), compares_looks(index)
    judged = []
    for hit in found:
        content = hit.content_distance if index.content_bits else hit.distance
        other = known.get(hit.id)
        apart = None
        if query is not None and other is not None:
            apart = (query ^ int.from_bytes(other, "big")).bit_count()
        if content is None:
            judged.append(Sameness(None, apart))
        elif apart is None or not compared:
            judged.append(Sameness(content <= without, apart))
        else:
            judged.append(Sameness(content + apart <= with_looks, apart))
    return judged
