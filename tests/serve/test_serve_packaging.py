"""The extra `serve` declares what the service imports."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
DISTRIBUTIONS = {"prometheus_client": "prometheus-client", "python_multipart": "python-multipart"}


def imported(file: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module)
    return {name.partition(".")[0] for name in names}


def test_every_imported_package_is_declared():
    text = (ROOT / "pyproject.toml").read_text()
    extra = re.search(r"^serve = \[(.*?)^\]", text, re.DOTALL | re.MULTILINE)
    declared = set(re.findall(r'"([\w-]+)[<>=]', extra[1]))
    core = {"numpy", "PIL", "pydantic", "hadahash"}  # pydantic is a part of FastAPI's interface
    files = (ROOT / "src" / "hadahash" / "serve").rglob("*.py")
    used = set().union(*map(imported, files)) - set(sys.stdlib_module_names) - core
    assert {DISTRIBUTIONS.get(name, name) for name in used} == declared
