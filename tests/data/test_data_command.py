"""hadahash data list and data get."""

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
        told = capsys.readouterr()
        return ended.value.code, told.out, told.err

    return call


def test_list_names_every_set_and_where_it_is(run, tmp_path):
    for part in ("train", "val"):
        (tmp_path / "tinyimagenet100" / part).mkdir(parents=True)
    code, out, _ = run("list")
    lines = {line.split()[0]: line for line in out.splitlines()}
    assert code == 0
    assert list(lines) == list_datasets()
    assert lines["tinyimagenet100"].endswith(f"mAP@1000        in {tmp_path / 'tinyimagenet100'}")
    assert lines["voc2012"].endswith("not here")
    assert lines["digits"].endswith("needs no files")


def test_get_tells_the_sizes_of_the_protocol(run):
    code, out, _ = run("get", "digits")
    assert code == 0
    assert (
        out.splitlines()[1] == "protocol holdout: query 179, train 1,618, database 1,618; mAP@all"
    )


@pytest.mark.parametrize(
    "name", sorted(set(list_datasets()) - {"cifar10", "digits", "digit-pairs"})
)
def test_what_cannot_be_fetched_is_told_with_the_layout(run, tmp_path, name):
    code, out, err = run("get", name)
    assert (code, out) == (1, "")
    assert err.startswith(f"error: {name} is not in {tmp_path / name}. Expected ")
    assert "http" in err
    assert "--data-root" in err
    assert err.count("\n") == 1
