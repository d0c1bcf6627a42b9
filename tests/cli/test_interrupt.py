"""Ctrl-C and SIGTERM in a real process: one line, the right exit code, and an exact --resume."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hadahash.cli.failures import describe

EPOCHS = 25
SETTINGS = {"size": 32, "epochs": EPOCHS, "batch_size": 11, "threshold": "mean"}
TINY = ["--backbone", "test_efficientnet", "--weights", "none", "--bits", "16", "--device", "cpu"]
TINY += [part for key, value in SETTINGS.items() for part in ("--set", f"{key}={value}")]

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from toys import make_toy, write_folder

    return write_folder(tmp_path_factory.mktemp("interrupt") / "photos", *make_toy(48, seed=2))


@pytest.fixture(scope="module")
def unbroken(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Name of the weights file, which contains their checksum, of an uninterrupted run."""
    out = tmp_path_factory.mktemp("unbroken") / "run"
    done = subprocess.run(_command(photos, out), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return _weights(out)


def _command(photos: Path, out: Path) -> list[str]:
    return [sys.executable, "-m", "hadahash", "train", str(photos), "--out", str(out), *TINY]


def _weights(out: Path) -> str:
    (model,) = out.glob("model-*.safetensors")
    return model.name


def _interrupt(photos: Path, out: Path, number: signal.Signals) -> subprocess.CompletedProcess[str]:
    """Start training and send the signal after the first epoch, long before a checkpoint is due."""
    command = _command(photos, out)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    log, ends = out / ".training" / "log.jsonl", time.monotonic() + 240
    while (
        process.poll() is None
        and time.monotonic() < ends
        and not (log.exists() and log.read_text().count("\n"))
    ):
        time.sleep(0.002)
    process.send_signal(number)
    said, complained = process.communicate(timeout=60)
    return subprocess.CompletedProcess(command, process.returncode, said, complained)


@pytest.mark.parametrize(
    ("number", "code", "text"),
    [
        pytest.param(
            signal.SIGINT, 130, f"{describe(KeyboardInterrupt(), ['train'])[0]}\n", id="SIGINT"
        ),
        pytest.param(signal.SIGTERM, -signal.SIGTERM, "", id="SIGTERM"),
    ],
)
def test_an_interrupted_training_run_resumes_exactly(
    photos: Path,
    unbroken: str,
    run: Run,
    tmp_path: Path,
    number: signal.Signals,
    code: int,
    text: str,
) -> None:
    done = _interrupt(photos, tmp_path / "run", number)
    described, _, rest = done.stderr.partition("\n")
    assert described.startswith("44 training images of 4 classes: ")
    assert (done.returncode, rest, done.stdout) == (code, text, "")
    staging = tmp_path / "run" / ".training"
    assert len((staging / "log.jsonl").read_text().splitlines()) < EPOCHS
    assert (staging / "checkpoint.safetensors").exists()
    assert not list((tmp_path / "run").glob(".*.part")) and not list(
        (tmp_path / "run").glob("model-*")
    )

    got, out, _ = run("train", photos, "--out", tmp_path / "run", *TINY, "--resume")
    assert got == 0 and "saved in" in out
    assert _weights(tmp_path / "run") == unbroken
    lines = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines] == list(range(1, EPOCHS + 1))
    assert not staging.exists()


def test_ctrl_c_in_any_command_is_a_one_line_error(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pressed(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("hadahash.cli.codebook.make_codebook", pressed)
    monkeypatch.setattr("hadahash.index.Index.open", pressed)
    for arguments in (("codebook", "--classes", 10), ("index", "info", "photos.index")):
        assert run(*arguments) == (130, "", "Interrupted.\n")


def test_ctrl_c_while_a_command_is_being_imported(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Loading:
        @property
        def app(self) -> None:
            raise KeyboardInterrupt

        @property
        def doctor(self) -> None:
            raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "hadahash.cli.doctor", Loading())  # type: ignore[arg-type]
    assert run("doctor") == (130, "", "Interrupted.\n")
    monkeypatch.setitem(sys.modules, "hadahash.cli.app", Loading())  # type: ignore[arg-type]
    assert run("train") == (130, "", f"{describe(KeyboardInterrupt(), ['train'])[0]}\n")
