"""Helpers for tests of deep methods: small methods and batches in float64, and slow layers."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from hadahash.methods import METHODS, Batch, DeepMethod, Task
from hadahash.settings import from_mapping

BITS, CLASSES, FEATURES, IMAGES = 8, 5, 6, 12


def deep_method(
    name, *, bits=BITS, classes=CLASSES, multilabel=False, seed=0, **settings
) -> DeepMethod:
    torch.manual_seed(seed)
    method_type = METHODS.get(name)
    task = Task(bits, classes, FEATURES, multilabel=multilabel, train_images=IMAGES, seed=seed)
    return method_type.create(task, from_mapping(method_type.Settings, settings)).double()


def random_batch(seed, *, multilabel=False, count=None) -> Batch:
    """1 to 8 of the 12 images; some multi-label images have no label."""
    generator = torch.Generator().manual_seed(seed)
    count = count or int(torch.randint(1, 9, (), generator=generator))
    features = 2 * torch.randn(count, FEATURES, generator=generator, dtype=torch.float64)
    if multilabel:
        targets = (torch.rand(count, CLASSES, generator=generator) < 0.4).double()
    else:
        targets = torch.eye(CLASSES, dtype=torch.float64)[
            torch.randint(CLASSES, (count,), generator=generator)
        ]
    return Batch(features, targets, torch.randperm(IMAGES, generator=generator)[:count])


def through(layer, rows) -> list[list[float]]:
    """A linear layer, as a loop."""
    weight = layer.weight.tolist()
    bias = [0.0] * len(weight) if layer.bias is None else layer.bias.tolist()
    return [[dot(w, x) + b for w, b in zip(weight, bias, strict=True)] for x in rows]


def centered(rows) -> list[list[float]]:
    """Standardized features of a batch, as a loop."""
    means = [sum(column) / len(rows) for column in zip(*rows, strict=True)]
    rest = [[x - m for x, m in zip(row, means, strict=True)] for row in rows]
    spread = math.sqrt(sum(x * x for row in rest for x in row) / (len(rows) * len(means)) + 1e-5)
    return [[x / spread for x in row] for row in rest]


def dot(left, right) -> float:
    return sum(a * b for a, b in zip(left, right, strict=True))


def share(left, right) -> int:
    """1 if two images have a label in common."""
    return int(any(a and b for a, b in zip(left, right, strict=True)))


def cross_entropy(scores, labels, *, multilabel) -> float:
    """The mean over images of the softmax form, or of the sigmoid form averaged over the classes."""
    total = 0.0
    for row, label in zip(scores, labels, strict=True):
        if multilabel:
            chances = [1 / (1 + math.exp(-s)) for s in row]
            right = [
                y * math.log(p) + (1 - y) * math.log(1 - p)
                for y, p in zip(label, chances, strict=True)
            ]
            total -= sum(right) / len(row)
        else:
            total -= math.log(math.exp(row[label.index(1.0)]) / sum(math.exp(s) for s in row))
    return total / len(scores)


def assert_parts(parts, expected) -> None:
    assert parts.keys() == expected.keys()
    for key, value in parts.items():
        assert value.item() == pytest.approx(expected[key], rel=1e-6, abs=1e-6), key


def assert_gradcheck(method, batch) -> None:
    """The gradient of the loss with respect to features and parameters equals the numerical one."""
    names, parameters = zip(*method.named_parameters(), strict=True)

    def total(features, *tensors):
        state = {f"method.{key}": value for key, value in zip(names, tensors, strict=True)}
        return sum(
            torch.func.functional_call(
                _Loss(method), state, (replace(batch, features=features),)
            ).values()
        )

    features = batch.features.clone().requires_grad_()
    assert torch.autograd.gradcheck(
        total, (features, *(p.detach().clone().requires_grad_() for p in parameters))
    )


class _Loss(torch.nn.Module):
    def __init__(self, method):
        super().__init__()
        self.method = method

    def forward(self, batch):
        return self.method.loss(batch)


def assert_full_precision(method, batch) -> None:
    """Only the network runs in bfloat16: the loss of its outputs is computed in single precision."""
    outputs = method.values(batch.features).detach().float()
    method.float()
    batch = Batch(batch.features.float(), batch.targets.float(), batch.indices)
    method.values = lambda features: outputs
    exact = method.loss(batch)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = method.loss(batch)
    for key, value in exact.items():
        assert rounded[key].item() == pytest.approx(value.item(), rel=1e-5, abs=1e-6), key
