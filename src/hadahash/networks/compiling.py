"""Compile networks with a cache on disk, so that only the first process waits for the compiler."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import cast

import torch
from torch import nn

from ..environment import user_cache

_FOLDER = "TORCHINDUCTOR_CACHE_DIR"
_CACHES = ("TORCHINDUCTOR_FX_GRAPH_CACHE", "TORCHINDUCTOR_AUTOGRAD_CACHE")


def compile_cached(module: nn.Module) -> nn.Module:
    """Compile a module for fixed shapes.

    Compiled code is kept in ~/.cache/hadahash/compiled (or below XDG_CACHE_HOME), unless
    TORCHINDUCTOR_CACHE_DIR names another folder. PyTorch finds it by the network, the shapes, its
    own version and the device. Any number of processes may share the folder, and deleting it is
    safe.

    Args:
        module: The module; its weights may change.

    Returns:
        The compiled module, which shares all weights. The first call compiles it.
    """
    use_cache()
    return cast(nn.Module, torch.compile(module, dynamic=False))


def use_cache() -> None:
    """Let PyTorch's compiler keep its results in the cache folder, if that can be written."""
    for name in _CACHES:  # on by default in recent versions
        os.environ.setdefault(name, "1")
    if _chosen(os.environ.get(_FOLDER, "")):
        return
    try:
        folder = user_cache() / "compiled"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if _is_private(folder):
            os.environ[_FOLDER] = str(folder)
    except (OSError, RuntimeError):  # not writable, or no home folder
        return


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
