"""Groups of the same photo, found in the background as `hadahash duplicates` finds them."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec, TypeVar, cast

from ...errors import StorageError
from ...files import stamp
from ...index import Dismissed, DuplicateGroup, Duplicates, Item
from ...index.local import LocalIndex
from ...photos import CATALOG, PhotoDuplicates
from ...photos.duplicates import DISMISSED
from ..problem import Problem, busy, invalid, unknown_id
from .collection import Collection, stamp_of
from .names import Id
from .timing import within

P = ParamSpec("P")
T = TypeVar("T")
MOST_FILES = 100  # listed of a group
_WIDEST = 4  # the threshold is at most the number of bits by this: more would link everything
_MOST_JOBS = 16  # requests that wait for the thread
_MOST_RESULTS = 8  # thresholds kept in memory
_COLLECTIONS = 10_000  # of younger objects before a full collection
_KEPT_SECONDS = 300.0  # where other programs can change the items: Milvus


class GroupFile(NamedTuple):
    """A file of a group; its size in bytes is None if it is not known."""

    item: Item
    has_image: bool
    size: int | None


class ListedGroup(NamedTuple):
    """A group: its number from 1 on, whether all files are equal, and the first of them."""

    number: int
    group: DuplicateGroup
    equal: bool
    files: list[GroupFile]


class Page(NamedTuple):
    """Some of the groups of a search.

    Attributes:
        found: All groups.
        groups: Those of the page.
        dismissed: Number of dismissed groups.
        unread: Number of photos of which it is not known what they look like.
    """

    found: Duplicates
    groups: list[ListedGroup]
    dismissed: int
    unread: int


class DuplicateSearch:
    """Searches for duplicates in a thread, and remembers which groups were dismissed.

    Args:
        folder: The folder of the index.
        seconds: How long a request waits. A search that takes longer goes on, and a later request
            gets its result.
    """

    def __init__(self, folder: Path, seconds: float) -> None:
        self._folder, self._seconds = folder, seconds
        self._thread = ThreadPoolExecutor(1)
        self._jobs: dict[object, asyncio.Future[Any]] = {}
        self._search: _Search | None = None

    async def page(
        self,
        collection: Collection,
        threshold: int | None,
        skip: int,
        limit: int,
        *,
        render: Callable[[Page], T],
    ) -> T:
        """Return some of the groups, the largest first, as the answer to a client.

        Args:
            collection: The collection.
            threshold: Maximum number of differing bits of two linked photos; None: the default.
            skip: Number of groups before the first.
            limit: Largest number of groups.
            render: Makes the answer, in the thread of the searches: a page has up to thousands of
                files. It is always the same function.

        Returns:
            The answer.

        Raises:
            Problem: 422, if the threshold is too large; 503, while the search is running.
        """
        key = (threshold, skip, limit)
        return await self._search_job(
            key, lambda: render(self._page(collection, threshold, skip, limit))
        )

    async def dismiss(self, collection: Collection, given: Sequence[Id]) -> int:
        """Do not list a group again.

        Args:
            collection: The collection.
            given: The ids of all its items, as the client sent them.

        Returns:
            Number of dismissed groups.

        Raises:
            Problem: 404, if an item is unknown; 409, if the list cannot be written; 422, if there
                are fewer than two items.
        """
        loop = asyncio.get_running_loop()
        job = loop.run_in_executor(None, self._dismiss, collection, given)
        return await within(job, self._seconds)

    async def dismiss_group(self, collection: Collection, key: str, threshold: int | None) -> int:
        """Do not list a group again, of any size. Idempotent.

        Args:
            collection: The collection.
            key: The key of the group.
            threshold: That of the search that listed it; None: the default.

        Returns:
            Number of dismissed groups.

        Raises:
            Problem: 409, if there is no such group any more, or the list cannot be written; 422, if
                the threshold is too large; 503, while the search is running.
        """
        return await self._search_job(
            (key, threshold), self._dismiss_group, collection, key, threshold
        )

    def close(self) -> None:
        """Drop the searches that have not started."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _search_job(
        self, key: object, work: Callable[P, T], *args: P.args, **options: P.kwargs
    ) -> T:
        """Work in the thread of the searches. Requests with equal keys wait for the same result."""
        job = self._jobs.get(key)
        if job is None:
            if len(self._jobs) >= _MOST_JOBS:
                raise busy()
            loop = asyncio.get_running_loop()
            job = loop.run_in_executor(self._thread, _quietly, partial(work, *args, **options))
            self._jobs[key] = job
            job.add_done_callback(lambda done: self._forget(key, done))
        done, _ = await asyncio.wait([job], timeout=self._seconds)
        if not done:
            raise busy("The duplicates are being searched.")
        return cast("T", job.result())

    def _forget(self, key: object, job: asyncio.Future[Any]) -> None:
        self._jobs.pop(key, None)
        if not job.cancelled():
            job.exception()  # it was raised, or nobody waits for it any more

    def _current(self, collection: Collection) -> _Search:
        """In the thread: the search of the current state."""
        state = _state(self._folder, collection)
        if self._search is None or self._search.state != state:
            self._search = _Search(self._folder, state)
        return self._search

    def _page(self, collection: Collection, threshold: int | None, skip: int, limit: int) -> Page:
        """In the thread: search, if necessary, and look up the files of the page."""
        search = self._current(collection)
        found = search.find(threshold)
        chosen = enumerate(found[skip : skip + limit], skip + 1)
        groups = [_listed(collection, search.photos, number, group) for number, group in chosen]
        return Page(found, groups, len(search.photos.dismissed), search.unread)

    def _dismiss_group(self, collection: Collection, key: str, threshold: int | None) -> int:
        """In the thread: dismiss the group with this key."""
        search = self._current(collection)
        group = search.find(threshold).find_key(key)
        if group is not None:
            return self._write(group.ids)
        if search.photos.dismissed.has_key(key):
            return len(search.photos.dismissed)
        hint = "List the duplicates again."
        raise Problem(409, "group_changed", "There is no such group any more.", hint)

    def _dismiss(self, collection: Collection, given: Sequence[Id]) -> int:
        ids = [collection.parse_id(each) for each in given]
        known = [each for each in ids if each is not None and collection.has(each)]
        if len(known) < len(given):
            raise unknown_id()
        if len(set(known)) < 2:
            raise invalid("ids: a group has two or more items.", "Send all ids of the group.")
        return self._write(known)

    def _write(self, ids: Sequence[Id]) -> int:
        """Add a group to the list on disk."""
        try:
            return len(Dismissed.append(self._folder / DISMISSED, ids))
        except StorageError:
            hint = "Make the folder of the index writable for the service."
            message = "The list of dismissed groups cannot be written."
            raise Problem(409, "not_writable", message, hint) from None


