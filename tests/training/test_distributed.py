"""Two gloo processes train the same weights as one process on the joined batches."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import safetensors.torch
import torch
from toys import make_toy, one_line, tiny_config, tiny_hasher, write_folder

from hadahash import Hasher, fitting
from hadahash.config import TrainConfig
from hadahash.errors import ProcessLostError, UsageError
from hadahash.networks import build_backbone
from hadahash.runs import DataSpec, train_run, training
from hadahash.training import distributed, step
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


def run_pair(folder, device="cpu"):
    """Let two processes train in a folder; at the end the first loses the second."""
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(CHILD.parents[1]), os.environ["PYTHONPATH"]])
    }
    both = [
        subprocess.Popen(
            [sys.executable, str(CHILD), str(rank), str(folder), device],
            env=environment,
            stderr=subprocess.PIPE,
        )
        for rank in (0, 1)
    ]
    said = [process.communicate(timeout=240)[1].decode() for process in both]
    assert [process.returncode for process in both] == [0, -signal.SIGKILL], "\n".join(said)
    return folder


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """The folder that two processes wrote."""
    return run_pair(tmp_path_factory.mktemp("pair"))


def stored(folder, case, rank=0):
    return safetensors.torch.load_file(folder / f"{case}-{rank}.safetensors")


def distance(one, two):
    """The largest difference of two networks' weights, without batch statistics."""
    assert one.keys() == two.keys()
    return max(float((one[key] - two[key]).abs().max()) for key in one if "running" not in key)


def covered(case, trained, device="cpu"):
    """The distance that training covered, the scale of meaningful differences."""
    return distance(weights(fit(case, epochs=1, lr=1e-12, device=device)), trained)


@pytest.mark.parametrize("case", [case for case in one_of_two.CASES if case != "norm"])
def test_two_processes_equal_one_on_the_joined_batch(pair, case):
    """Only additions are reordered: 15 images in one process and 16 in the other, all methods."""
    single = weights(fit(case))
    moved = covered(case, single)
    assert moved > 1e-3
    for rank in (0, 1):
        assert distance(stored(pair, case, rank), single) < 1e-4 * moved


def test_a_fixed_backbone_gives_the_bytes_of_one_process(pair):
    assert distance(stored(pair, "frozen", 1), weights(fit("frozen"))) == 0


def test_a_parameter_without_gradient_is_left_alone(pair):
    for rank in (0, 1):
        unused = stored(pair, "unused", rank)["backbone.net.unused"]
        assert torch.equal(unused, torch.ones(3, 3))


def test_with_batch_statistics_two_processes_come_close(pair):
    """Each process normalizes its 16 images by their own statistics.

    So the weights differ from those of a single process, but by less than a fifth of the distance
    that training covered. Both processes hold the same weights.
    """
    single = weights(fit("norm"))
    assert 1e-6 < distance(stored(pair, "norm"), single) < 0.2 * covered("norm", single)
    assert distance(stored(pair, "norm", 0), stored(pair, "norm", 1)) == 0


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_two_processes_that_share_a_gpu_equal_one(tmp_path):
    """With SyncBatchNorm the statistics are those of the whole batch too."""
    run_pair(tmp_path, "cuda")
    for case in one_of_two.GPU_CASES:
        single, pair = weights(fit(case, device="cuda")), stored(tmp_path, case)
        moved = covered(case, single, "cuda")
        assert distance(pair, single) < 1e-2 * moved, case
        for key in (key for key in pair if "running" in key):
            assert torch.allclose(pair[key], single[key], rtol=1e-2, atol=1e-2), (case, key)
            assert torch.equal(pair[key], stored(tmp_path, case, 1)[key]), (case, key)


@pytest.mark.parametrize("case", ["again", "interrupted"])
def test_an_interrupted_training_run_continues_in_both_processes(pair, case):
    for rank in (0, 1):
        assert distance(stored(pair, case, rank), stored(pair, "whole")) == 0


