"""The open index of the service, and its only writer."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import replace
from typing import NamedTuple, TypeVar

import numpy as np

from ...codes import Codes
from ...errors import HadaHashError, StorageError
from ...index import revisions
from ...index.local import LocalIndex
from ..problem import Problem, busy, invalid, model_changed, unknown_id
from .batcher import Batcher
from .collection import Collection, ServeConfig, stamp_of
from .joined import Joined
from .names import Id, from_json
from .shared import Shared
from .timing import within

LOG = logging.getLogger(__name__)
T = TypeVar("T")
_SAVE_ATTEMPTS = 10  # if other programs keep saving the same index
_UNREADABLE = "A change by another worker process cannot be read"
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
        if collection.has(item_id):
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
        item_id = collection.parse_id(self.id)
        if item_id is None or not collection.has(item_id):
            raise unknown_id()
        collection.index.remove([item_id])
        return item_id


class IndexHandle:
    """Opens the index, applies changes to it, and reopens it when another program changed it.

    Pending changes are saved together. Readers use `current` and are never blocked by a writer.

    Args:
        config: Locations of the index, its model and its images.
        device: Device of the model.
        max_batch: Largest number of changes that are saved together.
        on_batch: Called with the size of every batch.
        on_count: Called with the number of items whenever it is determined.
        on_reopen: Called in the event loop when the index was opened again, for whatever reason.
        on_save: Called in the event loop when changes were saved.
        seconds: How long a request waits for a change by another worker process.
        shared: What the worker processes of the service share, if there are several.
    """

    def __init__(
        self,
        config: ServeConfig,
        *,
        device: str,
        max_batch: int,
        on_batch: Callable[[int], object],
        on_count: Callable[[int], object],
        on_reopen: Callable[[], object],
        on_save: Callable[[], object],
        seconds: float,
        shared: Shared | None = None,
    ) -> None:
        self._config, self._device, self._shared = config, device, shared
        self._seconds, self._on_count = seconds, on_count
        self._on_reopen, self._on_save = on_reopen, on_save
        self._loop: asyncio.AbstractEventLoop | None = None
        self._collection: Collection | None = None
        self._stamp: object = None
        self._lock = threading.Lock()  # held while the index is opened or changed
        self._writer: Batcher[Add | Remove, Id] = Batcher(
            self._apply_batch, max_batch=max_batch, on_batch=on_batch
        )
        self._opener = ThreadPoolExecutor(1)  # a server that does not respond blocks no others
        self._refreshed = Joined(self.refresh)
        self._seen = 0  # changes by all worker processes when the index was opened
        self._seen_reloads = 0
        self._again = False  # whether every file has to be opened again
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

    async def fresh(self) -> Collection:
        """Return the open collection with the changes that other worker processes made.

        Requests that wait for the same change wait together. If it cannot be read, they get the
        collection before it.

        Raises:
            Problem: 503, before the index is open, or if it does not respond.
        """
        if (self._changes, self._reloads) != (self._seen, self._seen_reloads):
            try:
                await within(self._refreshed.run(), self._seconds)
            except Problem:
                raise
            except Exception as error:  # the watcher reports it, too
                unexpected = None if isinstance(error, HadaHashError) else error
                LOG.error("%s: %s", _UNREADABLE, error, exc_info=unexpected)
        return self.current

    async def reload(self, *, everywhere: bool = False) -> int:
        """Open the index again and return its number of items. Running requests keep the old one.

        Args:
            everywhere: Let the other worker processes do the same before their next request, also
                if it fails here.

        Raises:
            HadaHashError: If the index or its model cannot be opened; the old one stays, and
                `refresh` tries again.
        """
        try:
            await self._in_thread(self._reload)
        finally:
            if everywhere and self._shared is not None:
                await self._in_thread(self._tell_others)
        return self.count

    async def refresh(self) -> bool:
        """Open the index again if another program changed it, and update the number of items.

        Returns:
            Whether the index was opened again.

        Raises:
            HadaHashError: If the index or its model cannot be opened; the old one stays.
        """
        return await self._in_thread(self._refresh)

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
        self._opener.shutdown(wait=False, cancel_futures=True)

    async def _in_thread(self, function: Callable[[], T]) -> T:
        self._loop = asyncio.get_running_loop()
        return await self._loop.run_in_executor(self._opener, function)

    def _notify(self, listener: Callable[[], object]) -> None:
        """Call a listener in the event loop, before the work in this thread returns its result."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the service has ended
                self._loop.call_soon_threadsafe(listener)

    def _reload(self) -> None:
        with self._lock:
            self._open(again=True)

    def _tell_others(self) -> None:
        """Count a reload, which this process has made; if it failed, `_again` is set."""
        if self._shared is not None:
            with self._lock, self._shared.writing():
                self._shared.count_reload()
                self._seen += 1
                self._seen_reloads += 1

    def _refresh(self) -> bool:
        with self._lock:
            changes, reloads = self._changes, self._reloads
            stamp = stamp_of(self._config.index)
            if stamp is None:
                raise StorageError(f"{self._config.index} no longer contains an index.")
            if self._changed(stamp, reloads):
                self._open()
                return True
            self._seen = changes
        if time.monotonic() - self._counted > _COUNT_SECONDS:
            self._set_count(len(self.current.index))
        return False

    def _changed(self, stamp: object, reloads: int) -> bool:
        """Whether the index has to be opened again."""
        return self._again or stamp != self._stamp or reloads != self._seen_reloads

    @property
    def _changes(self) -> int:
        return 0 if self._shared is None else self._shared.changes

    @property
    def _reloads(self) -> int:
        return 0 if self._shared is None else self._shared.reloads

    def _open(self, *, again: bool = False) -> None:
        """Open the index; with `again`, or after a reload anywhere, every file of it."""
        # All are read before opening, so that a change in between is detected.
        changes, reloads, stamp = self._changes, self._reloads, stamp_of(self._config.index)
        self._again = self._again or again or reloads != self._seen_reloads
        before = self._collection
        known = None if self._again else before
        model = None if before is None else before.model
        self._collection = Collection.open(
            self._config, device=self._device, model=model, known=known
        )
        self._stamp, self._seen, self._seen_reloads = stamp, changes, reloads
        self._again = False
        if before is not None:
            self._notify(self._on_reopen)
        self._set_count(len(self._collection.index))

    def _apply_batch(self, changes: list[Add | Remove]) -> list[Id | Exception]:
        others = nullcontext() if self._shared is None else self._shared.writing()
        with self._lock, others:
            failed: list[Id | Exception] = []
            sent: list[Id | Exception] = []  # results of changes that a server has made already
            for _ in range(_SAVE_ATTEMPTS):
                if self._changed(stamp_of(self._config.index), self._reloads):
                    self._open()
                collection = self.current
                results = [_attempt(change, collection) for change in changes]
                results = _repeated(sent, results) if sent else results
                if all(isinstance(result, Exception) for result in results):
                    return results
                error = self._save(collection)
                if error is None:
                    return results
                failed = [each if isinstance(each, Exception) else error for each in results]
                if stamp_of(self._config.index) == self._stamp:
                    break
                sent = [] if isinstance(collection.index, LocalIndex) else results
                self._discard()  # another program saved in between: repeat the changes
            self._discard()
            return failed

    def _save(self, collection: Collection) -> Exception | None:
        """Save the changes; returns the error, if there is one."""
        try:
            if isinstance(collection.index, LocalIndex):
                collection.index.save(self._config.index)
            elif stamp_of(self._config.index) != self._stamp:  # an upgrade may not have seen them
                raise StorageError(f"{self._config.index} keeps changing. Try again.")
        except Exception as error:  # raised again for each change
            return error
        self._stamp = self._stamp_of_saved(collection)
        if self._shared is not None:
            self._shared.count_change()
            self._seen = self._shared.changes
        self._notify(self._on_save)
        self._set_count(len(collection.index))
        return None

    def _stamp_of_saved(self, collection: Collection) -> object:
        """The stamp after a save; None if another program was faster, to open the index again."""
        if not isinstance(collection.index, LocalIndex):
            return self._stamp
        folder = self._config.index
        stamp = stamp_of(folder)
        newest = revisions.opened_generation(collection.index) == revisions.generation(folder)
        return stamp if newest else None

    def _set_count(self, count: int) -> None:
        self.count, self._counted = count, time.monotonic()
        self._on_count(count)

    def _discard(self) -> None:
        """Drop changes that could not be saved."""
        self._stamp = None
        try:
            self._open(again=True)
        except Exception:
            LOG.exception("The index cannot be opened again after a failed save.")


def _repeated(sent: list[Id | Exception], results: list[Id | Exception]) -> list[Id | Exception]:
    """Results of changes that were made twice: one that was made already has not failed."""
    return [
        before
        if not isinstance(before, Exception)
        and isinstance(result, Problem)
        and result.code in ("known_id", "unknown_id")
        else result
        for before, result in zip(sent, results, strict=True)
    ]


def _attempt(change: Add | Remove, collection: Collection) -> Id | Exception:
    try:
        return change.apply(collection)
    except Exception as error:  # raised again for this change
        return error
