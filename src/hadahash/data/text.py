"""The text files of data sets: read whole, as UTF-8, or refused with the line that is not."""

from __future__ import annotations

from pathlib import Path

from .. import files
from ..errors import DataError

AGAIN = "Get the data set's files again."


def read_text(path: Path, *, remedy: str = AGAIN) -> str:
    """The text of a file; `remedy` tells what to do with one that is not in UTF-8."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise files.storage_error("read", path, error) from error
    return decode(content, path, remedy=remedy)


def decode(content: bytes, path: Path, *, remedy: str = AGAIN) -> str:
    """UTF-8, with or without the mark that Windows puts before it; every line ends in a line feed.

    >>> decode(b"a\\r\\nb\\rc", Path("x.txt"))
    'a\\nb\\nc'
    """
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start]
        line = before.count(b"\n") + 1
        raise DataError(
            f"{path} line {line}: not UTF-8 text (byte {content[error.start]:#04x}). {remedy}"
        ) from None
    return text.replace("\r\n", "\n").replace("\r", "\n")