def test_one_process_continues_what_two_began(pair):
    alone, single = weights(fit("whole", pair / "stopped", resume=True)), weights(fit("whole"))
    assert distance(alone, single) < 1e-4 * covered("whole", single)
    lines = (pair / "stopped" / "log.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [5, 10, 15]


def test_the_log_has_the_loss_of_the_joined_batch(pair, tmp_path):
    fit("frozen", tmp_path)
    two, one = (
        [json.loads(line) for line in (f / "log.jsonl").open()]
        for f in (pair / "frozen-0", tmp_path)
    )
    assert [line["step"] for line in two] == [line["step"] for line in one] == [3, 6, 9]
    assert [line["loss"] for line in two] == pytest.approx([line["loss"] for line in one], rel=1e-5)


def test_batches_too_small_for_the_processes_are_refused(pair):
    for rank in (0, 1):
        text = one_line((pair / f"refused-{rank}").read_text())
        assert "batch_size must be >= 4 for 2 processes, got 3" in text


def test_a_killed_process_ends_the_other_with_one_line(pair):
    text = one_line((pair / "lost").read_text())
    assert "Another process of this training has ended." in text and "--resume" in text


def test_one_process_needs_no_group(monkeypatch):
    rows = torch.arange(6)
    assert isinstance(current_processes(), SingleProcess)
    assert torch.equal(SingleProcess().part(rows), rows)
    monkeypatch.setenv("WORLD_SIZE", "1")
    monkeypatch.setenv("RANK", "0")
    assert isinstance(current_processes(), SingleProcess)


def test_other_errors_pass_unchanged():
    for error in (RuntimeError("gloo: connection closed by peer"), ValueError("gloo")):
        with pytest.raises(type(error)) as caught, distributed.noticing_lost_processes("Stop."):
            raise error  # there is no other process
        assert caught.value is error
    lost = pytest.raises(ProcessLostError, match=r"has ended\. Stop\.")
    with lost, distributed.noticing_lost_processes("Stop."):
        raise torch.distributed.DistNetworkError("no connection")


def member(rank, count):
    worker = DistributedProcesses.__new__(DistributedProcesses)
    worker.rank, worker.count = rank, count
    return worker


@pytest.mark.parametrize(("size", "count"), [(12, 3), (13, 3), (31, 2), (8, 4), (9, 4), (23, 5)])
def test_parts_are_mirrored_and_join_to_the_batch(monkeypatch, size, count):
    """Mixing pairs an image with the one at the mirrored place: both are in the same part."""
    rows = torch.arange(size)
    padded = []
    monkeypatch.setattr(
        distributed._Sum, "apply", lambda values: (padded.append(values), values)[1]
    )
    for rank in range(count):
        part = member(rank, count).part(rows)
        assert torch.equal(part.flip(0), size - 1 - part) and len(part) >= 2
        member(rank, count).join(part[:, None], size)
    assert all(int((values != 0).sum()) <= 2 * -(-size // 2 // count) + 1 for values in padded)
    assert torch.equal(sum(padded)[:, 0], rows)


@pytest.mark.parametrize("name", ["test_efficientnet", "resnet10t"])
def test_synchronized_norms_share_all_tensors_and_keep_the_activation(monkeypatch, name):
    net = build_backbone(name, weights="none").eval()
    before = list(net.modules())
    pixels = 255 * torch.rand(2, 3, 64, 64)
    expected, tensors = net(pixels), net.state_dict()
    monkeypatch.setattr(distributed, "_on_gpu", lambda module: True)
    with distributed.synchronized_norms(net, member(0, 2)):
        kinds = [type(module) for module in net.modules()]
        assert not any(issubclass(kind, torch.nn.BatchNorm2d) for kind in kinds)
        assert any(issubclass(kind, torch.nn.SyncBatchNorm) for kind in kinds)
        assert torch.equal(net(pixels), expected)
        now = net.state_dict()
        assert now.keys() == tensors.keys()
        assert all(now[key].data_ptr() == tensors[key].data_ptr() for key in now)
    assert all(one is two for one, two in zip(net.modules(), before, strict=True))


def test_norms_of_one_process_or_of_a_cpu_stay(monkeypatch):
    net = build_backbone("test_efficientnet", weights="none")
    for processes in (SingleProcess(), member(0, 2)):
        with distributed.synchronized_norms(net, processes):
            assert not any(isinstance(each, torch.nn.SyncBatchNorm) for each in net.modules())


def test_what_several_processes_do_not_do_is_said(monkeypatch):
    net, two = build_backbone("test_efficientnet", weights="none"), member(0, 2)
    fixed, whole = TrainConfig(frozen=True), TrainConfig(compile=True)
    assert distributed.limits_of(SingleProcess(), net, whole) == []
    assert "not faster" in one_line(*distributed.limits_of(two, net, fixed))
    assert "SyncBatchNorm needs a GPU" in one_line(*distributed.limits_of(two, net, whole))
    monkeypatch.setattr(distributed, "_on_gpu", lambda module: True)
    assert "compile is ignored" in one_line(*distributed.limits_of(two, net, whole))
    assert distributed.limits_of(two, net, TrainConfig()) == []


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_only_a_single_process_on_a_gpu_compiles_and_records(device):
    where, config = torch.device(device), TrainConfig(compile=True)
    for processes in (SingleProcess(), member(0, 2)):
        expected = device == "cuda" and processes.count == 1
        assert step.optimizes(where, processes) == step.compiles(config, where, processes)
        assert step.optimizes(where, processes) == expected


@pytest.mark.parametrize(
    ("variables", "text"),
    [
        ({"WORLD_SIZE": "two"}, "WORLD_SIZE must be an integer >= 1, got 'two'"),
        ({"WORLD_SIZE": "0"}, "WORLD_SIZE must be an integer >= 1, got '0'"),
        ({"WORLD_SIZE": "2", "RANK": "-1"}, "RANK must be an integer >= 0, got '-1'"),
        ({"WORLD_SIZE": "2", "RANK": "2"}, "RANK must be < WORLD_SIZE = 2, got 2"),
        ({"WORLD_SIZE": "2", "LOCAL_RANK": "x"}, "LOCAL_RANK must be an integer >= 0, got 'x'"),
        ({"WORLD_SIZE": "2"}, "MASTER_ADDR"),
        ({"WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "p"}, "MASTER_PORT"),
    ],
)
def test_wrong_variables_of_torchrun_are_reported_in_one_line(monkeypatch, variables, text):
    for name in ("MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    for name, value in ({"RANK": "0"} | variables).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UsageError) as caught:
        current_processes()
    said = one_line(caught.value)
    assert text in said and "torchrun" in said


def torchrun(photos, out, *options, **settings):
    """The command that trains with two processes."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
    command += ["2", "-m", "hadahash", "train", str(photos), "--out", str(out), "--bits", "16"]
    command += ["--device", "cpu", "--method", "hcdh", "--content-bits", "0", *options]
    command += ["--backbone", "test_efficientnet", "--weights", "none"]
    return command + [part for key in settings for part in ("--set", f"{key}={settings[key]}")]


def test_torchrun_trains_a_run(tmp_path):
    """The command writes one run folder, with the weights that a single process finds."""
    photos = write_folder(tmp_path / "photos", *make_toy(48, seed=2))
    settings = {"size": 32, "epochs": 2, "batch_size": 16}
    train_run(tiny_config(frozen=True, **settings), DataSpec(str(photos)), tmp_path / "one")
    command = torchrun(photos, tmp_path / "two", "--frozen", **settings)
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
