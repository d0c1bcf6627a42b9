"""The method of docs/add-a-method.md: in a user's file, recorded in the model and found again."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from toys import CLASS_NAMES, make_toy, one_line, write_folder

from hadahash import evaluate, list_methods, plugins
from hadahash.errors import StorageError
from hadahash.methods import METHODS
from hadahash.model import HashModel

PAGE = Path(__file__).parents[2] / "docs" / "add-a-method.md"


def _blocks():
    text = PAGE.read_text("utf-8")
    return re.findall(r"^```python\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)


def _forget(registered, loaded):
    METHODS._entries.clear()
    METHODS._entries.update(registered)
    plugins._loaded.clear()
    plugins._loaded.update(loaded)


@pytest.fixture
def plugin_methods(tmp_path, monkeypatch):
    """A folder for plugins; the methods they register are removed afterwards."""
    registered, loaded = dict(METHODS._entries), set(plugins._loaded)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    _forget(registered, loaded)


def test_a_method_in_a_file_of_its_own(plugin_methods):
    file, use, check = _blocks()
    assert file.startswith("# hinge.py\n") and "hinge" not in list_methods()
    assert len(file.splitlines()) <= 40
    (plugin_methods / "hinge.py").write_text(file, "utf-8")
    write_folder(plugin_methods / "photos", *make_toy(160, seed=0))
    names: dict[str, object] = {}
    exec(use, names)
    codes, hasher = names["codes"], names["hasher"]
    labels = np.array([CLASS_NAMES.index(name.split("/")[0]) for name in codes.ids])
    assert len(codes) == 160 and codes.bits == 16
    queries, query_labels = make_toy(40, seed=1)
    assert evaluate(hasher.encode(queries), query_labels, codes, labels).map >= 0.95
    exec(check, {})


def test_a_saved_model_finds_its_plugin_again(plugin_methods, monkeypatch):
    registered, loaded = dict(METHODS._entries), set(plugins._loaded)
    file, use, _ = _blocks()
    (plugin_methods / "hinge.py").write_text(file, "utf-8")
    write_folder(plugin_methods / "photos", *make_toy(24, seed=0))
    names: dict[str, object] = {}
    exec(use.replace("epochs=8", "epochs=1"), names)
    names["hasher"].save("run")
    _forget(registered, loaded)
    (plugin_methods / "elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    model = HashModel.load("../run", device="cpu")
    again = model.encode("../photos")
    assert np.array_equal(again.packed, names["codes"].packed)
    assert model.codewords().shape == (4, 16)


def test_a_model_whose_plugin_has_moved_says_so(plugin_methods):
    registered, loaded = dict(METHODS._entries), set(plugins._loaded)
    file, use, _ = _blocks()
    (plugin_methods / "hinge.py").write_text(file, "utf-8")
    write_folder(plugin_methods / "photos", *make_toy(24, seed=0))
    names: dict[str, object] = {}
    exec(use.replace("epochs=8", "epochs=1"), names)
    names["hasher"].save("run")
    (plugin_methods / "hinge.py").rename("moved.py")
    _forget(registered, loaded)
    with pytest.raises(StorageError, match=r"There is no plugin file .*hinge\.py") as caught:
        HashModel.load("run", device="cpu")
    one_line(caught.value)
    assert "needs the method 'hinge'" in str(caught.value) and "--plugin" in str(caught.value)
    assert "damaged" not in str(caught.value)
    plugins.load_plugins(["moved.py"])
    again = HashModel.load("run", device="cpu").encode("photos")
    assert np.array_equal(again.packed, names["codes"].packed)
