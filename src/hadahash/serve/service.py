"""The service without HTTP: it decodes, encodes, searches, changes the index and opens it again."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..codes import Codes
from ..data.base import ArrayImages
from ..errors import HadaHashError
from ..hasher import Hasher
from ..index import Index, Item
from ..photos import check_model, load_model_of
from .batching import Batcher, Gate
from .collection import Id, Snapshot, Sources, label_values, stamp_of
from .decoding import DecodePool, Picture
from .metrics import Metrics
from .problems import LOG, Problem, busy
from .schema import Hit, ItemParameters, Query, SearchParameters, Took
from .settings import ServeSettings

Packed = NDArray[np.uint8]


class Question(NamedTuple):
    """One query as the search sees it; those that differ in `packed` and `k` alone are searched together."""

    packed: Packed  # (bytes,)
    k: int
    radius: int | None
    labels: tuple[Id, ...] | None


class Found(NamedTuple):
    snapshot: Snapshot  # the index that was searched
    ids: list[Id]
    distances: list[int]
    exact: bool


class Stopwatch:
    """Milliseconds by stage."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics, self._started = metrics, time.perf_counter()
        self._lap, self._stages = self._started, {"decode": 0.0, "encode": 0.0, "search": 0.0}

    def stage(self, name: str) -> None:
        """What happened since the stage before, or the start, was this one."""
        now = time.perf_counter()
        self._stages[name] = 1000 * (now - self._lap)
        self._metrics.stages.labels(name).observe(now - self._lap)
        self._lap = now

    def skip(self) -> None:
        self._lap = time.perf_counter()

    def took(self) -> Took:
        total = 1000 * (time.perf_counter() - self._started)
        return Took(
            **{name: round(value, 3) for name, value in self._stages.items()}, total=round(total, 3)
        )


