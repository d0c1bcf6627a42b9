"""DPSH, DSDH and HashNet against slow reference implementations of their formulas."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from losses import (
    BITS,
    CLASSES,
    IMAGES,
    assert_full_precision,
    assert_gradcheck,
    assert_parts,
    centered,
    deep_method,
    dot,
    random_batch,
    share,
    through,
)

from hadahash.methods import Batch, Task
from hadahash.methods.dpsh import PairBank, pack_labels, unpack_labels
from hadahash.methods.hashnet import pair_weights


def _sign(value):
    return 1.0 if value >= 0 else -1.0


def _batches(seed, multilabel):
    """Three batches; some images come twice, some never."""
    return [random_batch(1000 * turn + seed, multilabel=multilabel) for turn in range(3)]


def _drift(method, seed):
    """Change the weights as a training step does, so that stored outputs are out of date."""
    with torch.no_grad():
        for parameter in method.parameters():
            parameter += 0.3 * torch.randn(
                parameter.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
            )


# ------------------------------------------------------------------ DPSH


def _likelihood(outputs, labels, bank):
    """-log p(S | U) of the batch against all training images; one that was never seen has output 0 and so log 2."""
    total = 0.0
    for u, y in zip(outputs, labels, strict=True):
        for j in range(IMAGES):
            v, z = bank.get(j, ([0.0] * len(u), [0.0] * CLASSES))
            theta = dot(u, v) / 2
            total += math.log(1 + math.exp(theta)) - share(y, z) * theta
    return total / (len(outputs) * IMAGES)


@pytest.mark.parametrize(("bits", "parts"), [(8, 1), (16, 1), (32, 2), (64, 4)])
def test_pairs_of_long_codes_have_less_weight(bits, parts):
    task = Task(bits, CLASSES, 6, train_images=IMAGES)
    bank, generator = PairBank(task), torch.Generator().manual_seed(0)
    outputs = torch.randn(5, bits, generator=generator)
    targets = torch.nn.functional.one_hot(torch.arange(5) % CLASSES, CLASSES).float()
    batch = Batch(outputs, targets, torch.arange(5))
    bank.store(outputs, batch)
    known = {j: (outputs[j].tolist(), targets[j].tolist()) for j in range(5)}
    expected = _likelihood(outputs.tolist(), targets.tolist(), known) / parts
    assert bank.likelihood(outputs, batch).item() == pytest.approx(expected, rel=1e-5)


def _remember(bank, method, batch):
    outputs, labels = (
        through(method.hash, centered(batch.features.tolist())),
        batch.targets.tolist(),
    )
    bank.update(zip(batch.indices.tolist(), zip(outputs, labels, strict=True), strict=True))
    return outputs, labels


def _distance(outputs, codes):
    """The mean over images and bits of (u - b)^2."""
    squares = [
        (u - b) ** 2
        for row, code in zip(outputs, codes, strict=True)
        for u, b in zip(row, code, strict=True)
    ]
    return sum(squares) / len(squares)


@pytest.mark.parametrize("multilabel", [False, True])
def test_dpsh_loss_matches_the_formula(multilabel):
    for seed in range(100):
        method, bank = (
            deep_method("dpsh", multilabel=multilabel, seed=seed, dpsh_eta=0.1 + seed / 50),
            {},
        )
        for turn, batch in enumerate(_batches(seed, multilabel)):
            parts = method.loss(batch)
            outputs, labels = _remember(bank, method, batch)
            quantization = _distance(outputs, [[_sign(u) for u in row] for row in outputs])
            expected = {
                "pairs": _likelihood(outputs, labels, bank),
                "quantization": (0.1 + seed / 50) * quantization,
            }
            assert_parts(parts, expected)
            _drift(method, seed + turn)


def _labels(method):
    return method.bank.labels(slice(None), torch.float64)


@pytest.mark.parametrize("classes", [1, 7, 8, 9, 20])
def test_labels_are_packed_as_bits(classes):
    targets = (torch.rand(5, classes, generator=torch.Generator().manual_seed(0)) < 0.5).float()
    packed = pack_labels(0.3 * targets)
    assert packed.dtype == torch.uint8 and packed.shape == (5, -(-classes // 8))
    assert torch.equal(unpack_labels(packed, classes).float(), targets)


@pytest.mark.parametrize("name", ["dpsh", "dsdh"])
def test_blocks_of_the_bank_do_not_change_the_loss(name, monkeypatch):
    found = []
    for block in (1 << 24, 3 * CLASSES):
        monkeypatch.setattr("hadahash.methods.dpsh._BLOCK", block)
        settings = {"dsdh_refresh": 1} if name == "dsdh" else {}
        method = deep_method(name, multilabel=True, **settings)
        assert len(list(method.bank.blocks())) == (1 if block > 100 else 4)
        for step, batch in enumerate(_batches(4, True)):
            method.before_step(step, 10)
            parts = method.loss(batch)
        found.append({key: value.item() for key, value in parts.items()})
    assert found[0] == pytest.approx(found[1])


def test_the_bank_keeps_the_last_output_of_each_image():
    method, bank = deep_method("dpsh"), {}
    for turn, batch in enumerate(_batches(3, False)):
        method.loss(batch)
        _remember(bank, method, batch)
        _drift(method, turn)
    for j in range(IMAGES):
        u, y = bank.get(j, ([0.0] * BITS, [0.0] * CLASSES))
        assert (
            method.bank.outputs[j].tolist() == pytest.approx(u) and _labels(method)[j].tolist() == y
        )
    assert 0 < len(bank) < IMAGES


@pytest.mark.parametrize("multilabel", [False, True])
def test_dpsh_gradient_is_the_documented_one(multilabel):
    """Theta = U0 U^T / 2 with the bank U held fixed: dJ/dU0 = (sigm(Theta) - S) U / 2 / pairs + 2 eta (U0 - B) / (n K)."""
    method = deep_method("dpsh", multilabel=multilabel, dpsh_eta=0.3)
    _drift(method, 0)
    batches = _batches(5, multilabel)
    for batch in batches[:2]:
        method.loss(batch)
    batch = batches[2]
    outputs = method.values(batch.features).detach().requires_grad_()
    method.values = lambda features: outputs
    sum(method.loss(batch).values()).backward()
    U0, U = outputs.detach(), method.bank.outputs
    S = torch.tensor(
        [[share(y, z) for z in _labels(method).tolist()] for y in batch.targets.tolist()]
    ).double()
    likelihood = (torch.sigmoid(U0 @ U.T / 2) - S) @ U / 2 / S.numel()
    quantization = 2 * 0.3 * (U0 - torch.where(U0 >= 0, 1.0, -1.0)) / U0.numel()
    assert likelihood.abs().max() > 1e-3
    torch.testing.assert_close(outputs.grad, likelihood + quantization, rtol=1e-9, atol=1e-12)
    assert not U.requires_grad


@pytest.mark.parametrize("multilabel", [False, True])
@pytest.mark.parametrize("name", ["dpsh", "dsdh"])
def test_gradients_are_those_of_the_loss_with_the_bank_held_fixed(name, multilabel):
    method, batch = (
        deep_method(name, multilabel=multilabel),
        random_batch(1, multilabel=multilabel, count=5),
    )
    method.loss(random_batch(2, multilabel=multilabel, count=8))
    method.loss(batch)
    if name == "dsdh":
        method.before_step(40, 100)
    method.bank.store = lambda outputs, batch: None
    assert_gradcheck(method, batch)


def test_the_centered_layer_is_a_plain_linear_one_outside_training():
    method = deep_method("dpsh")
    for seed in range(200):
        method.loss(
            Batch(
                *(
                    3 + 5 * t if i == 0 else t
                    for i, t in enumerate(vars(random_batch(seed, count=8)).values())
                )
            )
        )
    layer = method.eval().hash
    assert layer.mean.mean().item() == pytest.approx(
        3, abs=1
    ) and layer.spread.item() == pytest.approx(10, rel=0.2)
    features = 3 + 10 * torch.randn(4, 6, dtype=torch.float64)
    plain = torch.nn.functional.linear(
        features, layer.weight / layer.spread, layer.bias - layer.weight @ layer.mean / layer.spread
    )
    torch.testing.assert_close(method.values(features), plain)
    torch.testing.assert_close(method.values(features[:1]), plain[:1])


def test_the_common_part_of_features_does_not_reach_the_outputs_in_training():
    method, batch = deep_method("dpsh"), random_batch(0, count=6)
    torch.testing.assert_close(method.values(batch.features + 100), method.values(batch.features))


def test_huge_outputs_do_not_overflow():
    method, batch = deep_method("dpsh"), random_batch(0, count=6)
    parts = method.loss(Batch(1e6 * batch.features, batch.targets, batch.indices))
    assert all(torch.isfinite(value) for value in parts.values())


# ------------------------------------------------------------------ DSDH


@pytest.mark.parametrize("multilabel", [False, True])
def test_dsdh_loss_matches_the_formula(multilabel):
    for seed in range(100):
        method, bank, codes = (
            deep_method("dsdh", multilabel=multilabel, seed=seed, dsdh_eta=0.1 + seed / 50),
            {},
            {},
        )
        for turn, batch in enumerate(_batches(seed, multilabel)):
            parts = method.loss(batch)
            outputs, labels = _remember(bank, method, batch)
            own = [
                codes.get(i) or [_sign(u) for u in row]
                for i, row in zip(batch.indices.tolist(), outputs, strict=True)
            ]
            expected = {
                "pairs": _likelihood(outputs, labels, bank),
                "codes": (0.1 + seed / 50) * _distance(outputs, own),
            }
            assert_parts(parts, expected)
            _drift(method, seed + turn)
            method.before_step(40 * (turn + 1), 1000)
            codes = {i: row for i, row in enumerate(method.codes.tolist()) if any(row)}
            assert codes.keys() == bank.keys()


def _slow_codes(B, U, Y, *, mu, nu, eta):
    """W = (B B^T + nu/mu I)^-1 B Y^T, then one sweep of b_k = sgn(p_k - B_-k^T W_-k w_k), P = W Y + eta/mu U. B is (K, n)."""
    W = np.linalg.inv(B @ B.T + nu / mu * np.eye(len(B))) @ B @ Y.T
    P = W @ Y + eta / mu * U
    for k in range(len(B)):
        others = [j for j in range(len(B)) if j != k]
        for i in range(B.shape[1]):
            B[k, i] = _sign(P[k, i] - sum(B[j, i] * dot(W[j], W[k]) for j in others))
    return B, W


def _filled(seed, *, multilabel=False, **settings):
    method = deep_method("dsdh", multilabel=multilabel, seed=seed, **settings)
    generator = torch.Generator().manual_seed(seed)
    method.bank.outputs.normal_(generator=generator)
    labels = torch.rand(IMAGES, CLASSES, generator=generator)
    chosen = labels < 0.4 if multilabel else labels == labels.max(1, keepdim=True).values
    method.bank.targets.copy_(pack_labels(chosen))
    return method


@pytest.mark.parametrize("multilabel", [False, True])
@pytest.mark.parametrize("weights", [(0.01, 1.0, 0.1), (1.0, 0.5, 0.05)])
def test_the_codes_of_dsdh_are_those_of_a_slow_descent(weights, multilabel):
    mu, nu, eta = weights
    for seed in range(20):
        method = _filled(seed, multilabel=multilabel, dsdh_mu=mu, dsdh_nu=nu, dsdh_eta=eta)
        U, Y = method.bank.outputs.numpy().T, _labels(method).numpy().T
        B = np.where(U >= 0, 1.0, -1.0)
        for step in (40, 80):  # the second time from the codes of the first
            B, _ = _slow_codes(B, U, Y, mu=mu, nu=nu, eta=eta)
            method.before_step(step, 1000)
            assert np.array_equal(method.codes.numpy().T, B)


def test_the_objective_of_dsdh_never_increases():
    mu, nu, eta, falls = 1.0, 0.5, 0.01, 0
    for seed in range(10):
        method = _filled(seed, dsdh_mu=mu, dsdh_nu=nu, dsdh_eta=eta)
        U, Y = method.bank.outputs.numpy(), _labels(method).numpy()
        B, last, values = np.where(U >= 0, 1.0, -1.0), math.inf, []
        for step in range(1, 8):
            W = np.linalg.solve(B.T @ B + nu / mu * np.eye(BITS), B.T @ Y)
            method.before_step(40 * step, 1000)
            for codes in (B, method.codes.numpy()):
                value = (
                    mu * ((Y - codes @ W) ** 2).sum()
                    + nu * (W**2).sum()
                    + eta * ((codes - U) ** 2).sum()
                )
                assert value <= last + 1e-9
                last = value
                values.append(value)
            B = method.codes.numpy().copy()
        falls += values[-1] < values[0] - 1e-3
    assert falls > 5


def test_the_codes_are_solved_at_their_steps_only():
    method = _filled(0, dsdh_refresh=10)
    for step in (0, 1, 9, 11):
        method.before_step(step, 100)
        assert not method.codes.any()
    method.before_step(10, 100)
    assert (method.codes.abs() == 1).all()


def test_images_not_seen_yet_have_no_code_and_no_influence():
    method, without = _filled(0), _filled(0)
    method.bank.outputs[7:] = 0
    method.bank.targets[7:] = 0
    method.before_step(40, 100)
    assert not method.codes[7:].any()
    B, _ = _slow_codes(
        np.where(without.bank.outputs[:7].numpy().T >= 0, 1.0, -1.0),
        without.bank.outputs[:7].numpy().T,
        _labels(without)[:7].numpy().T,
        mu=0.01,
        nu=1.0,
        eta=0.1,
    )
    assert np.array_equal(method.codes[:7].numpy().T, B)


def test_the_codes_reach_the_network_through_their_own_term_only():
    """d/du of eta ||b - u||^2 is 2 eta (u - b), as a mean; the likelihood does not depend on b."""
    method, batch = _filled(0, dsdh_eta=0.2), random_batch(1, count=6)
    method.before_step(40, 100)

    def gradients():
        outputs = method.hash(batch.features).detach().requires_grad_()
        method.values = lambda features: outputs
        parts = method.loss(batch)
        found = [torch.autograd.grad(parts[key], outputs)[0] for key in ("pairs", "codes")]
        del method.values
        expected = 2 * 0.2 * (outputs - method.codes[batch.indices]) / outputs.numel()
        torch.testing.assert_close(found[1], expected)
        return found

    pairs, codes = gradients()
    assert codes.abs().max() > 1e-3
    method.codes.neg_()
    other_pairs, other_codes = gradients()
    assert torch.equal(pairs, other_pairs) and not torch.allclose(codes, other_codes)


# ------------------------------------------------------------------ HashNet


def _weight(y, z, alike, unlike):
    """Equation 2: c_ij |S| / |S1| or c_ij |S| / |S0|; c_ij is the fraction of common labels, 1 for dissimilar pairs."""
    if not share(y, z):
        return (alike + unlike) / unlike
    common = sum(a * b for a, b in zip(y, z, strict=True))
    either = sum(max(a, b) for a, b in zip(y, z, strict=True))
    return common / either * (alike + unlike) / alike


def _hashnet(method, batch, *, alpha, beta):
    codes = [
        [math.tanh(beta * u) for u in row] for row in through(method.hash, batch.features.tolist())
    ]
    labels = batch.targets.tolist()
    pairs = [(i, j) for i in range(len(codes)) for j in range(len(codes)) if i != j]
    alike = sum(share(labels[i], labels[j]) for i, j in pairs)
    total, weights = 0.0, 0.0
    for i, j in pairs:
        weight, theta = (
            _weight(labels[i], labels[j], alike, len(pairs) - alike),
            alpha * dot(codes[i], codes[j]),
        )
        total += weight * (math.log(1 + math.exp(theta)) - share(labels[i], labels[j]) * theta)
        weights += weight
    return total / weights if pairs else 0.0


@pytest.mark.parametrize("multilabel", [False, True])
def test_hashnet_loss_matches_the_formula(multilabel):
    for seed in range(100):
        method, batch = (
            deep_method("hashnet", multilabel=multilabel, seed=seed),
            random_batch(seed, multilabel=multilabel),
        )
        method.before_step(37 * seed, 10_000)
        beta = math.sqrt(1 + 0.005 * (37 * seed // 200 * 200))
        assert_parts(
            method.loss(batch), {"pairs": _hashnet(method, batch, alpha=10 / BITS, beta=beta)}
        )


def test_the_weights_of_hashnet_are_equation_2():
    labels = torch.tensor([[1, 1, 0], [1, 0, 0], [0, 1, 1], [0, 0, 1.0]])
    similar = (labels @ labels.T > 0).float()
    # pairs in both orders: similar are 01, 02, 23, so |S1| = 6 of |S| = 12; c = 1/2, 1/3, 1/2
    expected = torch.tensor([[0, 1, 2 / 3, 2], [1, 0, 2, 2], [2 / 3, 2, 0, 1], [2, 2, 1, 0.0]])
    torch.testing.assert_close(pair_weights(labels, similar), expected)


def test_similar_and_dissimilar_pairs_of_one_label_weigh_the_same_in_all():
    labels = torch.eye(4)[[0, 0, 0, 1, 2, 3, 3]]
    similar = (labels @ labels.T > 0).float()
    weights = pair_weights(labels, similar)
    assert (
        (weights * similar).sum().item()
        == pytest.approx((weights * (1 - similar)).sum().item())
        == pytest.approx(7 * 6)
    )


def test_beta_grows_with_the_root_of_the_steps_every_200():
    method = deep_method("hashnet")
    for step, started in (
        (0, 0),
        (1, 0),
        (199, 0),
        (200, 200),
        (399, 200),
        (400, 400),
        (9_999, 9_800),
    ):
        method.before_step(step, 10_000)
        assert method.beta.item() == pytest.approx(math.sqrt(1 + 0.005 * started))
    assert method.beta.item() == pytest.approx(math.sqrt(50))


@pytest.mark.parametrize("steps", [1, 90, 10_000])
def test_the_final_beta_does_not_depend_on_the_number_of_steps(steps):
    method = deep_method("hashnet", hashnet_beta=7.0)
    method.before_step(0, steps)
    assert method.beta.item() == 1
    if steps > 1:
        method.before_step((steps - 1) // 2, steps)
        assert method.beta.item() == pytest.approx(5, abs=0.05)
        method.before_step(steps - 1, steps)
        assert method.beta.item() == pytest.approx(7)


@pytest.mark.parametrize("multilabel", [False, True])
def test_gradients_of_hashnet(multilabel):
    method = deep_method("hashnet", multilabel=multilabel)
    method.before_step(600, 1000)
    assert_gradcheck(method, random_batch(1, multilabel=multilabel, count=5))


@pytest.mark.parametrize("name", ["dpsh", "dsdh", "hashnet"])
def test_bfloat16_does_not_touch_the_pairs(name):
    assert_full_precision(deep_method(name, bits=64), random_batch(1, count=8))
