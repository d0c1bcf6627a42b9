"""The commands data list, data get and data prepare."""

from __future__ import annotations

import sys

import pytest

from hadahash import list_datasets
from hadahash.cli import main


@pytest.fixture
def run(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("HADAHASH_DATA", str(tmp_path))

    def call(*arguments: str) -> tuple[object, str, str]:
        monkeypatch.setattr(sys, "argv", ["hadahash", "data", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        return ended.value.code, printed.out, printed.err

    return call


def test_list_shows_every_data_set_and_its_folder(run, tmp_path):
    for part in ("train", "val"):
        (tmp_path / "tinyimagenet100" / part).mkdir(parents=True)
    code, out, _ = run("list")
    lines = {line.split()[0]: line for line in out.splitlines()}
    assert code == 0
    assert list(lines) == list_datasets()
    assert lines["tinyimagenet100"].endswith(f"mAP@1000        in {tmp_path / 'tinyimagenet100'}")
    assert lines["voc2012"].endswith("not found")
    assert lines["digits"].endswith("needs no files")


def test_get_prints_the_sizes_of_the_split(run):
    code, out, _ = run("get", "digits")
    assert code == 0
    assert (
        out.splitlines()[1] == "protocol holdout: query 179, train 1,618, database 1,618; mAP@all"
    )


@pytest.mark.parametrize(
    "name", sorted(set(list_datasets()) - {"cifar10", "digits", "digit-pairs"})
)
def test_a_missing_data_set_is_explained_with_its_layout(run, tmp_path, name):
    code, out, err = run("get", name)
    assert (code, out) == (1, "")
    assert err.startswith(f"error: {name} is not in {tmp_path / name}. Expected: ")
    assert "http" in err
    assert "--data-root" in err
    assert err.count("\n") == 1


def test_prepare_refuses_unknown_names(run, tmp_path):
    code, out, err = run("prepare", "voc2012-64px", str(tmp_path), str(tmp_path / "new"))
    assert (code, out) == (2, "")
    assert "Did you mean 'voc2012-112px'?" in err


def test_prepare_refuses_a_folder_that_is_not_empty(run, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    code, _, err = run("prepare", "voc2012-112px", str(tmp_path), str(tmp_path / "full"))
    assert code == 1
    assert "full is not empty. Give another folder." in err
