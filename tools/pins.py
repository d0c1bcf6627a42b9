"""The pinned versions of constraints.txt, and the packages that are installed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.metadata import Distribution, distributions
from pathlib import Path

ROOT = Path(__file__).parents[1]
CONSTRAINTS = ROOT / "constraints.txt"
_PIN = re.compile(r"([A-Za-z0-9._-]+)==([^;\s]+)\s*(?:;\s*(.+?))?\s*$")


def normalized(name: str) -> str:
    """The name of a project as an index writes it.

    Example:
        >>> normalized("Pillow_Heif")
        'pillow-heif'
    """
    return re.sub(r"[-_.]+", "-", name).lower()


@dataclass(frozen=True, order=True)
class Pin:
    """A pinned version.

    Attributes:
        name: The project, normalized.
        version: The version.
        marker: When it applies, such as `python_version < "3.11"`; "": always.
    """

    name: str
    version: str
    marker: str = ""


def read_pins(path: Path = CONSTRAINTS) -> list[Pin]:
    """Read pinned versions.

    Args:
        path: A file with lines `name==version; marker`.

    Returns:
        The pins in the order of the file.

    Raises:
        SystemExit: A line is not a pin.
    """
    pins = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        match = _PIN.fullmatch(text)
        if match is None:
            raise SystemExit(f"{path}:{number} must be name==version, got: {text}")
        pins.append(Pin(normalized(match[1]), match[2], match[3] or ""))
    return pins


def installed(folders: list[str] | None = None) -> dict[str, Distribution]:
    """The installed packages by normalized name.

    Args:
        folders: Where to look; by default where Python imports from.

    Returns:
        The distributions, in the order of names.
    """
    found = distributions() if folders is None else distributions(path=folders)
    by_name: dict[str, Distribution] = {}
    for each in found:
        if each.metadata["Name"]:
            by_name.setdefault(normalized(each.metadata["Name"]), each)
    return dict(sorted(by_name.items()))
