"""The open index of the service, and its only writer."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ...codes import Codes
from ...errors import StorageError
from ...index import revisions
from ..problem import Problem, busy, invalid, model_changed, unknown_id
from .batcher import Batcher
from .collection import Collection, ServeConfig, stamp_of
from .names import Id, from_json

LOG = logging.getLogger(__name__)
_WRITE_ATTEMPTS = 3  # of changes that another program was faster than
_COUNT_SECONDS = 30.0  # lifetime of a cached count; other processes can change a Milvus collection


class Add(NamedTuple):
    """Add an item. `id` and `labels` are as the client sent them."""

    id: Id
    codes: Codes  # one row
    labels: Sequence[str]
    model: str  # id of the model that made the code

    def apply(self, collection: Collection) -> Id:
        """Add the item and return its id."""
        if self.model != collection.model.id:
            raise model_changed()
        item_id = collection.parse_id(self.id)
        if item_id is None:
            raise invalid("id: the ids of this index are integers.", "Send a 64-bit integer.")
        if collection.lookup([item_id]):
            hint = "Choose another id, or delete the item first."
            raise Problem(409, "known_id", "The index already has an item with this id.", hint)
        codes = replace(self.codes, ids=np.array([item_id]))
        collection.index.add(codes, [[from_json(label) for label in self.labels]])
        return item_id


class Remove(NamedTuple):
    """Remove an item. `id` is as the client sent it."""

    id: Id

    def apply(self, collection: Collection) -> Id:
        """Remove the item and return its id."""
        found = collection.find(self.id)
        if found is None:
            raise unknown_id()
        collection.index.remove([found[0].id])
        return found[0].id


class IndexHandle:
    """Opens the index, applies changes to it, and reopens it when another program changed it.

    Pending changes are saved together. Readers use `current` and are never blocked by a writer.

    Args:
        config: Locations of the index, its model and its images.
        device: Device of the model.
        max_batch: Largest number of changes that are saved together.
        on_batch: Called with the size of every batch.
    """

    def __init__(
        self,
        config: ServeConfig,
        *,
        device: str,
        max_batch: int,
        on_batch: Callable[[int], object],
    ) -> None:
        self._config, self._device = config, device
        self._collection: Collection | None = None
        self._stamp: object = None
        self._lock = threading.Lock()  # held while the index is opened or changed
        self._writer: Batcher[Add | Remove, Id] = Batcher(
            self._apply_batch, max_batch=max_batch, on_batch=on_batch
        )
        self.count, self._counted = 0, 0.0  # number of items, and when it was determined

    @property
    def current(self) -> Collection:
        """The open collection.

        Raises:
            Problem: 503, before the index is open.
        """
        if self._collection is None:
            raise busy("The service is starting.")
        return self._collection

    async def reload(self) -> int:
        """Open the index again and return its number of items. Running requests keep the old one.

        Raises:
            HadaHashError: If the index or its model cannot be opened; the old one stays.
        """
        await asyncio.to_thread(self._reload)
        return self.count

    async def refresh(self) -> bool:
        """Open the index again if another program changed it, and update the number of items.

        Returns:
            Whether the index was opened again.

        Raises:
            HadaHashError: If the index or its model cannot be opened; the old one stays.
        """
        return await asyncio.to_thread(self._refresh)

    async def apply(self, change: Add | Remove) -> Id:
        """Make one change and save it.

        Args:
            change: The change.

        Returns:
            The id of the item, as it is stored.

        Raises:
            Problem: If the id exists already, does not exist, or is not valid.
            StorageError: If the index cannot be saved; then nothing changed.
        """
        return await self._writer.submit(change)

    def close(self) -> None:
        """Drop the changes that have not started."""
        self._writer.close()

    def _reload(self) -> None:
        with self._lock:
            self._open()

    def _refresh(self) -> bool:
        with self._lock:
            stamp = stamp_of(self._config.index)
            if stamp is None:
                raise StorageError(f"{self._config.index} no longer contains an index.")
            if stamp != self._stamp:
                self._open()
                return True
        if time.monotonic() - self._counted > _COUNT_SECONDS:
            self._set_count(len(self.current.index))
        return False

    def _open(self) -> None:
        stamp = stamp_of(
            self._config.index
        )  # read before opening, so that a change in between is detected
        model = None if self._collection is None else self._collection.model
        self._collection = Collection.open(self._config, device=self._device, model=model)
        self._stamp = stamp
        self._set_count(len(self._collection.index))

    def _apply_batch(self, changes: list[Add | Remove]) -> list[Id | Exception]:
        with self._lock:
            for _ in range(_WRITE_ATTEMPTS):
                results, again = self._try_batch(changes)
                if not again:
                    break
            return results

    def _try_batch(self, changes: list[Add | Remove]) -> tuple[list[Id | Exception], bool]:
        """Make changes; also returns whether another program was faster, so that none was made."""
        folder = self._config.index
        if stamp_of(folder) != self._stamp:
            self._open()
        collection = self.current
        results = [_attempt(change, collection) for change in changes]
        if all(isinstance(result, Exception) for result in results):
            return results, False
        try:
            collection.index.save(folder)
        except Exception as error:  # raised again for each change
            again = stamp_of(folder) != self._stamp
            self._discard()
            return [r if isinstance(r, Exception) else error for r in results], again
        stamp = stamp_of(folder)
        newest = revisions.opened_generation(collection.index) == revisions.generation(folder)
        self._stamp = stamp if newest else None  # None: the next look opens the index again
        self._set_count(len(collection.index))
        return results, False

    def _set_count(self, count: int) -> None:
        self.count, self._counted = count, time.monotonic()

    def _discard(self) -> None:
        """Drop changes that could not be saved."""
        self._stamp = None
        try:
            self._open()
        except Exception:
            LOG.exception("The index cannot be opened again after a failed save.")


def _attempt(change: Add | Remove, collection: Collection) -> Id | Exception:
    try:
        return change.apply(collection)
    except Exception as error:  # raised again for this change
        return error
