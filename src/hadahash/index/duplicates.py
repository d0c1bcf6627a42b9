"""Groups of items that show the same photo: nearly equal content bits, or codes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from ..codes import Codes, as_ids, check_bits, hamming
from ..errors import UsageError
from ..native.tables import Rows, rows_of
from .api import Index
from .checks import whole_number
from .dismissed import Dismissed, group_key
from .duplicate_links import spanning_links
from .forest import Links, find, join
from .items import Id, Ids, find_sorted, id_array, quote_ids

_FEW = 32  # items of a group that are compared without looking for equal codes
_EXACT_SIZE = 1024  # distinct codes of a group that are all compared with each other
_SWEEPS = 64  # of a larger group: codes that are compared with all


@dataclass(frozen=True)
class DuplicateGroup:
    """Items that are linked by distances of at most the threshold, directly or through others.

    Attributes:
        ids: Two or more ids, ascending.
        widest: The greatest distance of two items of the group. It may be greater than the
            threshold: a - b - c can be linked although a and c are far apart.
        is_exact: Whether `widest` is exact. In a group of more than 1,024 distinct codes it may be
            a lower bound.
    """

    ids: tuple[Id, ...]
    widest: int
    is_exact: bool = True

    def __len__(self) -> int:
        """Number of items."""
        return len(self.ids)

    @cached_property
    def key(self) -> str:
        """Identifies a group by all its ids, however many; see `group_key`."""
        return group_key(self.ids)


class Duplicates(Sequence[DuplicateGroup]):
    """Groups of duplicates, the largest first; a smaller threshold needs no new search.

    Attributes:
        threshold: Maximum distance of two linked items.
        part: "content" if content bits were compared, else "class".
        bits: Number of bits that were compared.
    """

    def __init__(
        self,
        codes: Codes,
        links: Links,
        *,
        threshold: int,
        part: str,
        dismissed: Dismissed | None = None,
    ) -> None:
        """Form the groups.

        Args:
            codes: The linked items: ids in ascending order, with the bits that were compared.
            links: Minimum spanning forest: two rows of `codes` and their distance, int64 (m, 3).
            threshold: Maximum distance of two linked items.
            part: "content" or "class".
            dismissed: Groups to leave out.
        """
        self.threshold, self.part, self.bits = threshold, part, codes.bits
        self._codes, self._links = codes, links
        self._dismissed = Dismissed() if dismissed is None else dismissed
        self._considered = len(self._dismissed)  # groups can be added to it later
        self._groups = tuple(self._form_groups())
        self._by_key: dict[str, DuplicateGroup] | None = None

    def __len__(self) -> int:
        """Number of groups."""
        return len(self._groups)

    @overload
    def __getitem__(self, number: int) -> DuplicateGroup: ...

    @overload
    def __getitem__(self, number: slice) -> tuple[DuplicateGroup, ...]: ...

    def __getitem__(self, number: int | slice) -> DuplicateGroup | tuple[DuplicateGroup, ...]:
        """A group, or some groups."""
        return self._groups[number]

    @property
    def ids(self) -> list[list[Id]]:
        """The ids of each group."""
        return [list(group.ids) for group in self]

    @cached_property
    def surplus(self) -> int:
        """Number of items that could be removed if one of each group is kept."""
        return sum(len(group) - 1 for group in self)

    def widest(self, count: int) -> list[DuplicateGroup]:
        """The groups with the greatest distances, to choose a threshold by looking at them.

        Args:
            count: Number of groups.

        Returns:
            The groups, the widest first.
        """
        return sorted(self, key=lambda group: -group.widest)[:count]

    def rethreshold(self, threshold: int) -> Duplicates:
        """The groups at a smaller threshold, without another search.

        Args:
            threshold: Maximum distance of two linked items.

        Returns:
            The groups that `find_duplicates` would return.

        Raises:
            UsageError: The threshold is greater than that of the search.
        """
        threshold = whole_number("threshold", threshold, 0)
        if threshold > self.threshold:
            raise UsageError(
                f"threshold must be <= {self.threshold}, that of the search, got {threshold}. "
                "Search again for more distant items."
            )
        if threshold == self.threshold:
            return self
        kept = self._links[self._links[:, 2] <= threshold]
        return self._with(self._codes, kept, threshold, self._dismissed)

    def without(self, dismissed: Dismissed) -> Duplicates:
        """The groups that were not dismissed.

        Args:
            dismissed: Groups to leave out.

        Returns:
            The other groups.
        """
        if dismissed is self._dismissed and len(dismissed) == self._considered:
            return self
        if not all(map(dismissed.covers, self._dismissed)):  # some are to be listed again
            return self._with(self._codes, self._links, self.threshold, dismissed)
        rest = copy(self)
        rest.__dict__.pop("surplus", None)
        rest._dismissed, rest._considered = dismissed, len(dismissed)
        rest._groups = tuple(each for each in self if not dismissed.covers(each.ids))
        return rest

    def find_key(self, key: str) -> DuplicateGroup | None:
        """Find a group by its key. All groups are hashed once, for what `without` returns, too.

        Args:
            key: The `key` of a group.

        Returns:
            The group; None if there is none with this key.
        """
        if self._by_key is None:
            self._by_key = {group.key: group for group in self}
        found = self._by_key.get(key)
        return None if found is None or self._dismissed.covers(found.ids) else found

    def to_dict(self) -> dict[str, Any]:
        """The result as JSON values, to ask it again later.

        Returns:
            What `from_dict` takes.
        """
        return {
            "threshold": self.threshold,
            "part": self.part,
            "bits": self.bits,
            "ids": self._codes.ids.tolist(),
            "codes": [row.tobytes().hex() for row in self._codes.packed],
            "links": self._links.tolist(),
        }

    @classmethod
    def from_dict(cls, stored: Any, dismissed: Dismissed | None = None) -> Duplicates:
        """The result that `to_dict` described.

        Args:
            stored: JSON values.
            dismissed: Groups to leave out.

        Returns:
            The groups.

        Raises:
            UsageError: A value is missing or not valid.
        """
        try:
            ids = as_ids(stored["ids"], len(stored["codes"]))
            packed = np.frombuffer(bytes.fromhex("".join(stored["codes"])), np.uint8)
            width = -(-check_bits(stored["bits"]) // 8)
            codes = Codes(packed.reshape(len(ids), width), stored["bits"], ids)
            links = np.array(stored["links"], np.int64).reshape(-1, 3)
            if links.size and not 0 <= links[:, :2].min() <= links[:, :2].max() < len(ids):
                raise ValueError("a link has no item")
            threshold, part = int(stored["threshold"]), str(stored["part"])
        except (KeyError, TypeError, ValueError, OverflowError, UsageError) as error:
            raise UsageError(f"These are no stored duplicates ({error}). Search again.") from None
        return cls(codes, links, threshold=threshold, part=part, dismissed=dismissed)

    def _with(self, codes: Codes, links: Links, threshold: int, dismissed: Dismissed) -> Duplicates:
        return Duplicates(codes, links, threshold=threshold, part=self.part, dismissed=dismissed)

    def _form_groups(self) -> list[DuplicateGroup]:
        groups = []
        for rows in _components(len(self._codes), self._links):
            ids = self._codes.ids[rows].tolist()
            if not self._dismissed.covers(ids):
                groups.append(DuplicateGroup(tuple(ids), *_widest(self._codes.packed[rows])))
        return sorted(groups, key=len, reverse=True)  # a stable order: they were in order of ids


def find_duplicates(
    index: Index,
    threshold: int,
    *,
    same: Iterable[Sequence[Id]] = (),
    dismissed: Dismissed | None = None,
    progress: Callable[[int], object] | None = None,
) -> Duplicates:
    """Find groups of items whose content bits are nearly equal.

    Without content bits the codes are compared: then a group may be a whole class. Items are linked
    if they differ in at most `threshold` bits, and a group is what links connect. Equal codes are
    compared only once.

    Args:
        index: The index.
        threshold: Maximum distance of two linked items.
        same: Groups of ids that are the same whatever their bits, such as equal files.
        dismissed: Groups to leave out.
        progress: Called with the number of items processed since the last call.

    Returns:
        The groups, the largest first.

    Raises:
        UsageError: `threshold` is not an integer >= 0, or an id of `same` is not in the index.

    Example:
        >>> from hadahash.codes import Codes, pack
        >>> packed = pack([[1] * 8, [1] * 7 + [-1], [-1] * 8])
        >>> found = find_duplicates(Index.build(Codes(packed, 8, ["a", "b", "c"])), 1)
        >>> found.ids, found[0].widest, found.rethreshold(0).ids
        ([['a', 'b']], 1, [])
    """
    codes = index.codes()
    part = "class" if codes.content is None else "content"
    codes = codes.class_codes() if codes.content is None else codes.content_codes()
    limit = min(whole_number("threshold", threshold, 0), codes.bits)
    links = _links_of(codes, limit, progress or (lambda count: None))
    extra = _links_of_groups(codes.ids, same)
    if len(extra):
        links = join(np.arange(len(codes)), np.concatenate([extra, links]))
    rows = np.unique(links[:, :2])
    links[:, :2] = np.searchsorted(rows, links[:, :2])
    return Duplicates(codes[rows], links, threshold=limit, part=part, dismissed=dismissed)


def duplicate_groups(
    index: Index, radius: int, *, progress: Callable[[int], object] | None = None
) -> list[list[Id]]:
    """The ids of the groups of `find_duplicates`.

    Args:
        index: The index.
        radius: Maximum distance of two linked items.
        progress: Called with the number of items processed since the last call.

    Returns:
        Groups of ids, the largest first; ids in ascending order.

    Raises:
        UsageError: `radius` is not an integer >= 0.
    """
    return find_duplicates(index, whole_number("radius", radius, 0), progress=progress).ids


def _links_of(codes: Codes, radius: int, report: Callable[[int], object]) -> Links:
    """Minimum spanning forest of all items."""
    first, own = _distinct(rows_of(codes.packed))
    copies = np.flatnonzero(own != np.arange(len(codes)))
    equal = np.stack([own[copies], copies, np.zeros_like(copies)], axis=1)
    if radius == 0 or len(first) == 0:
        report(len(codes))
        return equal
    sizes = np.bincount(own, minlength=len(own))[first]
    links = spanning_links(rows_of(codes.packed[first]), codes.bits, radius, sizes, report)
    links[:, :2] = first[links[:, :2]]
    return np.concatenate([equal, links])


def _distinct(rows: Rows) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The first row of each distinct code, in the order of their bytes, and that of each row.

    `numpy.unique(axis=0)` would stop all other threads until it is done.
    """
    words = rows.byteswap() if sys.byteorder == "little" else rows  # in the order of their bytes
    order = np.lexsort(words.T[::-1])  # stable
    starts = np.ones(len(rows), bool)
    starts[1:] = (rows[order[1:]] != rows[order[:-1]]).any(axis=1)
    first = order[starts]
    own = np.empty(len(rows), np.int64)
    own[order] = first[np.cumsum(starts) - 1]
    return first, own


