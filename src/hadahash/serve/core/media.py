"""Images and thumbnails of the collection."""

from __future__ import annotations

import asyncio
import hashlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from cachetools import LRUCache

from ...environment import user_cache
from ...errors import HadaHashError
from ..problem import Problem, unknown_id
from ..settings import ServeSettings
from .collection import Collection
from .decode_pool import DecodePool, EncodedImage
from .names import Id
from .thumbnail_files import ThumbnailFiles
from .timing import within

if TYPE_CHECKING:
    from ...data.remote import Place

_THREADS = 4
_MOVED = "If the images were moved, start the service with --images FOLDER."


class ImageFile(NamedTuple):
    """A file of the collection and its identity: the tag changes when the file does."""

    path: Path
    tag: str
    place: Place | None = None  # of a file at an address


class Media:
    """Renders images, and keeps thumbnails in memory and on disk.

    Args:
        pool: Decoder processes.
        settings: Limits of the service.
    """

    def __init__(self, pool: DecodePool, settings: ServeSettings) -> None:
        self._pool, self._settings = pool, settings
        folder = Path(settings.thumbnail_folder or user_cache() / "thumbnails")
        self._files = ThumbnailFiles(folder, settings.thumbnail_disk_bytes)
        self._threads = ThreadPoolExecutor(_THREADS)
        self._fetching = ThreadPoolExecutor(_THREADS)  # a slow network delays no other image
        self._rendering: dict[str, asyncio.Task[EncodedImage]] = {}
        self._thumbnails: LRUCache[str, EncodedImage] = LRUCache(
            settings.cache_bytes, getsizeof=lambda image: len(image.content)
        )

    async def locate(self, collection: Collection, given: Id, *, thumbnail: bool) -> ImageFile:
        """Find the file of an item.

        Args:
            collection: The collection.
            given: Id that a client sent.
            thumbnail: Whether to return the thumbnail instead of the image.

        Returns:
            The file.

        Raises:
            Problem: 404, if the item or its file does not exist.
        """
        loop, side = asyncio.get_running_loop(), self._side(thumbnail)
        finding = loop.run_in_executor(self._threads, _locate, collection, given, side)
        found = await within(finding, self._settings.index_seconds)
        if isinstance(found, ImageFile):
            return found
        asking = loop.run_in_executor(self._fetching, _locate_far, collection, found, side)
        return await within(asking, self._settings.index_seconds)

    async def render(self, file: ImageFile, *, thumbnail: bool, client: str = "") -> EncodedImage:
        """Return the image of a file without metadata.

        Args:
            file: The file.
            thumbnail: Whether to return the thumbnail instead of the image.
            client: Who asked for it; clients take turns.

        Returns:
            A JPEG or PNG.

        Raises:
            Problem: If the file cannot be decoded.
        """
        cached = self._thumbnails.get(file.tag)
        if cached is not None:
            return cached
        if not thumbnail:
            return await self._decode(file, thumbnail, client)
        task = self._rendering.get(file.tag)
        if task is None:  # requests for the same thumbnail wait for one another
            task = self._rendering[file.tag] = asyncio.create_task(self._thumbnail(file, client))
            task.add_done_callback(lambda done: self._rendered(file.tag, done))
        return await asyncio.shield(task)

    def _rendered(self, tag: str, task: asyncio.Task[EncodedImage]) -> None:
        self._rendering.pop(tag, None)
        if not task.cancelled():
            task.exception()  # retrieved, also if no client waits any more

    def close(self) -> None:
        """Drop the lookups that have not started."""
        for threads in (self._threads, self._fetching):
            threads.shutdown(wait=False, cancel_futures=True)

    async def _thumbnail(self, file: ImageFile, client: str) -> EncodedImage:
        """A thumbnail from the disk, or made and stored there."""
        loop = asyncio.get_running_loop()
        image = await loop.run_in_executor(self._threads, self._files.read, file.tag)
        if image is None:
            image = await self._decode(file, True, client)
            await loop.run_in_executor(self._threads, self._files.write, file.tag, image)
        if len(image.content) <= self._thumbnails.maxsize:
            self._thumbnails[file.tag] = image
        return image

    async def _decode(self, file: ImageFile, thumbnail: bool, client: str) -> EncodedImage:
        side = self._side(thumbnail)
        if file.place is None:
            return await self._pool.render_thumbnail(file.path, side, client)
        reading = asyncio.get_running_loop().run_in_executor(self._fetching, _fetch, file.place)
        content = await within(reading, self._settings.index_seconds)
        return await self._pool.render_thumbnail(file.path, side, client, content)

    def _side(self, thumbnail: bool) -> int:
        return self._settings.thumbnail_side if thumbnail else self._settings.image_side


def _locate(collection: Collection, given: Id, side: int) -> ImageFile | str:
    """The file of an item, or its address."""
    found = collection.find(given)
    if found is None:
        raise unknown_id()
    if collection.far.has(found[0].path):
        return str(found[0].path)
    path = collection.image_path(found[0])
    try:
        status = None if path is None else path.stat()
    except OSError:
        status = None
    if path is None or status is None:
        raise Problem(404, "no_image", "This item has no image.", _MOVED)
    return ImageFile(path, _tag(f"{path!r} {status.st_size} {status.st_mtime_ns} {side}"))


def _locate_far(collection: Collection, address: str, side: int) -> ImageFile:
    try:
        place = collection.far.find(address)
    except HadaHashError as error:
        raise Problem(404, "no_image", "This image cannot be fetched.", str(error)) from None
    key = f"{address!r} {place.size} {place.version} {side}"
    return ImageFile(Path(address), _tag(key), place)


def _fetch(place: Place) -> bytes:
    try:
        return place.read()
    except HadaHashError:
        hint = "The log of the storage may say why."
        raise Problem(404, "no_image", "This image cannot be fetched.", hint) from None


def _tag(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()[:32]
