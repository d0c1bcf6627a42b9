"""`hadahash bench scale`: every step runs and is measured."""

from __future__ import annotations

import json

import pytest

from hadahash.cli.bench_scale import Step, _measure, steps
from hadahash.cli.scale_steps import Options, random_codes
from hadahash.errors import StorageError
from hadahash.index import Index
from hadahash.index.duplicates import find_duplicates


def test_all_steps_are_measured(run, tmp_path):
    arguments = ["--photos", "120", "--codes", "random", "--folder", str(tmp_path), "--json"]
    code, out, _ = run("bench", "scale", *arguments)
    found = {each["step"]: each for each in json.loads(out)["steps"]}
    assert code == 0 and list(found) == [
        step.title for step in steps(tmp_path / "x", Options(120, codes="random"), train=False)
    ]
    assert all(each["seconds"] > 0 and each["peak_megabytes"] > 10 for each in found.values())
    assert found["scan the folder"]["found"] == found["read the table"]["rows"] == 120
    assert found["open the index, first search"]["items"] == 121  # with the photo that was added


def test_the_build_and_the_training_are_those_of_the_commands(tmp_path):
    found = {each.title: each for each in steps(tmp_path, Options(500), train=True)}
    assert found["index build"].command[1:4] == ["hadahash", "index", "build"]
    assert found["train, one epoch"].command[1:3] == ["hadahash", "train"]
    assert found["index build"].whole and not found["scan the folder"].whole


def test_random_codes_have_known_duplicates():
    codes = random_codes(3000, 0)
    groups = find_duplicates(Index.build(codes), 12)
    assert 25 <= groups.surplus <= 30


def test_a_step_that_fails_is_named():
    with pytest.raises(StorageError, match="The step 'x' failed: ValueError: 7"):
        _measure(Step("x", ["-c", "raise ValueError(7)"]))


def test_wrong_options_are_refused(run):
    code, _, err = run("bench", "scale", "--photos", "5")
    assert code == 2 and "--photos must be >= 100, got 5." in err
    code, _, err = run("bench", "scale", "--codes", "no")
    assert code == 2 and "--codes must be network or random, got 'no'." in err
