"""Loading a model leaves torch's random numbers alone, also while another thread trains."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import torch
from torch import nn
from toys import make_toy, tensor_bytes, tiny_hasher, use_smallest_backbone

from hadahash import list_methods
from hadahash.model import HashModel
from hadahash.networks.initialization import OwnRandomness

_DRAWS: list[Callable[[], torch.Tensor]] = [
    lambda: nn.Linear(5, 7).weight,
    lambda: nn.Conv2d(3, 4, 3).weight,
    lambda: nn.Embedding(4, 3).weight,
    lambda: nn.LSTM(3, 4).weight_ih_l0,
    lambda: nn.MultiheadAttention(8, 2).in_proj_weight,
    lambda: nn.init.orthogonal_(torch.empty(4, 4)),
    lambda: nn.init.trunc_normal_(torch.empty(9)),
    lambda: nn.init.kaiming_normal_(torch.empty(4, 4)),
    lambda: torch.randn(3),
    lambda: torch.rand(2, 2),
    lambda: torch.randint(5, (4,)),
    lambda: torch.randperm(6),
    lambda: torch.normal(0.0, 1.0, (3,)),
    lambda: torch.bernoulli(torch.full((5,), 0.5)),
    lambda: torch.multinomial(torch.ones(5), 2),
    lambda: torch.randn_like(torch.zeros(3)),
    lambda: torch.rand_like(torch.zeros(3)),
    lambda: torch.empty(3).normal_(),
    lambda: torch.empty(3).uniform_(),
    lambda: torch.empty(3).exponential_(),
    lambda: torch.empty(3).random_(),
]


def test_own_numbers_are_those_of_a_seeded_global_generator():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        expected = [draw().detach().clone() for draw in _DRAWS]
    before = torch.get_rng_state()
    with OwnRandomness(3):
        found = [draw().detach().clone() for draw in _DRAWS]
    assert torch.equal(torch.get_rng_state(), before)
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other)


def test_a_given_generator_is_used():
    with OwnRandomness(3):
        first, second = (
            torch.randn(4, generator=torch.Generator().manual_seed(8)) for _ in range(2)
        )
    assert torch.equal(first, second)


@pytest.mark.parametrize("method", list_methods())
def test_loading_does_not_touch_the_random_state(method, tmp_path):
    changes = {"content_bits": 0} if method in ("itq", "lsh") else {"content_bits": 16}
    hasher = tiny_hasher(method, bits=8, epochs=1, **changes).fit(*make_toy(40, seed=0))
    hasher.save(tmp_path)
    torch.manual_seed(11)
    before = torch.get_rng_state()
    loaded = HashModel.load(tmp_path, device="cpu")
    assert torch.equal(torch.get_rng_state(), before)
    assert tensor_bytes(loaded) == tensor_bytes(hasher)


def test_loading_in_a_thread_does_not_change_a_fit(tmp_path, monkeypatch):
    """Dropout draws from the global generator while a model is trained."""
    use_smallest_backbone(monkeypatch)
    toy = make_toy(160, seed=3)
    tiny_hasher(epochs=1).fit(*toy).save(tmp_path)

    def fit() -> dict[str, bytes]:
        return tensor_bytes(tiny_hasher(epochs=8, batch_size=16).fit(*toy))

    alone = fit()
    stop, loads = threading.Event(), []

    def load() -> None:
        while not stop.is_set():
            loads.append(HashModel.load(tmp_path, device="cpu").id)

    thread = threading.Thread(target=load)
    thread.start()
    try:
        together = fit()
    finally:
        stop.set()
        thread.join()
    assert together == alone and len(loads) > 2
