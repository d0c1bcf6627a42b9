"""SSDH, classify-then-encode, CSQ and OrthoHash against slow reference implementations."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from losses import (
    BITS,
    CLASSES,
    FEATURES,
    assert_full_precision,
    assert_gradcheck,
    assert_parts,
    cross_entropy,
    deep_method,
    dot,
    random_batch,
    through,
)
from toys import one_line

from hadahash import codebook, hadamard
from hadahash.errors import UsageError
from hadahash.methods import Batch

NAMES = ("ssdh", "classify", "csq", "orthohash")


@pytest.mark.parametrize("multilabel", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_gradients_are_those_of_the_loss(name, multilabel):
    assert_gradcheck(
        deep_method(name, multilabel=multilabel), random_batch(1, multilabel=multilabel, count=5)
    )


def _majority(words, tie_break):
    """The majority of each bit; the tie-break vector where there is none."""
    totals = [sum(column) for column in zip(*words, strict=True)] or [0] * len(tie_break)
    return [
        math.copysign(1, total) if total else tie
        for total, tie in zip(totals, tie_break, strict=True)
    ]


def _words(book, label):
    return [word for word, chosen in zip(book, label, strict=True) if chosen]


# ------------------------------------------------------------------ SSDH


@pytest.mark.parametrize("multilabel", [False, True])
def test_ssdh_loss_matches_the_formula(multilabel):
    """CE - (1 / 2NK) sum (a - .5)^2 + (1 / 2N) sum_n (mean_k a_nk - .5)^2"""
    for seed in range(100):
        settings = {"ssdh_binary": 0.5 + seed / 50, "ssdh_balance": 2 - seed / 100}
        method = deep_method("ssdh", multilabel=multilabel, seed=seed, **settings)
        batch = random_batch(seed, multilabel=multilabel)
        active = [
            [1 / (1 + math.exp(-u)) for u in row]
            for row in through(method.hash, batch.features.tolist())
        ]
        n = len(active)
        far = sum((a - 0.5) ** 2 for row in active for a in row) / (2 * n * BITS)
        even = sum((sum(row) / BITS - 0.5) ** 2 for row in active) / (2 * n)
        expected = {
            "classification": cross_entropy(
                through(method.classifier, active), batch.targets.tolist(), multilabel=multilabel
            ),
            "binary": -settings["ssdh_binary"] * far,
            "balance": settings["ssdh_balance"] * even,
        }
        assert_parts(method.loss(batch), expected)


def test_a_bit_of_ssdh_is_1_where_its_activity_is_at_least_a_half():
    method, batch = deep_method("ssdh"), random_batch(0, count=8)
    active = torch.sigmoid(method.hash(batch.features))
    assert torch.equal(method.values(batch.features) >= 0, active >= 0.5)


# ------------------------------------------------------------------ classify, then encode


@pytest.mark.parametrize("name", ["ssdh", "classify", "hcdh-c", "hcdh"])
@pytest.mark.parametrize("multilabel", [False, True])
def test_the_classification_loss_can_be_summed_over_the_classes_of_multi_label_images(
    name, multilabel
):
    batch = random_batch(0, multilabel=multilabel)
    mean, total = (
        deep_method(name, multilabel=multilabel, multilabel_loss=reduction).loss(batch)
        for reduction in ("mean", "sum")
    )
    factor = CLASSES if multilabel else 1
    torch.testing.assert_close(total["classification"], factor * mean["classification"])
    assert all(torch.equal(mean[key], total[key]) for key in mean if key != "classification")


@pytest.mark.parametrize("multilabel", [False, True])
def test_classify_loss_matches_the_formula(multilabel):
    for seed in range(100):
        method, batch = (
            deep_method("classify", multilabel=multilabel, seed=seed),
            random_batch(seed, multilabel=multilabel),
        )
        scores = through(method.classifier, batch.features.tolist())
        expected = cross_entropy(scores, batch.targets.tolist(), multilabel=multilabel)
        assert_parts(method.loss(batch), {"classification": expected})


def test_the_code_is_the_codeword_of_the_best_class():
    book, seen = codebook(CLASSES, BITS).tolist(), set()
    for seed in range(30):
        method, batch = deep_method("classify"), random_batch(seed)
        best = [row.index(max(row)) for row in through(method.classifier, batch.features.tolist())]
        assert method.values(batch.features).tolist() == [book[c] for c in best]
        seen.update(best)
    assert len(seen) > 2


def test_a_multi_label_code_is_the_majority_of_all_classes_above_0_or_the_best():
    book, sizes = codebook(CLASSES, BITS).tolist(), set()
    for seed in range(30):
        method, batch = deep_method("classify", multilabel=True), random_batch(seed)
        expected = []
        for row in through(method.classifier, batch.features.tolist()):
            chosen = [s > 0 or s == max(row) for s in row]
            sizes.add((sum(chosen), max(row) > 0))
            expected.append(_majority(_words(book, chosen), method.tie_break.tolist()))
        assert method.values(batch.features).tolist() == expected
    assert (1, False) in sizes and len(sizes) > 3  # also images of which no class is above 0


# ------------------------------------------------------------------ CSQ


@pytest.mark.parametrize("multilabel", [False, True])
def test_csq_loss_matches_the_formula(multilabel):
    for seed in range(100):
        method = deep_method(
            "csq", multilabel=multilabel, seed=seed, csq_quantisation=0.01 + seed / 100
        )
        batch = random_batch(seed, multilabel=multilabel)
        codewords, ties = method.codebook.tolist(), method.tie_break.tolist()
        entropy, distance = 0.0, 0.0
        for outputs, label in zip(
            through(method.hash, batch.features.tolist()), batch.targets.tolist(), strict=True
        ):
            code = _majority(_words(codewords, label), ties)
            for u, c in zip(outputs, code, strict=True):
                p = (math.tanh(u) + 1) / 2
                if any(label):
                    entropy -= math.log(p) if c > 0 else math.log(1 - p)
                distance += (abs(math.tanh(u)) - 1) ** 2
        count = len(batch.features) * BITS
        labelled = max(1, sum(any(label) for label in batch.targets.tolist())) * BITS
        assert_parts(
            method.loss(batch),
            {"center": entropy / labelled, "quantization": (0.01 + seed / 100) * distance / count},
        )


@pytest.mark.parametrize(
    "classes, bits", [(10, 16), (32, 16), (10, 12), (100, 64), (8, 8), (5, 20)]
)
def test_csq_codewords_are_rows_of_plus_or_minus_a_hadamard_matrix(classes, bits):
    H = hadamard(bits).tolist()
    rows = {tuple(row) for row in H} | {tuple(-x for x in row) for row in H}
    centers = {tuple(row) for row in codebook(classes, bits, design="csq").tolist()}
    assert len(centers) == classes and centers <= rows
    apart = [
        sum(a != b for a, b in zip(x, y, strict=True))
        for x, y in itertools.combinations(centers, 2)
    ]
    assert set(apart) <= {bits // 2, bits}


@pytest.mark.parametrize(
    "classes, bits", [(33, 16), (100, 16), (10, 18), (10, 92), (70, 8), (20, 31), (120, 9)]
)
def test_other_csq_codewords_are_balanced_and_distinct(classes, bits):
    centers = codebook(classes, bits, design="csq")
    assert centers.shape == (classes, bits) and set(np.unique(centers)) == {-1, 1}
    assert len({row.tobytes() for row in centers}) == classes
    assert ((centers == 1).sum(1) == bits // 2).all()


def test_csq_codewords_follow_the_seed():
    for classes, bits in ((10, 16), (40, 16)):
        assert np.array_equal(
            codebook(classes, bits, design="csq", seed=1),
            codebook(classes, bits, design="csq", seed=1),
        )
        assert not np.array_equal(
            codebook(classes, bits, design="csq", seed=1),
            codebook(classes, bits, design="csq", seed=2),
        )


def test_csq_takes_other_codebooks():
    expected = torch.from_numpy(codebook(CLASSES, BITS, design="far")).double()
    assert torch.equal(deep_method("csq", codebook="far").codewords(), expected)


def test_too_many_csq_codewords_are_refused_in_one_line():
    with pytest.raises(
        UsageError, match=r"only 70 distinct codewords of 8 bits for 71 classes\. Use more bits"
    ) as caught:
        codebook(71, 8, design="csq")
    one_line(caught.value)


def test_a_multi_label_target_is_the_majority_of_the_codewords():
    """Large outputs on the side of the majority cost nothing, a bit on the other side 2 |u| / bits."""
    method = deep_method("csq", multilabel=True)
    label = torch.tensor([[1.0, 1, 1, 0, 0]], dtype=torch.float64)
    target = torch.tensor(
        [_majority(method.codebook[:3].tolist(), method.tie_break.tolist())], dtype=torch.float64
    )
    batch = Batch(
        torch.zeros(1, FEATURES, dtype=torch.float64), label, torch.zeros(1, dtype=torch.int64)
    )
    method.values = lambda features: 50 * target
    assert method.loss(batch)["center"].item() < 1e-9
    wrong = target.clone()
    wrong[0, 3] *= -1
    method.values = lambda features: 50 * wrong
    assert method.loss(batch)["center"].item() == pytest.approx(100 / BITS)


# ------------------------------------------------------------------ OrthoHash


def _normalized(outputs, norm):
    """Batch normalization by the batch itself (biased variance); a single image by the running statistics."""
    if len(outputs) == 1:
        means, variances = norm.running_mean.tolist(), norm.running_var.tolist()
    else:
        columns = list(zip(*outputs, strict=True))
        means = [sum(c) / len(c) for c in columns]
        variances = [
            sum((x - m) ** 2 for x in c) / len(c) for c, m in zip(columns, means, strict=True)
        ]
    scale = [
        g / math.sqrt(v + norm.eps) for g, v in zip(norm.weight.tolist(), variances, strict=True)
    ]
    shift = norm.bias.tolist()
    return [
        [(x - m) * s + b for x, m, s, b in zip(row, means, scale, shift, strict=True)]
        for row in outputs
    ]


def _orthohash(method, batch, *, scale, margin):
    total = 0.0
    outputs = _normalized(through(method.hash, batch.features.tolist()), method.norm)
    for u, label in zip(outputs, batch.targets.tolist(), strict=True):
        logits = []
        for word, y in zip(method.codebook.tolist(), label, strict=True):
            cosine = dot(u, word) / math.sqrt(dot(u, u)) / math.sqrt(dot(word, word))
            logits.append(scale * (cosine - (margin if y else 0)))
        log_sum = math.log(sum(math.exp(z) for z in logits))
        shares = [y / sum(label) for y in label] if any(label) else label
        total -= sum(y * (z - log_sum) for y, z in zip(shares, logits, strict=True))
    return {"cosine": total / len(outputs)}


def _orthohash_method(seed, **arguments):
    """With statistics, weights and biases of the normalization as after some training."""
    method, generator = (
        deep_method("orthohash", seed=seed, **arguments),
        torch.Generator().manual_seed(seed),
    )
    with torch.no_grad():
        for tensor in (method.norm.weight, method.norm.running_var):
            tensor.uniform_(0.5, 2, generator=generator)
        for tensor in (method.norm.bias, method.norm.running_mean):
            tensor.normal_(generator=generator)
    return method


@pytest.mark.parametrize("multilabel", [False, True])
def test_orthohash_loss_matches_the_formula(multilabel):
    for seed in range(100):
        scale, margin = 2 + seed / 10, seed / 200
        settings = {
            "orthohash_scale": scale,
            "orthohash_margin": margin,
            "codebook": ("far", "random")[seed % 2],
        }
        method = _orthohash_method(seed, multilabel=multilabel, **settings)
        batch = random_batch(seed, multilabel=multilabel)
        expected = _orthohash(method, batch, scale=scale, margin=margin)
        assert_parts(method.loss(batch), expected)


def test_the_defaults_of_orthohash_are_those_of_the_paper():
    method, batch = _orthohash_method(0), random_batch(0, count=4)
    assert_parts(method.loss(batch), _orthohash(method, batch, scale=8.0, margin=0.2))


def test_the_margin_makes_the_loss_harder_by_scale_times_margin_at_most():
    batch = random_batch(0, count=6)
    easy, hard = (
        _orthohash_method(0, orthohash_margin=m).loss(batch)["cosine"].item() for m in (0.0, 0.3)
    )
    assert easy < hard < easy + 8 * 0.3


def test_encoding_uses_the_running_statistics():
    method, batch = _orthohash_method(0), random_batch(0, count=6)
    mean, var = method.norm.running_mean.clone(), method.norm.running_var.clone()
    outputs = method.hash(batch.features).detach()
    method.loss(batch)  # a training step moves them by a tenth, as the paper's layer does
    torch.testing.assert_close(method.norm.running_mean, 0.9 * mean + 0.1 * outputs.mean(0))
    torch.testing.assert_close(
        method.norm.running_var, 0.9 * var + 0.1 * outputs.var(0, unbiased=True)
    )
    method.eval()
    moved = method.norm.running_mean.clone()
    expected = (outputs - moved) / (
        method.norm.running_var + method.norm.eps
    ).sqrt() * method.norm.weight + method.norm.bias
    torch.testing.assert_close(method.values(batch.features), expected)
    torch.testing.assert_close(method.values(batch.features[:1]), expected[:1])
    assert torch.equal(method.norm.running_mean, moved)


def test_a_batch_of_one_is_normalized_by_the_running_statistics_and_leaves_them():
    method, batch = _orthohash_method(0), random_batch(0, count=1)
    mean = method.norm.running_mean.clone()
    training = method.values(batch.features)
    assert torch.equal(method.norm.running_mean, mean)
    torch.testing.assert_close(method.eval().values(batch.features), training)
    assert_gradcheck(method.train(), batch)


def test_random_codewords_are_drawn_evenly_and_by_the_seed():
    codebooks = [
        deep_method("orthohash", bits=256, seed=seed, codebook="random").codewords()
        for seed in (1, 1, 2)
    ]
    assert torch.equal(codebooks[0], codebooks[1]) and not torch.equal(codebooks[0], codebooks[2])
    assert set(codebooks[0].unique().tolist()) == {-1, 1} and codebooks[0].mean().abs() < 0.1


@pytest.mark.parametrize("name", ["csq", "orthohash"])
def test_bfloat16_does_not_touch_the_loss(name):
    assert_full_precision(deep_method(name, bits=64), random_batch(1, count=8))


# ------------------------------------------------------------------ code lengths


@pytest.mark.parametrize("multilabel", [False, True])
@pytest.mark.parametrize("name", ["dpsh", "dsdh", "hashnet", "mihash", "hcdh", *NAMES])
def test_any_code_length(name, multilabel):
    batch = random_batch(2, multilabel=multilabel, count=6)
    for bits in (8, 9, 15, 31, 50, 92, 100, 129, 255, 256):
        method = deep_method(name, bits=bits, multilabel=multilabel)
        assert all(torch.isfinite(value) for value in method.loss(batch).values()), bits
        assert method.values(batch.features).shape == (6, bits)


@pytest.mark.parametrize("name", ["classify", "csq"])
def test_codewords_are_distinct_at_every_length(name):
    for bits in range(8, 257):
        method = deep_method(name, bits=bits)
        assert len(method.codewords().unique(dim=0)) == CLASSES, bits
