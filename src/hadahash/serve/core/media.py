"""Images and thumbnails of the collection."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path
from typing import NamedTuple

from cachetools import LRUCache

from ..problem import Problem, unknown_id
from ..settings import ServeSettings
from .collection import Collection
from .decode_pool import DecodePool, EncodedImage
from .names import Id


class ImageFile(NamedTuple):
    """A file of the collection and its identity: the tag changes when the file does."""

    path: Path
    tag: str


class Media:
    """Renders images and caches thumbnails in memory.

    Args:
        pool: Decoder processes.
        settings: Limits of the service.
    """

    def __init__(self, pool: DecodePool, settings: ServeSettings) -> None:
        self._pool, self._settings = pool, settings
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
        return await asyncio.to_thread(_locate, collection, given, self._side(thumbnail))

    async def render(self, file: ImageFile, *, thumbnail: bool) -> EncodedImage:
        """Return the image of a file without metadata.

        Args:
            file: The file.
            thumbnail: Whether to return the thumbnail instead of the image.

        Returns:
            A JPEG or PNG.

        Raises:
            Problem: If the file cannot be decoded.
        """
        cached = self._thumbnails.get(file.tag)
        if cached is not None:
            return cached
        image = await self._pool.render_thumbnail(file.path, self._side(thumbnail))
        if thumbnail and len(image.content) <= self._thumbnails.maxsize:
            self._thumbnails[file.tag] = image
        return image

    def _side(self, thumbnail: bool) -> int:
        return self._settings.thumbnail_side if thumbnail else self._settings.image_side


def _locate(collection: Collection, given: Id, side: int) -> ImageFile:
    found = collection.find(given)
    if found is None:
        raise unknown_id()
    path = collection.image_path(found[0])
    try:
        status = None if path is None else path.stat()
    except OSError:
        status = None
    if path is None or status is None:
        hint = "If the images were moved, start the service with --images FOLDER."
        raise Problem(404, "no_image", "This item has no image.", hint)
    key = f"{path!r} {status.st_size} {status.st_mtime_ns} {side}"
    return ImageFile(path, hashlib.sha256(key.encode()).hexdigest()[:32])