def _links_of_groups(ids: Ids, groups: Iterable[Sequence[Id]]) -> Links:
    """Links of length 0 from the first to the other items of each group."""
    pairs = [(group[0], each) for group in groups for each in group[1:]]
    if not pairs:
        return np.zeros((0, 3), np.int64)
    flat = id_array([each for pair in pairs for each in pair])
    rows = find_sorted(ids, flat)
    if (rows < 0).any():
        raise UsageError(f"The index does not have {quote_ids(flat[rows < 0])}.")
    return np.pad(rows.reshape(-1, 2), ((0, 0), (0, 1)))


def _components(count: int, links: Links) -> Iterator[NDArray[np.int64]]:
    """The rows of each group of linked items, ascending."""
    parent = np.arange(count)
    join(parent, links)
    roots = find(parent, np.arange(count))
    order = np.argsort(roots, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(roots[order])) + 1):
        if len(rows) > 1:
            yield rows


def _widest(packed: NDArray[np.uint8]) -> tuple[int, bool]:
    """The greatest distance of two codes, and whether it is exact.

    Distances to the majority c of a large group bound the others: d(x, y) <= d(x, c) + d(c, y). So
    codes are compared with all others from the most distant on, until the rest cannot be farther
    apart, at most `_SWEEPS` of them.
    """
    distinct = packed if len(packed) <= _FEW else np.unique(packed, axis=0)
    if len(distinct) <= _EXACT_SIZE:
        return int(hamming(distinct, distinct).max()), True
    majority = np.packbits(np.unpackbits(distinct, axis=1).mean(axis=0) > 0.5)
    reach, widest = hamming(majority[None], distinct)[0], 0
    for row in np.argsort(-reach, kind="stable")[:_SWEEPS].tolist():
        if 2 * reach[row] <= widest:
            return widest, True
        widest = max(widest, int(hamming(distinct[[row]], distinct).max()))
    return widest, False
