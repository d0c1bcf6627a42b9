"""Losses over prefixes, mixed targets, label smoothing and assigned codewords."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from losses import CLASSES, FEATURES, deep_method, random_batch
from torch.nn import functional as F  # noqa: N812

from hadahash.codebooks import class_similarity
from hadahash.codebooks.assignment import assignment_cost
from hadahash.methods import METHODS, Batch, Task
from hadahash.methods.hcdh import prefixes_of


def _short_method(method, length):
    """A method of its own for the first bits, with the same weights."""
    task = Task(length, CLASSES, FEATURES, method.task.multilabel, 12, 0)
    settings = method.settings.__class__(**{**vars(method.settings), "prefixes": "none"})
    short = METHODS.get(_name(method))(task, settings).double()
    with torch.no_grad():
        short.codebook.copy_(method.codebook[:, :length])
        short.tie_break.copy_(method.tie_break[:length])
        short.head.hash.weight.copy_(method.head.hash.weight[:length])
        short.head.hash.bias.copy_(method.head.hash.bias[:length])
        if short.head.classifier is not None:
            short.head.classifier.weight.copy_(method.head.classifier.weight[:, :length])
            short.head.classifier.bias.copy_(method.head.classifier.bias)
    return short


def _name(method):
    return next(name for name in METHODS.names() if METHODS.get(name) is type(method))


@pytest.mark.parametrize("multilabel", [False, True])
@pytest.mark.parametrize("kind", ["none", "powers", "all"])
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("hcdh", {}),
        ("hcdh", {"reduction": "sum", "smoothing": 0.2}),
        ("hcdh-h", {}),
        ("hcdh-plus", {}),
        ("hcdh-plus", {"code_loss": "logistic", "lam": 0}),
    ],
)
def test_the_loss_is_the_mean_of_the_losses_of_shorter_methods(name, settings, kind, multilabel):
    options = {"codebook": "nested", "prefixes": kind, "multilabel": multilabel, **settings}
    method = deep_method(name, bits=36, **options)
    lengths = {"none": [36], "powers": [16, 32, 36], "all": [8, 16, 24, 32, 36]}[kind]
    assert prefixes_of(36, kind) == lengths
    for seed in range(5):
        batch = random_batch(seed, multilabel=multilabel)
        parts = method.loss(batch)
        slow = [_short_method(method, length).loss(batch) for length in lengths]
        assert parts.keys() == slow[0].keys()
        for key, value in parts.items():
            expected = sum(own[key].item() for own in slow) / len(slow)
            assert value.item() == pytest.approx(expected, rel=1e-9)


def test_prefixes_increase_and_end_with_the_code_length():
    for bits in (1, 8, 16, 17, 64, 100, 4096):
        for kind in ("none", "powers", "all"):
            found = prefixes_of(bits, kind)
            assert found[-1] == bits and all(a < b for a, b in pairwise(found))


def _mixed_batch(seed, multilabel):
    plain = random_batch(seed, multilabel=multilabel, count=6)
    share = torch.rand(6, 1, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    targets = plain.targets * share + plain.targets.flip(0) * (1 - share)
    return Batch(plain.features, targets, plain.indices, unmixed=plain.targets, share=share)


@pytest.mark.parametrize("multilabel", [False, True])
@pytest.mark.parametrize("name", ["hcdh", "hcdh-plus"])
def test_the_target_code_of_a_mixed_image_is_the_mixture_of_two_target_codes(name, multilabel):
    method = deep_method(name, multilabel=multilabel)
    for seed in range(20):
        batch = _mixed_batch(seed, multilabel)
        codes, weight = method.target_codes(batch.labels)
        found, total = method.batch_codes(batch)
        for i in range(6):
            own = batch.share[i] * weight[i]
            other = (1 - batch.share[i]) * weight[5 - i]
            torch.testing.assert_close(total[i], own + other)
            if (own + other).min() > 0:
                slow = (own * codes[i] + other * codes[5 - i]) / (own + other)
                torch.testing.assert_close(found[i], slow)


@pytest.mark.parametrize("multilabel", [False, True])
@pytest.mark.parametrize("name", ["hcdh", "hcdh-2", "hcdh-plus", "csq"])
def test_a_share_of_one_changes_no_loss(name, multilabel):
    method = deep_method(name, multilabel=multilabel)
    plain = random_batch(3, multilabel=multilabel, count=5)
    whole = torch.ones(5, 1, dtype=torch.float64)
    same = Batch(plain.features, plain.targets, plain.indices, unmixed=plain.targets, share=whole)
    for key, value in method.loss(plain).items():
        assert torch.equal(value, method.loss(same)[key])


@pytest.mark.parametrize("multilabel", [False, True])
def test_all_deep_methods_accept_mixed_batches(multilabel):
    batch = _mixed_batch(0, multilabel)
    for name in ("hcdh", "hcdh-plus", "csq", "orthohash", "ssdh", "classify"):
        total = sum(deep_method(name, multilabel=multilabel).loss(batch).values())
        assert torch.isfinite(total)


def test_smoothing_spreads_targets_over_the_classes():
    batch = random_batch(1, count=4)
    method = deep_method("hcdh", smoothing=0.3)
    scores = method.head(batch.features)[1]
    soft = 0.7 * batch.targets + 0.3 / CLASSES
    expected = -(soft * scores.log_softmax(1)).sum(1).mean()
    torch.testing.assert_close(method.loss(batch)["classification"], expected)
    batch = random_batch(1, multilabel=True, count=4)
    method = deep_method("hcdh", smoothing=0.3, multilabel=True)
    soft = 0.7 * batch.targets + 0.15
    expected = F.binary_cross_entropy(method.head(batch.features)[1].sigmoid(), soft)
    torch.testing.assert_close(method.loss(batch)["classification"], expected)


def test_semantic_assignment_permutes_the_codewords_and_lowers_the_cost():
    plain = deep_method("hcdh", codebook="random", classes=CLASSES)
    method = deep_method("hcdh", codebook="random", assignment="semantic")
    assert method.needs_features and not plain.needs_features
    features = torch.rand(40, FEATURES)
    targets = torch.eye(CLASSES)[torch.arange(40) % CLASSES]
    method.prepare(features, targets)
    rows = {tuple(row) for row in method.codebook.tolist()}
    assert rows == {tuple(row) for row in plain.codebook.tolist()}
    similarity = class_similarity(features.numpy(), targets.numpy())
    before, after = (assignment_cost(similarity, own.codebook.numpy()) for own in (plain, method))
    assert after < before


# ------------------------------------------------------------------ hcdh-plus


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("code_loss", ["squared", "logistic"])
@pytest.mark.parametrize("multilabel", [False, True])
def test_hcdh_plus_matches_its_formula(multilabel, code_loss, norm):
    options = {"code_loss": code_loss, "hash_norm": norm, "lam": 0.5, "posterior": 0.7}
    method = deep_method("hcdh-plus", multilabel=multilabel, **options)
    batch = random_batch(4, multilabel=multilabel, count=7)
    raw = batch.features @ method.head.hash.weight.T + method.head.hash.bias
    if norm:
        raw = (raw - raw.mean(0)) / (raw.var(0, unbiased=False) + 1e-5).sqrt()
    values, (codes, weight) = raw.tanh(), method.target_codes(batch.targets)
    chance = (1 + values) / 2
    entropy = -((1 + codes) / 2 * chance.log() + (1 - codes) / 2 * (1 - chance).log())
    error = (values - codes) ** 2 if code_loss == "squared" else entropy
    near = values @ method.codebook.T / 8
    if multilabel:
        with torch.no_grad():
            method.offset.copy_(torch.linspace(-1, 1, CLASSES))
        chance = (8 * (near - 0.25) + method.offset).sigmoid()
        posterior = F.binary_cross_entropy(chance, batch.targets)
        classify = F.binary_cross_entropy(method.head.classifier(values).sigmoid(), batch.targets)
    else:
        logits = 8 * (near - 0.2 * batch.targets)
        posterior = -(batch.targets * logits.log_softmax(1)).sum(1).mean()
        scores = method.head.classifier(values)
        classify = -(batch.targets * scores.log_softmax(1)).sum(1).mean()
    parts = method.loss(batch)
    if multilabel:  # the sum over the classes
        posterior, classify = posterior * CLASSES, classify * CLASSES
    assert list(parts) == ["code", "posterior", "classification"]
    torch.testing.assert_close(parts["code"], (weight * error).sum() / weight.sum())
    torch.testing.assert_close(parts["posterior"], 0.7 * posterior)
    torch.testing.assert_close(parts["classification"], 0.5 * classify)


def test_parts_of_weight_zero_are_absent():
    method = deep_method("hcdh-plus", posterior=0, lam=0)
    assert list(method.loss(random_batch(0))) == ["code"]
