"""Write a bill of materials (CycloneDX 1.5, JSON) of the packages that are installed.

    python tools/bom.py --out bom.cdx.json

Versions, licenses and dependencies are those that the installed metadata states. Nothing is looked
up elsewhere. SOURCE_DATE_EPOCH makes the file reproducible.
"""

from __future__ import annotations

import argparse
import json
import os
import uuid
from datetime import datetime, timezone
from importlib.metadata import Distribution
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from pins import installed, normalized

ROOT_PROJECT = "hadahash"
_LONG = 80  # some packages state the whole text of their license as its name


def purl(name: str, version: str) -> str:
    """Return the package URL of a version.

    Example:
        >>> purl("numpy", "2.0+cpu")
        'pkg:pypi/numpy@2.0%2Bcpu'
    """
    return f"pkg:pypi/{name}@{version.replace('+', '%2B')}"


def license_of(package: Distribution) -> str:
    """Return the license that the metadata of a package states; "" if there is none."""
    about = package.metadata
    stated = about.get("License-Expression") or ""
    if stated:
        return str(stated)
    listed = [each for each in about.get_all("Classifier") or [] if each.startswith("License ::")]
    names = {each.rpartition("::")[2].strip() for each in listed} - {"OSI Approved"}
    if names:
        return " AND ".join(sorted(names))
    text = " ".join(str(about.get("License") or "").split())
    return "" if len(text) > _LONG or text.upper() == "UNKNOWN" else text


def needs(package: Distribution, known: dict[str, Distribution]) -> list[str]:
    """Return the installed packages that a package requires, extras included."""
    names = set()
    for text in package.requires or []:
        try:
            name = normalized(Requirement(text).name)
        except InvalidRequirement:
            continue
        if name in known and name != normalized(package.metadata["Name"]):
            names.add(name)
    return sorted(names)


def bill_of_materials(packages: dict[str, Distribution]) -> dict[str, Any]:
    """Return the bill of materials of installed packages.

    Args:
        packages: The packages by normalized name.

    Returns:
        A CycloneDX document.
    """
    refs = {name: purl(name, package.version) for name, package in packages.items()}
    components = [_component(name, package) for name, package in packages.items()]
    root = [each for each in components if each["name"] == ROOT_PROJECT]
    seconds = int(os.environ.get("SOURCE_DATE_EPOCH", datetime.now(timezone.utc).timestamp()))
    stamp = datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    tool = {"type": "application", "name": "hadahash tools/bom.py"}
    metadata: dict[str, Any] = {"timestamp": stamp, "tools": {"components": [tool]}}
    if root:
        metadata["component"] = {**root[0], "type": "application"}
    content = [each for each in components if each not in root]
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps([stamp, *sorted(refs.values())]))
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": metadata,
        "components": content,
        "dependencies": [
            {"ref": refs[name], "dependsOn": [refs[each] for each in needs(package, packages)]}
            for name, package in packages.items()
        ],
    }


def _component(name: str, package: Distribution) -> dict[str, Any]:
    version = package.version
    about: dict[str, Any] = {"type": "library", "bom-ref": purl(name, version), "name": name}
    about |= {"version": version, "purl": purl(name, version)}
    stated = license_of(package)
    if package.metadata.get("License-Expression"):
        about["licenses"] = [{"expression": stated}]
    elif stated:
        about["licenses"] = [{"license": {"name": stated}}]
    return about


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("bom.cdx.json"), help="File to write.")
    given = parser.parse_args()
    bill = bill_of_materials(installed())
    given.out.write_text(json.dumps(bill, indent=1) + "\n", encoding="utf-8")
    print(f"{given.out}: {len(bill['components'])} packages")


if __name__ == "__main__":
    main()
