"""Images of a collection that are at addresses, such as s3://bucket/photos/cat.jpg.

Only images below the addresses that were indexed are fetched, and none through an address of this
machine. Images in .tar and .parquet files are not shown: finding one means listing the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...data.remote import Place

_HERE = ("file", "local")
_SHARDS = (".tar/", ".parquet/")


class FarImages:
    """The addresses that a collection was made from.

    Args:
        roots: Folders and addresses of the images.
    """

    def __init__(self, roots: Sequence[Path]) -> None:
        addresses = (address_of(root) for root in roots)
        self._prefixes = tuple(f"{each.rstrip('/')}/" for each in addresses if each is not None)

    def has(self, path: str | None) -> bool:
        """Return whether an image may be fetched from this path of an item."""
        if path is None or not self._prefixes or not path.startswith(self._prefixes):
            return False
        inside = PurePosixPath(path).parts
        return ".." not in inside and not any(each in path.lower() for each in _SHARDS)

    def find(self, path: str) -> Place:
        """Return where an image is; one that does not exist is reported when it is read.

        Args:
            path: The path of an item, for which `has` is true.

        Returns:
            The place.

        Raises:
            UsageError: A package is missing.
        """
        from ...data.remote import find_places

        (place,) = find_places([path])
        return place


def address_of(root: Path) -> str | None:
    """Return the address of images; None for a folder and for an archive of this machine.

    >>> address_of(Path("s3://bucket/x")), address_of(Path("zip://::a.zip")), address_of(Path("x"))
    ('s3://bucket/x', None, None)
    """
    if ":" not in str(root):  # the imports below take a while
        return None
    from ...data.remote.address import is_address, shown

    parts = shown(root).split("::")
    far = all(is_address(each) and each.partition(":")[0] not in _HERE for each in parts)
    return shown(root) if far else None
