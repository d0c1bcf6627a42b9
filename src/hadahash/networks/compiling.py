"""Compile networks with a cache on disk, so that only the first process waits for the compiler.

HADAHASH_COMPILE_CACHE=5GB      largest size; the default is 2GB, the least recently used code
gives way when a network is compiled
HADAHASH_COMPILE_CACHE=off      PyTorch keeps compiled code where it does by itself
"""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import cast

import torch
from torch import nn

from ..bounded_folder import Entry, prune, user_cache_of

VARIABLE = "HADAHASH_COMPILE_CACHE"
DEFAULT_BYTES = 2 * 10**9

_IDLE_SECONDS = 3600.0  # what was used since then may be about to be loaded by another process
_LOCKS = "locks"
_FOLDER = "TORCHINDUCTOR_CACHE_DIR"
_CACHES = ("TORCHINDUCTOR_FX_GRAPH_CACHE", "TORCHINDUCTOR_AUTOGRAD_CACHE")


def compile_cached(module: nn.Module) -> nn.Module:
    """Compile a module for fixed shapes.

    Compiled code is kept in ~/.cache/hadahash/compiled (or below XDG_CACHE_HOME), unless
    TORCHINDUCTOR_CACHE_DIR names another folder, which is then not limited in size. PyTorch finds
    it by the network, the shapes, its own version and the device. Any number of processes may share
    the folder, and deleting it is safe.

    Args:
        module: The module; its weights may change.

    Returns:
        The compiled module, which shares all weights. The first call compiles it.
    """
    use_cache()
    return cast(nn.Module, torch.compile(module, dynamic=False))


def use_cache() -> None:
    """Let PyTorch's compiler keep its results in the cache folder, if that can be written.

    Raises:
        UsageError: HADAHASH_COMPILE_CACHE is neither a size nor off.
    """
    for name in _CACHES:  # on by default in recent versions
        os.environ.setdefault(name, "1")
    if _chosen(os.environ.get(_FOLDER, "")):
        return
    with suppress(OSError, RuntimeError):  # not writable, or no home folder
        user_cache_of("compiled", VARIABLE, DEFAULT_BYTES, _use)


def _use(folder: Path, limit: int) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if _is_private(folder):
        os.environ[_FOLDER] = str(folder)
        prune(_entries(folder), limit, idle_seconds=_IDLE_SECONDS)


def _entries(folder: Path) -> list[Entry]:
    """What PyTorch finds or misses as a whole: files in folders of two characters, other folders.

    PyTorch does not write to what it finds, so the time of reading counts, too.
    """
    found: dict[Path, Entry] = {}
    for name, folders, files in os.walk(folder):
        parent = Path(name)
        if parent == folder or parent.name == _LOCKS:
            continue
        whole = not folders and len(parent.name) > 2
        for path in (parent / file for file in files):
            with suppress(OSError):
                status = path.stat()
                key = parent if whole else path
                used, size, _ = found.get(key, Entry(0, 0, key))
                used = max(used, status.st_atime_ns, status.st_mtime_ns)
                found[key] = Entry(used, size + status.st_size, key)
    return list(found.values())


def _is_private(folder: Path) -> bool:
    """Whether only this user can write there: PyTorch runs the code that it finds."""
    status = folder.stat()
    mine = not hasattr(os, "getuid") or status.st_uid == os.getuid()
    return mine and not status.st_mode & 0o022 and os.access(folder, os.W_OK | os.X_OK)


def _chosen(folder: str) -> bool:
    """Whether the user chose the folder; PyTorch sets the variable to its own when it needs one."""
    path = Path(folder)
    own = path.parent == Path(tempfile.gettempdir()) and path.name.startswith("torchinductor_")
    return bool(folder) and not own
