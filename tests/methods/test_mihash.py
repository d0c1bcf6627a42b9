"""MIHash against a slow reference implementation of its formula."""

from __future__ import annotations

import math

import pytest
import torch
from losses import (
    BITS,
    assert_full_precision,
    assert_gradcheck,
    assert_parts,
    deep_method,
    dot,
    random_batch,
    share,
    through,
)

from hadahash.methods import Task, mihash
from hadahash.methods.mihash import entropy, mutual_information


def _entropy(histogram, count):
    chances = [h / count for h in histogram]
    assert sum(chances) == pytest.approx(1)
    return -sum(p * math.log2(p) for p in chances if p > 0)


def _histogram(distances, bins, bits):
    """Soft counts at the n + 1 centers l K / n: each distance is divided between its two neighboring centers."""
    width = bits / bins
    return [
        sum(max(0.0, 1 - abs(d - center * width) / width) for d in distances)
        for center in range(bins + 1)
    ]


def _information(anchor, codes, labels, bins):
    distances = {True: [], False: []}
    for other in range(len(codes)):
        if other != anchor:
            similar = bool(share(labels[anchor], labels[other]))
            distances[similar].append((len(codes[0]) - dot(codes[anchor], codes[other])) / 2)
    positives, negatives = len(distances[True]), len(distances[False])
    if not positives or not negatives:
        return 0.0
    alike, unlike = (
        _histogram(distances[similar], bins, len(codes[0])) for similar in (True, False)
    )
    count, chance = positives + negatives, positives / (positives + negatives)
    whole = _entropy([a + b for a, b in zip(alike, unlike, strict=True)], count)
    return whole - chance * _entropy(alike, positives) - (1 - chance) * _entropy(unlike, negatives)


@pytest.mark.parametrize("multilabel", [False, True])
def test_the_loss_matches_the_formula(multilabel):
    for seed in range(100):
        bins, slope = 2 + seed % 15, 0.5 + seed / 20
        method = deep_method(
            "mihash", multilabel=multilabel, seed=seed, mihash_bins=bins, mihash_slope=slope
        )
        batch = random_batch(seed, multilabel=multilabel)
        outputs, labels = through(method.hash, batch.features.tolist()), batch.targets.tolist()
        codes = [[2 / (1 + math.exp(-slope * u)) - 1 for u in row] for row in outputs]
        mean = sum(_information(i, codes, labels, bins) for i in range(len(codes))) / len(codes)
        assert_parts(method.loss(batch), {"information": -mean})


@pytest.mark.parametrize("multilabel", [False, True])
def test_gradients_are_those_of_the_loss(multilabel):
    method = deep_method("mihash", multilabel=multilabel, mihash_bins=4, mihash_slope=1.0)
    assert_gradcheck(method, random_batch(4, multilabel=multilabel, count=6))


def test_the_entropy_of_a_uniform_distribution_is_its_number_of_bits():
    assert entropy(torch.full((8,), 1 / 8)).item() == pytest.approx(3)
    assert entropy(torch.tensor([0.0, 1.0, 0.0])).item() == pytest.approx(0)
    assert entropy(torch.tensor([[0.5, 0.5], [1.0, 0.0]])).tolist() == pytest.approx([1, 0])


# ------------------------------------------------------------------ the histograms


def _counts(monkeypatch, distances, similar, bins=4):
    """The three histograms (both, positives, negatives) of each anchor as probabilities, as passed to `entropy`."""
    seen = []
    monkeypatch.setattr(mihash, "entropy", lambda p: seen.append(p) or entropy(p))
    mutual_information(distances, similar, torch.linspace(0, BITS, bins + 1, dtype=distances.dtype))
    return seen


def _example(seed):
    generator = torch.Generator().manual_seed(seed)
    codes = torch.tanh(3 * torch.randn(7, BITS, generator=generator, dtype=torch.float64))
    labels = torch.eye(3, dtype=torch.float64)[[0, 0, 1, 1, 1, 2, 0]]
    return (BITS - codes @ codes.T) / 2, (labels @ labels.T > 0).double()


