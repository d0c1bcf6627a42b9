"""HCDH against a slow reference implementation of the paper's formula."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from losses import assert_gradcheck
from toys import one_line

from hadahash import codebook
from hadahash.errors import UsageError
from hadahash.methods import METHODS, Batch, Task
from hadahash.methods.hcdh import HCDHSettings

BITS, CLASSES, FEATURES = 8, 5, 6
POLICIES = ("sign", "masked", "mean", "sum")


def _method(name="hcdh", *, multilabel=False, seed=0, **settings):
    torch.manual_seed(seed)
    task = Task(BITS, CLASSES, FEATURES, multilabel=multilabel, train_images=100, seed=seed)
    method_type = METHODS.get(name)
    return method_type.create(task, method_type.Settings(**settings)).double()


def _batch(seed, *, multilabel=False, count=None):
    generator = torch.Generator().manual_seed(seed)
    count = count or int(torch.randint(1, 9, (), generator=generator))
    features = 2 * torch.randn(count, FEATURES, generator=generator, dtype=torch.float64)
    if multilabel:
        targets = (
            torch.rand(count, CLASSES, generator=generator) < 0.5
        ).double()  # some images have no label at all
    else:
        targets = torch.eye(CLASSES, dtype=torch.float64)[
            torch.randint(CLASSES, (count,), generator=generator)
        ]
    return Batch(features, targets, torch.arange(count))


# ------------------------------------------------------------------ the slow reference


def _row(layer, inputs):
    """A linear layer on one row, as a loop."""
    weight, bias = layer.weight.tolist(), layer.bias.tolist()
    return [
        sum(w * x for w, x in zip(row, inputs, strict=True)) + b
        for row, b in zip(weight, bias, strict=True)
    ]


def _target(method, labels, policy, multilabel):
    """H^T y of one image (the paper's sum, or another policy), and the weights of the bits."""
    book, ties = method.codebook.tolist(), method.tie_break.tolist()
    total = [sum(book[c][k] * labels[c] for c in range(CLASSES)) for k in range(BITS)]
    if not any(labels):  # no target
        return [0.0] * BITS, [0] * BITS
    if not multilabel or policy == "sum":
        return total, [1] * BITS
    if policy == "mean":
        return [t / sum(labels) for t in total], [1] * BITS
    signs = [math.copysign(1, t) if t else tie for t, tie in zip(total, ties, strict=True)]
    return signs, [int(t != 0) if policy == "masked" else 1 for t in total]


def _reference(
    method, batch, *, multilabel=False, lam=1.0, reduction="mean", policy="sign", streams=1
):
    squares, counted, classification = 0.0, 0, 0.0
    rows = list(zip(batch.features.tolist(), batch.targets.tolist(), strict=True))
    for features, labels in rows:
        values = [math.tanh(z) for z in _row(method.head.hash, features)]
        target, weight = _target(method, labels, policy, multilabel)
        squares += sum(w * (t - v) ** 2 for w, t, v in zip(weight, target, values, strict=True))
        counted += sum(weight)
        if method.head.classifier is None:
            continue
        scores = _row(method.head.classifier, values if streams == 1 else features)
        if multilabel:  # binary cross entropy of the sigmoid, mean over classes
            chances = [1 / (1 + math.exp(-s)) for s in scores]
            wrong = [
                y * math.log(p) + (1 - y) * math.log(1 - p)
                for y, p in zip(labels, chances, strict=True)
            ]
            classification -= sum(wrong) / CLASSES
        else:  # cross entropy of the softmax over the classes
            classification -= scores[labels.index(1.0)] - math.log(sum(math.exp(s) for s in scores))
    # The mean over images and bits; or the paper's half sum over bits, averaged over the batch
    labelled = sum(any(labels) for _, labels in rows)
    hadamard = (
        squares / max(1, counted) if reduction == "mean" else 0.5 * squares / max(1, labelled)
    )
    parts = {"hadamard": hadamard}
    if method.head.classifier is not None:
        parts["classification"] = lam * classification / len(rows)
    return parts


def _assert_equal(parts, expected):
    assert parts.keys() == expected.keys()
    for key, value in parts.items():
        assert value.item() == pytest.approx(expected[key], rel=1e-6, abs=1e-6), key


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("seed", range(100))
def test_single_label_loss_matches_the_formula(seed, reduction):
    method, batch = _method(seed=seed, lam=0.1 + seed / 50, reduction=reduction), _batch(seed)
    _assert_equal(
        method.loss(batch), _reference(method, batch, lam=0.1 + seed / 50, reduction=reduction)
    )


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_multi_label_loss_matches_the_formula(policy, reduction):
    for seed in range(100):
        method = _method(
            multilabel=True, seed=seed, lam=0.3, reduction=reduction, multilabel_target=policy
        )
        batch = _batch(seed, multilabel=True)
        expected = _reference(
            method, batch, multilabel=True, lam=0.3, reduction=reduction, policy=policy
        )
        _assert_equal(method.loss(batch), expected)


@pytest.mark.parametrize("multilabel", [False, True])
@pytest.mark.parametrize("name", ["hcdh-h", "hcdh-c", "hcdh-2"])
def test_variants_match_the_formula(name, multilabel):
    for seed in range(100):
        method, batch = (
            _method(name, multilabel=multilabel, seed=seed, lam=0.7),
            _batch(seed, multilabel=multilabel),
        )
        expected = _reference(
            method, batch, multilabel=multilabel, lam=0.7, streams=2 if name == "hcdh-2" else 1
        )
        kept = {
            "hcdh-h": {"hadamard"},
            "hcdh-c": {"classification"},
            "hcdh-2": {"hadamard", "classification"},
        }[name]
        _assert_equal(method.loss(batch), {key: expected[key] for key in kept})


def test_the_policies_differ_where_labels_tie():
    batch = _batch(3, multilabel=True, count=8)
    losses = [
        _method(multilabel=True, multilabel_target=p).loss(batch)["hadamard"].item()
        for p in POLICIES
    ]
    assert len({round(loss, 9) for loss in losses}) == 4


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("policy", POLICIES)
def test_images_without_labels_have_no_weight_in_the_codeword_loss(policy, reduction):
    method = _method(multilabel=True, multilabel_target=policy, reduction=reduction)
    batch = _batch(0, multilabel=True, count=6)
    targets = batch.targets.clone()
    targets[:, 0] = 1
    targets[3:] = 0
    values = method.values(batch.features)
    mixed = method.code_loss(values, *method.target_codes(targets))
    labelled = method.code_loss(values[:3], *method.target_codes(targets[:3]))
    assert mixed.item() == pytest.approx(labelled.item())
    nothing = replace(batch, targets=torch.zeros_like(targets))
    assert method.loss(nothing)["hadamard"].item() == 0


def test_masked_bits_do_not_count_in_the_mean():
    method = _method(multilabel=True, multilabel_target="masked")
    method.codebook[1] = -method.codebook[0]
    method.codebook[1, 3] = method.codebook[0, 3]  # the two codewords agree in this bit only
    batch = replace(
        _batch(0, count=1), targets=torch.tensor([[1.0, 1, 0, 0, 0]], dtype=torch.float64)
    )
    expected = (method.values(batch.features)[0, 3] - method.codebook[0, 3]) ** 2
    assert method.loss(batch)["hadamard"].item() == pytest.approx(expected.item())


# ------------------------------------------------------------------ gradients


@pytest.mark.parametrize("multilabel", [False, True])
@pytest.mark.parametrize("name", ["hcdh", "hcdh-far", "hcdh-h", "hcdh-c", "hcdh-2"])
def test_gradients_are_those_of_the_loss(name, multilabel):
    method, batch = _method(name, multilabel=multilabel), _batch(1, multilabel=multilabel, count=4)
    assert_gradcheck(method, batch)


def _hash_gradient(name, part):
    method = _method(name)
    gradient = torch.autograd.grad(
        method.loss(_batch(0, count=6))[part], method.head.hash.weight, allow_unused=True
    )[0]
    return torch.zeros_like(method.head.hash.weight) if gradient is None else gradient


def test_the_classification_loss_shapes_the_code_on_one_stream_only():
    assert _hash_gradient("hcdh", "classification").abs().max() > 1e-3
    assert _hash_gradient("hcdh-c", "classification").abs().max() > 1e-3
    assert _hash_gradient("hcdh-2", "classification").abs().max() == 0
    assert _hash_gradient("hcdh-2", "hadamard").abs().max() > 1e-3


# ------------------------------------------------------------------ what the variants are


def test_h_has_no_classifier():
    assert _method("hcdh-h", lam=5.0).head.classifier is None
    assert _method("hcdh", lam=0.0).head.classifier is None
    assert _method("hcdh").head.classifier.in_features == BITS
    assert _method("hcdh-2").head.classifier.in_features == FEATURES


def test_c_ignores_the_codebook():
    method, batch = _method("hcdh-c"), _batch(0, count=6)
    before = method.loss(batch)
    method.codebook.neg_()
    assert method.loss(batch)["classification"] == before["classification"]
    other = _method("hcdh")
    before = other.loss(batch)["hadamard"].item()
    other.codebook.neg_()
    assert other.loss(batch)["hadamard"].item() != before


def test_c_without_its_only_loss_is_refused():
    with pytest.raises(UsageError, match=r"lam must be > 0 for hcdh-c, got 0\.0\.") as caught:
        _method("hcdh-c", lam=0.0)
    one_line(caught.value)


@pytest.mark.parametrize("lam, rule", [(-1.0, ">= 0"), (math.inf, ">= 0"), (math.nan, ">= 0")])
def test_lambda_must_be_in_range(lam, rule):
    with pytest.raises(UsageError, match=rf"^lam must be {rule}, got {lam}\.$"):
        HCDHSettings(lam=lam)


def test_values_are_tanh_of_the_hash_layer():
    method, batch = _method(), _batch(0)
    assert torch.equal(method.values(batch.features), torch.tanh(method.head.hash(batch.features)))


def test_codewords_are_rows_and_the_target_of_a_class_is_its_own():
    method = _method()
    target, weight = method.target_codes(torch.eye(CLASSES, dtype=torch.float64))
    assert torch.equal(target, method.codebook) and (weight == 1).all()
    assert (
        method.codebook.shape == (CLASSES, BITS) and len(method.codebook.unique(dim=0)) == CLASSES
    )


def test_mixed_targets_pull_between_the_codewords():
    method = _method()
    target, _ = method.target_codes(torch.tensor([[0.75, 0.25, 0, 0, 0]], dtype=torch.float64))
    assert torch.equal(target[0], 0.75 * method.codebook[0] + 0.25 * method.codebook[1])


def test_the_codebook_follows_its_seed_and_design():
    assert torch.equal(_method(seed=1).codebook, _method(seed=1).codebook)
    assert torch.equal(
        _method(seed=1, codebook_seed=7).codebook, _method(seed=2, codebook_seed=7).codebook
    )
    assert torch.equal(_method(codebook="paper").codebook, _method().codebook)
    assert not torch.equal(_method(codebook="far").codebook, _method().codebook)
    with pytest.raises(UsageError, match="paper"):
        _method(codebook="papr")


def test_a_permuted_codebook_has_the_same_codewords_in_another_order():
    plain, permuted = (_method(codebook_permutation=seed).codebook for seed in (None, 1))
    assert not torch.equal(plain, permuted)
    assert {tuple(row) for row in plain.tolist()} == {tuple(row) for row in permuted.tolist()}
    assert torch.equal(permuted, _method(codebook_permutation=1).codebook)


def test_the_default_codebook_is_the_papers_and_far_has_its_own_name():
    for name in ("hcdh", "hcdh-h", "hcdh-2"):
        expected = torch.from_numpy(codebook(CLASSES, BITS, design="paper", seed=3)).double()
        assert torch.equal(_method(name, seed=3).codewords(), expected)
    expected = torch.from_numpy(codebook(CLASSES, BITS, design="far", seed=3)).double()
    assert torch.equal(_method("hcdh-far", seed=3).codewords(), expected)


def test_without_the_codebook_loss_there_are_no_codewords():
    assert _method("hcdh-c").codewords() is None
