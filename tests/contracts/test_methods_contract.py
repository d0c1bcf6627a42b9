"""What every method must do, generated from the registry: a newcomer is tested without writing a test."""

from __future__ import annotations

import time

import pytest
import torch
from toys import tiny_hasher

from hadahash import evaluate
from hadahash.config import make
from hadahash.errors import HadaHashError
from hadahash.methods import METHODS, Batch, DeepMethod, ShallowMethod, Task
from hadahash.networks import Backbone

DEEP = [name for name in METHODS.names() if issubclass(METHODS.get(name), DeepMethod)]
SHALLOW = [name for name in METHODS.names() if issubclass(METHODS.get(name), ShallowMethod)]
FEATURES, CLASSES, IMAGES = 24, 4, 40

# Least mAP on held-out toy images; by chance it would be .25. LSH learns nothing: 16 projections may fall badly.
FLOOR = dict.fromkeys(METHODS.names(), 0.95) | {"lsh": 0.9}
WITH_CODEWORDS = {"hcdh", "hcdh-far", "hcdh-h", "hcdh-2", "csq", "orthohash", "hcsdh", "classify"}
ONE_CODE_A_CLASS = {"classify"}  # all images of a class have its codeword


def _make(name, *, bits=16, multilabel=False, seed=0):
    method_type = METHODS.get(name)
    torch.manual_seed(seed)
    task = Task(bits, CLASSES, FEATURES, multilabel=multilabel, train_images=IMAGES, seed=seed)
    return method_type.create(task, make(method_type.Settings, {}))


def _batch(count=16, *, classes=None, multilabel=False, seed=0):
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(count, FEATURES, generator=generator).relu()  # as a network gives them
    if multilabel:
        targets = (torch.rand(count, CLASSES, generator=generator) < 0.5).float()
    else:
        numbers = (
            torch.randint(CLASSES, (count,), generator=generator)
            if classes is None
            else torch.tensor(classes)
        )
        targets = torch.eye(CLASSES)[numbers]
    return Batch(features, targets, torch.randperm(IMAGES, generator=generator)[:count])


BATCHES = {
    "random": _batch(),
    "one image": _batch(1),
    "one class": _batch(16, classes=[2] * 16),
    "each its own class": _batch(4, classes=[0, 1, 2, 3]),
    "same image twice": Batch(
        torch.ones(2, FEATURES), torch.eye(CLASSES)[[0, 1]], torch.tensor([0, 1])
    ),
    "zero features": Batch(
        torch.zeros(3, FEATURES), torch.eye(CLASSES)[[0, 1, 1]], torch.tensor([0, 1, 2])
    ),
    "far out": Batch(1e3 * _batch().features, _batch().targets, _batch().indices),
}
SEVERAL = {
    "random": _batch(multilabel=True),
    "one image": _batch(1, multilabel=True),
    "no label": Batch(_batch(3).features, torch.zeros(3, CLASSES), torch.arange(3)),
    "every label": Batch(_batch(3).features, torch.ones(3, CLASSES), torch.arange(3)),
}


def _backward(method, batch, *, bf16=False):
    """One step as the loop does it; the features need a gradient too, since the backbone learns through them."""
    method.train()
    method.before_step(0, 10)
    features = batch.features.clone().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        parts = method.loss(Batch(features, batch.targets, batch.indices))
    torch.stack(list(parts.values())).sum().backward()
    return parts, features.grad


def _assert_finite(method, batch, *, bf16=False):
    parts, gradient = _backward(method, batch, bf16=bf16)
    assert parts and all(value.ndim == 0 and torch.isfinite(value) for value in parts.values()), (
        parts
    )
    gradients = [p.grad for p in method.parameters() if p.grad is not None]
    assert gradients, "no parameter has a gradient"
    assert all(torch.isfinite(g).all() for g in gradients)
    assert gradient is not None and torch.isfinite(gradient).all()


@pytest.mark.parametrize("bf16", [False, True], ids=["fp32", "bf16"])
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("name", DEEP)
def test_loss_and_gradients_are_finite(name, batch, bf16):
    _assert_finite(_make(name), BATCHES[batch], bf16=bf16)


@pytest.mark.parametrize("bf16", [False, True], ids=["fp32", "bf16"])
@pytest.mark.parametrize("batch", SEVERAL)
@pytest.mark.parametrize("name", DEEP)
def test_loss_and_gradients_are_finite_with_several_labels(name, batch, bf16):
    _assert_finite(_make(name, multilabel=True), SEVERAL[batch], bf16=bf16)


@pytest.mark.parametrize("name", DEEP)
def test_some_gradient_reaches_the_features(name):
    assert _backward(_make(name), BATCHES["random"])[1].abs().max() > 0


@pytest.mark.parametrize("name", DEEP)
def test_the_parts_of_the_loss_keep_their_names(name):
    method = _make(name)
    assert (
        _backward(method, BATCHES["random"])[0].keys()
        == _backward(method, BATCHES["one class"])[0].keys()
    )


@pytest.mark.parametrize("name", DEEP)
def test_the_loss_is_the_same_for_the_same_batch(name):
    first, second = (_backward(_make(name), BATCHES["random"])[0] for _ in range(2))
    assert all(torch.equal(first[key], second[key]) for key in first)


