"""Methods in a user's own file, and methods of installed packages."""

from __future__ import annotations

import importlib.metadata
import sys
from importlib.metadata import EntryPoint

import pytest
from toys import one_line

from hadahash import plugins
from hadahash.errors import UsageError
from hadahash.methods import METHODS, list_methods
from hadahash.plugins import load_plugins
from hadahash.registry import Registry

METHOD = """
from hadahash.methods import METHODS, ShallowMethod

@METHODS.register("{name}")
class Mine(ShallowMethod):
    '''Takes the first features as values.'''

    def fit(self, features, targets, generator):
        pass

    def values(self, features):
        return features[:, : self.task.bits]
"""


@pytest.fixture(autouse=True)
def _restore():
    entries, modules, loaded = dict(METHODS._entries), set(sys.modules), set(plugins._loaded)
    yield
    METHODS._entries.clear()
    METHODS._entries.update(entries)
    plugins._loaded.clear()
    plugins._loaded.update(loaded)
    for name in set(sys.modules) - modules:
        if name.startswith(("hadahash_plugin_", "plugin_module")):
            del sys.modules[name]


def test_a_file_registers_its_method_once(tmp_path, monkeypatch):
    path = tmp_path / "mine.py"
    path.write_text(METHOD.format(name="mine"))
    load_plugins([path])
    first = METHODS.get("mine")
    monkeypatch.chdir(tmp_path)
    load_plugins([str(path), "./mine.py", "mine.py"])
    assert METHODS.get("mine") is first and first.__module__ in sys.modules


def test_a_module_is_imported_by_name(tmp_path, monkeypatch):
    (tmp_path / "plugin_module.py").write_text(METHOD.format(name="modular"))
    monkeypatch.syspath_prepend(tmp_path)
    load_plugins(["plugin_module"])
    assert "modular" in METHODS


def test_two_files_with_the_same_name_are_both_loaded(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mine.py").write_text(METHOD.format(name=f"mine-{folder}"))
    load_plugins([tmp_path / "a" / "mine.py", tmp_path / "b" / "mine.py"])
    assert {"mine-a", "mine-b"} <= set(METHODS.names())


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, "There is no plugin file"),
        ("def f(:", "SyntaxError"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("import no_such_module_anywhere", "ModuleNotFoundError"),
        (METHOD.format(name="hcdh"), "The method 'hcdh' is already registered"),
    ],
)
def test_a_plugin_that_cannot_be_loaded_is_a_one_line_error(tmp_path, content, text):
    path = tmp_path / "bad.py"
    if content is not None:
        path.write_text(content)
    with pytest.raises(UsageError, match=text) as caught:
        load_plugins([path])
    one_line(caught.value)
    assert not [name for name in sys.modules if name.startswith("hadahash_plugin_bad")]


def test_a_plugin_can_be_loaded_after_its_error_was_fixed(tmp_path):
    path = tmp_path / "late.py"
    path.write_text(METHOD.format(name="late") + "\n1 / 0\n")
    with pytest.raises(UsageError, match="ZeroDivisionError"):
        load_plugins([path])
    path.write_text(METHOD.format(name="late") + "\n# fixed\n")
    load_plugins([path])
    assert METHODS.get("late").__name__ == "Mine"


def test_a_missing_module_is_named():
    with pytest.raises(UsageError, match="Cannot load the plugin no_such_package"):
        load_plugins(["no_such_package"])


# ------------------------------------------------------------------ entry points


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A package that offers two methods, one of which cannot be imported."""
    (tmp_path / "plugin_module.py").write_text(METHOD.format(name="installed"))
    monkeypatch.syspath_prepend(tmp_path)
    points = [
        EntryPoint("installed", "plugin_module:Mine", "hadahash.methods"),
        EntryPoint("broken", "no_such_package:Mine", "hadahash.methods"),
    ]
    groups = []

    def entry_points(*, group):
        groups.append(group)
        return points if group == "hadahash.methods" else []

    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)
    return groups


def test_an_entry_point_is_loaded_on_an_unknown_name(installed):
    METHODS.get("hcdh")
    assert installed == []  # known names cost nothing
    assert METHODS.get("installed").__name__ == "Mine"
    assert set(installed) == {"hadahash.methods"}
    assert "installed" in METHODS


def test_a_class_without_the_decorator_is_registered_under_its_entry_point(installed, tmp_path):
    source = METHOD.format(name="x").replace('@METHODS.register("x")', "")
    (tmp_path / "plugin_module.py").write_text(source)
    assert METHODS.get("installed").__name__ == "Mine"


def test_installed_methods_are_listed_and_suggested(installed):
    assert "installed" in list_methods() and "installed" not in METHODS
    assert list_methods("inst*") == ["installed"]
    with pytest.raises(UsageError, match="Did you mean 'installed'"):
        METHODS.get("instaled")


def test_an_entry_point_that_cannot_be_loaded_is_named(installed):
    with pytest.raises(UsageError, match="Cannot load the method 'broken' from no_such_package"):
        METHODS.get("broken")


def test_a_registry_without_a_group_looks_up_nothing(installed):
    with pytest.raises(UsageError, match="Unknown color 'red'"):
        Registry("color").get("red")
    assert installed == []


def test_running_a_definition_again_replaces_it():
    colors = Registry("color")

    def define():
        @colors.register("red")
        class Red: ...

        return Red

    define()
    again = define()
    assert colors.get("red") is again


def test_a_model_cannot_name_a_plugin_that_the_user_has_not(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    path, mark = tmp_path / "stranger.py", tmp_path / "ran"
    path.write_text(f"from pathlib import Path\nPath({str(mark)!r}).touch()\n")
    with pytest.raises(UsageError, match="loading it runs its code"):
        plugins.load_recorded_plugins([str(path)])
    assert not mark.exists()
    load_plugins([path])  # the user names it
    assert mark.exists()
    mark.unlink()
    plugins._loaded.discard(str(path))  # another process
    plugins.load_recorded_plugins([str(path)])
    assert mark.exists()
    mark.unlink()
    plugins._loaded.discard(str(path))
    path.write_text(path.read_text() + "\n")
    with pytest.raises(UsageError, match="has changed since"):
        plugins.load_recorded_plugins([str(path)])
    assert not mark.exists()


def test_a_home_folder_that_cannot_be_written_does_not_stop_a_plugin(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file"))
    path = tmp_path / "mine.py"
    path.write_text("VALUE = 1\n")
    load_plugins([path])
    plugins._loaded.discard(str(path))
    with pytest.raises(UsageError, match="loading it runs its code"):
        plugins.load_recorded_plugins([str(path)])


def test_a_file_that_was_imported_before_can_be_named_as_a_plugin(tmp_path, monkeypatch):
    path = tmp_path / "plugin_module.py"
    path.write_text(METHOD.format(name="twice"))
    monkeypatch.syspath_prepend(str(tmp_path))
    load_plugins(["plugin_module"])
    load_plugins([path])
    assert "twice" in METHODS
