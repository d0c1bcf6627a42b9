"""Content digests of image files, computed while the files are decoded."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from .catalog import FileStat

if TYPE_CHECKING:
    from typing import BinaryIO

    import numpy as np
    from numpy.typing import NDArray

    from ..data.remote import Place
    from ..data.squares import Reduced
    from .scan import Photo

T = TypeVar("T")

NO_STAT = FileStat(-1, -1)
_STEP = 1000  # files between two calls of `progress`


class DigestingImages:
    """Images in files; reading one also records its digest, so that each file is read once.

    Args:
        paths: One file, or place, per image.

    Attributes:
        paths: One file, or place, per image.
        records: Size and time (taken before reading) and sha256 of each file that was read.
        looks: What each decoded image looks like, by sha256; see `hadahash.data.appearance`.
    """

    def __init__(self, paths: Sequence[Path | Place]) -> None:
        self.paths = paths
        self.records: dict[Path | Place, tuple[FileStat, bytes]] = {}
        self.looks: dict[bytes, bytes] = {}

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def threads(self) -> int:
        """How many images are best read at once; 0: as many as there are cores."""
        from ..data.remote.images import threads_for

        return threads_for(self.paths)

    def __getitem__(self, index: int) -> NDArray[np.uint8]:
        from ..data.images import open_image

        return self._open(index, open_image)

    def read_reduced(self, index: int, side: int) -> Reduced:
        """Return one image, decoded as small as a result of `side` pixels allows."""
        from ..data.appearance import appearance_bits
        from ..data.images import open_reduced

        image = self._open(index, lambda source: open_reduced(source, side))
        digest = self.records[self.paths[index]][1]
        if digest:
            self.looks[digest] = appearance_bits(image)
        return image

    def _open(self, index: int, decode: Callable[[Any], T]) -> T:
        """Decode an image and record its digest."""
        path = self.paths[index]
        self.records[path] = file_stat(path), b""
        if not isinstance(path, Path):
            try:
                return decode(path)
            finally:
                self.records[path] = self.records[path][0], path.seen
        if not path.is_file():  # reading a pipe would never end
            return decode(path)  # raises with the reason
        try:
            file = path.open("rb")
        except OSError:
            return decode(path)
        with file:
            stream = _DigestingStream(file)  # only its `read` is called
            try:
                return decode(stream)
            finally:
                self.records[path] = self.records[path][0], stream.digest.digest()

    def digest(self, index: int) -> bytes:
        """Return the sha256 of one file, and record it."""
        from ..data.contents import file_digest

        path = self.paths[index]
        stat = file_stat(path)
        self.records[path] = stat, file_digest(path)
        return self.records[path][1]

    def take(self, indices: NDArray[Any]) -> DigestingImages:
        """Return the images with these indices, which share the records."""
        part = DigestingImages([self.paths[int(index)] for index in indices])
        part.records, part.looks = self.records, self.looks
        return part


class _DigestingStream:
    """A file that is hashed as it is read."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.digest = hashlib.sha256()
        self.name = file.name

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self.digest.update(data)
        return data


def file_stat(path: Path | Place) -> FileStat:
    """Return size and modification time of a file, or `NO_STAT` if there is none.

    Args:
        path: The file, or the place of an image that is no local file.

    Returns:
        Size and modification time; of a place, a number that changes with its version.
    """
    if not isinstance(path, Path):
        return FileStat(-1 if path.size is None else path.size, path.stamp)
    try:
        status = os.stat(path)  # noqa: PTH116 - a quarter of the time of Path.stat, for every file
    except OSError:
        return NO_STAT
    return FileStat(status.st_size, status.st_mtime_ns)


def with_stats(
    photos: Sequence[Photo], progress: Callable[[int], object] | None = None
) -> Iterator[tuple[Photo, FileStat]]:
    """Yield photos with their size and time, one after the other: there may be millions.

    Args:
        photos: The photos.
        progress: Called now and then with the number of photos since the last call.

    Yields:
        Each photo and the result of `file_stat`.
    """
    for number, photo in enumerate(photos, 1):
        yield photo, file_stat(photo.file)
        if progress is not None and (number % _STEP == 0 or number == len(photos)):
            progress((number - 1) % _STEP + 1)
