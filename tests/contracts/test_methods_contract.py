"""Contract tests of all registered methods; new methods are included automatically."""

from __future__ import annotations

import dataclasses
import time
import typing

import pytest
import torch
from toys import tiny_hasher

from hadahash import evaluate
from hadahash.errors import UsageError
from hadahash.methods import METHODS, ShallowMethod, Task
from hadahash.methods._contract import make_batch, make_trained, method_checks
from hadahash.networks import Backbone

# Minimum mAP on held-out toy images; chance is .25. LSH learns nothing: 16 projections can be
# unlucky.
FLOOR = dict.fromkeys(METHODS.names(), 0.95) | {"lsh": 0.9}
WITH_CODEWORDS = {
    "hcdh",
    "hcdh-far",
    "hcdh-h",
    "hcdh-2",
    "hcdh-plus",
    "csq",
    "orthohash",
    "hcsdh",
    "classify",
}
ONE_CODE_PER_CLASS = {"classify"}  # all images of a class have its codeword


@pytest.mark.parametrize("check", method_checks())
@pytest.mark.parametrize("name", METHODS.names())
def test_contract(name, check):
    method_checks()[check](METHODS.get(name))


@pytest.mark.parametrize("name", METHODS.names())
def test_different_images_have_different_values(name):
    values = make_trained(METHODS.get(name)).values(make_batch(7).features)
    assert len(values.unique(dim=0)) == 7 or name in ONE_CODE_PER_CLASS


@pytest.mark.parametrize("name", METHODS.names())
def test_which_methods_have_codewords(name):
    assert (make_trained(METHODS.get(name)).codewords() is not None) == (name in WITH_CODEWORDS)


@pytest.mark.parametrize("name", METHODS.names())
def test_the_constructor_searches_no_codebook(name, monkeypatch):
    def search(*_args, **_options):
        raise AssertionError("a codebook was searched")

    monkeypatch.setattr("hadahash.methods.codewords.codebook", search)
    kind = METHODS.get(name)
    assert isinstance(kind(Task(16, 4, 24, train_images=40), kind.Settings()), kind)


@pytest.mark.parametrize("name", METHODS.names())
def test_tensors_of_version_0_1_are_upgraded(name):
    kind = METHODS.get(name)
    method, other = make_trained(kind), kind(Task(16, 4, 24, train_images=40), kind.Settings())
    stored = {
        "centers" if (name, key) == ("csq", "codebook") else key: value
        for key, value in method.state_dict().items()
        if (name, key) != ("hcsdh", "codebook")
    }
    other.load_state_dict(other.upgrade_state(stored))
    features = make_batch(9).features
    with torch.inference_mode():
        assert torch.equal(other.eval().values(features), method.values(features))
    if name == "hcsdh":
        assert other.codewords() is None


def _mean_colors(name, **_options):
    """A backbone without parameters whose features separate the toy classes: mean colors of a 4 x 4 grid."""
    grid = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten())  # 48 features
    return Backbone(grid, name=name, size=32, mean=(127.0,) * 3, std=(64.0,) * 3)


@pytest.mark.parametrize("name", METHODS.names())
def test_the_toy_classes_are_learned(name, toy, toy_queries, monkeypatch):
    """Deep methods train a random network; shallow ones get features that separate the classes."""
    if issubclass(METHODS.get(name), ShallowMethod):
        monkeypatch.setattr("hadahash.building.build_backbone", _mean_colors)
    started = time.process_time()
    hasher = tiny_hasher(name, epochs=12).fit(*toy)
    assert time.process_time() - started < 20
    report = evaluate(hasher.encode(toy_queries[0]), toy_queries[1], hasher.encode(toy[0]), toy[1])
    assert report.map >= FLOOR[name]


@pytest.mark.parametrize("name", METHODS.names())
def test_the_docstrings_name_the_source_of_the_method(name):
    kind = METHODS.get(name)
    module = __import__(kind.__module__, fromlist=["x"]).__doc__ or ""
    assert kind.__doc__ and len(f"{kind.__doc__} {module}".split()) > 20


def _numbers(name):
    hints = typing.get_type_hints(METHODS.get(name).Settings)
    return [
        field
        for field in dataclasses.fields(METHODS.get(name).Settings)
        if {int, float} & {hints[field.name], *typing.get_args(hints[field.name])}
    ]


@pytest.mark.parametrize("name", METHODS.names())
def test_every_number_among_the_settings_has_a_range(name):
    for field in _numbers(name):
        bounds = field.metadata["bounds"]
        low = min(bounds[key] for key in ("ge", "gt") if key in bounds)
        with pytest.raises(
            UsageError, match=rf"^{field.name} must be >=? {low:g}.*, got {low - 1}"
        ):
            METHODS.get(name).Settings(**{field.name: low - 1})
        METHODS.get(name).Settings(**{field.name: low + 1})


@pytest.mark.parametrize("name", METHODS.names())
def test_every_setting_has_a_help_text(name):
    for field in dataclasses.fields(METHODS.get(name).Settings):
        assert field.metadata["help"].endswith(".")
