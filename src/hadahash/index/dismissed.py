"""Groups of duplicates that a user has dismissed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from .. import files
from ..errors import NewerFileError, StorageError, UsageError
from .items import Id
from .storage.manifest import checksum

_FORMAT = 1


def group_key(ids: Iterable[Id]) -> str:
    """Identify a group by its ids.

    Args:
        ids: The ids of all items, in any order.

    Returns:
        64 hexadecimal digits.
    """
    return hashlib.sha256(json.dumps(_in_order(ids)).encode()).hexdigest()


class Dismissed:
    """Groups of items that are not reported again as duplicates.

    A found group is left out if all its items were dismissed together. With a further item it is
    reported again.

    >>> dismissed = Dismissed([["a", "b", "c"]])
    >>> dismissed.covers(["c", "a"]), dismissed.covers(["a", "d"])
    (True, False)
    """

    def __init__(self, groups: Iterable[Iterable[Id]] = ()) -> None:
        """Dismiss groups.

        Args:
            groups: Groups of ids, or pairs.

        Raises:
            UsageError: A group has fewer than two ids.
        """
        self._groups: list[frozenset[Id]] = []
        self._by_id: dict[Id, set[int]] = {}
        self._keys: set[str] = set()  # of the first groups, as many as were asked for
        for group in groups:
            self.add(group)

    def __len__(self) -> int:
        """Number of dismissed groups."""
        return len(self._groups)

    def __iter__(self) -> Iterator[frozenset[Id]]:
        """The dismissed groups."""
        return iter(self._groups)

    def add(self, ids: Iterable[Id]) -> None:
        """Dismiss a group.

        Args:
            ids: Two or more ids.

        Raises:
            UsageError: There are fewer than two ids.
        """
        group = frozenset(ids)
        if len(group) < 2:
            raise UsageError(f"A dismissed group needs two or more ids, got {sorted(group)}.")
        if not self.covers(group):
            for each in group:
                self._by_id.setdefault(each, set()).add(len(self._groups))
            self._groups.append(group)

    def covers(self, ids: Iterable[Id]) -> bool:
        """Whether all these items were dismissed together."""
        together: set[int] | None = None
        for each in ids:
            known = self._by_id.get(each, set())
            together = known if together is None else together & known
            if not together:
                return False
        return together is not None

    def has_key(self, key: str) -> bool:
        """Whether a group with this `group_key` was dismissed. Each group is hashed only once.

        Args:
            key: The key of a group.

        Returns:
            Whether it was dismissed.
        """
        self._keys.update(map(group_key, self._groups[len(self._keys) :]))
        return key in self._keys

    def save(self, path: str | Path) -> None:
        """Write the groups as JSON, atomically.

        Args:
            path: The file.

        Raises:
            StorageError: The file cannot be written.
        """
        content = {"format": _FORMAT, "groups": [_in_order(group) for group in self]}
        files.write_json(Path(path), content | {"crc32": checksum(content)})

    @classmethod
    def append(cls, path: str | Path, ids: Iterable[Id]) -> Dismissed:
        """Add a group to a file that other processes may change at the same time.

        Args:
            path: The file.
            ids: Two or more ids.

        Returns:
            All dismissed groups.

        Raises:
            UsageError: There are fewer than two ids.
            StorageError: The file cannot be read or written.
        """
        with files.exclusive(Path(path).parent):
            found = cls.load(path)
            found.add(ids)
            found.save(path)
        return found

    @classmethod
    def load(cls, path: str | Path) -> Dismissed:
        """Read the groups that `save` wrote.

        Args:
            path: The file. If there is none, nothing was dismissed.

        Returns:
            The groups.

        Raises:
            StorageError: The file cannot be read or is damaged.
        """
        path = Path(path)
        if not path.exists():
            return cls()
        stored = files.read_json(path)
        if isinstance(stored, dict) and isinstance(stored.get("format"), int):
            if stored["format"] > _FORMAT:
                raise NewerFileError(
                    f"{path} was written by a later version of hadahash. "
                    "Update with: pip install -U hadahash"
                )
            if stored.get("crc32", checksum(stored)) != checksum(stored):  # earlier files have none
                raise StorageError(
                    f"{path} is damaged (its checksum differs). Remove or restore it."
                )
            try:
                return cls([_checked(group) for group in stored["groups"]])
            except (KeyError, TypeError, ValueError, UsageError):
                pass
        raise StorageError(f"{path} is not a list of dismissed groups. Remove or restore it.")


def _in_order(ids: Iterable[Id]) -> list[Id]:
    return sorted(ids, key=lambda each: (str(type(each)), each))


def _checked(group: list[Id]) -> list[Id]:
    if not isinstance(group, list) or any(type(each) not in (int, str) for each in group):
        raise ValueError("not a list of ids")
    return group