def _learned(name, *, bits=16):
    method = _make(name, bits=bits)
    if isinstance(method, ShallowMethod):
        batch = _batch(IMAGES)
        method.fit(batch.features, batch.targets, torch.Generator().manual_seed(0))
    else:
        optimizer = torch.optim.SGD(method.parameters(), lr=0.01)
        for seed in range(3):
            _backward(method, _batch(seed=seed))
            optimizer.step()
    return method.eval()


@pytest.mark.parametrize("name", METHODS.names())
def test_values_are_finite_and_of_the_right_shape(name):
    method = _learned(name)
    with torch.inference_mode():
        for count in (1, 7):
            values = method.values(_batch(count).features)
            assert values.shape == (count, 16) and torch.isfinite(values).all()
        if name not in ONE_CODE_A_CLASS:
            assert method.values(_batch(7).features).unique(dim=0).shape[0] == 7


@pytest.mark.parametrize("name", METHODS.names())
def test_the_code_of_an_image_does_not_depend_on_its_neighbours(name):
    method, features = _learned(name), _batch(9).features
    with torch.inference_mode():
        together = method.values(features)
        alone = torch.cat([method.values(row[None]) for row in features])
    torch.testing.assert_close(together, alone)


def _empty(name):
    method_type = METHODS.get(name)
    task = Task(16, CLASSES, FEATURES, train_images=IMAGES)
    return method_type(task, make(method_type.Settings, {}))


@pytest.mark.parametrize("name", METHODS.names())
def test_an_empty_method_is_filled_by_the_state_dict(name):
    method, other = _learned(name), _empty(name)
    features = _batch(9).features
    other.load_state_dict(method.state_dict())
    other.eval()
    with torch.inference_mode():
        assert torch.equal(other.values(features), method.values(features))
    assert (other.codewords() is None) == (method.codewords() is None)
    if method.codewords() is not None:
        assert torch.equal(other.codewords(), method.codewords())


@pytest.mark.parametrize("name", METHODS.names())
def test_the_constructor_searches_no_codebook(name, monkeypatch):
    def search(*_args, **_options):
        raise AssertionError("a codebook was searched")

    monkeypatch.setattr("hadahash.methods.codewords.codebook", search)
    _empty(name)


@pytest.mark.parametrize("name", METHODS.names())
def test_codewords_are_distinct_signs_or_none(name):
    codewords = _make(name).codewords()
    assert (codewords is not None) == (name in WITH_CODEWORDS)
    if codewords is not None:
        assert codewords.shape == (CLASSES, 16) and (codewords.abs() == 1).all()
        assert len(codewords.unique(dim=0)) == CLASSES


@pytest.mark.parametrize("name", METHODS.names())
def test_tensors_of_version_0_1_are_upgraded(name):
    method, other = _learned(name), _empty(name)
    stored = {
        "centers" if (name, key) == ("csq", "codebook") else key: value
        for key, value in method.state_dict().items()
        if (name, key) != ("hcsdh", "codebook")
    }
    other.load_state_dict(other.upgrade_state(stored))
    features = _batch(9).features
    with torch.inference_mode():
        assert torch.equal(other.eval().values(features), method.values(features))
    if name == "hcsdh":
        assert other.codewords() is None


@pytest.mark.parametrize("bits", [8, 12, 48, 256])
@pytest.mark.parametrize("name", METHODS.names())
def test_code_lengths(name, bits):
    try:
        method = _learned(name, bits=bits)
    except HadaHashError as error:  # a method may refuse a length, but must say so in one line
        assert str(bits) in str(error) and "\n" not in str(error)
        pytest.skip(str(error))
    with torch.inference_mode():
        assert method.values(_batch(3).features).shape == (3, bits)


@pytest.mark.parametrize("name", SHALLOW)
def test_shallow_methods_learn_the_same_from_the_same_seed(name):
    first, second = _learned(name), _learned(name)
    features = _batch(9).features
    assert torch.equal(first.values(features), second.values(features))
    assert not [p for p in first.parameters() if p.requires_grad and p.grad is not None]


@pytest.mark.parametrize("name", SHALLOW)
def test_shallow_methods_take_several_labels(name):
    method, batch = _make(name, multilabel=True), _batch(IMAGES, multilabel=True)
    method.fit(batch.features, batch.targets, torch.Generator().manual_seed(0))
    assert torch.isfinite(method.values(batch.features)).all()


def _mean_colours(name, *, weights="none", partial_weights=False):
    """A backbone with nothing to learn whose features tell the toy classes apart: the mean colours of 4 x 4 fields."""
    fields = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten())  # 48 features
    return Backbone(fields, name=name, size=32, mean=(127.0,) * 3, std=(64.0,) * 3)


@pytest.mark.parametrize("name", METHODS.names())
def test_the_toy_classes_are_learned(name, toy, toy_queries, monkeypatch):
    """Deep methods train a random network; shallow ones cannot, so they are given features that separate the classes."""
    if name in SHALLOW:
        monkeypatch.setattr("hadahash.hasher.build_backbone", _mean_colours)
    started = time.process_time()
    hasher = tiny_hasher(name, epochs=12).fit(*toy)
    assert time.process_time() - started < 20
    report = evaluate(hasher.encode(toy_queries[0]), toy_queries[1], hasher.encode(toy[0]), toy[1])
    assert report.map >= FLOOR[name]


@pytest.mark.parametrize("name", METHODS.names())
def test_the_module_says_where_the_method_comes_from(name):
    method_type = METHODS.get(name)
    documented = f"{method_type.__doc__ or ''} {__import__(method_type.__module__, fromlist=['x']).__doc__ or ''}"
    assert len(documented.split()) > 20
