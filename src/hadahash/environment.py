"""What a result depends on besides its settings: hardware, versions, source revision, command."""

from __future__ import annotations

import os
import platform
import re
import shlex
import subprocess
import sys
from contextlib import suppress
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from ._version import __version__
from .errors import UsageError

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


def parse_size(text: str, variable: str = "The size") -> int:
    """Parse a size in bytes.

    Args:
        text: For example 500MB, 2GB or 2 GB; "off" or 0: nothing.
        variable: The environment variable that has this value, for the message.

    Returns:
        The number of bytes.

    Raises:
        UsageError: The text is not a size.

    >>> parse_size("1.5GB", "CACHE"), parse_size("off", "CACHE")
    (1500000000, 0)
    """
    if text.lower() in ("off", "no", "none"):
        return 0
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(k|m|g|t|)b?", text.lower())
    if match is None:
        raise UsageError(f"{variable} must be a size such as 2GB, or off, got '{text}'.")
    return int(float(match[1]) * 1000 ** " kmgt".index(match[2] or " "))


def size_limit(variable: str, default: int) -> int:
    """Return the size in bytes that an environment variable allows.

    Args:
        variable: Its name.
        default: The size where it is not set or empty.

    Returns:
        The number of bytes; 0 if the variable is off.

    Raises:
        UsageError: The variable is neither a size nor off.

    >>> size_limit("HADAHASH_NOT_SET", 500)
    500
    """
    text = os.environ.get(variable, "").strip()
    return parse_size(text, variable) if text else default


def user_cache() -> Path:
    """Return the folder of caches: hadahash below XDG_CACHE_HOME, or below ~/.cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hadahash"
