"""Writing files so that a crash or a full disk leaves the old file or the new one, never a half."""

from __future__ import annotations

import errno
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from .errors import StorageError, UsageError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_REMEDIES = {
    errno.ENOSPC: "The disk is full: free some space or choose another place.",
    errno.EDQUOT: "The disk quota is used up: free some space or choose another place.",
    errno.EROFS: "The file system is read-only: choose another place.",
    errno.EACCES: "You may not write there: choose another place.",
    errno.EEXIST: "A file of that name is where a folder must be: choose another place.",
    errno.ENOTDIR: "Part of that path is a file, not a folder: choose another place.",
}


def storage_error(action: str, path: object, error: OSError) -> StorageError:
    remedy = _REMEDIES.get(error.errno or 0, "Check the path and try again.")
    return StorageError(f"Cannot {action} {path}: {error.strerror or error}. {remedy}")


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; when the block ends well it takes `path`'s place, otherwise it is removed.

    The file is flushed to the disk before the rename, and the rename is atomic. Errors of the operating system become
    a StorageError that names `path` and a remedy.
    """
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(
            prefix=f".{path.name[:40]}.", suffix=".part", dir=path.parent
        )
        os.close(handle)
    except OSError as error:
        raise storage_error("write", path, error) from error
    temporary = Path(name)
    try:
        yield temporary
        _flush(temporary)
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
        _flush(path.parent)
    except OSError as error:
        raise storage_error("write", path, error) from error
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()


def write_bytes(path: str | Path, content: bytes) -> None:
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def write_text(path: str | Path, text: str) -> None:
    write_bytes(path, text.encode())


def write_json(path: str | Path, value: object) -> None:
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def read_json(path: str | Path) -> Any:
    path = Path(path)
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise storage_error("read", path, error) from error
    except ValueError as error:
        raise StorageError(
            f"{path} is damaged (not valid JSON: {error}). Restore it or make it again."
        ) from error


def read_toml(path: Any) -> dict[str, Any]:
    """The content of a TOML file (a path or a packaged resource)."""
    try:
        content: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
        return content
    except OSError as error:
        raise storage_error("read", path, error) from error
    except ValueError as error:
        raise UsageError(
            f"{path} is not valid TOML: {error}. Write settings as name = value lines."
        ) from error


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
