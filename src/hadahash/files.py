"""Atomic file writing and checked reading.

After a crash or on a full disk, a file has its old or its new content, never a mixture.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import stat
import sys
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from .errors import StorageError, UsageError, from_os_error

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None  # type: ignore[assignment]

# What reading a damaged or hostile .npz or .npy file can raise.
ARCHIVE_ERRORS = (
    OSError,
    KeyError,
    TypeError,
    ValueError,
    IndexError,
    AttributeError,
    EOFError,
    RuntimeError,
    MemoryError,
    OverflowError,
    SyntaxError,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)

storage_error = from_os_error


def stamp(path: str | Path) -> tuple[int, int, int] | None:
    """Return a value that changes when a file changes; None if there is no such file.

    Args:
        path: The file.
    """
    try:
        status = os.stat(path)  # noqa: PTH116 (faster than Path.stat)
    except (OSError, ValueError):  # ValueError: a NUL in the name
        return None
    return status.st_mtime_ns, status.st_ino, status.st_size


@contextmanager
def replacing(path: str | Path, *, flush_folder: bool = True) -> Iterator[Path]:
    """Yield a temporary path next to `path` that replaces it when the block succeeds.

    The temporary file is flushed to disk before the atomic rename; new parent folders are flushed
    too. If the block fails, the temporary file is removed and `path` is unchanged. A symbolic link
    at `path` is followed.

    Args:
        path: The file to write.
        flush_folder: Flush the name of the file, too. Without it, a power cut can lose the whole
            file until the caller flushes its folder, which can be once for several files.

    Yields:
        Path of an empty temporary file to write to.

    Raises:
        StorageError: The operating system refused; names `path` and a remedy.
    """
    path = Path(path)
    try:
        path = _follow(path)
        make_folder(path.parent)
        temporary = _new_file(path)
    except OSError as error:
        raise from_os_error("write", path, error) from error
    try:
        yield temporary
        flush(temporary)
        temporary.replace(path)
        if flush_folder:
            flush(path.parent)
    except OSError as error:
        raise from_os_error("write", path, error) from error
    finally:
        with suppress(OSError):
            temporary.unlink()


def _follow(path: Path) -> Path:
    """The file that a symbolic link leads to; other paths as they are."""
    if not path.is_symlink():
        return path
    target = Path(os.path.realpath(path))
    if target.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    return target


def _new_file(path: Path) -> Path:
    """An empty file with a new name next to `path`; the kernel applies the umask."""
    while True:
        temporary = path.with_name(f".{path.name[:40]}.{secrets.token_hex(4)}.part")
        with suppress(FileExistsError):
            os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
            return temporary


def make_folder(folder: Path) -> None:
    """Create a folder with its parents and flush each new one, so a power cut cannot lose it."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    flush(folder.parent)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a folder for writing; it is created if it does not exist.

    The lock is released when the process ends, even if it is killed. On file systems without locks,
    none is taken.

    Args:
        folder: The folder.

    Raises:
        UsageError: Another process holds the lock.
        StorageError: The folder cannot be written.
    """
    try:
        make_folder(folder)
        handle = os.open(folder / ".lock", os.O_CREAT | os.O_RDWR, 0o666)
    except OSError as error:
        raise from_os_error("write", folder, error) from error
    try:
        _lock(handle, folder)
        yield
    finally:
        os.close(handle)


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Wait until no other process or thread is inside; for short changes of files in a folder.

    It does not exclude `locked`. On file systems without locks, none is taken.

    Args:
        folder: The folder; it is created if it does not exist.

    Raises:
        StorageError: The folder cannot be opened.
    """
    try:
        make_folder(folder)
        handle = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise from_os_error("write", folder, error) from error
    try:
        if fcntl is not None:
            with suppress(OSError):  # the file system has no locks
                fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _lock(handle: int, folder: Path) -> None:
    if fcntl is None:
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UsageError(
            f"Another process is writing to {folder}. Wait for it, or choose another folder."
        ) from None
    except OSError:  # the file system has no locks
        return


def write_bytes(path: str | Path, content: bytes) -> None:
    """Replace the content of a file atomically."""
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def write_text(path: str | Path, text: str) -> None:
    """Replace the content of a file with UTF-8 text atomically."""
    write_bytes(path, text.encode())


def write_json(path: str | Path, value: object) -> None:
    """Replace a file with `value` as ASCII JSON, so that names that are not valid UTF-8 survive."""
    write_text(path, json.dumps(value, indent=2) + "\n")


def require_regular(path: str | Path) -> Path:
    """Refuse pipes, devices and folders, which would hang or never end when read.

    Args:
        path: The file to be read.

    Returns:
        The path.

    Raises:
        StorageError: It does not exist, is not a regular file, or cannot be examined.
    """
    path = Path(path)
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise from_os_error("read", path, error) from error
    if stat.S_ISDIR(mode):
        raise from_os_error("read", path, IsADirectoryError(errno.EISDIR, "Is a directory"))
    if not stat.S_ISREG(mode):
        raise StorageError(f"Cannot read {path}: it is a pipe or a device. Give a regular file.")
    return path


def read_json(path: str | Path) -> Any:
    """The content of a JSON file.

    Raises:
        StorageError: The file cannot be read or is not valid JSON.
    """
    path = require_regular(path)
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise from_os_error("read", path, error) from error
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else error
        raise StorageError(
            f"{path} is damaged (not valid JSON: {reason}). Restore it or create it again."
        ) from error


def read_checked(
    path: str | Path, shape: Any, remedy: str = "Restore it or create it again."
) -> Any:
    """The content of a JSON file whose values must be of certain kinds.

    Args:
        path: The file.
        shape: A type, a tuple of types, [shape] for a list, or {name: shape} for an object with
            at least these values.
        remedy: Last sentence of the error.

    Raises:
        StorageError: The file cannot be read, is not valid JSON, or has other values.
    """
    content = read_json(path)
    problem = _misfit(content, shape, "it")
    if problem is not None:
        raise StorageError(f"{path} is damaged ({problem}). {remedy}")
    return content


def _misfit(value: Any, shape: Any, name: str) -> str | None:
    """What is wrong with a value; None if it has the shape.

    >>> _misfit({"ids": ["a", 2.5]}, {"ids": [(int, str)]}, "it")
    "a value of 'ids' is not int or str"
    """
    if isinstance(shape, dict):
        if type(value) is not dict:
            return f"{name} is not an object"
        missing = [f"'{key}' is missing" for key in shape if key not in value]
        found = (_misfit(value[key], shape[key], f"'{key}'") for key in shape if key in value)
        return next(iter(missing), None) or next(filter(None, found), None)
    if isinstance(shape, list):
        if type(value) is not list:
            return f"{name} is not a list"
        return next(
            filter(None, (_misfit(each, shape[0], f"a value of {name}") for each in value)), None
        )
    kinds = shape if isinstance(shape, tuple) else (shape,)
    names = " or ".join(kind.__name__ for kind in kinds)
    return None if type(value) in kinds else f"{name} is not {names}"


def read_toml(path: Any) -> dict[str, Any]:
    """The content of a TOML file (a path or a packaged resource).

    Raises:
        StorageError: The file cannot be read.
        UsageError: It is not valid TOML.
    """
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    if isinstance(path, Path):
        require_regular(path)
    try:
        content: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
        return content
    except OSError as error:
        raise from_os_error("read", path, error) from error
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"{path} is not valid TOML: {error}. Write settings as name = value lines."
        ) from error


def flush(path: Path) -> None:
    """Flush a file or folder to the disk (fsync)."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