class _Search:
    """Searches of one state of an index.

    Args:
        folder: The folder of the index.
        state: Identifies its content.
    """

    def __init__(self, folder: Path, state: object) -> None:
        self.state, self._file = state, folder / DISMISSED
        self._stamp = stamp(self._file)
        self.photos = PhotoDuplicates(folder)
        self.unread = len(self.photos.unread())
        self._results: dict[int, Duplicates] = {}

    def find(self, threshold: int | None) -> Duplicates:
        """The groups at a threshold, without dismissed ones."""
        self._read_dismissed()
        if threshold is None:
            threshold = self.photos.default_threshold
        most = self.photos.compared_bits // _WIDEST
        if threshold > most:
            raise invalid(f"threshold must be <= {most}, got {threshold}.", "Use a smaller one.")
        found = self._results.get(threshold)
        wider = [each for each in self._results if each > threshold]
        if found is None and wider:
            found = self._results[min(wider)].rethreshold(threshold)
        elif found is None:
            found = self.photos.find(threshold)
        found = found.without(self.photos.dismissed)
        if len(self._results) >= _MOST_RESULTS:
            self._results = {max(self._results): self._results[max(self._results)]}
        self._results[threshold] = found
        return found

    def _read_dismissed(self) -> None:
        """Follow what the command line and other processes dismiss."""
        now = stamp(self._file)
        if now != self._stamp:
            self.photos.dismissed, self._stamp = Dismissed.load(self._file), now


def _quietly(work: Callable[[], T]) -> T:
    """Work without full collections of garbage, each of which would stop all other threads.

    They look at all ids and groups of the search again and again. Young objects are collected.
    """
    usual = gc.get_threshold()
    gc.set_threshold(*usual[:2], max(usual[2], _COLLECTIONS))
    try:
        return work()
    finally:
        gc.set_threshold(*usual)


def _state(folder: Path, collection: Collection) -> object:
    """A value that changes when items or what they look like change."""
    local = isinstance(collection.index, LocalIndex)
    period = None if local else time.monotonic() // _KEPT_SECONDS
    return stamp_of(folder), stamp(folder / CATALOG), period


def _listed(
    collection: Collection, photos: PhotoDuplicates, number: int, group: DuplicateGroup
) -> ListedGroup:
    known = collection.lookup(group.ids[:MOST_FILES])
    files = [_file(collection, known[each][0]) for each in group.ids[:MOST_FILES] if each in known]
    return ListedGroup(number, group, photos.are_equal(group), files)


def _file(collection: Collection, item: Item) -> GroupFile:
    path = collection.image_path(item)
    try:
        return GroupFile(item, path is not None, None if path is None else path.stat().st_size)
    except OSError:
        return GroupFile(item, False, None)
