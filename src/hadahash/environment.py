"""What a result depends on besides its settings: hardware, versions, source revision, command."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
from contextlib import suppress
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from ._version import __version__

if TYPE_CHECKING:
    import torch

_PACKAGES = ("torch", "torchvision", "timm", "numpy")


def hardware(device: torch.device) -> str:
    """The name of the GPU, or the architecture and number of threads of the CPU."""
    import torch

    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"CPU {platform.machine()}, {torch.get_num_threads()} threads"


def versions() -> dict[str, str]:
    """Versions of hadahash, Python and the packages that determine results."""
    found = {"hadahash": __version__, "python": platform.python_version()}
    for name in _PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


@cache
def source_revision() -> str | None:
    """The git commit of the source tree, with "+changes" if it is modified; None if unknown.

    The environment variable HADAHASH_REVISION takes precedence, for machines without git.
    """
    if given := os.environ.get("HADAHASH_REVISION"):
        return given
    folder = Path(__file__).parent

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(folder), *arguments]
        found: str = subprocess.check_output(  # noqa: S603
            command, stderr=subprocess.DEVNULL, text=True, timeout=10
        )
        return found.strip()

    try:
        commit = git("rev-parse", "HEAD")
        return commit + ("+changes" if git("status", "--porcelain", "--", str(folder)) else "")
    except (OSError, subprocess.SubprocessError):
        return None


def command_line() -> str:
    """The command line of this process, quoted for a shell."""
    program = Path(sys.argv[0]).name
    return shlex.join([{"__main__.py": "hadahash"}.get(program, program), *sys.argv[1:]])
