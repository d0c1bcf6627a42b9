"""The training loop, its optimizer, schedules, average and log, against slow reference loops."""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest
import torch
from toys import make_toy, one_line, smallest_backbone, tensor_bytes, tiny_hasher

from hadahash.building import make_config
from hadahash.config import AugmentConfig, TrainConfig
from hadahash.data import open_dataset
from hadahash.data.augment import augment, mix_targets, sample_augmentations
from hadahash.data.labels import Labels
from hadahash.data.preprocess import Preprocess
from hadahash.errors import HadaHashError, StorageError
from hadahash.fitting import fit_model
from hadahash.methods import METHODS, Batch, Task
from hadahash.methods.hcdh import HCDHSettings
from hadahash.networks.hash_network import HashNetwork
from hadahash.training import Log, TrainingSet, train
from hadahash.training.loop import BatchPlan, _mix
from hadahash.training.optim import WeightAverage, make_optimizer, rate_factor, set_rates

PREPROCESS = Preprocess(side=32, size=32, train_size=32, crop=1.0)
AUGMENTATION = AugmentConfig(mixup=0.2)


def _network(seed=0) -> HashNetwork:
    torch.manual_seed(seed)
    backbone = smallest_backbone()
    return HashNetwork(
        backbone,
        METHODS.get("hcdh").create(Task(8, 4, backbone.features, train_images=20), HCDHSettings()),
        8,
    )


def _data(count=20) -> TrainingSet:
    pixels, labels = make_toy(count, seed=0)
    inputs = torch.from_numpy(pixels.transpose(0, 3, 1, 2).copy())
    return TrainingSet(inputs, Labels.from_array(labels, 4))


def _frozen(count=20, width=32) -> TrainingSet:
    generator = torch.Generator().manual_seed(0)
    labels = Labels.from_array(np.arange(count) % 4, 4)
    return TrainingSet(torch.randn(count, width, generator=generator), labels)


def _train(network, data, log=None, seed=0, **settings):
    options = {"epochs": 2, "batch_size": 8, "ema": 0.0} | settings
    return train(
        network,
        data,
        TrainConfig(**options),
        augmentation=AUGMENTATION,
        preprocess=PREPROCESS,
        seed=seed,
        log=log or Log(None, progress=False),
    )


def _spy(network):
    """Record every batch that the method sees."""
    seen, loss = [], network.method.loss

    def spy(batch):
        parts = loss(batch)
        seen.append((batch, {key: value.item() for key, value in parts.items()}))
        return parts

    network.method.loss = spy
    return seen


# ------------------------------------------------------------------ the same seed, the same bytes


def test_the_same_seed_gives_the_same_bytes_and_another_does_not(toy):
    torch.manual_seed(1)
    first = tiny_hasher(seed=3).fit(*toy)
    torch.manual_seed(2)
    state = torch.random.get_rng_state()
    second = tiny_hasher(seed=3).fit(*toy)
    assert torch.equal(torch.random.get_rng_state(), state), (
        "fitting must leave the caller's generator alone"
    )
    assert tensor_bytes(first) == tensor_bytes(second)
    other = tensor_bytes(tiny_hasher(seed=4).fit(*toy))
    assert (
        tensor_bytes(first)["backbone.net.conv_stem.weight"]
        != other["backbone.net.conv_stem.weight"]
    )
    assert tensor_bytes(first)["method.head.hash.weight"] != other["method.head.hash.weight"]


def test_the_loops_own_seed_matters():
    weights = []
    for seed in (0, 0, 1):
        network = _network()
        _train(network, _data(), seed=seed)
        weights.append(network.method.head.hash.weight)
    assert torch.equal(weights[0], weights[1]) and not torch.equal(weights[0], weights[2])


# ------------------------------------------------------------------ against a slow loop


