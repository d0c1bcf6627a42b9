"""Text files of data sets: must be UTF-8; errors name the line."""

from __future__ import annotations

from pathlib import Path

from .. import files
from ..errors import DataError

AGAIN = "Download the data set again."


def read_text(path: Path, *, remedy: str = AGAIN) -> str:
    """Read a text file.

    Args:
        path: The file.
        remedy: What to do with a file that is not UTF-8.

    Returns:
        Its text; every line ends in a line feed.

    Raises:
        StorageError: The file cannot be read.
        DataError: The file is not UTF-8.
    """
    files.require_regular(path)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise files.storage_error("read", path, error) from error
    return decode(content, path, remedy=remedy)


def decode(content: bytes, path: Path, *, remedy: str = AGAIN) -> str:
    r"""Decode UTF-8, with or without a byte order mark.

    Args:
        content: The bytes of the file.
        path: The file, for messages.
        remedy: What to do with a file that is not UTF-8.

    Returns:
        The text; every line ends in a line feed.

    Raises:
        DataError: The content is not UTF-8.

    Example:
        >>> decode(b"a\r\nb\rc", Path("x.txt"))
        'a\nb\nc'
    """
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start]
        line = before.count(b"\n") + 1
        byte = content[error.start]
        raise DataError(f"{path} line {line}: not UTF-8 (byte {byte:#04x}). {remedy}") from None
    return text.replace("\r\n", "\n").replace("\r", "\n")
