"""A run from data to report: what it writes, and that queries stay unseen until evaluation."""

from __future__ import annotations

import csv
import json
import shlex
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
from toys import (
    make_toy,
    one_line,
    tensor_bytes,
    tiny_config,
    tiny_hasher,
    use_smallest_backbone,
    write_folder,
)

from hadahash import Codes, evaluate
from hadahash.config import Config
from hadahash.data import ArrayImages, LabelledImages, Split, find_dataset, read_folder
from hadahash.data.base import name_ids
from hadahash.environment import command_line
from hadahash.errors import DataError, HadaHashError, StorageError, UsageError
from hadahash.fitting import fit_model
from hadahash.model import HashModel
from hadahash.runs import (
    DataSpec,
    evaluate_files,
    evaluate_run,
    labels_of,
    read_evaluated_run,
    train_run,
    validation_map,
)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    use_smallest_backbone(monkeypatch)


def _config(**changes) -> Config:
    return tiny_config(**{"backbone": "smallest", "epochs": 2, "batch_size": 16} | changes)


def _break(path: Path) -> None:
    """Make an image unreadable."""
    path.write_bytes(bytes(path.stat().st_size))


def test_a_run_records_everything(toy_folder, tmp_path):
    out = tmp_path / "run"
    source = DataSpec(str(toy_folder))
    hasher = train_run(_config(seed=3), source, out)
    record = json.loads((out / "run.json").read_text())
    split = Split.load(out / "split.json")
    expected = {
        "dataset": "photos",
        "data": str(toy_folder),
        "protocol": "holdout",
        "method": "hcdh",
        "bits": 16,
        "seed": 3,
        "backbone": "smallest",
        "queries": 4,
        "database": 44,
        "train_images": 44,
        "epochs": 2,
        "validation": 0.0,
        "split_sha256": split.sha256,
    }
    assert {key: record[key] for key in expected} == expected
    assert (
        record["settings"]["lam"] == 1.0
        and record["settings"]["batch_size"] == 16
        and record["settings"]["flip"] == 0.5
    )
    assert (
        record["train_seconds"] > 0
        and record["images_per_second"] > 0
        and "CPU" in record["hardware"]
    )
    assert (
        {"hadahash", "python", "torch", "numpy"} <= set(record["versions"])
        and record["command"]
        and len(record["date"]) == 10
    )
    assert len((out / "log.jsonl").read_text().splitlines()) == 2
    assert not (out / "checkpoint.safetensors").exists() and not (out / "skipped.csv").exists()
    assert tensor_bytes(HashModel.load(out, device="cpu")) == tensor_bytes(hasher)


def test_an_evaluated_run_keeps_codes_and_report(toy_folder, tmp_path):
    out = tmp_path / "run"
    hasher = train_run(_config(), DataSpec(str(toy_folder)), out)
    report = evaluate_run(out)
    data, split = read_folder(toy_folder), Split.load(out / "split.json")
    query, database = (
        Codes.load(out / "evaluation" / f"{part}.npz") for part in ("query", "database")
    )
    assert query.ids.tolist() == data.ids[split.query].tolist()
    assert database.ids.tolist() == data.ids[split.database].tolist()
    assert np.array_equal(query.packed, hasher.encode(data.take(split.query)).packed)
    by_hand = evaluate(
        query, data.labels.take(split.query), database, data.labels.take(split.database)
    )
    assert report.map == by_hand.map and report.queries == 4 and report.database == 44
    stored = json.loads((out / "evaluation" / "report.json").read_text())
    assert stored["map"] == pytest.approx(report.map)
    assert evaluate_run(out, depth=5).depth == 5


def test_the_same_run_twice_is_the_same(toy_folder, tmp_path):
    for name in ("a", "b"):
        train_run(_config(), DataSpec(str(toy_folder)), tmp_path / name)
    a, b = (sorted(path.name for path in (tmp_path / name).glob("model-*")) for name in ("a", "b"))
    assert (
        a == b
        and (tmp_path / "a" / "split.json").read_text()
        == (tmp_path / "b" / "split.json").read_text()
    )


