"""Addresses: `s3://bucket/photos`, `zip://::photos.zip`, `photos.tar`, `data/train-*.parquet`."""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from ...errors import DataError, HadaHashError, MissingExtraError, UsageError, install_command

SHARDS = (".tar", ".parquet")

_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+(://|::)")
_ONE_SLASH = re.compile(r"(^|::)([A-Za-z][A-Za-z0-9+.-]+):/(?!/)")
_MAGIC = re.compile(r"[*?\[]")
_LOCAL = frozenset(("file", "local", "memory"))
_PACKAGES = {
    "s3": "s3fs",
    "s3a": "s3fs",
    "gs": "gcsfs",
    "gcs": "gcsfs",
    "hf": "huggingface_hub",
    "az": "adlfs",
    "abfs": "adlfs",
    "http": "aiohttp",
    "https": "aiohttp",
    "sftp": "paramiko",
    "webhdfs": "requests",
}
_EXTRAS = {"s3fs": "s3", "huggingface_hub": "hf"}  # of hadahash, by package


class Storage(NamedTuple):
    """A file system and the place in it that an address names.

    Attributes:
        files: The file system, of fsspec.
        path: The path in it; it may contain wildcards.
        address: The address, for messages.
        far: Whether reading goes over a network, so that a copy on disk is worth keeping.
    """

    files: Any
    path: str
    address: str
    far: bool


def is_address(source: Any) -> bool:
    """Return whether a source is text such as `s3://bucket/photos`.

    >>> is_address("s3://bucket/photos"), is_address("zip::photos.zip"), is_address("C:/photos")
    (True, True, False)
    """
    return isinstance(source, str) and _ADDRESS.match(source) is not None


def shown(path: str | os.PathLike[str]) -> str:
    """Return the text of a path; of an address, with the two slashes that a `Path` makes one.

    >>> shown(Path("s3://bucket/photos")), shown(Path("zip://a::s3://b/c.zip"))
    ('s3://bucket/photos', 'zip://a::s3://b/c.zip')
    """
    return _ONE_SLASH.sub(r"\1\2://", os.fspath(path))


def is_stored(source: Any) -> bool:
    """Return whether images are elsewhere than in files of their own on this machine.

    Args:
        source: Anything.

    Returns:
        True for an address, a .zip or .tar file, a .parquet file with images in a column, and a
        pattern of .tar or .parquet files.
    """
    if is_address(source):
        return True
    if not isinstance(source, (str, os.PathLike)):
        return False
    text = os.fspath(source)
    suffix = PurePosixPath(text).suffix.lower()
    if not os.path.isfile(text):  # noqa: PTH113 (a NUL in the name)
        return suffix in SHARDS and bool(_MAGIC.search(text)) and not os.path.lexists(text)
    return suffix in (".zip", ".tar") or (suffix == ".parquet" and _has_images(Path(text)))


def _has_images(path: Path) -> bool:
    """Whether a local parquet file has a column of images."""
    from .shards import image_column

    try:
        import pyarrow.parquet

        with pyarrow.parquet.ParquetFile(path) as file:
            return image_column(file.schema_arrow) is not None
    except Exception:  # not a parquet file, or no pyarrow: the reader of tables says so
        return False


def full_address(source: str | os.PathLike[str]) -> str:
    """Return the address of stored images; an archive is entered.

    Args:
        source: An address, or the path of a local archive, shard or pattern.

    Returns:
        The address; a local path is absolute.
    """
    text = os.fspath(source)
    if not is_address(text):
        text = os.path.abspath(text)  # noqa: PTH100 (it may be a pattern)
    if PurePosixPath(text).suffix.lower() == ".zip" and not text.startswith("zip:"):
        return f"zip://::{text}"
    return text.removeprefix("tar://::")


def open_storage(source: str | os.PathLike[str]) -> Storage:
    """Open the file system of an address.

    Args:
        source: An address, or the path of a local archive, shard or pattern.

    Returns:
        The file system and the path in it.

    Raises:
        MissingExtraError: fsspec is not installed.
        UsageError: A package for addresses of this kind is not installed, or the kind is unknown.
        DataError: An archive cannot be opened.
    """
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise MissingExtraError("fsspec", "remote") from None
    address = full_address(source)
    try:
        files, path = url_to_fs(address)
        far = _is_far(files)
    except ImportError as error:
        raise _missing(address, error) from error
    except HadaHashError:
        raise
    except Exception as error:
        if "Protocol not known" in str(error):
            known = ", ".join(f"{name}://" for name in ("s3", "gs", "hf", "zip", "memory"))
            raise UsageError(f"Unknown kind of address '{address}'. Known: {known}.") from error
        raise unreadable(address, error) from error
    return Storage(files, path, address, far)


def has_wildcards(path: str) -> bool:
    """Return whether a path is a pattern."""
    return _MAGIC.search(path) is not None


def unreadable(address: object, error: BaseException) -> DataError:
    """Return the error for an address that cannot be listed or opened."""
    kinds = {part.partition("://")[0] for part in str(address).split("::") if "://" in part}
    local = kinds <= {"file", "local", "zip", "tar"}
    hint = "Is the file complete?" if local else "Check the address and the credentials."
    return DataError(f"Cannot read {address}: {reason_of(error)}. {hint}")


def reason_of(error: BaseException) -> str:
    """Return the reason of an error in one line, without a period at its end."""
    if isinstance(error, FileNotFoundError):
        connecting = isinstance(error.__cause__, OSError)  # how fsspec reports it for http
        return "it cannot be reached" if connecting else "it does not exist"
    text = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return " ".join((text or type(error).__name__).split()).rstrip(".")


def _is_far(files: Any) -> bool:
    options = getattr(files, "storage_options", {})
    kinds = files.protocol if isinstance(files.protocol, (tuple, list)) else (files.protocol,)
    return options.get("target_protocol", kinds[0]) not in _LOCAL and kinds[0] not in _LOCAL


def _missing(address: str, error: ImportError) -> UsageError:
    kinds = [kind.partition(":")[0] for kind in re.split(r"::", address)]
    kind = next((kind for kind in kinds if kind in _PACKAGES), kinds[0])
    package = _PACKAGES.get(kind)
    if package is None:
        return UsageError(f"Addresses {kind}:// need a package: {reason_of(error)}.")
    extra = _EXTRAS.get(package)
    command = f"pip install {package}" if extra is None else install_command(extra)
    return UsageError(
        f"Addresses {kind}:// need the package {package}, which is not installed. "
        f"Install it with: {command}"
    )