class Service:
    """Everything a request needs. `hasher` and `snapshot` are there once `load` is done."""

    hasher: Hasher
    snapshot: Snapshot

    def __init__(self, sources: Sources, settings: ServeSettings) -> None:
        self.sources, self.settings, self.metrics = sources, settings, Metrics()
        self.ready = False
        self.started = time.monotonic()
        self.pool = DecodePool(settings)
        self.searches, self.pictures = Gate(settings.queue), Gate(settings.picture_queue)
        batches = self.metrics.batches
        self._encoding = Batcher(
            self._encode_batch, most=settings.batch, seen=batches.labels("encode").observe
        )
        self._searching = Batcher(
            self._search_batch, most=settings.batch, seen=batches.labels("search").observe
        )
        self._writing = asyncio.Lock()
        self._thumbnails: OrderedDict[tuple[object, Id], Picture] = OrderedDict()
        self._kept_bytes = 0

    # ---- life ----------------------------------------------------------------------------------------------------

    async def load(self) -> None:
        """Open everything; requests are answered 503 until it is done."""
        self.hasher, self.snapshot = await asyncio.to_thread(self._open)
        await self.pool.start()
        self.ready = True

    def _open(self) -> tuple[Hasher, Snapshot]:
        index = Index.open(self.sources.index)
        hasher = load_model_of(index, self.sources.index, self.sources.run, device=self.settings.device)
        side = hasher.preprocess.side
        _encode(
            hasher, [np.zeros((side, side, 3), np.uint8)]
        )  # the first time takes longer: now, not when someone waits
        return hasher, self._open_snapshot(hasher)

    def _open_snapshot(self, hasher: Hasher) -> Snapshot:
        snapshot = Snapshot.open(self.sources, self.settings.map_points)
        check_model(snapshot.index, hasher, self.sources.index)
        snapshot.warm()
        return snapshot

    async def reload(self) -> int:
        """Open the index again; requests at work go on with the one they have. Answers how many items there are."""
        async with self._writing:
            self.snapshot = await asyncio.to_thread(self._open_snapshot, self.hasher)
        self.metrics.reloads.inc()
        return len(self.snapshot.index)

    async def watch(self) -> None:
        """Open the index again whenever another program has changed it."""
        while self.settings.watch_seconds:
            await asyncio.sleep(self.settings.watch_seconds)
            stamp = await asyncio.to_thread(stamp_of, self.sources.index)
            if stamp not in (None, self.snapshot.stamp):
                await self.reload_or_log()

    async def reload_or_log(self) -> None:
        try:
            await self.reload()
        except HadaHashError as error:
            LOG.error("The index cannot be opened; going on with the one before: %s", error)

    async def close(self) -> None:
        await self.pool.close()
        self._encoding.close()
        self._searching.close()

    def require_ready(self) -> None:
        if not self.ready:
            raise busy("The service is starting.")

    # ---- stages --------------------------------------------------------------------------------------------------

    async def encode(self, image: bytes, watch: Stopwatch) -> Packed:
        """The code of an uploaded image, (bytes,)."""
        watch.skip()
        square = await self.pool.square(image, self.hasher.preprocess)
        watch.stage("decode")
        packed = await self._encoding.ask(square)
        watch.stage("encode")
        return packed

    def _encode_batch(self, squares: list[Packed]) -> list[Packed]:
        return _encode(self.hasher, squares)

    def _search_batch(self, questions: list[Question]) -> list[Found]:
        snapshot = self.snapshot
        groups: dict[object, list[int]] = {}
        for place, question in enumerate(questions):
            groups.setdefault(question[2:], []).append(place)
        answers: dict[int, Found] = {}
        for places in groups.values():
            members = [questions[place] for place in places]
            answers.update(zip(places, _search_together(snapshot, members), strict=True))
        return [answers[place] for place in range(len(questions))]

    # ---- requests ------------------------------------------------------------------------------------------------

    async def search(
        self, parameters: SearchParameters, image: bytes | None, watch: Stopwatch
    ) -> tuple[Query, list[Hit], bool]:
        """The query as it was understood, its hits, and whether they are proven."""
        self._check(parameters, image)
        item = None
        if image is not None:
            packed = await self.encode(image, watch)
        elif parameters.code is not None:
            packed = self._parse_code(parameters.code)
        else:
            item, packed = await asyncio.to_thread(self._stored, parameters.id)
        labels = tuple(label_values(parameters.label)) if parameters.label else None
        watch.skip()
        found = await self._searching.ask(Question(packed, parameters.k, parameters.radius, labels))
        hits = await asyncio.to_thread(_hits, found)
        watch.stage("search")
        return self._query(item, packed), hits, found.exact

    def _query(self, item: Item | None, packed: Packed) -> Query:
        code, bits = packed.tobytes().hex(), self.hasher.bits
        if item is None:
            return Query(id=None, name=None, labels=[], code=code, bits=bits)
        return Query(
            id=_text(item.id), name=name_of(item), labels=list(item.labels), code=code, bits=bits
        )

    def _check(self, parameters: SearchParameters, image: bytes | None) -> None:
        given = [value for value in (parameters.id, parameters.code, image) if value is not None]
        if len(given) != 1:
            raise _bad(
                "Give one of: an image, a code, an id.",
                'Send a form with an image, or JSON such as {"id": "..."}.',
            )
        if parameters.k > self.settings.max_k:
            raise _bad(f"k: at most {self.settings.max_k} can be asked for.", "Ask for fewer.")
        if parameters.radius is not None and parameters.radius > self.hasher.bits:
            raise _bad(
                f"radius: no distance is more than the {self.hasher.bits} bits of a code.",
                "Give a smaller radius.",
            )
        if len(parameters.label) > self.settings.max_labels:
            raise _bad(
                f"label: at most {self.settings.max_labels} can be asked for.", "Ask for fewer."
            )

    def _parse_code(self, digits: str) -> Packed:
        bits, width = self.hasher.bits, -(-self.hasher.bits // 8)
        packed = np.frombuffer(bytes.fromhex(digits), np.uint8)
        padding = 8 * width - bits
        if len(packed) != width or (padding and packed[-1] & ((1 << padding) - 1)):
            hint = f"Send {2 * width} hexadecimal digits" + (
                f"; the last {padding} bits are 0." if padding else "."
            )
            raise _bad(
                f"code: a code of this index has {bits} bits, packed into {width} bytes.", hint
            )
        return packed

    def _stored(self, given: Id | None) -> tuple[Item, Packed]:
        item = self.item("" if given is None else given)
        packed = self.snapshot.codes_of([item.id])[0]
        if packed is None:
            raise Problem(
                404,
                "unknown_id",
                "The item came after the index was opened.",
                "Ask for POST /v1/reload.",
            )
        return item, packed

    def item(self, given: Id) -> Item:
        found = self.snapshot.find(given)
        if found is None:
            raise Problem(
                404,
                "unknown_id",
                "The index has no item with this id.",
                "Ids are case-sensitive; search finds them.",
            )
        return found

    async def picture(self, given: Id, *, thumbnail: bool) -> Picture:
        snapshot, settings = self.snapshot, self.settings
        item = await asyncio.to_thread(self.item, given)
        key = (snapshot.stamp, item.id)
        if thumbnail and key in self._thumbnails:
            self._thumbnails.move_to_end(key)
            return self._thumbnails[key]
        path = await asyncio.to_thread(snapshot.picture_path, item)
        if path is None:
            raise Problem(
                404,
                "no_image",
                "There is no picture of this item.",
                "Start the service with --images FOLDER.",
            )
        picture = await self.pool.picture(
            path, settings.thumbnail_side if thumbnail else settings.picture_side
        )
        if thumbnail:
            self._keep(key, picture)
        return picture

    def _keep(self, key: tuple[object, Id], picture: Picture) -> None:
        if key not in self._thumbnails:
            self._thumbnails[key] = picture
            self._kept_bytes += len(picture.content)
        while self._kept_bytes > self.settings.cache_bytes:
            self._kept_bytes -= len(self._thumbnails.popitem(last=False)[1].content)

    # ---- changes -------------------------------------------------------------------------------------------------

    async def add(
        self, parameters: ItemParameters, image: bytes | None, watch: Stopwatch
    ) -> Packed:
        """Add an item and save the index. Of an image only the code is kept."""
        if (image is None) == (parameters.code is None):
            raise _bad(
                "Give an image or a code.", "Send a form with an image, or JSON with a code."
            )
        packed = (
            await self.encode(image, watch)
            if image is not None
            else self._parse_code(parameters.code or "")
        )
        async with self._writing:
            self.snapshot = await asyncio.to_thread(self._added, parameters, packed)
        return packed

    async def remove(self, given: Id) -> None:
        async with self._writing:
            self.snapshot = await asyncio.to_thread(self._removed, given)

    def _added(self, parameters: ItemParameters, packed: Packed) -> Snapshot:
        """A change is made to a copy from the disk: what is served is the index before it, or after it is saved."""
        fresh = Snapshot.open(self.sources, self.settings.map_points)
        wanted = _as_kind(parameters.id, fresh.index.id_type)
        if fresh.find(wanted) is not None:
            raise Problem(
                409,
                "known_id",
                "The index already has an item with this id.",
                "Choose another id, or delete it first.",
            )
        codes = Codes(packed=packed[None], bits=fresh.index.bits, ids=np.array([wanted]))
        fresh.index.add(codes, [parameters.label])
        return self._saved(fresh)

    def _removed(self, given: Id) -> Snapshot:
        fresh = Snapshot.open(self.sources, self.settings.map_points)
        item = fresh.find(given)
        if item is None:
            raise Problem(
                404,
                "unknown_id",
                "The index has no item with this id.",
                "Ids are case-sensitive; search finds them.",
            )
        fresh.index.remove([item.id])
        return self._saved(fresh)

    def _saved(self, fresh: Snapshot) -> Snapshot:
        fresh.index.save(self.sources.index)
        return self._open_snapshot(self.hasher)


def _encode(hasher: Hasher, squares: list[Packed]) -> list[Packed]:
    return list(
        hasher.encoder().encode(ArrayImages(np.stack(squares)), np.arange(len(squares))).packed
    )


def _search_together(snapshot: Snapshot, questions: Sequence[Question]) -> list[Found]:
    """The nearest k are the first k of the nearest more, so questions that differ in k are one search."""
    first = questions[0]
    packed = np.stack([question.packed for question in questions])
    hits = snapshot.index.search(
        packed, max(q.k for q in questions), radius=first.radius, labels=first.labels
    )
    found = []
    for row, question in enumerate(questions):
        count = min(question.k, int(hits.counts[row]))
        ids, distances = hits.ids[row, :count].tolist(), hits.distances[row, :count].tolist()
        found.append(Found(snapshot, ids, distances, bool(hits.exact_rows[row])))
    return found


def _hits(found: Found) -> list[Hit]:
    """Hits with what the index knows of them, less those that someone removed since they were found."""
    snapshot = found.snapshot
    near = dict(zip(found.ids, found.distances, strict=True))
    items = snapshot.items_of(found.ids)
    codes = snapshot.codes_of([item.id for item in items])
    return [
        Hit(
            id=_text(item.id),
            name=name_of(item),
            labels=list(item.labels),
            distance=near[item.id],
            code=None if code is None else code.tobytes().hex(),
            has_image=snapshot.picture_path(item) is not None,
        )
        for item, code in zip(items, codes, strict=True)
    ]


def name_of(item: Item) -> str:
    """What to call an item: its file's name, without the folders."""
    return str(_text(PurePosixPath(item.path or str(item.id)).name or str(item.id)))


def _text(value: Id) -> Id:
    """JSON has no place for the surrogates of odd file names."""
    return value if isinstance(value, int) else value.encode("utf-8", "replace").decode()


def _as_kind(value: Id, kind: type[Id] | None) -> Id:
    """A new id as the index has them: all numbers, or all strings."""
    if kind is str or (kind is None and isinstance(value, str)):
        return str(value)
    try:
        return int(value)
    except ValueError:
        raise _bad("id: the ids of this index are whole numbers.", "Send a number.") from None


def _bad(message: str, hint: str) -> Problem:
    return Problem(422, "bad_parameters", message, hint)
