"""A table from training to evaluation, single-label and multi-label."""

from __future__ import annotations

import sys

import pytest
from toys import CLASS_NAMES, make_toy, tiny_hasher, write_folder

from hadahash import files
from hadahash.building import make_config
from hadahash.cli import main
from hadahash.runs import DataSpec, evaluate_run, train_run

CONFIG = make_config(
    "hcdh",
    bits=16,
    backbone="test_efficientnet",
    weights="none",
    settings={"size": 32, "epochs": 2, "batch_size": 32},
)


def write_table(folder, *, several: bool = False, split: bool = False):
    """80 toy images in four colors; every fifth is a query."""
    pixels, labels = make_toy(80, seed=0)
    write_folder(folder, pixels, labels)
    lines = ["path,labels" + ",split" * split]
    for number, label in enumerate(labels):
        name = CLASS_NAMES[label]
        words = f"{name}|{'cold' if label < 2 else 'warm'}" if several else name
        lines.append(
            f"{name}/{number:03d}.png,{words}"
            + (f",{'train' if number % 5 else 'query'}" if split else "")
        )
    (folder / "photos.csv").write_text("\n".join(lines))
    return folder / "photos.csv"


@pytest.mark.parametrize(
    ("several", "split"), [(False, False), (False, True), (True, False), (True, True)]
)
def test_a_table_is_trained_on_and_evaluated(tmp_path, several, split):
    table = write_table(tmp_path, several=several, split=split)
    model = train_run(CONFIG, DataSpec(str(table)), tmp_path / "run")
    assert model.multilabel == several
    assert model.classes == tuple(
        sorted([*CLASS_NAMES, "cold", "warm"] if several else CLASS_NAMES)
    )
    report = evaluate_run(tmp_path / "run")
    about = files.read_json(tmp_path / "run" / "run.json")
    assert (about["dataset"], about["protocol"]) == ("photos", "table" if split else "holdout")
    assert (report.queries, report.database) == ((16, 64) if split else (8, 72))
    assert about["train_images"] == report.database


def test_fit_takes_a_table_and_leaves_the_queries_alone(tmp_path):
    hasher = tiny_hasher().fit(write_table(tmp_path, split=True))
    assert hasher.model_.network.method.task.train_images == 64
    assert hasher.model_.classes == CLASS_NAMES


def test_the_command_prints_line_and_remedy(tmp_path, monkeypatch, capsys):
    table = write_table(tmp_path)
    lines = table.read_text().splitlines()
    lines[6] = lines[6].replace(".png", ".jpeg")
    table.write_text("\n".join(lines))
    monkeypatch.setattr(
        sys, "argv", ["hadahash", "train", str(table), "--out", str(tmp_path / "run")]
    )
    with pytest.raises(SystemExit) as ended:
        main()
    caught = capsys.readouterr().err
    assert ended.value.code == 1
    assert caught.startswith(f"error: {table} line 7: image green/005.jpeg does not exist")
    assert caught.count("\n") == 1
    assert not (tmp_path / "run").exists()
