"""Digests of the content of images, to recognize them under any name."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np

from .base import ArrayImages, FileImages, Images, MemoryImages, Rows
from .remote.place import Place

_BLOCK = 1 << 20


@runtime_checkable
class Digested(Protocol):
    """Images that know their digests."""

    def digest(self, index: int, /) -> bytes:
        """Return the sha256 of one image's content, or empty bytes."""
        ...


class DigestedPixels(ArrayImages):
    """Images of one size in memory whose features the cache on disk keeps."""

    def take(self, indices: Rows) -> DigestedPixels:
        """Return the images with these indices, in this order."""
        return DigestedPixels(self.pixels[indices])

    def digest(self, index: int) -> bytes:
        """Return the sha256 of one image's size and pixels."""
        pixels = np.ascontiguousarray(self.pixels[index])
        return hashlib.sha256(repr(pixels.shape).encode() + pixels.tobytes()).digest()


def has_digests(images: Images) -> bool:
    """Return whether the images are files, bytes of files, or know their digests."""
    if isinstance(images, MemoryImages):
        return any(isinstance(item, bytes) for item in images.items)
    return isinstance(images, (FileImages, Digested))


def content_digest(images: Images, index: int) -> bytes:
    """Return the sha256 of an image's file.

    Args:
        images: The images.
        index: Which one.

    Returns:
        32 bytes; empty for pixels and for a file that cannot be read.
    """
    if isinstance(images, FileImages):
        return file_digest(images.paths[index])
    if isinstance(images, MemoryImages):
        item = images.items[index]
        return hashlib.sha256(item).digest() if isinstance(item, bytes) else b""
    return images.digest(index) if isinstance(images, Digested) else b""


def file_digest(path: Path | Place) -> bytes:
    """Return the sha256 of a file's content.

    Args:
        path: The file, or the place of an image that is no local file.

    Returns:
        32 bytes, or empty bytes if it is not a regular file or cannot be read.
    """
    if isinstance(path, Place):
        return path.digest()
    digest = hashlib.sha256()
    try:
        if not path.is_file():  # reading a pipe would never end
            return b""
        with path.open("rb") as file:
            while block := file.read(_BLOCK):
                digest.update(block)
    except (OSError, ValueError):  # ValueError: a NUL in the name
        return b""
    return digest.digest()