def _slow(network, data, settings, seed):
    """The whole training loop by hand: Nesterov SGD, weight decay on matrices, one cycle,
    average."""
    batch, count = min(settings.batch_size, len(data)), len(data)
    per_epoch = count // batch
    steps = settings.epochs * per_epoch
    network.train(not data.frozen)
    network.method.train()
    parts = [network.method] if data.frozen else [network.backbone, network.method]
    rates = {
        id(p): settings.lr * (1 if m is network.method else settings.backbone_lr)
        for m in parts
        for p in m.parameters()
    }
    parameters = [p for m in parts for p in m.parameters()]
    momentum = [None for _ in parameters]
    shadow = {k: v.clone() for k, v in network.state_dict().items() if v.is_floating_point()}
    plan = BatchPlan(data, settings, AUGMENTATION, 1.0, seed)
    for step in range(steps):
        rows, table = plan.at(step)
        assert len(rows) == batch
        inputs, targets = data.inputs[rows], data.targets(rows)
        torch.manual_seed(_mix(seed, step))
        if not data.frozen:
            inputs = network.backbone(augment(inputs, table, 32))
            targets = mix_targets(targets, table)
        loss = sum(network.method.loss(Batch(inputs, targets, rows)).values())
        gradients = torch.autograd.grad(loss, parameters)
        rise = max(1, round(settings.warmup * steps))
        factor = (
            (step + 1) / rise
            if step < rise
            else 0.5 * (1 + math.cos(math.pi * (step - rise) / (steps - rise)))
        )
        with torch.no_grad():
            for i, (p, gradient) in enumerate(zip(parameters, gradients, strict=True)):
                gradient = gradient + settings.weight_decay * p if p.ndim > 1 else gradient
                momentum[i] = (
                    gradient.clone()
                    if momentum[i] is None
                    else settings.momentum * momentum[i] + gradient
                )
                p -= rates[id(p)] * factor * (gradient + settings.momentum * momentum[i])
            decay = min(settings.ema, (1 + step) / (10 + step))
            for key, value in network.state_dict().items():
                if key in shadow:
                    shadow[key] = decay * shadow[key] + (1 - decay) * value
    return shadow


@pytest.mark.parametrize("frozen", [False, True])
def test_training_matches_a_slow_loop(frozen):
    data, settings = (
        _frozen() if frozen else _data(),
        TrainConfig(epochs=3, batch_size=8, ema=0.9, weight_decay=0.01),
    )
    fast = _network()
    _train(fast, data, epochs=3, ema=0.9, weight_decay=0.01, seed=5)
    slow = _slow(_network(), data, settings, 5)
    state = fast.state_dict()
    assert set(slow) == {key for key, value in state.items() if value.is_floating_point()}
    for key, value in slow.items():
        torch.testing.assert_close(state[key], value, rtol=1e-4, atol=1e-5, msg=key)
    assert not fast.training


def test_gradients_are_clipped_to_the_norm():
    network, norms = _network(), []
    before = {key: value.clone() for key, value in network.state_dict().items()}
    options = {"epochs": 1, "batch_size": 20, "lr": 1.0, "backbone_lr": 1.0, "warmup": 0.0}
    plain = {"momentum": 0.0, "weight_decay": 0.0}
    for limit in (1e-3, 1e9, 0.0):
        network = _network()
        _train(network, _data(20), clip_grad=limit, **options, **plain)
        moved = [p.detach() - before[name] for name, p in network.named_parameters()]
        norms.append(math.sqrt(sum(float(change.square().sum()) for change in moved)))
    assert norms[0] == pytest.approx(1e-3, rel=1e-3)
    assert norms[1] == norms[2] > 1e-2


def test_the_average_matches_a_slow_loop_and_zero_turns_it_off():
    torch.manual_seed(0)
    layer = torch.nn.BatchNorm1d(3)
    average, slow = WeightAverage(layer, 0.9), layer.weight.detach().double().clone()
    for step in range(60):
        with torch.no_grad():
            layer.weight.copy_(torch.randn(3))
        average.update(step)
        decay = min(0.9, (1 + step) / (10 + step))
        slow = decay * slow + (1 - decay) * layer.weight.detach().double()
    assert set(average.tensors()) == {"weight", "bias", "running_mean", "running_var"}
    average.apply()
    torch.testing.assert_close(layer.weight.double(), slow, rtol=1e-5, atol=1e-6)
    off = WeightAverage(layer, 0.0)
    before = layer.weight.clone()
    off.update(0)
    off.apply()
    assert off.tensors() == {} and torch.equal(layer.weight, before)


