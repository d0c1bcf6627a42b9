"""Defaults that depend on the machine and on the method."""

from __future__ import annotations

import pytest

from hadahash.building import make_config
from hadahash.config import TrainConfig


@pytest.mark.parametrize(
    ("method", "weights", "settings", "frozen"),
    [
        ("hcdh", "imagenet", {}, True),
        ("csq", "some.pth", {"epochs": 3}, True),
        ("hcdh", "none", {}, False),
        ("hcdh", "imagenet", {"frozen": "false"}, False),
        ("hcdh", "imagenet", {"frozen": True}, True),
        ("hcdh", "imagenet", {"backbone_lr": 0.1}, False),
        ("itq", "imagenet", {}, False),
    ],
)
def test_a_pretrained_backbone_stays_fixed_without_a_gpu(method, weights, settings, frozen):
    config = make_config(method, weights=weights, settings=settings, device="cpu")
    assert config.train.frozen is frozen
    assert make_config(method, weights=weights, settings=settings).train == TrainConfig(
        **{"frozen": False} | {k: v for k, v in config.settings().items() if k in settings}
    )


def test_with_a_gpu_the_backbone_is_trained(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert not make_config("hcdh", device="auto").train.frozen
    assert make_config("hcdh", device="cpu").train.frozen


def test_a_configuration_has_no_content_bits_unless_asked():
    """Recipes of published tables are made this way."""
    assert make_config("hcdh").content_bits == 0
    assert make_config("hcdh", content_bits=None).content_bits == 128
    assert make_config("lsh", content_bits=None).content_bits == 0
