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

import pytest
from trials import Crashed

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