# ------------------------------------------------------------------ batches


def test_every_batch_is_whole_and_the_rest_of_an_epoch_is_dropped():
    network = _network()
    seen = _spy(network)
    outcome = _train(network, _data(20), batch_size=8, epochs=6)
    assert outcome.steps == len(seen) == 12
    rows = [batch.indices.tolist() for batch, _ in seen]
    assert all(len(row) == 8 for row in rows)
    epochs = [rows[i] + rows[i + 1] for i in range(0, 12, 2)]
    assert all(len(set(epoch)) == 16 for epoch in epochs), "an image came twice in an epoch"
    assert len({tuple(epoch) for epoch in epochs}) == 6, "the order does not change"
    assert {row for epoch in epochs for row in epoch} == set(range(20)), "an image never came"


def test_a_batch_larger_than_the_data_takes_all_of_it():
    network = _network()
    seen = _spy(network)
    assert _train(network, _data(10), batch_size=128, epochs=3).steps == 3
    assert [sorted(batch.indices.tolist()) for batch, _ in seen] == [list(range(10))] * 3


def test_two_images_are_enough():
    assert _train(_network(), _data(2), batch_size=8, epochs=1).steps == 1


def test_targets_and_features_belong_to_the_rows():
    network, data = _network(), _frozen()
    seen = _spy(network)
    _train(network, data)
    for batch, _ in seen:
        assert torch.equal(batch.features, data.inputs[batch.indices]) and torch.equal(
            batch.targets, data.targets(batch.indices)
        )


def test_each_image_of_an_epoch_is_augmented_in_its_own_way():
    plan = BatchPlan(
        TrainingSet(torch.zeros(20, 4), Labels.from_array(np.zeros(20, int), 2)),
        TrainConfig(batch_size=10),
        AUGMENTATION,
        1.0,
        0,
    )
    epochs = [
        [torch.cat(parts) for parts in zip(plan.at(step), plan.at(step + 1), strict=True)]
        for step in (0, 2)
    ]
    for order, table in epochs:
        assert len(table.unique(dim=0)) == 20 and sorted(order.tolist()) == list(range(20))
        assert table.shape == sample_augmentations(20, AUGMENTATION, 1.0, torch.Generator()).shape
    assert not torch.equal(epochs[0][0], epochs[1][0]) and not torch.equal(
        epochs[0][1], epochs[1][1]
    )
    assert torch.equal(plan.at(0)[0], epochs[0][0][:10]), "an earlier step can be repeated"


@pytest.mark.parametrize("frozen", [False, True])
def test_inputs_that_are_read_ahead_train_the_same_weights(frozen):
    weights = []
    for on_disk in (False, True):
        network, data = _network(), _frozen() if frozen else _data()
        data = dataclasses.replace(data, on_disk=on_disk)
        assert data.resident != on_disk
        _train(network, data, epochs=3)
        weights.append(network.method.head.hash.weight)
    assert torch.equal(*weights)


def test_the_method_prepares_each_step():
    network, steps = _network(), []
    network.method.before_step = lambda step, total: steps.append((step, total))
    _train(network, _frozen(), batch_size=8, epochs=2)
    assert steps == [(step, 4) for step in range(4)]


def test_seeds_of_steps_do_not_repeat():
    seeds = {_mix(seed, step) for seed in (0, 1, 2, 1000) for step in range(2000)}
    assert len(seeds) == 8000 and all(0 <= seed < 2**63 for seed in seeds)
    assert _mix(-1, 0) >= 0


# ------------------------------------------------------------------ optimizer and schedules


