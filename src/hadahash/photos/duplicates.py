"""Groups of files that show the same photo, with a memory of what the user has dismissed.

Two files are linked if they are equal, or if at most `threshold` bits of content and looks differ
together; the default is the rule of `same_photo.py`. Content bits alone confuse photos of the
same thing in the same pose, looks alone miss crops. Photos without looks, because their files are
gone, are left out; if none has looks, content bits alone are compared, with a smaller threshold.

In the folder of the index, duplicates.json keeps the last search, so that a smaller threshold needs
no new one, and dismissed.json the groups that are not shown again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import files
from ..errors import StorageError, UsageError
from ..index import Dismissed, DuplicateGroup, Duplicates, Index, find_duplicates
from ..index.storage.manifest import MANIFEST, checksum
from ..json_parts import json_parts
from .catalog import Catalog
from .item_files import ids_of_files
from .looks import codes_with_looks, read_photos, unread_photos
from .same_photo import compared_bits as own_bits
from .same_photo import compares_looks, same_photo_threshold

if TYPE_CHECKING:
    from ..codes import Codes
    from ..index.items import Id

LAST_SEARCH = "duplicates.json"
DISMISSED = "dismissed.json"
_HEAD = 4096  # bytes of the last search that have the state of the index

Progress = Callable[[int], object]


@dataclass(frozen=True)
class DuplicateFile:
    """A file of a group.

    Attributes:
        id: Its id in the index.
        path: The file; None if the index has no path.
        size: Its size in bytes; None if it is not known.
    """

    id: Id
    path: str | None
    size: int | None


class PhotoDuplicates:
    """The duplicates of an index in a folder.

    Args:
        folder: The folder of the index.
        dismissed: File with dismissed groups; by default dismissed.json in the folder.

    Attributes:
        index: The index.
        dismissed: The dismissed groups.

    Raises:
        StorageError: There is no index, or a file is damaged.
    """

    def __init__(self, folder: str | Path, *, dismissed: str | Path | None = None) -> None:
        self.folder = Path(folder)
        self._manifest = _content(self.folder / MANIFEST)  # before the index may change
        self.index = Index.open(folder)
        self._catalog = Catalog(self.folder)
        self._file = self.folder / DISMISSED if dismissed is None else Path(dismissed)
        self.dismissed = Dismissed.load(self._file)

    @property
    def compares_content(self) -> bool:
        """Whether bits are compared that tell photos apart, not only classes."""
        return own_bits(self.index) > 0

    @property
    def default_threshold(self) -> int:
        """The threshold of a search where none is given; 0 if only classes are told apart."""
        return same_photo_threshold(self.index, looks=self._codes is not None) or 0

    def unread(self) -> list[Path]:
        """The photos that `read` has to read before a search."""
        try:
            return unread_photos(self.index, self._catalog) if compares_looks(self.index) else []
        except StorageError:  # a read-only folder of an earlier version
            return []

    def read(self, photos: list[Path], progress: Progress | None = None) -> int:
        """Read what photos look like and store it, once for each photo.

        Args:
            photos: The result of `unread`.
            progress: Called with the number of photos read since the last call.

        Returns:
            Number of photos that could not be read.
        """
        self.__dict__.pop("_codes", None)
        return read_photos(self._catalog, photos, progress)

    @cached_property
    def _codes(self) -> Codes | None:
        """Content bits and looks; None if only the content bits are compared."""
        try:
            return codes_with_looks(self.index, self._catalog)
        except StorageError:
            return None

    def find(self, threshold: int | None = None, *, progress: Progress | None = None) -> Duplicates:
        """Find the groups that were not dismissed. Call `read` first.

        Args:
            threshold: Maximum distance of two linked files.
            progress: Called with the number of items processed since the last call.

        Returns:
            The groups, the largest first.

        Raises:
            UsageError: The threshold is not an integer >= 0.
        """
        threshold = self.default_threshold if threshold is None else threshold
        equal = self._catalog.equal_files()
        state = self._state(equal)
        last = self._last_search(state)
        if last is None or not 0 <= threshold <= last.threshold:
            compared = self.index if self._codes is None else Index.build(self._codes)
            last = find_duplicates(
                compared,
                threshold,
                same=self._equal_files(compared, equal),
                dismissed=self.dismissed,
                progress=progress,
            )
            self._remember(last, state)
        return last.rethreshold(min(threshold, last.threshold))

    def dismiss(self, group: DuplicateGroup) -> None:
        """Do not show a group again.

        Args:
            group: The group.

        Raises:
            StorageError: The list of dismissed groups cannot be written.
        """
        self.dismissed = Dismissed.append(self._file, group.ids)

    def files(self, group: DuplicateGroup) -> list[DuplicateFile]:
        """The files of a group with their sizes.

        Args:
            group: The group.

        Returns:
            One entry per id, in their order.
        """
        items = self.index.get(list(group.ids))
        return [DuplicateFile(each.id, each.path, _size(each.path)) for each in items]

    def are_equal(self, group: DuplicateGroup) -> bool:
        """Whether all items of a group are files that are known to have the same content."""
        known = len(ids_of_files(self.index, map(str, group.ids))) == len(group)
        digests = self._catalog.digests(group.ids) if known else {None}
        return len(digests) == 1 and None not in digests

    def _equal_files(self, index: Index, groups: list[list[str]]) -> list[list[str]]:
        groups = groups if index.id_type is str else []
        flat = [each for group in groups for each in group]
        compared = [each for each, there in zip(flat, index.has(flat), strict=True) if there]
        known = ids_of_files(self.index, compared)
        kept = ([each for each in group if each in known] for group in groups)
        return [group for group in kept if len(group) > 1]

    def _state(self, equal: list[list[str]]) -> str | None:
        """Identifies the content of the index; None for engines that others can change."""
        if self.index.engine == "milvus":
            return None
        found = hashlib.sha256(self._manifest)
        if self._codes is not None:  # of photos whose looks are known
            for part in json_parts(self._codes.ids.tolist()):
                found.update(part.encode())
            found.update(self._codes.content.tobytes() if self._codes.content is not None else b"")
        for part in json_parts(equal):
            found.update(part.encode())
        return found.hexdigest()

    def _last_search(self, state: str | None) -> Duplicates | None:
        path = self.folder / LAST_SEARCH
        if state is None or not _begins_with(path, state):  # reading all of it takes long
            return None
        try:
            stored = files.read_json(path)
            if stored["state"] == state and stored["crc32"] == checksum(stored):
                last = Duplicates.from_dict(stored["duplicates"], self.dismissed)
                return last if last.bits == self.compared_bits else None
        except (KeyError, TypeError, StorageError, UsageError):  # damaged: search again
            pass
        return None

    @property
    def compared_bits(self) -> int:
        """The number of bits that `find` compares."""
        if self._codes is not None:
            return self._codes.content_bits
        return self.index.content_bits or self.index.bits

    def _remember(self, found: Duplicates, state: str | None) -> None:
        if state is None:
            return
        content: dict[str, Any] = {"state": state, "duplicates": found.to_dict()}
        content["crc32"] = checksum(content)
        try:
            with (
                files.replacing(self.folder / LAST_SEARCH) as temporary,
                temporary.open("w", encoding="utf-8") as file,
            ):
                file.writelines(json_parts(content))
        except StorageError:  # a read-only folder: the next search takes as long as this one
            pass


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""  # opening the index says what is wrong


def _begins_with(path: Path, state: str) -> bool:
    """Whether the first value of the last search is this state."""
    try:
        with files.require_regular(path).open("rb") as file:
            return state.encode() in file.read(_HEAD)
    except (OSError, StorageError):
        return False


def _size(path: str | None) -> int | None:
    try:
        return None if path is None else Path(path).stat().st_size
    except OSError:
        return None
