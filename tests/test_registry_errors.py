"""The registry and the exception tree."""

from __future__ import annotations

import importlib
import pickle
import sys

import pytest

from hadahash import errors
from hadahash.errors import (
    DataError,
    HadaHashError,
    ImageError,
    MissingExtraError,
    NewerFileError,
    UsageError,
    unknown,
)
from hadahash.registry import Registry


def _colors() -> Registry[str]:
    registry: Registry[str] = Registry("color")
    for name in ("red", "green", "blue"):
        registry.register(name)(name.upper())
    return registry


def test_registered_objects_are_found_by_name():
    registry = _colors()
    assert registry.get("red") == "RED"
    assert registry.names() == ["blue", "green", "red"]
    assert "red" in registry and "pink" not in registry


def test_register_returns_its_argument():
    assert _colors().register("pink")("PINK") == "PINK"


def test_a_name_is_registered_only_once():
    with pytest.raises(UsageError, match="The color 'red' is already registered"):
        _colors().register("red")("other")


def test_an_unknown_name_suggests_the_nearest_and_lists_all():
    with pytest.raises(UsageError) as caught:
        _colors().get("gren")
    assert (
        str(caught.value) == "Unknown color 'gren'. Did you mean 'green'? Known: blue, green, red."
    )


def test_no_suggestion_without_a_similar_name():
    assert "Did you mean" not in str(unknown("color", "zzz", ["red"]))


def test_very_many_names_are_not_all_listed():
    text = str(unknown("number", "number7", [f"number{i}" for i in range(1000)]))
    assert "Did you mean 'number7" in text
    assert "(1000 in all)" in text
    assert len(text) < 300


def test_exit_codes():
    assert HadaHashError("x").exit_code == 1
    assert UsageError("x").exit_code == 2
    assert NewerFileError("x").exit_code == 3


def test_the_docstring_draws_the_whole_tree():
    drawn = {
        line.split("──")[-1].split()[0] for line in errors.__doc__.splitlines() if "──" in line
    }
    defined = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, HadaHashError)
    }
    assert drawn | {"HadaHashError"} == defined
    assert issubclass(ImageError, DataError) and issubclass(UsageError, ValueError)


def test_an_image_error_keeps_path_and_reason_also_across_processes():
    error = pickle.loads(pickle.dumps(errors.CorruptImage("a.jpg", "truncated")))
    assert (error.path, error.reason, str(error)) == ("a.jpg", "truncated", "a.jpg: truncated")


def test_a_missing_extra_says_how_to_install_it():
    assert "pip install 'hadahash[parquet]'" in str(MissingExtraError("pyarrow", "parquet"))


def test_a_name_of_a_module_is_listed_and_imported_when_it_is_asked_for(tmp_path, monkeypatch):
    (tmp_path / "lazy_engine.py").write_text(
        "from shared_registry import things\n\n@things.register('late')\nclass Late: ...\n"
    )
    (tmp_path / "shared_registry.py").write_text(
        "from hadahash.registry import Registry\nthings = Registry('thing')\n"
        "things.register_module('late', 'lazy_engine')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    things = importlib.import_module("shared_registry").things
    assert things.names() == ["late"] and "late" in things and "lazy_engine" not in sys.modules
    with pytest.raises(UsageError, match="already registered"):
        things.register("late")(type("Other", (), {}))
    assert things.get("late").__name__ == "Late"


def test_errors_of_the_system_are_one_line():
    """Some libraries raise an OSError with several lines and without a number."""
    error = errors.from_os_error("read", "x.parquet", OSError("Invalid data\nin the header.\n"))
    assert str(error) == (
        "Cannot read x.parquet: Invalid data in the header. Check the path and try again."
    )