def test_backbone_and_head_have_separate_rates_and_vectors_do_not_decay():
    network = _network()
    optimizer = make_optimizer(network, TrainConfig(lr=0.5, backbone_lr=0.1, weight_decay=0.01))
    found = {id(p): group for group in optimizer.param_groups for p in group["params"]}
    assert len(found) == len(list(network.parameters()))
    for part, rate in ((network.backbone, 0.05), (network.method, 0.5)):
        for parameter in part.parameters():
            group = found[id(parameter)]
            assert group["lr"] == pytest.approx(rate)
            assert group["weight_decay"] == (0.01 if parameter.ndim > 1 else 0.0)
            assert group["momentum"] == 0.9 and group["nesterov"]
    set_rates(optimizer, 0.5)
    assert found[id(network.method.head.hash.weight)]["lr"] == pytest.approx(0.25)
    set_rates(optimizer, 0.1)
    assert found[id(network.method.head.hash.weight)]["lr"] == pytest.approx(0.05), (
        "factors must not accumulate"
    )


def test_training_without_momentum():
    assert _train(_network(), _frozen(), momentum=0.0).steps == 4


@pytest.mark.parametrize("steps", [1, 2, 7, 100, 1000])
def test_onecycle_rises_linearly_and_decays_as_a_cosine(steps):
    settings = TrainConfig(warmup=0.15)
    factors = [rate_factor(step, steps, 10, settings) for step in range(steps)]
    rise = max(1, round(0.15 * steps))
    assert factors[rise - 1] == 1 == max(factors)
    assert factors[:rise] == pytest.approx([(i + 1) / rise for i in range(rise)])
    assert all(a >= b for a, b in zip(factors[rise - 1 :], factors[rise:], strict=False))
    assert all(0 < factor <= 1 for factor in factors)
    if steps >= 100:
        assert factors[-1] < 0.001
        middle = (rise + steps) // 2
        assert factors[middle] == pytest.approx(0.5, abs=0.02)


def test_warmup_can_be_none_or_all_of_the_steps():
    assert rate_factor(0, 100, 10, TrainConfig(warmup=0.0)) == 1
    assert rate_factor(99, 100, 10, TrainConfig(warmup=1.0)) == 1


def test_the_paper_schedule_halves_the_rate_every_fifty_epochs():
    settings = TrainConfig(schedule="paper")
    factors = {
        epoch: rate_factor(epoch * 7 + 3, 200 * 7, 7, settings)
        for epoch in (0, 1, 49, 50, 99, 100, 150, 199)
    }
    assert factors == {0: 1, 1: 1, 49: 1, 50: 0.5, 99: 0.5, 100: 0.25, 150: 0.125, 199: 0.125}


# ------------------------------------------------------------------ the log


def test_the_log_has_one_line_per_epoch_with_the_mean_of_its_steps(tmp_path):
    network = _network()
    seen = _spy(network)
    with Log(tmp_path / "run" / "log.jsonl", progress=True) as log:
        _train(network, _frozen(), log, batch_size=8, epochs=3, lr=0.25)
    lines = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert [(line["epoch"], line["step"]) for line in lines] == [(1, 2), (2, 4), (3, 6)]
    for number, line in enumerate(lines):
        steps = [parts for _, parts in seen[2 * number : 2 * number + 2]]
        for key in ("hadamard", "classification"):
            assert line[key] == pytest.approx(sum(parts[key] for parts in steps) / 2)
        assert line["loss"] == pytest.approx(line["hadamard"] + line["classification"])
    assert lines[0]["lr"] == pytest.approx(0.25 * rate_factor(1, 6, 2, TrainConfig()))