def test_labels_stay_with_their_codes_when_images_are_skipped(tmp_path):
    toy_folder = write_folder(tmp_path / "photos", *make_toy(96, seed=2))
    out = tmp_path / "run"
    train_run(_config(), DataSpec(str(toy_folder)), out)
    data, split = read_folder(toy_folder), Split.load(out / "split.json")
    bad = [data.ids[split.query[1]], data.ids[split.database[7]]]
    for name in bad:
        _break(toy_folder / name)
    train_run(_config(), DataSpec(str(toy_folder)), out, overwrite=True)
    report = evaluate_run(out)
    assert report.queries == 7 and report.database == 87 and report.skipped == 2
    with (out / "evaluation" / "skipped.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["path"] for row in rows] == bad and all(row["reason"] for row in rows)
    for part, rows in (("query", split.query), ("database", split.database)):
        codes = Codes.load(out / "evaluation" / f"{part}.npz")
        classes = [data.classes[label] for label in labels_of(codes, data.take(rows))]
        assert classes == [name.split("/")[0] for name in codes.ids]


def test_labels_of_multilabel_data_with_and_without_skipped_images():
    pixels, _ = make_toy(4, seed=0)
    labels = np.array([[1, 0], [0, 1], [1, 1], [0, 0]])
    data = LabelledImages(ArrayImages(pixels), np.array(list("abcd")), labels, ("x", "y"))
    packed = np.zeros((3, 2), np.uint8)
    codes = Codes(packed, 16, np.array(["a", "c", "d"]), skipped=[("b", "broken")])
    assert labels_of(codes, data).tolist() == [[1, 0], [1, 1], [0, 0]]
    whole = Codes(np.zeros((4, 2), np.uint8), 16, data.ids)
    assert labels_of(whole, data).tolist() == labels.tolist()


def test_labels_of_many_images_take_little_time():
    """A scan of all ids for each code would take minutes."""
    count = 50_000
    ids = name_ids(f"{row:06d}.png" for row in range(count))
    pixels = np.zeros((count, 1, 1, 3), np.uint8)
    data = LabelledImages(ArrayImages(pixels), ids, np.arange(count) % 2, ("x", "y"))
    codes = Codes(np.zeros((count - 1, 1), np.uint8), 8, ids[1:], skipped=[(ids[0], "broken")])
    start = time.process_time()
    labels = labels_of(codes, data)
    assert time.process_time() - start < 2
    assert np.array_equal(labels, np.arange(1, count) % 2)


def test_a_run_is_not_evaluated_with_the_model_of_another(toy_folder, tmp_path):
    spec = DataSpec(str(toy_folder))
    train_run(_config(), spec, tmp_path / "one")
    other = train_run(_config(seed=1), spec, tmp_path / "other")
    with pytest.raises(StorageError, match=r"run\.json names the model") as caught:
        evaluate_run(tmp_path / "one", model=other)
    one_line(caught.value)


def test_training_images_that_cannot_be_read_are_listed(toy_folder, tmp_path):
    (toy_folder / "blue" / "000.png").write_bytes(b"")
    (toy_folder / "red" / "002.png").write_bytes(b"")
    train_run(_config(), DataSpec(str(toy_folder)), tmp_path / "run")
    split, data = Split.load(tmp_path / "run" / "split.json"), read_folder(toy_folder)
    expected = [name for name in ("blue/000.png", "red/002.png") if name in data.ids[split.train]]
    with (tmp_path / "run" / "skipped.csv").open(newline="") as file:
        assert [row["path"] for row in csv.DictReader(file)] == expected


# ------------------------------------------------------------------ queries stay unseen


@dataclass
class Watched:
    """Images that record which of the data set's images were read."""

    pixels: np.ndarray
    numbers: np.ndarray
    read: set[int] = field(default_factory=set)

    def __len__(self):
        return len(self.numbers)

    def __getitem__(self, index):
        self.read.add(int(self.numbers[index]))
        return self.pixels[self.numbers[index]]

    def take(self, indices):
        return Watched(self.pixels, self.numbers[indices], self.read)


@pytest.fixture
def watched() -> LabelledImages:
    pixels, labels = make_toy(80, seed=4)
    images = Watched(pixels, np.arange(80))
    return LabelledImages(
        images, np.array([f"{i:02d}" for i in range(80)]), labels, tuple("abcd"), "watched"
    )


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("validation", [0.0, 0.25])
def test_queries_are_not_touched_while_training(watched, tmp_path, validation, frozen):
    (tmp_path / "watched").mkdir()
    source = DataSpec(str(tmp_path / "watched"), protocol="holdout", validation=validation)
    train_run(
        _config(frozen=frozen, side=32, threshold="mean"), source, tmp_path / "run", dataset=watched
    )
    split = Split.load(tmp_path / "run" / "split.json")
    assert len(split.query) == 8
    assert watched.images.read == set(split.train.tolist())
    evaluate_run(tmp_path / "run", dataset=watched)
    assert watched.images.read == set(range(80))


def test_validation_images_come_from_the_training_images_and_are_not_trained_on(
    watched, tmp_path, monkeypatch
):
    trained, validated = [], []

    def fit(config, data, **options):
        trained.append(data)
        return fit_model(config, data, **options)

    def validate(model, held_out, searched, **options):
        validated.append(held_out)
        assert searched.ids.tolist() == trained[0].ids.tolist()
        return validation_map(model, held_out, searched, **options)

    monkeypatch.setattr("hadahash.runs.training.fit_model", fit)
    monkeypatch.setattr("hadahash.runs.training.validation_map", validate)
    (tmp_path / "watched").mkdir()
    source = DataSpec(str(tmp_path / "watched"), validation=0.25)
    train_run(_config(side=32), source, tmp_path / "run", dataset=watched)
    split = Split.load(tmp_path / "run" / "split.json")
    learned, held = ({int(name) for name in part[0].ids} for part in (trained, validated))
    assert len(held) == 16 and not learned & held
    assert learned | held == set(split.train.tolist()) and not (learned | held) & set(
        split.query.tolist()
    )
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (
        0.25 <= record["validation_map"] <= 1
        and record["train_images"] == 56
        and record["validation"] == 0.25
    )


@pytest.mark.parametrize("fraction", [-0.1, 1.0, 2.0, float("nan")])
def test_a_fraction_out_of_range_is_refused(toy_folder, tmp_path, fraction):
    with pytest.raises(UsageError, match="validation must be >= 0 and < 1") as caught:
        train_run(_config(), DataSpec(str(toy_folder), validation=fraction), tmp_path / "run")
    one_line(caught.value)


# ------------------------------------------------------------------ errors


def test_a_run_continues_after_an_interruption(toy_folder, tmp_path, monkeypatch):
    from hadahash.training import Checkpoint

    source, save = DataSpec(str(toy_folder)), Checkpoint.save

    class Stopped(Exception):
        pass

    def stop(self, state):
        save(self, state)
        if state.step == 2:
            raise Stopped

    monkeypatch.setattr(Checkpoint, "save", stop)
    with pytest.raises(Stopped):
        train_run(_config(checkpoint_seconds=0), source, tmp_path / "a")
    monkeypatch.setattr(Checkpoint, "save", save)
    resumed = train_run(_config(checkpoint_seconds=0), source, tmp_path / "a", resume=True)
    assert tensor_bytes(resumed) == tensor_bytes(train_run(_config(), source, tmp_path / "b"))


def test_unknown_data_and_protocols_are_one_line_errors(toy_folder, tmp_path):
    with pytest.raises(
        UsageError, match=r"Unknown data set or folder 'cifar11'. Did you mean 'cifar10'"
    ) as caught:
        train_run(_config(), DataSpec("cifar11"), tmp_path / "run")
    one_line(caught.value)
    with pytest.raises(
        UsageError, match=r"Unknown protocol 'hold'. Did you mean 'holdout'"
    ) as caught:
        train_run(_config(), DataSpec(str(toy_folder), protocol="hold"), tmp_path / "run")
    one_line(caught.value)
    with pytest.raises(HadaHashError, match="Cannot read the folder") as caught:
        train_run(_config(), DataSpec(str(tmp_path / "nowhere")), tmp_path / "run")
    one_line(caught.value)


@pytest.mark.parametrize("change", ["added", "removed", "renamed"])
def test_a_folder_that_has_changed_since_is_refused(toy_folder, tmp_path, change):
    """The split holds indices: an additional image would shift the queries."""
    train_run(_config(), DataSpec(str(toy_folder)), tmp_path / "run")
    first = toy_folder / "blue" / "000.png"
    if change == "added":
        (toy_folder / "blue" / "0.png").write_bytes(first.read_bytes())
    elif change == "removed":
        first.unlink()
    else:
        first.rename(toy_folder / "blue" / "x.png")
    with pytest.raises(DataError, match="images were added, removed or renamed") as caught:
        evaluate_run(tmp_path / "run")
    one_line(caught.value)


def test_two_code_files_are_evaluated_by_the_class_in_their_ids(tmp_path):
    queries = Codes(np.array([[0], [255]], np.uint8), 8, ["cat/1.png", "dog/1.png"])
    database = Codes(
        np.array([[255], [1], [0]], np.uint8), 8, ["dog/2.png", "dog/3.png", "cat/2.png"]
    )
    queries.save(tmp_path / "q.npz")
    database.save(tmp_path / "d.npz")
    report = evaluate_files(tmp_path / "q.npz", tmp_path / "d.npz")
    # cat: found first of 3. dog: distances 0, 7, 8 to dog, dog, cat.
    assert report.map == pytest.approx(1.0)
    Codes(np.array([[0], [255]], np.uint8), 8, ["dog/1.png", "cat/1.png"]).save(tmp_path / "q.npz")
    # dog: cat, dog, dog -> (1/2 + 2/3) / 2. cat: dog, dog, cat -> 1/3.
    assert evaluate_files(tmp_path / "q.npz", tmp_path / "d.npz").map == pytest.approx(
        ((1 / 2 + 2 / 3) / 2 + 1 / 3) / 2
    )
    Codes(np.zeros((1, 1), np.uint8), 8, ["plain.png"]).save(tmp_path / "q.npz")
    with pytest.raises(DataError, match=r"'plain.png' has no class"):
        evaluate_files(tmp_path / "q.npz", tmp_path / "d.npz")


def test_evaluating_a_folder_without_a_run_describes_its_contents(toy_folder, tmp_path):
    tiny_hasher(backbone="smallest", epochs=1).fit(toy_folder).save(tmp_path / "model")
    (tmp_path / "file").write_text("")
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / "split.json").write_text("{}")
    (tmp_path / "staged" / ".training").mkdir(parents=True)
    for name, what, remedy in (
        ("photos", "is not the folder of a run (run.json is missing)", "hadahash train DATA --out"),
        ("nowhere", "does not exist", "hadahash train DATA --out"),
        ("file", "is a file", "hadahash train DATA --out"),
        ("model", "contains a model without a run", "hadahash evaluate --queries Q --database D"),
        ("begun", "is an unfinished training run of version 0.1", "--overwrite"),
        ("staged", "training has not finished", "--resume"),
    ):
        for read in (evaluate_run, read_evaluated_run):
            with pytest.raises(StorageError) as caught:
                read(tmp_path / name)
            text = one_line(caught.value)
            assert text.startswith(f"{tmp_path / name} {what}") or what in text
            assert remedy in text


