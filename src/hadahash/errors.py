"""The one exception tree.

    HadaHashError                 every error a user can cause; its text is one line: what, got, allowed, remedy
    ├── UsageError                an argument, option or name is wrong                        (exit code 2)
    ├── DataError                 a data set, folder or label file is not as it must be
    │   └── ImageError            one image cannot be used; carries `.path` and `.reason`
    │       ├── UnreadableImage   missing, a directory, a pipe, no permission
    │       ├── UnsupportedImage  not an image, or a format that is not allowed
    │       ├── CorruptImage      truncated or broken
    │       └── ImageTooLarge     more pixels than the cap
    ├── StorageError              a file cannot be written or read back: full disk, damage
    │   └── NewerFileError        written by a later version of hadahash                      (exit code 3)
    ├── FellApart                 training went wrong: the loss is no number, or the model has learnt nothing
    └── MissingExtraError         an optional dependency is not installed

Unknown names, keys and values are `UsageError`, which is also a `ValueError`, so that callers who know only Python's own
errors can catch them too.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class HadaHashError(Exception):
    """An error with a one-line text and the exit code the command line ends with."""

    exit_code = 1


class UsageError(HadaHashError, ValueError):
    exit_code = 2


class DataError(HadaHashError):
    pass


class FellApart(HadaHashError):
    def __init__(self, text: str, train_map: float | None = None) -> None:
        super().__init__(text)
        self.train_map = (
            train_map  # how well its training images find each other, where that could be measured
        )


class ImageError(DataError):
    def __init__(self, path: object, reason: str) -> None:
        super().__init__(path, reason)
        self.path, self.reason = str(path), reason

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


class UnreadableImage(ImageError):
    pass


class UnsupportedImage(ImageError):
    pass


class CorruptImage(ImageError):
    pass


class ImageTooLarge(ImageError):
    pass


class StorageError(HadaHashError):
    pass


class NewerFileError(StorageError):
    exit_code = 3


class MissingExtraError(HadaHashError):
    def __init__(self, package: str, extra: str) -> None:
        super().__init__(
            f"{package} is not installed. Install it with: pip install 'hadahash[{extra}]'"
        )


def unknown(kind: str, got: str, known: Iterable[str]) -> UsageError:
    """The error for a name that is not known: suggests the nearest one and lists them all, or the nearest of very many."""
    names = sorted(known)
    near = get_close_matches(got, names, n=8)
    hint = f" Did you mean '{near[0]}'?" if near else ""
    listed = (
        ", ".join(names)
        if len(names) <= 60
        else ", ".join([*(near or names[:8]), f"... ({len(names)} in all)"])
    )
    return UsageError(f"Unknown {kind} '{got}'.{hint} Known: {listed}.")