def test_histograms_sum_to_the_number_of_pairs(monkeypatch):
    distances, similar = _example(0)
    both, alike, unlike = _counts(monkeypatch, distances, similar)
    ones = torch.ones(7, dtype=torch.float64)
    torch.testing.assert_close(both.sum(1), ones)
    torch.testing.assert_close(unlike.sum(1), ones)
    torch.testing.assert_close(
        alike.sum(1), torch.tensor([1.0, 1, 1, 1, 1, 0, 1], dtype=torch.float64)
    )  # 5 is alone
    positives = torch.tensor([2.0, 2, 2, 2, 2, 0, 2], dtype=torch.float64)[:, None]
    torch.testing.assert_close(both * 6, alike * positives + unlike * (6 - positives))


def test_the_last_bin_is_counted(monkeypatch):
    distances = torch.tensor([[0.0, 8, 0], [8, 0, 8], [0, 8, 0]])
    similar = torch.tensor([[1.0, 0, 1], [0, 1, 0], [1, 0, 1]])
    both, alike, unlike = _counts(monkeypatch, distances, similar)
    assert unlike[0].tolist() == [0, 0, 0, 0, 1] and alike[0].tolist() == [1, 0, 0, 0, 0]
    assert both[0].tolist() == [0.5, 0, 0, 0, 0.5]


def test_an_image_is_not_compared_with_itself():
    distances, similar = _example(1)
    centers = torch.linspace(0, BITS, 5, dtype=torch.float64)
    before = mutual_information(distances, similar, centers)
    eye = torch.eye(7, dtype=torch.float64)
    assert torch.equal(mutual_information(distances + 3 * eye, similar, centers), before)
    assert torch.equal(mutual_information(distances, similar * (1 - eye), centers), before)


# ------------------------------------------------------------------ the information


def _of(codes, labels, bins=4):
    codes, labels = (
        torch.tensor(codes, dtype=torch.float64),
        torch.eye(3, dtype=torch.float64)[labels],
    )
    distances = (codes.shape[1] - codes @ codes.T) / 2
    centers = torch.linspace(0, codes.shape[1], bins + 1, dtype=torch.float64)
    return mutual_information(distances, (labels @ labels.T > 0).double(), centers)


def test_anchors_without_positives_or_without_negatives_have_no_weight():
    codes = [[1.0] * BITS, [-1.0] * BITS, [1.0] * BITS]
    assert _of(codes, [0, 1, 2]).tolist() == [0, 0, 0]
    assert _of(codes, [0, 0, 0]).tolist() == [0, 0, 0]
    assert _of(codes, [0, 1, 0])[1] == 0 and _of(codes, [0, 1, 0])[0] > 0
    method, batch = deep_method("mihash"), random_batch(0, count=1)
    assert method.loss(batch)["information"].item() == 0


def test_the_information_is_between_0_and_1():
    for seed in range(100):
        distances, similar = _example(seed)
        found = mutual_information(
            distances, similar, torch.linspace(0, BITS, 17, dtype=torch.float64)
        )
        assert found.min() >= -1e-9 and found.max() <= 1 + 1e-9


def test_separated_codes_have_all_the_information_and_equal_ones_none():
    apart = [[1.0] * BITS] * 3 + [[-1.0] * BITS] * 2
    labels = [0, 0, 0, 1, 1]
    chance = 2 / 4  # the first anchor: 2 positives of 4 others
    assert _of(apart, labels)[0].item() == pytest.approx(-2 * chance * math.log2(chance)) == 1
    assert _of([[1.0] * BITS] * 5, labels).tolist() == pytest.approx([0] * 5, abs=1e-9)
    near = [[1.0] * BITS] * 3 + [[1.0] * (BITS - 1) + [-1.0]] * 2  # one bit apart: half a bin
    assert 0 < _of(near, labels).mean() < _of(apart, labels).mean()


def test_the_loss_decreases_when_the_information_increases():
    method, batch = deep_method("mihash", mihash_bins=4, mihash_slope=1.0), random_batch(3, count=8)
    optimizer = torch.optim.SGD(method.parameters(), lr=1.0)
    losses = []
    for _ in range(50):
        optimizer.zero_grad()
        loss = method.loss(batch)["information"]
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] - 0.1 and losses[-1] >= -1


def test_bfloat16_does_not_touch_the_distances():
    assert_full_precision(deep_method("mihash", bits=100), random_batch(1, count=8))


@pytest.mark.parametrize(("bits", "count"), [(64, 32), (16, 8), (1, 1)])
def test_zero_bins_are_half_the_code_length(bits, count):
    task = Task(bits, classes=3, features=6)
    method = mihash.MIHash(task, mihash.MIHashSettings(mihash_bins=0))
    assert len(method.centers) == count + 1 and method.centers[-1] == bits
