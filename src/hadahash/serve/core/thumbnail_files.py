"""Thumbnails on disk, so that each is made once. The folder is limited in size.

A file has a header with its checksum: what a crash or a full disk left behind is not sent, and is
made again. Several processes can use one folder.
"""

from __future__ import annotations

import logging
import struct
import zlib
from pathlib import Path

from ...bounded_folder import BoundedFolder
from .decode_pool import EncodedImage

LOG = logging.getLogger(__name__)
_HEADER = struct.Struct(">4sBI")  # magic, media type, CRC-32 of the content
_MAGIC = b"HHT1"
_TYPES = ("image/jpeg", "image/png")
_BLOCK = 4096  # a file takes whole blocks of the disk


class ThumbnailFiles:
    """A folder of thumbnails. Errors of the disk are logged once; then nothing is stored.

    Args:
        folder: The folder; it is created on first use, for this user only.
        limit: Largest size of all files in bytes; 0: nothing is stored.
    """

    def __init__(self, folder: Path, limit: int) -> None:
        self._files = BoundedFolder(folder, limit, block=_BLOCK)
        self._failed = limit == 0

    def read(self, tag: str) -> EncodedImage | None:
        """Return a thumbnail, or None if it is not stored.

        Args:
            tag: Its key, hexadecimal digits.
        """
        if self._files.limit == 0:
            return None
        name = _name(tag)
        try:
            data = self._files.path(name).read_bytes()
        except OSError:
            return None
        if len(data) < _HEADER.size:
            return None
        magic, kind, crc32 = _HEADER.unpack_from(data)
        content = data[_HEADER.size :]
        if magic != _MAGIC or kind >= len(_TYPES) or zlib.crc32(content) != crc32:
            return None
        self._files.touch(name)  # the files used last are kept
        return EncodedImage(content, _TYPES[kind])

    def write(self, tag: str, image: EncodedImage) -> None:
        """Store a thumbnail.

        Args:
            tag: Its key, hexadecimal digits.
            image: The thumbnail.
        """
        if self._failed:
            return
        header = _HEADER.pack(_MAGIC, _TYPES.index(image.type), zlib.crc32(image.content))
        try:
            self._files.write(_name(tag), header + image.content)
        except OSError as error:
            self._failed = True
            LOG.warning("Thumbnails are not kept on disk: %s", error)

    def size(self) -> int:
        """Return the size of all files in bytes, in whole blocks."""
        return self._files.size()


def _name(tag: str) -> str:
    return f"{tag[:2]}/{tag}"