def test_the_depth_is_the_default_of_the_data_set_or_the_requested_one(
    toy_folder, tmp_path, monkeypatch
):
    train_run(_config(), DataSpec(str(toy_folder)), tmp_path / "run")
    own = replace(find_dataset(str(toy_folder)), depth=7)
    monkeypatch.setattr("hadahash.runs.evaluation.find_dataset", lambda name: own)
    depths = [evaluate_run(tmp_path / "run", depth=depth).depth for depth in (None, 5, "all")]
    assert depths == [7, 5, None]
    codes = tmp_path / "run" / "evaluation"
    for part in ("query", "database"):
        (codes / f"{part}.npz").rename(tmp_path / f"{part}.npz")
    code_files = tmp_path / "query.npz", tmp_path / "database.npz"
    for depth in (0, -3):
        for measure in (
            lambda: evaluate_run(tmp_path / "run", depth=depth),  # noqa: B023
            lambda: evaluate_files(*code_files, depth=depth),  # noqa: B023
        ):
            with pytest.raises(
                UsageError, match=f"depth must be >= 1 or 'all', got {depth}"
            ) as caught:
                measure()
            one_line(caught.value)
    assert not (codes / "query.npz").exists(), "it was refused before the work"
    assert (
        evaluate_files(tmp_path / "query.npz", tmp_path / "database.npz", depth="all").depth is None
    )


