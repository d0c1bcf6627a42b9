"""Write constraints-hashes.txt: the pins of constraints.txt with the sha256 of all their files.

    python tools/hashes.py            # asks the index for pins that have no hashes yet
    python tools/hashes.py --check    # asks nobody; fails if the two files do not match
    pip install --require-hashes --no-deps -r constraints-hashes.txt

pip accepts hashes in a constraints file only if every requirement is pinned with ==, which those of
pyproject.toml are not. So the file is a list of requirements, and all of them are installed without
looking for more (`--no-deps`). The hashes are those that the index states for the files of a
version, for all platforms: they show that a file has not changed since, not that it is harmless.
"""

from __future__ import annotations

import argparse
import re
import time
import urllib.request
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from pins import CONSTRAINTS, ROOT, Pin, normalized, read_pins

HASHES = ROOT / "constraints-hashes.txt"
INDEX = "https://pypi.org/simple"
_PAUSE = 0.2  # seconds between two requests
_ENTRY = re.compile(
    r"^([^\s;\\]+)==([^\s;\\]+)(?: ; ([^\\]+?))? \\\n((?:    --hash=\S+(?: \\)?\n)+)", re.M
)
_HEAD = "# Made by tools/hashes.py from constraints.txt. Do not edit.\n"


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value for name, value in attrs if name == "href" and value]


def hashes_of(page: str, pin: Pin) -> list[str]:
    """Return the sha256 of the files of a version.

    Args:
        page: The page of the project in an index (PEP 503).
        pin: The version.

    Returns:
        The digests, sorted.

    Example:
        >>> page = '<a href="https://host/Six-1.0-py3-none-any.whl#sha256=00ff">x</a>'
        >>> hashes_of(page, Pin("six", "1.0")), hashes_of(page, Pin("six", "1"))
        (['00ff'], [])
    """
    links = _Links()
    links.feed(page)
    digests = set()
    for link in links.found:
        parts = urlsplit(link)
        digest = re.fullmatch(r"sha256=([0-9a-f]+)", parts.fragment)
        if digest and _version_of(unquote(parts.path).rpartition("/")[2], pin.name) == pin.version:
            digests.add(digest[1])
    return sorted(digests)


def _version_of(file: str, name: str) -> str | None:
    """The version in the name of a wheel or a source archive of a project."""
    stem = re.sub(r"\.(whl|tar\.gz|zip|tar\.bz2)$", "", file)
    if stem == file:
        return None
    if file.endswith(".whl"):
        project, version = stem.split("-")[:2]
        return version if normalized(project) == name else None
    cuts = (match.start() for match in re.finditer("-", stem))
    return next((stem[cut + 1 :] for cut in cuts if normalized(stem[:cut]) == name), None)


def read_hashes(path: Path = HASHES) -> dict[Pin, list[str]]:
    """Read the file that `write_hashes` wrote; empty if there is none."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return {
        Pin(name, version, marker): re.findall(r"--hash=sha256:(\S+)", listed)
        for name, version, marker, listed in _ENTRY.findall(text)
    }


def write_hashes(known: dict[Pin, list[str]], path: Path = HASHES) -> None:
    """Write pins with their hashes."""
    lines = [_HEAD]
    for pin, digests in sorted(known.items()):
        marker = f" ; {pin.marker}" if pin.marker else ""
        hashes = " \\\n".join(f"    --hash=sha256:{each}" for each in digests)
        lines.append(f"{pin.name}=={pin.version}{marker} \\\n{hashes}\n")
    path.write_text("".join(lines), encoding="utf-8")


def _fetch(name: str, index: str) -> str:
    url = f"{index}/{name}/"
    with urllib.request.urlopen(url, timeout=60) as answer:  # noqa: S310 - chosen by the user
        return str(answer.read().decode())


def _update(pins: list[Pin], known: dict[Pin, list[str]], index: str) -> None:
    """Ask the index for the missing hashes, one project after the other."""
    pages: dict[str, str] = {}
    for pin in pins:
        if pin in known:
            continue
        if pin.name not in pages:
            pages = {pin.name: _fetch(pin.name, index)}  # pins of a project follow each other
            time.sleep(_PAUSE)
        digests = hashes_of(pages[pin.name], pin)
        if not digests:
            raise SystemExit(f"{index} has no file of {pin.name}=={pin.version}.")
        known[pin] = digests
        write_hashes(known)


def main() -> None:
    """Update or check the file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="Only compare the two files.")
    parser.add_argument("--index", default=INDEX, help="An index with PEP 503 pages.")
    given = parser.parse_args()
    pins, stored = read_pins(CONSTRAINTS), read_hashes()
    digests = {(pin.name, pin.version): listed for pin, listed in stored.items()}
    versions = [pin for pin in pins if (pin.name, pin.version) in digests]
    known = {pin: digests[pin.name, pin.version] for pin in versions}  # markers may have changed
    if given.check:
        if set(stored) != set(pins):
            missing = sorted(f"{pin.name}=={pin.version}" for pin in set(pins) ^ set(stored))
            raise SystemExit(
                f"{HASHES.name} does not match: {', '.join(missing)}. Run this script."
            )
        return
    _update(pins, known, given.index)
    write_hashes(known)


if __name__ == "__main__":
    main()
