"""Buffers of training images are in checkpoints, but not in saved models or averages."""

from __future__ import annotations

import hashlib

import pytest
import safetensors.torch
import torch
from toys import fit_in, make_toy, tensor_bytes, tiny_hasher

from hadahash import Hasher
from hadahash.training.checkpoint import Checkpoint
from hadahash.training.optim import WeightAverage

BANKS = {
    "dpsh": {"bank.outputs", "bank.targets"},
    "dsdh": {"bank.outputs", "bank.targets", "codes"},
}


class Stopped(BaseException):
    """Simulates a kill: nothing catches it."""


def _hasher(name):
    return tiny_hasher(
        name,
        frozen=True,
        epochs=12,
        checkpoint_seconds=0,
        **({"dsdh_refresh": 5} if name == "dsdh" else {}),
    )


@pytest.mark.parametrize("name", BANKS)
def test_the_model_and_the_average_hold_no_bank(name, toy, tmp_path):
    hasher = _hasher(name).fit(*toy)
    hasher.save(tmp_path)
    (file,) = tmp_path.glob("model-*.safetensors")
    found = {*safetensors.torch.load_file(file), *WeightAverage(hasher.model_.network, 0.9).shadow}
    assert "method.hash.weight" in found and not {f"method.{key}" for key in BANKS[name]} & found
    assert BANKS[name] <= {key for key, _ in hasher.model_.network.method.named_buffers()}, (
        "it is there in training"
    )
    other = Hasher.load(tmp_path, device="cpu")
    assert all(len(other.model_.network.method.get_buffer(key)) == 0 for key in BANKS[name]), (
        "it takes no memory"
    )
    assert other.encode(toy[0]).packed.tobytes() == hasher.encode(toy[0]).packed.tobytes()


@pytest.mark.parametrize("name", BANKS)
def test_a_stopped_run_continues_with_its_bank(name, tmp_path, monkeypatch):
    data = make_toy(88, seed=0)
    whole = _hasher(name).fit(*data)
    save = Checkpoint.save

    def stop(self, state):
        save(self, state)
        if state.step == 11:
            raise Stopped

    monkeypatch.setattr(Checkpoint, "save", stop)
    with pytest.raises(Stopped):
        fit_in(_hasher(name), *data, folder=tmp_path)
    monkeypatch.setattr(Checkpoint, "save", save)
    saved = safetensors.torch.load_file(tmp_path / "checkpoint.safetensors")
    assert all(saved[f"network.method.{key}"].any() for key in BANKS[name])
    resumed = fit_in(_hasher(name), *data, folder=tmp_path, resume=True)
    assert tensor_bytes(resumed) == tensor_bytes(whole)
    ours, theirs = (
        dict(hasher.model_.network.method.named_buffers()) for hasher in (resumed, whole)
    )
    assert all(torch.equal(ours[key], theirs[key]) for key in BANKS[name])


@pytest.mark.parametrize("name", BANKS)
def test_a_model_file_that_still_holds_the_bank_is_read(name, toy, tmp_path):
    hasher = _hasher(name).fit(*toy)
    extra = {f"method.{key}": value for key, value in hasher.model_.network.method.named_buffers()}
    tensors = hasher.model_.network.state_dict() | extra
    content = safetensors.torch.save({k: v.contiguous() for k, v in tensors.items()})
    digest = hashlib.sha256(content).hexdigest()
    hasher.model_.__dict__.update(weights=content, weights_sha256=digest)
    hasher.save(tmp_path)
    assert tensor_bytes(Hasher.load(tmp_path, device="cpu")) == tensor_bytes(hasher)
