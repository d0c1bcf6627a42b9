"""The contract of an index engine.

An engine is one file: a class that derives from `Index` (api.py), is registered under its name in
`ENGINES`, and implements the abstract methods of `Engine`. `Index` checks all arguments before an
engine sees them. `LocalIndex` (local.py) implements most methods for engines that keep codes in
memory and in a folder. `hadahash.index._contract` has checks that every engine must pass.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..codes import Codes
from ..projections import Projection
from ..ranking import Ranking
from .items import Id, Ids, Item, ItemTable, Label, Mask
from .query import Filter, Hits, Neighbor, SearchRequest, look_up_neighbors
from .walk import walk_ranked

if TYPE_CHECKING:
    from .api import Index
    from .storage.folder import LoadedIndex
    from .storage.projection_file import KeptProjection


class Engine(ABC):
    """The abstract methods of an engine.

    Attributes:
        engine: Name of the engine.
        bits: Length of the codes.
        content_bits: Number of content bits of each item; 0 without.
        ranking: Codewords and fitted numbers for `rank="class"` and `rank="photo"`, or None. It is
            stored with the index by `save`.
        meta: JSON values of the application; stored with the index by `save`.
        stores_content: Whether the engine can store content bits.
    """

    engine: ClassVar[str]
    stores_content: ClassVar[bool] = False
    bits: int
    content_bits: int = 0
    ranking: Ranking | None = None
    meta: dict[str, Any]
    _projection: KeptProjection | None = None

    def __init__(self) -> None:
        """Create the writer lock."""
        self._writing = RLock()

    @classmethod
    @abstractmethod
    def _create(cls, bits: int, codewords: Any, **options: Any) -> Index:
        """Create an empty index."""

    @classmethod
    @abstractmethod
    def _load(cls, loaded: LoadedIndex) -> Index:
        """Create the index from a folder whose manifest names this engine."""

    @abstractmethod
    def save(self, folder: str | Path, *, name: str = "index.json") -> None:
        """Write the index to a folder, atomically.

        Only new segments are written if it was opened from this folder.

        Args:
            folder: The folder that this index was opened from, an empty or a new folder, or one
                that holds another index, which is replaced.
            name: The manifest to write; others are used while a model is upgraded.

        Raises:
            StorageError: The folder cannot be written, contains other files, or was changed by
                another process since it was opened.
        """

    @property
    def content_fingerprint(self) -> str | None:
        """Identifies the projection that made the content bits; None: unknown, or no bits."""
        return None if self.ranking is None else self.ranking.content_fingerprint

    @property
    def content_projection(self) -> Projection | None:
        """The projection to content bits, stored by `save`; None if it is not known.

        It computes the content of features of the original backbone without the model:
        `index.search(index.content_projection.queries(features, index.bits), rank="photo")`.
        """
        return None if self._projection is None else self._projection.projection

    @property
    def location(self) -> str | None:
        """Where the codes are, if they are not in the folder; None if they are."""
        return None

    def next_options(self) -> dict[str, Any]:
        """Options with which `Index.build` makes an index to take the place of this one."""
        return {}

    def pin(self) -> bool:
        """Replace a name that another program can switch, as an alias, by what it means now.

        Returns:
            Whether there was one; then save the index.
        """
        return False

    def made_current(self) -> None:  # noqa: B027 - most engines have nothing to do
        """Tell a server that this is the current revision, after a switch. Idempotent."""

    def drop(self) -> None:  # noqa: B027 - most engines have nothing to remove
        """Remove the codes, if they are not in the folder."""

    def reopened(self, folder: str | Path) -> Index:
        """Open the index in a folder again, after another process may have changed it.

        Parts that this index has open already are shared. This index does not change.

        Args:
            folder: The folder.

        Returns:
            The index as it is stored now.

        Raises:
            StorageError: The folder contains no index, or it is damaged or cannot be read.
        """
        from .api import Index

        return Index.open(folder)

    @abstractmethod
    def verify(self) -> None:
        """Verify the checksums of all stored files.

        Raises:
            StorageError: A file is damaged; the message names it.
        """

    @abstractmethod
    def __len__(self) -> int:
        """Number of items."""

    @property
    @abstractmethod
    def id_type(self) -> type[Id] | None:
        """Type of the ids, int or str; None while the index is empty."""

    @property
    @abstractmethod
    def ids(self) -> Ids:
        """All ids in ascending order: int64, or object (str)."""

    def sample_ids(self, count: int) -> Ids:
        """Some ids, spread over all items.

        Args:
            count: Largest number of ids.

        Returns:
            Ids in ascending order; all if there are no more than `count`.
        """
        ids = self.ids
        return ids[np.linspace(0, len(ids) - 1, min(count, len(ids))).astype(np.int64)]

    @abstractmethod
    def codes(self, ids: ArrayLike | None = None) -> Codes:
        """The codes of items.

        Args:
            ids: The items, in this order; None for all in the order of ids.

        Returns:
            The codes with their ids.

        Raises:
            UsageError: An id is not in the index.
        """

    @abstractmethod
    def has(self, ids: ArrayLike) -> Mask:
        """Which of the ids are in the index, bool (n,)."""

    @abstractmethod
    def get(self, ids: ArrayLike) -> list[Item]:
        """Id, path and labels of items.

        Args:
            ids: The items.

        Returns:
            The items in the same order.

        Raises:
            UsageError: An id is not in the index.
        """

    def lookup(self, ids: ArrayLike) -> tuple[list[Item], Codes]:
        """What `get` and `codes` return. Engines that can do both in one pass override it.

        Args:
            ids: The items.

        Returns:
            The items and their codes, in the same order.

        Raises:
            UsageError: An id is not in the index.
        """
        return self.get(ids), self.codes(ids)

    @abstractmethod
    def label_counts(self) -> dict[Label, int]:
        """Number of items per label."""

    def has_label(self, labels: Sequence[Label]) -> bool:
        """Whether an item has one of the labels. Engines that need no search override it.

        Args:
            labels: The labels.

        Returns:
            False for no labels.
        """
        query = np.zeros((1, -(-self.bits // 8)), np.uint8)
        chosen = Filter(labels=frozenset(labels))
        return bool(self._search(SearchRequest(query, 1, self.bits, chosen, None, None)).counts[0])

    @abstractmethod
    def _put(
        self, packed: NDArray[np.uint8], items: ItemTable, content: NDArray[np.uint8] | None = None
    ) -> None:
        """Add items, or replace those with the same ids, atomically. The ids are ascending."""

    @abstractmethod
    def _remove(self, ids: Ids) -> None:
        """Remove items that are in the index, atomically."""

    @abstractmethod
    def _search(self, request: SearchRequest) -> Hits:
        """Return hits with at most min(k, number of items) columns, padded to the longest row."""

    def _ranked(self, request: SearchRequest) -> Hits:
        """As `_search`, in the order of `request.ranked`. Works with every engine."""
        return walk_ranked(self, request)

    def _neighbors(self, request: SearchRequest) -> list[list[Neighbor]]:
        """Return hits with their items. Engines that can do this in one pass override it."""
        return look_up_neighbors(self, request)
