"""The service, independent of HTTP."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from ...codes import Codes
from ...errors import HadaHashError
from ...queries import Queries
from ..problem import Problem, busy, invalid
from ..settings import ServeSettings
from .batcher import Batcher
from .checks import check_search, check_takes
from .collection import Collection, ServeConfig
from .decode_pool import create_pools
from .duplicates import DuplicateSearch
from .encode import EncodedQuery, Encoder
from .handle import Add, IndexHandle, Remove
from .joined import Joined
from .limits import Limit
from .media import Media
from .metrics import Metrics
from .names import Id
from .overview import OverviewCache, build_overview
from .query import (
    NewItem,
    SearchQuery,
    check_made,
    choose_rank,
    parse_codes,
    parse_values,
    vector_query,
)
from .reports import Reports
from .results import Found
from .search import IdJob, Options, Result, SearchJob, run_searches
from .shared import Shared
from .timing import StageTimer, settled, within

LOG = logging.getLogger(__name__)
T = TypeVar("T")
_LOOKUP_THREADS = 4
_MODEL_ATTEMPTS = 2  # to encode a new item, while the index is upgraded
_RETRY_SECONDS = 30.0  # between two attempts to start all decoders
_START_FAILED = "The service cannot start"
_RELOAD_FAILED = "The index on disk cannot be opened, the previous one is served"
_NO_RESPONSE = "The index does not respond"
_NO_DECODER = "Not all image decoders can be started"


class Service:
    """The service.

    Args:
        config: Locations of the index, its model and its images.
        settings: Limits.
        shared: What the worker processes of the service share, if there are several.
    """

    def __init__(
        self, config: ServeConfig, settings: ServeSettings, *, shared: Shared | None = None
    ) -> None:
        self.config, self.settings, self.metrics = config, settings, Metrics()
        self._shared = shared
        self.ready = False
        self._reports = Reports()
        self.started = time.monotonic()
        self._starting: asyncio.Task[None] | None = None
        self._create_limits()
        self._create_workers()

    def _create_limits(self) -> None:
        settings, share = self.settings, self.settings.client_share
        self.searches = Limit(settings.queue, share, on_change=self.metrics.waiting.set)
        self.uploads = Limit(settings.upload_queue, share)
        self.writes = Limit(settings.write_queue, share)
        self.listings = Limit(settings.write_queue, share)
        self.images = Limit(settings.image_queue, share)
        self.upload_bytes = 0  # bytes of request bodies in memory

    def _create_workers(self) -> None:
        settings, batches = self.settings, self.metrics.batches
        self._uploaded, self._stored = create_pools(settings, self.metrics.replaced.inc)
        self.media = Media(self._stored, settings)
        self._encoder = Encoder(
            self._uploaded, max_batch=settings.batch, on_batch=batches.labels("encode").observe
        )
        self._searcher: Batcher[SearchJob | IdJob, Result] = Batcher(
            run_searches, max_batch=settings.batch, on_batch=batches.labels("search").observe
        )
        self.overview = OverviewCache(
            lambda: build_overview(
                self.handle.current,
                points=settings.map_points,
                max_labels=settings.max_listed_labels,
            )
        )
        self.handle = IndexHandle(
            self.config,
            device=settings.device,
            max_batch=settings.batch,
            on_batch=batches.labels("write").observe,
            on_count=self.metrics.items.set,
            on_reopen=self._reopened,
            on_save=self.overview.invalidate,
            seconds=settings.index_seconds,
            shared=self._shared,
        )
        self._reloading = Joined(lambda: self._reload(everywhere=True))
        self._reopening = Joined(self._reload)
        self._lookups = ThreadPoolExecutor(_LOOKUP_THREADS)
        self.duplicates = DuplicateSearch(self.config.index, settings.index_seconds)

    # ---- lifetime ------------------------------------------------------------------------------

    async def load(self) -> None:
        """Open everything. Requests are answered 503 until this is done.

        Raises:
            HadaHashError: If the service cannot start.
        """
        try:
            started = await asyncio.gather(
                self.handle.reload(), self._uploaded.start(1), return_exceptions=True
            )
            for each in started:
                if isinstance(each, BaseException):
                    raise each
        except Exception as error:
            self._reports.show("start", _START_FAILED)
            if isinstance(error, HadaHashError):  # the caller reports it
                raise
            if not isinstance(error, Problem):
                LOG.exception("%s", _START_FAILED)
            raise HadaHashError(f"{_START_FAILED}: {error or repr(error)}") from error
        self.overview.invalidate()
        self.ready = True
        self._starting = asyncio.create_task(self._start_decoders())

    async def _start_decoders(self) -> None:
        """Start the decoders that the first request does not need. Errors are shown by /readyz."""
        while True:
            try:
                await asyncio.gather(self._uploaded.start(), self._stored.start())
                return self._reports.solve("decoders")
            except Exception as error:  # raised again for what needs them
                self._reports.fail("decoders", _NO_DECODER, error)
            await asyncio.sleep(_RETRY_SECONDS)

    async def watch(self) -> None:
        """Open the index again whenever another program changed it. Errors are logged."""
        while self.settings.watch_seconds:
            await asyncio.sleep(self.settings.watch_seconds)
            check = asyncio.create_task(self.refresh())
            await asyncio.wait([check], timeout=self.settings.index_seconds)
            if not check.done():
                error = TimeoutError(f"{self.settings.index_seconds:g} s")
                self._reports.fail("index", _NO_RESPONSE, error)
            await check

    async def refresh(self, *, force: bool = False) -> None:
        """Open the index again if it changed. Errors are logged and shown by /readyz.

        Args:
            force: Open it even if it has not changed.
        """
        try:
            if force:  # each worker process is told to
                await within(self._reopening.run(), self.settings.index_seconds)
            else:
                await self.handle.refresh()
            self._reports.solve("index")
        except Exception as error:  # logged; the next check tries again
            self._reports.fail("index", _RELOAD_FAILED, error)

    async def close(self) -> None:
        """End all processes and threads."""
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.wait([self._starting])
        await asyncio.gather(self._uploaded.close(), self._stored.close())
        parts = (self._encoder, self._searcher, self.handle, self.overview, self.media)
        for part in (*parts, self.duplicates):
            part.close()
        self._lookups.shutdown(wait=False, cancel_futures=True)

    def require_ready(self) -> Collection:
        """Return the open collection.

        Raises:
            Problem: 503, before the service has started.
        """
        if self.problem is not None and not self.ready:
            raise Problem(503, "start_failed", self.problem, "Check the log of the service.")
        if not self.ready:
            raise busy("The service is starting.")
        return self.handle.current

    @property
    def problem(self) -> str | None:
        """What does not work, without paths; None if everything does."""
        return self._reports.text

    # ---- requests ------------------------------------------------------------------------------

    async def encode(
        self, image: bytes, timer: StageTimer, client: str = ""
    ) -> tuple[EncodedQuery, str]:
        """Encode an uploaded image.

        Args:
            image: The image file.
            timer: Records the stages.
            client: Who sent it; clients take turns.

        Returns:
            The query, and the id of the model.

        Raises:
            Problem: If the image cannot be decoded.
        """
        check_takes(image, self.handle.current)
        model = self.handle.current.model
        return await self._encoder.encode(image, model, timer, client), model.id

    async def search(
        self, query: SearchQuery, image: bytes | None, timer: StageTimer, client: str = ""
    ) -> Found:
        """Find the most similar items.

        Args:
            query: What to search for.
            image: An uploaded image file.
            timer: Records the stages.
            client: Who sent it; clients take turns.

        Returns:
            The resolved query and the results.

        Raises:
            Problem: If the parameters are not valid, or the image cannot be decoded.
        """
        collection = await self.handle.fresh()
        check_search(query, image, collection, self.settings)
        labels = None
        if query.labels:
            labels = await self._in_thread(collection.parse_labels, query.labels)
        resolved, looks = await self._resolve(query, image, collection, timer, client)
        if resolved is None:
            content = collection.index.content_bits > 0
        else:
            content = resolved.content is not None
        rank, weight = choose_rank(query, content, collection)
        timer.skip()
        options = Options(query.k, query.radius, labels, rank, weight)
        result = await self._run(collection, query.id, resolved, looks, options)
        if not result.hits and query.labels:
            await self._in_thread(collection.require_labels, query.labels)
        timer.stage("search")
        asked = (result.item, result.query, rank, weight)
        return Found(*asked, result.hits, result.looks, collection.model.id)

    async def _resolve(
        self,
        query: SearchQuery,
        image: bytes | None,
        collection: Collection,
        timer: StageTimer,
        client: str,
    ) -> tuple[Queries | Codes | None, bytes | None]:
        """The query, and what it looks like; None for an item of the index."""
        if image is not None:
            return await self._encoder.encode(image, collection.model, timer, client)
        if query.values is not None:
            return parse_values(query.values, collection)
        if query.vector is not None:
            return await self._in_thread(vector_query, collection, query.vector), None
        if query.code is None:
            return None, None
        check_made(query.model, collection)
        looks = None if query.looks is None else bytes.fromhex(query.looks)
        return parse_codes(query.code, query.content, collection), looks

    async def _run(
        self,
        collection: Collection,
        given: Id | None,
        query: Queries | Codes | None,
        looks: bytes | None,
        options: Options,
    ) -> Result:
        """Search from a query, or from the item with this id."""
        job: SearchJob | IdJob
        if query is None:
            job = IdJob(collection, "" if given is None else given, options)
        else:
            job = SearchJob(collection, query, *options, looks)
        return await settled(self._searcher.enqueue(job), self.settings.index_seconds)

    async def add(
        self, new: NewItem, image: bytes | None, timer: StageTimer, client: str = ""
    ) -> tuple[Id, Codes]:
        """Add an item and save the index. Only the code of an image is stored.

        Args:
            new: The item.
            image: An image file.
            timer: Records the stages.
            client: Who sent it; clients take turns.

        Returns:
            The id as it is stored, and the code.

        Raises:
            Problem: If the parameters are not valid, or the id exists already.
        """
        if (image is None) == (new.code is None):
            hint = "Send a form with an image, or JSON with a code."
            raise invalid("Give either an image or a code.", hint)
        for attempt in range(_MODEL_ATTEMPTS):
            collection = self.handle.current
            codes = await self._codes_of(new, image, collection, timer, client)
            try:
                add = Add(new.id, codes, new.labels, collection.model.id)
                stored = await within(self.handle.apply(add), self.settings.index_seconds)
                break
            except Problem as problem:  # the index was upgraded after the image was encoded
                if problem.code != "model_changed" or image is None or attempt:
                    raise
        return stored, codes

    async def _codes_of(
        self,
        new: NewItem,
        image: bytes | None,
        collection: Collection,
        timer: StageTimer,
        client: str,
    ) -> Codes:
        """The code of a new item, by the model of this collection."""
        check_takes(image, collection)
        if image is not None:
            encoded = await self._encoder.encode(image, collection.model, timer, client)
            codes = encoded.query.codes()
        else:
            check_made(new.model, collection)
            codes = parse_codes(new.code or "", new.content, collection)
        if codes.content_bits != collection.index.content_bits:
            hint = "Send its content bits as `content`, or its image."
            raise invalid("The items of this index have content bits.", hint)
        return codes

    async def remove(self, given: Id) -> None:
        """Remove an item and save the index.

        Args:
            given: Id of the item.

        Raises:
            Problem: 404, if there is no such item.
        """
        await within(self.handle.apply(Remove(given)), self.settings.index_seconds)

    async def reload(self) -> int:
        """Open the index again, in every worker process.

        Returns:
            The number of items.

        Raises:
            HadaHashError: If the index cannot be opened.
            Problem: 503, if the index does not respond; it is opened when it does.
        """
        return await within(self._reloading.run(), self.settings.index_seconds)

    async def _reload(self, *, everywhere: bool = False) -> int:
        try:
            count = await self.handle.reload(everywhere=everywhere)
        except Exception as error:  # the request may have ended
            self._reports.fail("index", _RELOAD_FAILED, error)
            raise
        self._reports.solve("index")
        return count

    def _reopened(self) -> None:
        self.metrics.reloads.inc()
        self.overview.invalidate()

    async def _in_thread(self, function: Callable[..., T], *arguments: object) -> T:
        running = asyncio.get_running_loop().run_in_executor(self._lookups, function, *arguments)
        return await within(running, self.settings.index_seconds)
