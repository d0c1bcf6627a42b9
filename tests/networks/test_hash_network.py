"""The complete network: precision of the head, and tensors of older model files."""

from __future__ import annotations

import torch
from toys import smallest_backbone

from hadahash.methods import METHODS, Task
from hadahash.networks.hash_network import HashNetwork


def _network(name: str) -> HashNetwork:
    backbone, kind = smallest_backbone(), METHODS.get(name)
    task = Task(8, 4, backbone.features, train_images=20)
    return HashNetwork(backbone, kind.create(task, kind.Settings()), 8).eval()


def test_the_head_runs_in_single_precision_under_autocast():
    network = _network("itq")
    network.method.fit(
        torch.randn(20, 32, generator=torch.Generator().manual_seed(0)),
        torch.eye(4)[torch.arange(20) % 4],
        torch.Generator().manual_seed(0),
    )
    features = torch.randn(5, 32, generator=torch.Generator().manual_seed(1))
    exact = network.values(features)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(network.values(features), exact)
        assert network.values(features.bfloat16()).dtype == torch.float32


def test_an_older_state_is_upgraded_under_the_prefix_of_the_method():
    network = _network("csq")
    state = network.state_dict()
    older = {key.replace("method.codebook", "method.centers"): state[key] for key in state}
    assert "method.codebook" not in older
    upgraded = network.upgrade_state(older)
    assert upgraded.keys() == state.keys()
    assert all(torch.equal(upgraded[key], state[key]) for key in state)
