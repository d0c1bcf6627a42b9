"""An environment with the light dependencies alone, linked from the installed packages."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from collections.abc import Sequence
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from hadahash.files import read_toml

ROOT = Path(__file__).parents[1]
HEAVY = ("torch", "torchvision", "timm", "sklearn", "scipy", "matplotlib", "onnx")


def packages_of(extras: Sequence[str]) -> dict[str, list[str]]:
    """The packages that `pip install 'hadahash[...]'` installs, each with its extras."""
    project = read_toml(ROOT / "pyproject.toml")["project"]
    optional = project["optional-dependencies"]
    lists = (project["dependencies"], *(optional[name] for name in extras))
    waiting = [line for lines in lists for line in lines]
    found: dict[str, list[str]] = {}
    while waiting:
        need = Requirement(waiting.pop())
        name = canonicalize_name(need.name)
        if name == project["name"]:  # an extra that includes others
            waiting += [line for extra in need.extras for line in optional[extra]]
            continue
        if need.marker is not None and not need.marker.evaluate({"extra": ""}):
            continue
        if name in found and set(need.extras) <= set(found[name]):
            continue
        found[name] = sorted({*found.get(name, ()), *need.extras})
        for line in distribution(name).requires or ():
            inner = Requirement(line)
            wanted = ("", *found[name])
            if inner.marker is None or any(inner.marker.evaluate({"extra": e}) for e in wanted):
                inner.marker = None
                waiting.append(str(inner))
    return found


def link_packages(folder: Path, names: Sequence[str]) -> None:
    """Link the modules of packages into a folder."""
    for name in names:
        package = distribution(name)
        tops = {Path(file).parts[0] for file in package.files or () if ".." not in Path(file).parts}
        for top in tops - {"__pycache__"}:
            target = Path(str(package.locate_file(top)))
            if not (folder / top).exists():
                (folder / top).symlink_to(target)


def make_environment(folder: Path, extras: Sequence[str] = ("onnx",)) -> Path:
    """Make an environment with this source tree and the packages of some extras.

    Returns the Python of the environment.
    """
    venv.create(folder / "venv", with_pip=False, symlinks=True)
    packages = folder / "packages"
    packages.mkdir()
    link_packages(packages, list(packages_of(extras)))
    (site,) = (folder / "venv" / "lib").glob("python*/site-packages")
    (site / "light.pth").write_text(f"{ROOT / 'src'}\n{packages}\n")
    return folder / "venv" / "bin" / "python"


def run_light(
    python: Path, *arguments: object, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run the command line in a light environment."""
    return subprocess.run(
        [python, "-m", "hadahash", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env={
            **{k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")},
            **environment,
        },
    )


if __name__ == "__main__":
    sys.stdout.write(f"{make_environment(Path(sys.argv[1]))}\n")
