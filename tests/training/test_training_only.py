"""What a method keeps of its training images is in checkpoints, but neither in the saved model nor in the average."""

from __future__ import annotations

import pytest
import safetensors.torch
import torch
from toys import make_toy, tensor_bytes, tiny_hasher

from hadahash import Hasher
from hadahash.training.checkpoint import Checkpoint
from hadahash.training.optim import Average

BANKS = {
    "dpsh": {"bank.outputs", "bank.targets"},
    "dsdh": {"bank.outputs", "bank.targets", "codes"},
}


class Stopped(BaseException):
    """Like a kill: nothing catches it."""


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
    found = {*safetensors.torch.load_file(file), *Average(hasher.network, 0.9).shadow}
    assert "method.hash.weight" in found and not {f"method.{key}" for key in BANKS[name]} & found
    assert BANKS[name] <= {key for key, _ in hasher.network.method.named_buffers()}, (
        "it is there in training"
    )
    other = Hasher.load(tmp_path, device="cpu")
    assert all(len(other.network.method.get_buffer(key)) == 0 for key in BANKS[name]), (
        "no room is kept for it"
    )
    assert other.encode(toy[0]).packed.tobytes() == hasher.encode(toy[0]).packed.tobytes()


@pytest.mark.parametrize("name", BANKS)
def test_a_stopped_run_goes_on_with_its_bank(name, tmp_path, monkeypatch):
    data = make_toy(88, seed=0)
    whole = _hasher(name).fit(*data)
    save = Checkpoint.save

    def stop(self, state):
        save(self, state)
        if state.step == 11:
            raise Stopped

    monkeypatch.setattr(Checkpoint, "save", stop)
    with pytest.raises(Stopped):
        _hasher(name).fit(*data, out=tmp_path)
    monkeypatch.setattr(Checkpoint, "save", save)
    saved = safetensors.torch.load_file(tmp_path / "checkpoint.safetensors")
    assert all(saved[f"network.method.{key}"].any() for key in BANKS[name])
    resumed = _hasher(name).fit(*data, out=tmp_path, resume=True)
    assert tensor_bytes(resumed) == tensor_bytes(whole)
    ours, theirs = (dict(hasher.network.method.named_buffers()) for hasher in (resumed, whole))
    assert all(torch.equal(ours[key], theirs[key]) for key in BANKS[name])


@pytest.mark.parametrize("name", BANKS)
def test_a_model_file_that_still_holds_the_bank_is_read(name, toy, tmp_path):
    hasher = _hasher(name).fit(*toy)
    extra = {f"method.{key}": value for key, value in hasher.network.method.named_buffers()}
    content = safetensors.torch.save(
        {k: v.contiguous() for k, v in (hasher.network.state_dict() | extra).items()}
    )
    hasher._content = lambda: content
    hasher.save(tmp_path)
    assert tensor_bytes(Hasher.load(tmp_path, device="cpu")) == tensor_bytes(hasher)
