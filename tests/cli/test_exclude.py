"""--exclude of train, evaluate and encode: files and folders of a photo folder are left out."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from hadahash import Codes
from hadahash.data.base import DataWarning

pytestmark = pytest.mark.filterwarnings("ignore::hadahash.data.base.DataWarning")

NETWORK = ("--backbone", "test_efficientnet", "--weights", "none", "--set", "size=32")
ITQ = ("--method", "itq", "--bits", 8, *NETWORK, "--device", "cpu")


@pytest.fixture
def photos(toy_folder) -> Path:
    """Four classes, a folder `old` that is none, and a thumbnail in each class."""
    for folder in [*toy_folder.iterdir()]:
        first = min(folder.iterdir())
        shutil.copy(first, folder / "a_thumb.png")
    shutil.copytree(toy_folder, toy_folder / "old")
    return toy_folder


def ids_of(path: Path) -> set[str]:
    return set(Codes.load(path).ids.tolist())


def test_train_and_evaluate_leave_out_the_same_files(run, photos, tmp_path):
    out = tmp_path / "run"
    patterns = ("--exclude", "*_thumb.*", "--exclude", "old")
    with pytest.warns(DataWarning, match=r"Skipped 5 excluded files\."):
        code, _, err = run("train", photos, "--out", out, *patterns, *ITQ)
    assert code == 0 and "4 classes" in err
    assert json.loads((out / "run.json").read_text())["exclude"] == ["*_thumb.*", "old"]
    assert run("evaluate", out, "--device", "cpu")[0] == 0
    evaluated = set().union(*map(ids_of, (out / "evaluation").glob("[qd]*.npz")))
    assert len(evaluated) == 48
    assert not any("thumb" in each or each.startswith("old/") for each in evaluated)
    moved = photos.rename(tmp_path / "moved")
    assert run("evaluate", out, "--data", moved, "--device", "cpu")[0] == 0
    code, _, err = run("evaluate", out, "--data", tmp_path / "gone", "--device", "cpu")
    assert code == 1 and "gone" in err and "Traceback" not in err


def test_a_method_without_labels_leaves_out_files_too(run, photos, tmp_path):
    shutil.copy(next(photos.rglob("*.png")), photos / "stray.png")  # so that there are no classes
    code, _, err = run("train", photos, "--out", tmp_path / "m", "--exclude", "old", *ITQ)
    assert code == 0 and "53 training images without labels" in err


def test_encode_leaves_out_files(run, photos, tmp_path):
    assert run("train", photos, "--out", tmp_path / "m", "--exclude", "old", *ITQ)[0] == 0
    codes = ("--out", tmp_path / "c.npz", "--device", "cpu")
    with pytest.warns(DataWarning, match=r"Skipped 8 excluded files\."):
        code, out, _ = run("encode", tmp_path / "m", photos, "--exclude", "*/a_thumb.png", *codes)
    assert code == 0 and "96 codes of 8 bits" in out
    assert not any("thumb" in each for each in ids_of(tmp_path / "c.npz"))
    code, _, err = run("encode", tmp_path / "m", photos, "--exclude", "*.png", *codes)
    assert code == 1 and "contains no images. Skipped 104 excluded files." in err


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("train", "digits", "--out", "r"), "exclude applies to a folder of images, got digits."),
        (("encode", "m", "a.png"), "--exclude applies to a folder of images, got a.png."),
        (("encode", "--embeddings", "x.npy"), "not to --embeddings."),
    ],
)
def test_patterns_need_a_folder(run, tmp_path, monkeypatch, arguments, text):
    monkeypatch.chdir(tmp_path)
    Path("a.png").touch()
    code, _, err = run(*arguments, "--exclude", "*.png")
    assert code == 2 and text in err
