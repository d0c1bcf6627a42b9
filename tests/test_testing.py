"""The contract tests that ship with the package detect and describe violations."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import nn

from hadahash.errors import UsageError
from hadahash.methods import DeepMethod, ShallowMethod
from hadahash.testing import check_method


class Good(DeepMethod):
    """A hinge on fixed codewords."""

    def __init__(self, task, settings):
        super().__init__(task, settings)
        self.hash = nn.Linear(task.features, task.bits)
        self.register_buffer("codebook", torch.zeros(task.classes, task.bits))

    @classmethod
    def create(cls, task, settings):
        method = super().create(task, settings)
        rows = torch.arange(task.classes)[:, None] >> torch.arange(task.bits) % 8
        method.codebook.copy_(1 - 2.0 * (rows & 1))
        return method

    def codewords(self):
        return self.codebook

    def values(self, features):
        return self.hash(features)

    def loss(self, batch):
        codes = (batch.targets @ self.codebook).sign()
        return {"hinge": (1 - self.values(batch.features) * codes).relu().mean()}


def test_a_method_that_keeps_the_contract_passes():
    check_method(Good)
    check_method("lsh")


def test_an_unknown_name_is_refused():
    with pytest.raises(UsageError, match="Did you mean 'hcdh'"):
        check_method("hcdg")


class NotAMethod(nn.Module):
    pass


class OddSettings(Good):
    @dataclass
    class Settings:
        rate: float = 1.0


class Infinite(Good):
    def loss(self, batch):
        return {"log": batch.targets.sum(1).log().mean() + self.values(batch.features).mean()}


class Vector(Good):
    def loss(self, batch):
        return {"hinge": self.values(batch.features).mean(0)}


class Detached(Good):
    def loss(self, batch):
        return {"hinge": self.values(batch.features.detach()).mean() + 0 * batch.features.sum()}


class WrongWidth(Good):
    def values(self, features):
        return self.hash(features)[:, :-1]

    def loss(self, batch):
        return {"mean": self.values(batch.features).mean()}


class DependsOnBatch(Good):
    def values(self, features):
        return self.hash(features - features.mean(0))


class HiddenState(ShallowMethod):
    scale = 0.0

    def fit(self, features, targets, generator):
        self.scale = 1.0

    def values(self, features):
        return features[:, :1].repeat(1, self.task.bits) * self.scale


class EqualCodewords(Good):
    def codewords(self):
        return torch.ones(self.task.classes, self.task.bits)


class Renaming(Good):
    def loss(self, batch):
        return {f"part {int(batch.targets.sum(0).max())}": self.values(batch.features).mean()}


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (NotAMethod, "must be a subclass of DeepMethod or ShallowMethod"),
        (OddSettings, "Settings must be frozen"),
        (Infinite, "part 'log' of the loss is -inf in the batch"),
        (Vector, "must be a scalar"),
        (Detached, "the gradient of the features is 0"),
        (WrongWidth, r"must have the shape \(1, 16\)"),
        (DependsOnBatch, "must not depend on the other images"),
        (HiddenState, "must give the same values"),
        (EqualCodewords, "codewords of two classes must differ"),
        (Renaming, "parts changed from"),
    ],
)
def test_what_breaks_the_contract_is_named(kind, text):
    with pytest.raises(AssertionError, match=text) as caught:
        check_method(kind)
    assert str(caught.value).startswith(f"{kind.__name__}, ")
