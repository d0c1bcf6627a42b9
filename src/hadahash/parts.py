"""The folder of an encoding job: job.json, and a code file for each part that is finished.

Only these files are removed, and only where job.json shows that the folder belongs to a job.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from .errors import StorageError, UsageError
from .files import read_json, storage_error, write_json

_JOB = "job.json"
_PART = re.compile(r"\d{6,}\.npz|part-\d+-\d+\.(npz|parquet)")
_TEMPORARY = re.compile(r"\..+\.part")


def is_same_job(folder: Path, job: dict[str, Any], *, overwrite: bool = False) -> bool:
    """Check whether the parts in a folder are those of a job.

    Args:
        folder: The folder; it need not exist.
        job: Identifies the job.
        overwrite: Whether the parts of another job may be replaced.

    Returns:
        Whether the folder has this job. Otherwise `begin_job` starts it.

    Raises:
        UsageError: The folder has another job that may not be replaced, or files of no job.
        StorageError: The folder cannot be read.
    """
    path = folder / _JOB
    try:
        if not path.exists():
            if folder.exists() and (not folder.is_dir() or any(_others(folder))):
                raise UsageError(f"{folder} exists, and is no job of encode. Choose another --out.")
            return False
        stored = read_json(path)
    except OSError as error:
        raise storage_error("read", folder, error) from error
    except StorageError:  # damaged
        stored = None
    same = bool(stored == json.loads(json.dumps(job)))
    if not (same or overwrite):
        raise UsageError(
            f"{folder} holds the parts of another job. Replace them with --overwrite, or choose "
            "another --out."
        )
    return same


def begin_job(folder: Path, job: dict[str, Any]) -> None:
    """Keep the finished parts of the same job; remove those of another one.

    Args:
        folder: The folder; it is created if it does not exist.
        job: Identifies the job.

    Raises:
        UsageError: The folder has files of no job.
        StorageError: The folder cannot be written.
    """
    if not is_same_job(folder, job, overwrite=True):
        _remove_parts(folder)
    write_json(folder / _JOB, job)


def end_job(folder: Path) -> None:
    """Remove the parts, and the folder unless it has other files.

    Args:
        folder: The folder of a job.
    """
    with suppress(OSError, StorageError):
        _remove_parts(folder)
        (folder / _JOB).unlink(missing_ok=True)  # last: without it, parts are not removed
        folder.rmdir()


def other_files(folder: Path) -> list[str]:
    """Return the names in the folder of a job that are not those of its files."""
    return sorted(name for name in _others(folder) if name != _JOB and not _PART.fullmatch(name))


def _remove_parts(folder: Path) -> None:
    try:
        for path in list(folder.iterdir()) if (folder / _JOB).exists() else ():
            if _PART.fullmatch(path.name) or _TEMPORARY.fullmatch(path.name):
                path.unlink(missing_ok=True)
    except OSError as error:
        raise storage_error("write", folder, error) from error


def _others(folder: Path) -> Iterator[str]:
    """The names in a folder, without files that were being written when a process was killed."""
    return (path.name for path in folder.iterdir() if not _TEMPORARY.fullmatch(path.name))
