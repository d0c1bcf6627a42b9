"""Groups of files that show the same photo, with a memory of what the user has dismissed.

Two files are linked if their content bits differ in at most `threshold` bits, or if the files are
equal. In the folder of the index, `duplicates.json` keeps the links of the last search, so that a
smaller threshold needs no new search, and `dismissed.json` the groups that are not shown again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    pass

LINKS = "duplicates.json"
DISMISSED = "dismissed.json"
_SAME_PHOTO = 0.125  # fraction of the content bits; see docs/duplicates.md


def default_threshold(bits: int) -> int:
    """The number of differing content bits up to which two files count as one photo.

    Args:
        bits: Number of content bits.

    Returns:
        The threshold.

    Example:
        >>> default_threshold(128), default_threshold(64)
        (16, 8)
    """
    return int(_SAME_PHOTO * bits)
