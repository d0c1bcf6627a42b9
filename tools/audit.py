"""Audit the dependencies, as far as that is possible without a network.

    python tools/audit.py
    python tools/audit.py --advisories osv/    # a folder or a zip file of OSV records

It compares the installed versions with constraints.txt, that file with constraints-hashes.txt, and
the licenses in the installed metadata with a list of accepted ones. With a copy of the advisories
(the export "PyPI/all.zip" of osv.dev, or any folder of JSON files in its format) it names pinned
and installed versions with known vulnerabilities. Without one it cannot know of any, and it never
looks into the code of a package.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import zipfile
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution
from pathlib import Path
from typing import Any, NamedTuple

from bom import ROOT_PROJECT, license_of
from hashes import HASHES, read_hashes
from packaging.markers import Marker
from packaging.version import InvalidVersion, Version
from pins import CONSTRAINTS, Pin, installed, normalized, read_pins

ACCEPTED = re.compile(
    r"\b(apache|bsd|0bsd|mit|mit-0|isc|psf|python software foundation|cnri|hpnd|zlib|unlicense|cc0|"
    r"mpl|mozilla public license|lgpl|lesser general public|postgresql|blueoak|public domain|"
    r"nvidia|bsl-1\.0|openssl|libpng|freetype|ofl)",
    re.IGNORECASE,
)
_UNPINNED = {"pip", "wheel", ROOT_PROJECT}  # the tools that install


class Finding(NamedTuple):
    """What an audit found.

    Attributes:
        kind: "version", "hash", "license" or "advisory".
        package: The package.
        text: What is wrong.
    """

    kind: str
    package: str
    text: str


def check_versions(pins: list[Pin], packages: dict[str, Distribution]) -> list[Finding]:
    """Return installed packages whose version is not the pinned one."""
    pinned = {pin.name: pin for pin in pins if not pin.marker or Marker(pin.marker).evaluate()}
    found = []
    for name, package in packages.items():
        version = package.version.partition("+")[0]  # a local build such as 2.15.0+cpu
        if name not in pinned and name not in _UNPINNED:
            found.append(Finding("version", name, f"{package.version} is not in constraints.txt"))
        elif name in pinned and version != pinned[name].version.partition("+")[0]:
            text = f"{package.version} is installed, {pinned[name].version} is pinned"
            found.append(Finding("version", name, text))
    return found


def check_hashes(pins: list[Pin], hashes: dict[Pin, list[str]]) -> list[Finding]:
    """Return pins without hashes, and hashes without a pin."""
    missing = [
        Finding("hash", pin.name, f"{pin.version} has none") for pin in pins if pin not in hashes
    ]
    stale = [pin for pin in hashes if pin not in set(pins)]
    return missing + [Finding("hash", pin.name, f"{pin.version} is not pinned") for pin in stale]


def check_licenses(packages: dict[str, Distribution]) -> list[Finding]:
    """Return packages that state no license, or one that is not on the list."""
    found = []
    for name, package in packages.items():
        stated = license_of(package)
        if not stated:
            found.append(Finding("license", name, "states none: look at its files"))
        elif not ACCEPTED.search(stated):
            found.append(Finding("license", name, stated))
    return found


def read_advisories(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the OSV records of a JSON file, a zip file, or a folder of JSON files.

    Args:
        path: The file or folder.

    Yields:
        One record after the other.

    Raises:
        SystemExit: There is no such file, or it is damaged.
    """
    try:
        if path.is_dir():
            texts: Iterable[bytes] = (each.read_bytes() for each in sorted(path.rglob("*.json")))
        elif zipfile.is_zipfile(path):
            archive = zipfile.ZipFile(path)
            names = sorted(each for each in archive.namelist() if each.endswith(".json"))
            texts = (archive.read(each) for each in names)
        else:
            texts = [path.read_bytes()]
        for text in texts:
            content = json.loads(text)
            yield from content if isinstance(content, list) else [content]
    except (OSError, ValueError) as error:
        raise SystemExit(f"Cannot read advisories from {path}: {error}.") from error


def check_advisories(
    versions: set[tuple[str, str]], records: Iterable[dict[str, Any]]
) -> list[Finding]:
    """Return the versions that a record names as affected.

    Args:
        versions: Normalized names and versions.
        records: OSV records.

    Returns:
        One finding per version and record.

    Example:
        >>> affected = {"package": {"ecosystem": "PyPI", "name": "Six"}, "versions": ["1.0"]}
        >>> record = {"id": "PYSEC-1", "summary": "Bad.", "affected": [affected]}
        >>> check_advisories({("six", "1.0"), ("six", "1.1")}, [record])
        [Finding(kind='advisory', package='six', text='1.0: PYSEC-1 Bad.')]
    """
    found = []
    for record in records:
        if record.get("withdrawn"):
            continue
        for affected in record.get("affected", []):
            package = affected.get("package", {})
            if package.get("ecosystem") != "PyPI":
                continue
            name = normalized(str(package.get("name", "")))
            for version in sorted(version for each, version in versions if each == name):
                if _is_affected(version, affected):
                    text = f"{version}: {record.get('id', '?')} {record.get('summary', '')}".strip()
                    found.append(Finding("advisory", name, text))
    return found


def _is_affected(version: str, affected: dict[str, Any]) -> bool:
    if version in affected.get("versions", []):
        return True
    ranges = [each for each in affected.get("ranges", []) if each.get("type") == "ECOSYSTEM"]
    return any(_in_range(version, each.get("events", [])) for each in ranges)


def _in_range(version: str, events: list[dict[str, str]]) -> bool:
    """Whether a version is at or after an introduction, and before the next fix."""
    try:
        mine = Version(version)
        steps = [
            (Version("0.dev0" if at == "0" else at), kind)
            for event in events
            for kind, at in event.items()
        ]
    except InvalidVersion:
        return True  # cannot be compared: better reported than missed
    inside = False
    for at, kind in sorted(steps):
        if kind == "introduced" and mine >= at:
            inside = True
        elif (kind == "fixed" and mine >= at) or (kind == "last_affected" and mine > at):
            inside = False
    return inside


def audit(advisories: Path | None) -> list[Finding]:
    """Run all checks.

    Args:
        advisories: OSV records, or None.

    Returns:
        What was found.
    """
    pins, packages = read_pins(CONSTRAINTS), installed()
    found = check_versions(pins, packages) + check_hashes(pins, read_hashes(HASHES))
    found += check_licenses(packages)
    if advisories is not None:
        versions = {(pin.name, pin.version) for pin in pins}
        versions |= {(name, package.version) for name, package in packages.items()}
        found += check_advisories(versions, read_advisories(advisories))
    return found


def main() -> None:
    """Print what was found; the exit code is 1 for a known vulnerability or a wrong hash file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--advisories", type=Path, help="A folder, zip or JSON file of OSV records."
    )
    given = parser.parse_args()
    found = audit(given.advisories)
    for finding in found:
        print(f"{finding.kind:<9} {finding.package:<28} {finding.text}")
    if given.advisories is None:
        print("No advisories were given: known vulnerabilities were not looked for.")
    sys.exit(any(finding.kind in ("advisory", "hash") for finding in found))


if __name__ == "__main__":
    main()
