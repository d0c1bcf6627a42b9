"""Two gloo processes train the same weights as one process on the joined batches."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import safetensors.torch
import torch
from toys import make_toy, one_line, tiny_config, tiny_hasher, write_folder

from hadahash import Hasher, fitting
from hadahash.runs import DataSpec, train_run, training
from hadahash.training.distributed import (
    DistributedProcesses,
    SingleProcess,
    current_processes,
)

CHILD = Path(__file__).with_name("one_of_two.py")
_specification = importlib.util.spec_from_file_location("one_of_two", CHILD)
one_of_two = importlib.util.module_from_spec(_specification)
_specification.loader.exec_module(one_of_two)
fit, weights = one_of_two.fit, one_of_two.weights


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """The folder that two processes wrote."""
    folder = tmp_path_factory.mktemp("pair")
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(CHILD.parents[1]), os.environ["PYTHONPATH"]])
    }
    both = [
        subprocess.Popen(
            [sys.executable, str(CHILD), str(rank), str(folder)],
            env=environment,
            stderr=subprocess.PIPE,
        )
        for rank in (0, 1)
    ]
    said = [process.communicate(timeout=240)[1].decode() for process in both]
    assert [process.returncode for process in both] == [0, 0], "\n".join(said)
    return folder


def stored(folder, case, rank=0):
    return safetensors.torch.load_file(folder / f"{case}-{rank}.safetensors")


def distance(one, two):
    """The largest difference of two networks' weights, without batch statistics."""
    assert one.keys() == two.keys()
    return max(float((one[key] - two[key]).abs().max()) for key in one if "running" not in key)


def covered(case, trained):
    """The distance that training covered, the scale of meaningful differences."""
    return distance(weights(fit(case, epochs=1, lr=1e-12)), trained)


@pytest.mark.parametrize(("case", "tolerance"), [("frozen", 1e-6), ("whole", 1e-5)])
def test_two_processes_equal_one_on_the_joined_batch(pair, case, tolerance):
    """The head on features, and a whole network without BatchNorm: only additions are reordered."""
    single = weights(fit(case))
    assert covered(case, single) > 1e-2
    for rank in (0, 1):
        assert distance(stored(pair, case, rank), single) < tolerance


def test_with_batch_statistics_two_processes_come_close(pair):
    """Each process normalizes its 16 images by their own statistics.

    So the weights differ from those of a single process, but by less than a fifth of the distance
    that training covered. Both processes hold the same weights.
    """
    single = weights(fit("norm"))
    assert 1e-6 < distance(stored(pair, "norm"), single) < 0.2 * covered("norm", single)
    assert distance(stored(pair, "norm", 0), stored(pair, "norm", 1)) == 0


@pytest.mark.parametrize("case", ["again", "interrupted"])
def test_an_interrupted_training_run_continues_in_both_processes(pair, case):
    for rank in (0, 1):
        assert distance(stored(pair, case, rank), stored(pair, "whole")) == 0


def test_the_log_has_the_loss_of_the_joined_batch(pair, tmp_path):
    fit("frozen", tmp_path)
    two, one = (
        [json.loads(line) for line in (f / "log.jsonl").open()]
        for f in (pair / "frozen-0", tmp_path)
    )
    assert [line["step"] for line in two] == [line["step"] for line in one] == [4, 8, 12]
    assert [line["loss"] for line in two] == pytest.approx([line["loss"] for line in one], rel=1e-5)


def test_batches_that_cannot_be_divided_are_refused(pair):
    for rank in (0, 1):
        text = one_line((pair / f"refused-{rank}").read_text())
        assert "batch size 31" in text and "2 processes" in text


def test_one_process_needs_no_group(monkeypatch):
    rows = torch.arange(6)
    assert isinstance(current_processes(), SingleProcess)
    assert torch.equal(SingleProcess().slice(rows), rows)
    monkeypatch.setenv("WORLD_SIZE", "1")
    monkeypatch.setenv("RANK", "0")
    assert isinstance(current_processes(), SingleProcess)


def test_slices_join_to_the_batch():
    rows, parts = torch.arange(12), []
    for rank in range(3):
        worker = DistributedProcesses.__new__(DistributedProcesses)
        worker.rank, worker.count = rank, 3
        parts.append(worker.slice(rows))
    assert torch.equal(torch.cat(parts), rows)


def test_torchrun_trains_a_run(tmp_path):
    """The command writes one run folder, with the weights that a single process finds."""
    photos = write_folder(tmp_path / "photos", *make_toy(48, seed=2))
    settings = {"size": 32, "epochs": 2, "batch_size": 16}
    train_run(tiny_config(frozen=True, **settings), DataSpec(str(photos)), tmp_path / "one")
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        "-m",
        "hadahash",
        "train",
    ]
    command += [
        str(photos),
        "--out",
        str(tmp_path / "two"),
        "--frozen",
        "--bits",
        "16",
        "--device",
        "cpu",
    ]
    command += ["--method", "hcdh", "--content-bits", "0"]
    command += ["--backbone", "test_efficientnet", "--weights", "none"]
    command += [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
    assert (
        done.stdout.count("saved in") == 1
        and len((tmp_path / "two" / "log.jsonl").read_text().splitlines()) == 2
    )
    one, two = (weights(Hasher.load(tmp_path / name, device="cpu")) for name in ("one", "two"))
    assert distance(one, two) < 1e-6


def test_the_process_group_comes_before_the_network(toy, monkeypatch):
    """It selects the GPU of the process, on which the network is built."""
    order = []
    processes, backbone = fitting.current_processes, fitting.backbone_of
    monkeypatch.setattr(
        fitting, "current_processes", lambda: (order.append("processes"), processes())[1]
    )
    monkeypatch.setattr(
        fitting,
        "backbone_of",
        lambda *arguments: (order.append("network"), backbone(*arguments))[1],
    )
    tiny_hasher(epochs=1).fit(*toy)
    assert order[:2] == ["processes", "network"] and order.count("network") == 1


@pytest.mark.parametrize("rank", [0, 1])
def test_the_first_process_opens_the_data_before_the_others(tmp_path, monkeypatch, rank):
    """A data set is downloaded only once."""
    photos = write_folder(tmp_path / "photos", *make_toy(48, seed=2))
    order, opened = [], DataSpec.open

    class Processes(SingleProcess):
        def barrier(self):
            order.append("barrier")

    Processes.rank = rank
    monkeypatch.setattr(training, "current_processes", Processes)
    monkeypatch.setattr(
        DataSpec,
        "open",
        lambda *arguments, **options: (order.append("open"), opened(*arguments, **options))[1],
    )
    model = train_run(tiny_config(frozen=True, epochs=1), DataSpec(str(photos)), tmp_path / "run")
    assert order == (["open", "barrier"] if rank == 0 else ["barrier", "open"])
    assert len(model.classes) == 4 and (tmp_path / "run").exists() == (rank == 0)
