"""The exception tree; public as `hadahash.errors`.

    HadaHashError                every error a user can cause; one line: what, got, allowed, remedy
    ├── UsageError               an argument, option or name is wrong (exit code 2)
    ├── DataError                a data set, folder or label file is not as required
    │   └── ImageError           one image cannot be used; has `.path` and `.reason`
    │       ├── UnreadableImage  missing, a directory, a pipe, no permission
    │       ├── UnsupportedImage not an image, or a format that is not allowed
    │       ├── CorruptImage     truncated or broken
    │       └── ImageTooLarge    more pixels than the limit
    ├── StorageError             a file cannot be written or read: full disk, damage, permissions
    │   └── NewerFileError       written by a later version of hadahash (exit code 3)
    ├── TrainingDivergedError    the loss is NaN or infinite, or the model is degenerate
    ├── ProcessLostError         another process of a distributed training ended
    └── MissingExtraError        an optional dependency is not installed

Unknown names, keys and values raise `UsageError`, which is also a `ValueError`, so callers that
only know Python's own exceptions can catch it too.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable
from difflib import get_close_matches
from heapq import nsmallest


class HadaHashError(Exception):
    """Base class. The message is one line; `exit_code` is the exit code of the command line."""

    exit_code = 1

    def __str__(self) -> str:
        return _one_line(super().__str__())


class UsageError(HadaHashError, ValueError):
    """An argument, option, setting or name is wrong."""

    exit_code = 2


class DataError(HadaHashError):
    """A data set, folder, table or label file is not as required."""


class TrainingDivergedError(HadaHashError):
    """Training failed: the loss is NaN or infinite, or the trained model is degenerate.

    Attributes:
        train_map: mAP with the training images as queries and database, if it was measured.
    """

    def __init__(self, text: str, train_map: float | None = None) -> None:
        super().__init__(text)
        self.train_map = train_map


class ProcessLostError(HadaHashError):
    """Another process of a distributed training ended or cannot be reached."""


class ImageError(DataError):
    """One image cannot be used. It never stops the processing of other images.

    Attributes:
        path: Path or name of the image.
        reason: Why it cannot be used.
    """

    def __init__(self, path: object, reason: str) -> None:
        super().__init__(path, reason)
        self.path, self.reason = str(path), reason

    def __str__(self) -> str:
        return _one_line(f"{self.path}: {self.reason}")


class UnreadableImage(ImageError):
    """The image is missing, not a regular file, or may not be read."""


class UnsupportedImage(ImageError):
    """The file is not an image, or its format is not allowed."""


class CorruptImage(ImageError):
    """The image file is truncated or broken."""


class ImageTooLarge(ImageError):
    """The image has more pixels than the limit."""


class StorageError(HadaHashError):
    """A file cannot be written, read or understood."""


class NewerFileError(StorageError):
    """The file was written by a later version of hadahash."""

    exit_code = 3


class MissingExtraError(HadaHashError):
    """An optional dependency is not installed; the message has the pip command."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"{package} is not installed. Install it with: {install_command(extra)}")


def install_command(extra: str) -> str:
    """The command that installs an extra, for messages.

    >>> install_command("raw")
    "pip install 'hadahash[raw]'"
    """
    return f"pip install 'hadahash[{extra}]'"


_EXTRAS = {
    "anyio": "serve",
    "cachetools": "serve",
    "fastapi": "serve",
    "h11": "serve",
    "matplotlib": "train",
    "onnx": "train",
    "onnxruntime": "onnx",
    "onnxscript": "train",
    "prometheus_client": "serve",
    "pydantic": "serve",
    "scipy": "train",
    "sklearn": "train",
    "starlette": "serve",
    "timm": "train",
    "torch": "train",
    "torchvision": "train",
    "uvicorn": "serve",
}


def missing_module(error: ModuleNotFoundError) -> Exception:
    """The error for a module that cannot be imported.

    Args:
        error: What the import raised.

    Returns:
        A `MissingExtraError` if an extra installs the module; otherwise `error` itself.

    >>> str(missing_module(ModuleNotFoundError("no torch", name="torch.nn")))
    "torch is not installed. Install it with: pip install 'hadahash[train]'"
    """
    package = (error.name or "").partition(".")[0]
    return MissingExtraError(package, _EXTRAS[package]) if package in _EXTRAS else error


_WRITE_REMEDIES = {
    errno.ENOSPC: "The disk is full: free some space or choose another folder.",
    errno.EDQUOT: "The disk quota is exceeded: free some space or choose another folder.",
    errno.EROFS: "The file system is read-only: choose another folder.",
    errno.EACCES: "You have no permission to write there: choose another folder.",
    errno.EEXIST: "A file has the name of a required folder: choose another folder.",
    errno.ENOTDIR: "Part of the path is a file, not a folder: choose another folder.",
    errno.EISDIR: "It is a folder, not a file: choose another name.",
}
_READ_REMEDIES = {
    errno.ENOENT: "Check the path.",
    errno.EACCES: "You have no permission to read it: change its permissions or owner.",
    errno.EISDIR: "It is a folder, not a file: check the path.",
    errno.ENOTDIR: "Part of the path is a file, not a folder: check the path.",
}
_REMEDIES = {
    errno.ENAMETOOLONG: "The name is too long for the file system: use a shorter one.",
    errno.ELOOP: "The path is a symbolic link that leads back to itself: remove the link.",
}


def from_os_error(action: str, path: object, error: OSError) -> StorageError:
    """Turn an operating system error into a one-line StorageError with a remedy.

    Args:
        action: What was tried: "read", "write", "remove", ...
        path: The file or folder.
        error: The original error.

    Returns:
        The error to raise.

    >>> str(from_os_error("read", "x.json", FileNotFoundError(2, "No such file or directory")))
    'Cannot read x.json: No such file or directory. Check the path.'
    """
    number = error.errno or 0
    remedies = _READ_REMEDIES if action in ("read", "open") else _WRITE_REMEDIES
    remedy = remedies.get(number) or _REMEDIES.get(number, "Check the path and try again.")
    reason = " ".join(str(error.strerror or error).split()).removesuffix(".")
    return StorageError(f"Cannot {action} {path}: {reason}. {remedy}")


_MOST_COMPARED = 10_000  # names; the comparison with more takes longer than a second


def unknown(kind: str, got: str, known: Iterable[str]) -> UsageError:
    """The error for an unknown name: suggests the closest one and lists the known names.

    Args:
        kind: What is named, e.g. "method".
        got: The unknown name.
        known: All known names; more than 60 are abbreviated.

    Returns:
        The error to raise.

    >>> str(unknown("method", "hcdhh", ["hcdh", "lsh"]))
    "Unknown method 'hcdhh'. Did you mean 'hcdh'? Known: hcdh, lsh."
    """
    found = set(known)
    few = len(found) <= _MOST_COMPARED
    names = sorted(found) if few else nsmallest(8, found)
    near = get_close_matches(str(got), names, n=8) if few else []
    hint = f" Did you mean '{near[0]}'?" if near else ""
    listed = names if len(found) <= 60 else [*(near or names[:8]), f"... ({len(found)} in all)"]
    return UsageError(f"Unknown {kind} '{got}'.{hint} Known: {', '.join(listed) or 'none'}.")


def _one_line(text: str) -> str:
    r"""Join lines: names and values of a user may have line breaks.

    >>> _one_line("Cannot read a\nb.jpg")
    'Cannot read a b.jpg'
    """
    return " ".join(text.splitlines())
