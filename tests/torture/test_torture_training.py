"""Trainings that are killed at random moments or that meet in one folder: one whole run, or none."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from functools import cache
from pathlib import Path

import psutil
import pytest
from toys import make_toy, write_folder
from trials import Crashed

from hadahash.model import HashModel

HERE = Path(__file__).parent
pytestmark = [
    pytest.mark.torture,
    pytest.mark.skipif(sys.platform == "win32", reason="needs signals"),
]
PROGRAM = """
import json, sys
from pathlib import Path
import torch
torch.set_num_threads(1)
import fault_work
from hadahash.errors import HadaHashError
fault_work._photos()
print("ready", flush=True)
sys.stdin.readline()
try:
    print(json.dumps(["ok", fault_work._train(Path(sys.argv[1]), int(sys.argv[2]))]))
except HadaHashError as error:
    print(json.dumps(["refused", str(error)]))
"""


class Training:
    """A training in a process of its own, which waits until it may begin."""

    def __init__(self, out: Path, seed: int) -> None:
        modules = [str(HERE), str(HERE.parent), os.environ.get("PYTHONPATH", "")]
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(out), str(seed)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(modules)},
        )
        assert self.process.stdout is not None and self.process.stdout.readline() == "ready\n"

    def begin(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def result(self) -> list[str]:
        out, err = self.process.communicate()
        if self.process.returncode == -signal.SIGKILL:
            return ["killed", ""]
        if self.process.returncode:
            raise Crashed(err[-500:])
        found: list[str] = json.loads(out)
        assert "\n" not in found[1], found
        return found


@cache
def undisturbed(seed: int, folder: Path) -> str:
    """Id of the model, a digest of its weights, when nothing goes wrong."""
    training = Training(folder / f"alone-{seed}", seed)
    training.begin()
    kind, text = training.result()
    assert kind == "ok", text
    return text


def test_kill_and_resume_give_the_same_bits(trials, tmp_path):
    tried = trials(
        "training", "kill -9 at random moments and resume: the same weights, bit for bit"
    )
    expected = undisturbed(1, tmp_path)
    for trial in tried.numbers(1, 8):
        with trial:
            out = tmp_path / str(trial.number) / "run"
            for _ in range(3):
                training = Training(out, 1)
                training.begin()
                time.sleep(float(trial.rng.uniform(0, 1.5)))
                training.process.kill()
                training.result()
            training = Training(out, 1)
            training.begin()
            kind, text = training.result()
            assert (kind, text) == ("ok", expected), text


def test_two_trainings_in_one_folder(trials, tmp_path):
    tried = trials("training", "two trainings into one folder at once, one of them killed")
    ids = {undisturbed(seed, tmp_path) for seed in (1, 2)}
    for trial in tried.numbers(1, 8):
        with trial:
            out = tmp_path / str(trial.number) / "run"
            pair = [Training(out, seed) for seed in (1, 2)]
            for training in pair:
                training.begin()
                time.sleep(float(trial.rng.uniform(0, 0.5)))
            if trial.number % 2:
                pair[0].process.kill()
            results = [training.result() for training in pair]
            done = [text for kind, text in results if kind == "ok"]
            assert set(done) <= ids, "a mixture of two trainings"
            for kind, text in results:
                assert kind != "refused" or "Another process" in text or "run" in text, text
            assert done or trial.number % 2, results


def torchrun(photos: Path, out: Path, *options: str) -> subprocess.Popen[str]:
    """Two processes that train together, from the command line."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", "2", "-m", "hadahash", "train", str(photos), "--out", str(out)]
    command += ["--bits", "16", "--device", "cpu", "--method", "hcdh", "--content-bits", "0"]
    command += ["--backbone", "test_efficientnet", "--weights", "none"]
    settings = {"size": 32, "epochs": 60, "batch_size": 16, "checkpoint_seconds": 0.1}
    command += [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    return subprocess.Popen(
        [*command, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )


def kill_one(process: subprocess.Popen[str], out: Path, rank: int, seconds: float) -> str:
    """Kill one of the two some seconds after the first checkpoint; returns what both have said."""
    while not (out / ".training" / "checkpoint.safetensors").exists():
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.02)
    time.sleep(seconds)
    children = psutil.Process(process.pid).children()
    (victim,) = (each for each in children if each.environ().get("RANK") == str(rank))
    victim.kill()
    said = process.communicate(timeout=120)[1]
    assert process.returncode, "the training went on without one of its processes"
    return said


def test_one_of_two_processes_is_killed(trials, tmp_path):
    """The other one ends with one line, and --resume gives the same weights, bit for bit."""
    tried = trials("training", "kill -9 of one of two processes (torchrun), and resume")
    photos = write_folder(tmp_path / "photos", *make_toy(48, seed=2))
    alone = torchrun(photos, tmp_path / "alone")
    assert alone.wait() == 0, alone.communicate()[1]
    expected = HashModel.load(tmp_path / "alone", device="cpu").id
    for trial in tried.numbers(1, 6):
        with trial:
            out, rank = tmp_path / str(trial.number), trial.number % 2
            process = torchrun(photos, out)
            said = kill_one(process, out, rank, float(trial.rng.uniform(0, 2)))
            lines = [
                line for line in said.splitlines() if "error: " in line and "torch" not in line
            ]
            told = "error: Another process of this training has ended. Run the same command again"
            assert all(line.startswith(told) for line in lines), said
            assert "hadahash/" not in said, said  # a traceback, apart from that of torchrun
            resumed = torchrun(photos, out, "--resume")
            assert resumed.wait() == 0, resumed.communicate()[1]
            assert HashModel.load(out, device="cpu").id == expected