def test_a_log_drops_lines_after_the_step_and_truncated_lines(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text('{"step": 5, "loss": 1}\n{"step": 10, "loss": 2}\n{"step": 15, "lo')
    Log(path, progress=False).begin(7, 20)
    assert path.read_text() == '{"step": 5, "loss": 1}\n'
    Log(path, progress=False).begin(0, 20)
    assert path.read_text() == ""


def test_a_log_that_cannot_be_written_is_a_one_line_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"log.jsonl") as caught:
        Log(tmp_path / "file" / "log.jsonl", progress=False).begin(0, 5)
    one_line(caught.value)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_ends_in_one_line(tmp_path, value):
    network, path = _network(), tmp_path / "log.jsonl"
    weight = network.method.head.hash.weight
    network.method.loss = lambda batch: {"a": weight.sum() * value}
    with pytest.raises(
        HadaHashError, match=r"the loss is (nan|inf|-inf) after epoch 1.*lr="
    ) as caught:
        _train(network, _frozen(), Log(path, progress=False))
    one_line(caught.value)
    assert path.read_text() == ""


def test_a_learning_rate_that_is_far_too_high_is_detected(toy):
    with pytest.raises(HadaHashError, match=r"Training diverged.*Lower the learning rate"):
        tiny_hasher(lr=1e30, warmup=0.0).fit(*toy)


def test_bf16_changes_the_result_and_is_finite():
    weights = []
    for precision in ("fp32", "auto", "bf16"):
        network = _network()
        _train(network, _data(), precision=precision)
        weights.append(network.method.head.hash.weight)
        assert weights[-1].dtype == torch.float32 and torch.isfinite(weights[-1]).all()
    assert torch.equal(weights[0], weights[1]) and not torch.equal(weights[0], weights[2])


def test_frozen_training_leaves_the_backbone_alone():
    network = _network()
    before = {key: value.clone() for key, value in network.backbone.state_dict().items()}
    head = network.method.head.hash.weight.clone()
    _train(network, _frozen(), epochs=3, ema=0.5, weight_decay=0.1)
    assert all(
        torch.equal(value, before[key]) for key, value in network.backbone.state_dict().items()
    )
    assert not torch.equal(network.method.head.hash.weight, head)
    assert all(p.grad is None for p in network.backbone.parameters())


def test_a_backbone_rate_of_zero_is_frozen():
    models = [
        tiny_hasher(**options).fit(*make_toy(40, seed=0)).model_
        for options in ({"backbone_lr": 0}, {"frozen": True})
    ]
    assert models[0].weights_sha256 == models[1].weights_sha256
    assert models[0].fixed_backbone and models[0].config.augment is None
    assert models[0].config.train.frozen


@pytest.mark.parametrize("frozen", [False, True])
def test_only_what_learns_is_in_training_mode(frozen):
    network, modes = _network().eval(), []
    network.method.before_step = lambda step, total: modes.append(
        (network.backbone.training, network.method.training)
    )
    _train(network, _frozen() if frozen else _data())
    assert set(modes) == {(not frozen, True)}
    assert not network.training and not network.method.training


def test_values_are_measured_from_the_threshold():
    network = _network().eval()
    features = torch.randn(3, 32)
    with torch.no_grad():
        plain = network.values(features)
        network.threshold.fill_(0.25)
        assert torch.equal(network.values(features), plain - 0.25)
    assert plain.dtype == torch.float32


def test_settings_cannot_be_changed_by_accident():
    with pytest.raises(dataclasses.FrozenInstanceError):
        TrainConfig().lr = 1.0


def test_semantic_assignment_sees_the_features_of_the_training_images():
    data = open_dataset("digits")
    data = data.take(np.arange(0, len(data), 12))
    books = {}
    for kind, frozen in (("design", False), ("semantic", False), ("semantic", True)):
        settings = {"assignment": kind, "epochs": 1, "size": 32, "frozen": frozen}
        config = make_config(
            "hcdh-far", bits=8, backbone="test_efficientnet", weights="none", settings=settings
        )
        model = fit_model(config, data, device="cpu").model
        books[kind, frozen] = model.method.codewords().tolist()
    plain = books["design", False]
    assert books["semantic", False] != plain and sorted(books["semantic", False]) == sorted(plain)
    assert books["semantic", False] == books["semantic", True], "features before training"