def test_a_run_that_is_interrupted_after_training_keeps_the_checkpoint(
    toy_folder, tmp_path, monkeypatch
):
    """Validation takes time; interrupting it must not lose the trained model."""

    def pressed(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("hadahash.runs.training.validation_map", pressed)
    with pytest.raises(KeyboardInterrupt):
        train_run(
            _config(checkpoint_seconds=0),
            DataSpec(str(toy_folder), validation=0.25),
            tmp_path / "run",
        )
    assert (tmp_path / "run" / ".training" / "checkpoint.safetensors").exists()


def test_a_run_is_evaluated_on_the_requested_device(toy_folder, tmp_path):
    train_run(_config(), DataSpec(str(toy_folder)), tmp_path / "run")
    with pytest.raises(UsageError, match="Unknown device 'gpu'"):
        evaluate_run(tmp_path / "run", device="gpu")


def test_a_run_folder_that_cannot_be_written_is_a_one_line_error(toy_folder, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="Cannot write") as caught:
        train_run(_config(), DataSpec(str(toy_folder)), tmp_path / "file" / "run")
    one_line(caught.value)


def test_shallow_methods_have_no_epochs(toy_folder, tmp_path):
    train_run(_config(method="lsh"), DataSpec(str(toy_folder)), tmp_path / "run")
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["epochs"] is None and record["train_seconds"] is None
    assert 0 < evaluate_run(tmp_path / "run").map <= 1


def test_the_command_line_is_recorded_as_it_was_typed(monkeypatch):
    monkeypatch.setattr(
        sys, "argv", ["/usr/lib/hadahash/__main__.py", "train", "my photos", "--bits", "64"]
    )
    assert shlex.split(command_line()) == ["hadahash", "train", "my photos", "--bits", "64"]
    monkeypatch.setattr(sys, "argv", ["/opt/bin/hadahash", "doctor"])
    assert command_line() == "hadahash doctor"
