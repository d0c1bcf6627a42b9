"""The code that the pages show is run as it stands there."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest
from toys import CLASS_NAMES, make_toy, write_folder

from hadahash import evaluate, methods
from hadahash.methods import METHODS

DOCS = Path(__file__).parents[1] / "docs"


def _blocks(page):
    return re.findall(r"^```python\n(.*?)^```$", (DOCS / page).read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)


@pytest.fixture
def guest_methods(tmp_path, monkeypatch):
    """A folder whose files are modules of the package hadahash.methods; what they register is forgotten afterwards."""
    package = sys.modules["hadahash.methods"]
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
    modules, names, registered = set(sys.modules), set(vars(package)), dict(METHODS._entries)
    yield tmp_path
    METHODS._entries.clear()
    METHODS._entries.update(registered)
    for module in set(sys.modules) - modules:
        if module.startswith("hadahash.methods."):
            del sys.modules[module]
    for name in set(vars(package)) - names:
        delattr(package, name)


def test_a_method_is_one_file_and_one_import_line(guest_methods, tmp_path, monkeypatch):
    file, line, use = _blocks("add-a-method.md")
    assert file.startswith("# src/hadahash/methods/hinge.py\n") and "hinge" not in methods()
    assert line.startswith("# src/hadahash/methods/__init__.py\n") and len(line.splitlines()) == 2
    (guest_methods / "hinge.py").write_text(file, "utf-8")
    exec(line, {"__package__": "hadahash.methods", "__name__": "hadahash.methods"})
    assert "hinge" in methods()

    monkeypatch.chdir(tmp_path)
    write_folder(tmp_path / "photos", *make_toy(160, seed=0))
    names: dict[str, object] = {}
    exec(use, names)
    codes, hasher = names["codes"], names["hasher"]
    labels = np.array([CLASS_NAMES.index(name.split("/")[0]) for name in codes.ids])
    assert len(codes) == 160 and codes.bits == 16 and hasher.outcome.steps == 8 * 5
    queries, query_labels = make_toy(40, seed=1)
    assert evaluate(hasher.encode(queries), query_labels, codes, labels).map >= 0.95
    assert len(file.splitlines()) <= 40
