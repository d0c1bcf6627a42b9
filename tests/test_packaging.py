"""Packaging: all data files are installed, and pinned versions suit every supported Python."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from hadahash.files import read_toml

ROOT = Path(__file__).parents[1]
PROJECT = read_toml(ROOT / "pyproject.toml")["project"]
PYTHONS = [f"3.{minor}" for minor in range(10, 15)]


def test_a_wheel_has_every_file_of_the_package(tmp_path):
    """Built from a copy, because `build/` and `*.egg-info` of earlier builds could add files."""
    source, out = tmp_path / "source", tmp_path / "out"
    built = shutil.ignore_patterns("__pycache__", "*.so", "*.pyd")
    shutil.copytree(ROOT / "src" / "hadahash", source / "src" / "hadahash", ignore=built)
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    files = {
        path.relative_to(source / "src").as_posix()
        for path in (source / "src").rglob("*")
        if path.is_file()
    }
    command = [
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "--skip-dependency-check",
        "--outdir",
        out,
        source,
    ]
    plain = {"CC": "false"}  # the compiled library is optional; leaving it out is quicker
    done = subprocess.run(
        command, capture_output=True, text=True, env=os.environ | plain, check=False
    )
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(next(out.glob("*.whl"))) as wheel:
        inside = set(wheel.namelist())
    assert files <= inside, (
        f"name these in package-data of pyproject.toml: {sorted(files - inside)}"
    )
    assert {
        "hadahash/reproduce/paper.toml",
        "hadahash/py.typed",
        "hadahash/serve/static/index.html",
    } <= inside


def _pins(python: str) -> dict[str, str]:
    """The version that constraints.txt names for each package under a Python."""
    pins: dict[str, str] = {}
    for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines():
        if line.startswith("#"):
            continue
        pin = Requirement(line)
        assert re.fullmatch(r"==[\w.]+", str(pin.specifier)), line
        if pin.marker is None or pin.marker.evaluate(
            {"python_version": python, "python_full_version": f"{python}.0"}
        ):
            assert canonicalize_name(pin.name) not in pins, (
                f"two versions of {pin.name} for Python {python}"
            )
            pins[canonicalize_name(pin.name)] = str(pin.specifier).removeprefix("==")
    return pins


def test_the_page_and_the_project_promise_the_same_python():
    (oldest,) = re.findall(
        r"needs Python (3\.\d+) or later", (ROOT / "README.md").read_text("utf-8")
    )
    assert PROJECT["requires-python"] == f">={oldest}" and oldest == PYTHONS[0]


@pytest.mark.parametrize("python", PYTHONS)
def test_every_dependency_has_one_version_for_each_python(python):
    pins = _pins(python)
    named = [
        *PROJECT["dependencies"],
        *(line for lines in PROJECT["optional-dependencies"].values() for line in lines),
    ]
    for need in map(Requirement, named):
        if need.name == PROJECT["name"]:  # an extra that includes others
            assert need.extras <= set(PROJECT["optional-dependencies"])
        elif need.marker is None or need.marker.evaluate(
            {"python_version": python, "python_full_version": f"{python}.0"}
        ):
            assert need.specifier.contains(pins[canonicalize_name(need.name)]), (
                f"{need} under Python {python}"
            )


@pytest.mark.parametrize("python", PYTHONS[:3])
def test_no_version_refuses_the_python_it_is_named_for(python):
    """Reads the metadata of installed packages; other versions cannot be checked."""
    checked = 0
    for name, version in _pins(python).items():
        try:
            package = distribution(name)
        except PackageNotFoundError:
            continue
        if package.version == version:
            checked += 1
            allowed = SpecifierSet(package.metadata.get("Requires-Python") or "")
            assert allowed.contains(f"{python}.9"), f"{name} {version} needs Python {allowed}"
    assert checked > 50
