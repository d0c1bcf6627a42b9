"""A killed run resumes exactly; a checkpoint that is damaged or of another run is refused."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import resource
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from toys import (
    fit_in,
    make_toy,
    one_line,
    smallest_backbone,
    tensor_bytes,
    tiny_hasher,
    use_smallest_backbone,
)

import hadahash.building
from hadahash.errors import StorageError, UsageError
from hadahash.methods.hcdh import HCDH
from hadahash.training import Checkpoint

KINDS = {
    "dropout": {"backbone": "smallest", "epochs": 20},
    "frozen": {"backbone": "smallest", "epochs": 30, "frozen": True},
    "no average": {"backbone": "smallest", "epochs": 20, "ema": 0.0, "threshold": "mean"},
    "mixup": {"backbone": "test_efficientnet", "epochs": 5, "mixup": 0.2},
}


def _hasher(kind: str, **changes):
    if KINDS[kind]["backbone"] == "smallest":
        hadahash.building.build_backbone = smallest_backbone
    return tiny_hasher(
        **{"checkpoint_seconds": 0, "batch_size": 20, "seed": 7} | KINDS[kind] | changes
    )


def _job(kind: str, out: str) -> None:
    """Train, or continue to train, in a separate process, and save the result."""
    torch.set_num_threads(1)
    hasher = fit_in(_hasher(kind), *make_toy(88, seed=0), folder=Path(out), resume=True)
    hasher.save(Path(out) / "model")


@pytest.fixture(scope="module")
def processes():
    """Child processes that have torch and timm imported already, and no thread of this process."""
    old = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in __import__("sys").path if path)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["hadahash.hasher", "timm", "torchvision", "toys"])
    yield context
    os.environ.pop("PYTHONPATH") if old is None else os.environ.update(PYTHONPATH=old)


def _start(processes, kind, out):
    process = processes.Process(target=_job, args=(kind, str(out)))
    process.start()
    return process


def _weights(out: Path) -> str:
    (model,) = (out / "model").glob("model-*.safetensors")
    return model.name


def _assert_whole_log(out: Path, epochs: int) -> None:
    lines = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines] == list(range(1, epochs + 1))
    assert [line["step"] for line in lines] == [4 * epoch for epoch in range(1, epochs + 1)]


@pytest.mark.parametrize(
    ("kind", "kills"), [("dropout", 8), ("frozen", 4), ("no average", 4), ("mixup", 4)]
)
def test_kill_9_at_random_moments_and_resume_gives_the_same_bytes(processes, tmp_path, kind, kills):
    unbroken, broken = tmp_path / "unbroken", tmp_path / "broken"
    process = _start(processes, kind, unbroken)
    process.join()
    assert process.exitcode == 0
    rng, hit = random.Random(kind), 0
    for _ in range(kills):
        process, log = _start(processes, kind, broken), broken / "checkpoint.safetensors"
        before = log.stat().st_mtime_ns if log.exists() else 0
        while process.is_alive() and (not log.exists() or log.stat().st_mtime_ns == before):
            time.sleep(0.001)  # until it has done one step
        time.sleep(rng.uniform(0, 0.06))
        process.kill()
        process.join()
        hit += process.exitcode == -9
        if process.exitcode == 0:
            break
    assert hit >= 3, f"only {hit} of {kills} kills hit a running training"
    process = _start(processes, kind, broken)
    process.join()
    assert process.exitcode == 0
    assert _weights(broken) == _weights(unbroken)
    _assert_whole_log(broken, KINDS[kind]["epochs"])
    _assert_whole_log(unbroken, KINDS[kind]["epochs"])


# ------------------------------------------------------------------ inside one process


@pytest.fixture
def small(monkeypatch):
    use_smallest_backbone(monkeypatch)
    pixels, labels = make_toy(44, seed=0)

    def fit(out, *, resume=True, data=(pixels, labels), **changes):
        hasher = _hasher("dropout", **{"epochs": 3} | changes)
        return fit_in(hasher, *data, folder=out, resume=resume)

    return fit


class Stopped(Exception):
    pass


@pytest.fixture
def stopped(small, tmp_path, monkeypatch):
    """The folder of a run that was stopped after 3 of its 6 steps."""
    save = Checkpoint.save

    def stop(self, state):
        save(self, state)
        if state.step == 3:
            raise Stopped

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "save", stop)
        with pytest.raises(Stopped):
            small(tmp_path / "run")
    return tmp_path / "run"


def test_a_stopped_run_continues(small, stopped, tmp_path):
    assert tensor_bytes(small(stopped)) == tensor_bytes(small(tmp_path / "other"))
    lines = [json.loads(line) for line in (stopped / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [2, 4, 6]


@pytest.fixture
def press(monkeypatch):
    """Raise these signals during the fourth of six steps."""

    def plan(*numbers):
        def before_step(self, step, total):
            if step == 3:
                for number in numbers:
                    signal.raise_signal(number)

        monkeypatch.setattr(HCDH, "before_step", before_step)

    return plan


def _step_of(out: Path) -> int:
    with safetensors.safe_open(out / "checkpoint.safetensors", "pt") as file:
        return json.loads(file.metadata()["hadahash"])["step"]


def test_ctrl_c_waits_for_the_step_and_its_checkpoint(small, tmp_path, press, monkeypatch):
    press(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        small(tmp_path / "run", checkpoint_seconds=3600)
    assert _step_of(tmp_path / "run") == 4
    assert (
        signal.getsignal(signal.SIGINT) is signal.default_int_handler
        and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    )
    monkeypatch.undo()
    use_smallest_backbone(monkeypatch)
    assert tensor_bytes(small(tmp_path / "run")) == tensor_bytes(small(tmp_path / "other"))


def test_a_second_ctrl_c_ends_at_once(small, tmp_path, press):
    press(signal.SIGINT, signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        small(tmp_path / "run", checkpoint_seconds=3600)
    assert not list((tmp_path / "run").glob("*checkpoint*"))


def test_ctrl_c_during_a_write_leaves_no_partial_checkpoint(small, tmp_path, press, monkeypatch):
    def pressed(*_):
        raise KeyboardInterrupt

    press(signal.SIGINT)
    monkeypatch.setattr("safetensors.torch.save_file", pressed)
    with pytest.raises(KeyboardInterrupt):
        small(tmp_path / "run", checkpoint_seconds=3600)
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["log.jsonl"]


def test_ctrl_c_ends_training_at_once_without_a_folder(small, press, monkeypatch):
    steps = []
    monkeypatch.setattr(
        "hadahash.training.optim.WeightAverage.update", lambda self, step: steps.append(step)
    )
    press(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        small(None, resume=False)
    assert steps == [0, 1, 2]


def test_existing_signal_handlers_are_kept(small, tmp_path, press):
    got = []
    old = signal.signal(signal.SIGTERM, lambda number, frame: got.append(number))
    try:
        press(signal.SIGTERM)
        small(tmp_path / "run")
        assert got == [signal.SIGTERM] and _step_of(tmp_path / "run") == 6
    finally:
        signal.signal(signal.SIGTERM, old)


def test_training_in_a_thread_needs_no_signals(small, tmp_path):
    thread = threading.Thread(target=small, args=(tmp_path / "run",))
    thread.start()
    thread.join()
    assert _step_of(tmp_path / "run") == 6


def test_resuming_does_only_the_steps_that_are_left(small, stopped, monkeypatch):
    steps = []
    monkeypatch.setattr(HCDH, "before_step", lambda self, step, total: steps.append(step))
    small(stopped)
    assert steps == [3, 4, 5]


def test_resuming_a_finished_run_changes_nothing(small, tmp_path):
    first = small(tmp_path / "run")
    log = (tmp_path / "run" / "log.jsonl").read_text()
    assert tensor_bytes(small(tmp_path / "run")) == tensor_bytes(first)
    assert (tmp_path / "run" / "log.jsonl").read_text() == log


def test_without_resume_a_run_starts_again(small, stopped, monkeypatch):
    steps = []
    monkeypatch.setattr(HCDH, "before_step", lambda self, step, total: steps.append(step))
    small(stopped, resume=False)
    assert steps == [0, 1, 2, 3, 4, 5]


def test_resuming_without_a_checkpoint_starts_at_the_beginning(small, tmp_path):
    assert tensor_bytes(small(tmp_path / "new", resume=True)) == tensor_bytes(
        small(tmp_path / "old", resume=False)
    )


def test_resuming_without_a_folder_is_refused(small):
    with pytest.raises(UsageError, match="give --out"):
        small(None)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"lr": 0.3}, "lr: 0.1 before, 0.3 now"),
        ({"epochs": 4}, "epochs: 3 before, 4 now"),
        ({"seed": 8}, "seed: 7 before, 8 now"),
        ({"bits": 24}, "bits: 16 before, 24 now"),
        ({"method": "hcdh-2"}, "method: hcdh before, hcdh-2 now"),
        ({"backbone": "other"}, "backbone: smallest before, other now"),
        ({"weights": "other.pth"}, "weights: none before, other.pth now"),
        ({"data": make_toy(48, seed=0)}, "images: "),
        ({"data": (make_toy(44, seed=0)[0], np.arange(44) % 2)}, "labels: "),
    ],
)
def test_the_checkpoint_of_another_setting_is_refused_by_its_name(small, stopped, changes, named):
    with pytest.raises(UsageError, match=named) as caught:
        small(stopped, **changes)
    text = one_line(caught.value)
    assert "belongs to a different configuration" in text and "--overwrite" in text


def test_how_often_checkpoints_are_written_may_change(small, stopped, tmp_path):
    assert tensor_bytes(small(stopped, checkpoint_seconds=60)) == tensor_bytes(
        small(tmp_path / "other")
    )


def test_a_damaged_checkpoint_is_refused(small, stopped):
    path = stopped / "checkpoint.safetensors"
    good = path.read_bytes()
    header = int.from_bytes(good[:8], "little")
    flips = [0, 7, 9, 8 + header // 2, 8 + header + 5, len(good) - 1]
    broken = [good[:50], good[: len(good) // 2], good[:-1], b"", b"rubbish" * 100]
    broken += [good[:place] + bytes([good[place] ^ 4]) + good[place + 1 :] for place in flips]
    for content in broken:
        path.write_bytes(content)
        with pytest.raises(
            StorageError, match=r"checkpoint.safetensors is damaged .*--overwrite"
        ) as caught:
            small(stopped)
        one_line(caught.value)
    path.write_bytes(good)
    small(stopped)


@pytest.mark.parametrize(
    "change",
    [
        {"step": 5},
        {"seconds": 1e6},
        {"seconds": None},
        {"fingerprint": {}},
        {"more": 1},
        [],
        5,
    ],
)
def test_a_changed_header_of_a_checkpoint_is_refused(small, stopped, change):
    path = stopped / "checkpoint.safetensors"
    with safetensors.safe_open(path, "pt") as file:
        header = json.loads(file.metadata()["hadahash"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    changed = header | change if isinstance(change, dict) else change
    safetensors.torch.save_file(tensors, path, {"hadahash": json.dumps(changed)})
    with pytest.raises(
        StorageError, match=r"checkpoint.safetensors is damaged .*--overwrite"
    ) as caught:
        small(stopped)
    one_line(caught.value)
    safetensors.torch.save_file(tensors, path, {"hadahash": json.dumps(header)})
    small(stopped)


def _fit_with_little_disk(out: str) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
    try:
        fit_in(_hasher("dropout"), *make_toy(88, seed=0), folder=Path(out), resume=True)
    except StorageError as error:
        os._exit(0 if "Cannot write" in one_line(error) and "checkpoint" in str(error) else 3)
    os._exit(4)


def test_a_full_disk_ends_training_in_one_line_and_keeps_the_last_checkpoint(processes, tmp_path):
    process = _start(processes, "dropout", tmp_path)
    while process.is_alive() and not (tmp_path / "checkpoint.safetensors").exists():
        time.sleep(0.001)
    process.kill()
    process.join()
    before = (tmp_path / "checkpoint.safetensors").read_bytes()
    assert len(before) > 10_000
    process = processes.Process(target=_fit_with_little_disk, args=(str(tmp_path),))
    process.start()
    process.join()
    assert process.exitcode == 0
    assert (tmp_path / "checkpoint.safetensors").read_bytes() == before


@pytest.mark.parametrize("resume", [False, True])
def test_a_folder_that_cannot_be_created_is_a_one_line_error(small, tmp_path, resume):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="file") as caught:
        small(tmp_path / "file" / "run", resume=resume)
    one_line(caught.value)
