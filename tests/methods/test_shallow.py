"""LSH, ITQ, KSH, SDH and HC-SDH: their objectives go the right way, and their solutions are those of other, slower means."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import scipy.linalg
import torch
from toys import one_line

from hadahash import codebook
from hadahash.errors import UsageError
from hadahash.methods import METHODS, Task, ksh, sdh
from hadahash.methods.itq import turn
from hadahash.methods.kernels import choose_anchors, gaussian, squared_distances
from hadahash.settings import make

IMAGES, FEATURES, CLASSES, BITS = 60, 12, 4, 8


def _data(seed=0, *, multilabel=False, images=IMAGES, noise=0.7):
    """Features as a network gives them (not negative), around one mean a class, and targets."""
    generator = torch.Generator().manual_seed(seed)
    means = torch.randn(CLASSES, FEATURES, generator=generator)
    if multilabel:
        targets = (torch.rand(images, CLASSES, generator=generator) < 0.4).float()
    else:
        targets = torch.eye(CLASSES)[torch.randint(CLASSES, (images,), generator=generator)]
    return (targets @ means + noise * torch.randn(images, FEATURES, generator=generator)).relu(), targets


def _method(name, *, bits=BITS, width=FEATURES, images=IMAGES, **settings):
    method_type = METHODS.get(name)
    task = Task(bits, CLASSES, width, train_images=images)
    return method_type(task, make(method_type.Settings, settings))


def _fit(name, features, targets, *, seed=0, **arguments):
    method = _method(name, images=len(features), **arguments)
    method.fit(features, targets, torch.Generator().manual_seed(seed))
    return method


def _signs(values):
    return np.where(np.asarray(values) >= 0, 1.0, -1.0)


def _slow_kernel(features, anchors):
    """exp(-||x - a||^2 / (2 s)) with s the mean of the squared distances, number by number."""
    squares = [[sum((p - q) ** 2 for p, q in zip(x, a, strict=True)) for a in anchors.tolist()] for x in features.tolist()]
    width = sum(map(sum, squares)) / (len(squares) * len(squares[0]))
    return np.array([[math.exp(-s / (2 * width)) for s in row] for row in squares]), width


# ------------------------------------------------------------------ LSH


def test_lsh_is_the_signs_of_random_projections_of_centred_features():
    features, targets = _data()
    method, others = _fit("lsh", features, targets), _data(1)[0]
    mean, W = features.numpy().mean(0), method.directions.numpy()
    assert W.shape == (FEATURES, BITS)
    np.testing.assert_allclose(method.values(others).numpy(), (others.numpy() - mean) @ W, atol=1e-5)
    assert np.array_equal(_signs(method.values(1e3 * (others - method.mean) + method.mean)), _signs(method.values(others)))


def test_the_projections_of_lsh_are_normal_and_follow_the_seed():
    features, targets = _data()
    first, again, other = (_fit("lsh", features, targets, bits=256, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(first.directions, again.directions) and not torch.equal(first.directions, other.directions)
    assert first.directions.mean().abs() < 0.1 and first.directions.std().item() == pytest.approx(1, abs=0.05)


def test_bits_of_lsh_on_features_that_are_not_negative_are_even():
    features, targets = _data(images=400)
    values = _fit("lsh", features + 5, targets, bits=64).values(features + 5)
    assert ((values >= 0).float().mean(0) - 0.5).abs().mean() < 0.1


# ------------------------------------------------------------------ ITQ


def _principal(features, bits):
    """The mean and the first principal directions, by singular values (numpy)."""
    X = features.double().numpy()
    return X.mean(0), np.linalg.svd(X - X.mean(0))[2][:bits].T


@pytest.mark.parametrize("seed", range(5))
def test_the_objective_of_itq_never_rises_and_falls_in_the_end(seed):
    features, targets = _data(seed)
    X, errors = features.double().numpy(), []
    for iterations in range(15):
        VR = (X - X.mean(0)) @ _fit("itq", features, targets, itq_iterations=iterations).directions.double().numpy()
        errors.append(np.linalg.norm(_signs(VR) - VR))
    assert all(after <= before + 1e-5 for before, after in itertools.pairwise(errors)), errors
    assert errors[-1] < errors[0] - 0.1


def test_a_turn_of_itq_is_the_best_rotation_and_stays_one():
    generator = torch.Generator().manual_seed(0)
    V = torch.randn(50, BITS, generator=generator, dtype=torch.float64)
    R = torch.linalg.qr(torch.randn(BITS, BITS, generator=generator, dtype=torch.float64)).Q
    for _ in range(20):
        B, turned = _signs(V @ R), turn(V, R)
        np.testing.assert_allclose(turned.numpy(), scipy.linalg.orthogonal_procrustes(V.numpy(), B)[0], atol=1e-9)
        torch.testing.assert_close(turned.T @ turned, torch.eye(BITS, dtype=torch.float64))
        assert np.linalg.norm(B - (V @ turned).numpy()) <= np.linalg.norm(B - (V @ R).numpy()) + 1e-9
        R = turned


@pytest.mark.parametrize("bits", [5, FEATURES])
def test_itq_encodes_by_a_rotation_of_the_principal_directions(bits):
    features, targets = _data()
    method, others = _fit("itq", features, targets, bits=bits), _data(1)[0]
    mean, P = _principal(features, bits)
    R = P.T @ method.directions.double().numpy()
    np.testing.assert_allclose(R @ R.T, np.eye(bits), atol=1e-5)
    values = (others.double().numpy() - mean) @ P @ R
    np.testing.assert_allclose(method.values(others).numpy(), values, atol=1e-4)
    assert np.array_equal(_signs(method.values(others)), _signs(values))


def test_itq_needs_no_more_images_than_it_has():
    features, targets = _data(images=6)
    method = _fit("itq", features, targets, bits=FEATURES)
    torch.testing.assert_close(method.directions.T @ method.directions, torch.eye(FEATURES), rtol=1e-4, atol=1e-5)


def test_itq_does_not_look_at_the_labels_or_build_a_square_of_the_images():
    features, targets = _data(images=20_000)  # the square would take 3.2 GB
    assert torch.equal(_fit("itq", features, targets).directions, _fit("itq", features, targets.flip(0)).directions)


@pytest.mark.parametrize("bits", [13, 64, 256])
def test_itq_refuses_more_bits_than_features(bits):
    with pytest.raises(UsageError, match=rf"{bits} bits.* got 12") as caught:
        _method("itq", bits=bits)
    one_line(caught.value)


# ------------------------------------------------------------------ kernels


def test_the_kernel_is_the_formula():
    features, anchors = _data(0, images=9)[0], _data(1, images=5)[0]
    expected, width = _slow_kernel(features, anchors)
    assert squared_distances(features, anchors).mean().item() == pytest.approx(width, rel=1e-5)
    np.testing.assert_allclose(gaussian(features, anchors, torch.tensor(width)).numpy(), expected, rtol=1e-4)


def test_anchors_are_different_training_images():
    features = torch.arange(10.0)[:, None]
    chosen = choose_anchors(features, 6, torch.Generator().manual_seed(0)).flatten().tolist()
    assert len(set(chosen)) == 6 and set(chosen) <= set(range(10))
    assert sorted(choose_anchors(features, 99, torch.Generator().manual_seed(0)).flatten().tolist()) == list(range(10))


@pytest.mark.parametrize("name", ["ksh", "sdh"])
def test_kernel_methods_code_new_images_by_the_formula(name):
    features, targets = _data()
    method, others = _fit(name, features, targets, bits=4), _data(1)[0]
    training, width = _slow_kernel(features, method.anchors)
    assert method.width.item() == pytest.approx(width, rel=1e-4)
    squares = squared_distances(others.double(), method.anchors.double()).numpy()
    kernel = np.exp(-squares / (2 * width))
    kernel = kernel - training.mean(0) if name == "ksh" else np.hstack([kernel, np.ones((len(kernel), 1))])
    expected = kernel @ method.directions.double().numpy()
    np.testing.assert_allclose(method.values(others).numpy(), expected, atol=1e-3 * np.abs(expected).max())


# ------------------------------------------------------------------ KSH


def _problem(seed=0, *, multilabel=False, images=IMAGES, anchors=20):
    features, targets = _data(seed, multilabel=multilabel, images=images)
    kernel = torch.from_numpy(_slow_kernel(features, features[:anchors])[0])
    similar = [
        [1.0 if any(a * b for a, b in zip(y, z, strict=True)) else -1.0 for z in targets.tolist()] for y in targets.tolist()
    ]
    return kernel - kernel.mean(0), torch.tensor(similar, dtype=torch.float64)


def _gain(kernel, residual, direction):
    y = _signs(kernel @ direction)
    return float(y @ residual.numpy() @ y)


@pytest.mark.parametrize("multilabel", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_each_bit_of_ksh_lowers_the_residual_by_the_better_direction(seed, multilabel):
    kernel, similar = _problem(seed, multilabel=multilabel)
    directions = ksh.learn_bits(kernel, similar, BITS, ksh.KSHSettings())
    residual, refinements = BITS * similar, 0
    for k in range(BITS):
        start = ksh.first_guess(kernel, residual)
        gains = [_gain(kernel, residual, a) for a in (start, ksh.refine(kernel, residual, start, 500))]
        refinements += gains[1] > gains[0]
        assert _gain(kernel, residual, directions[:, k]) == pytest.approx(max(gains))
        y = torch.from_numpy(_signs(kernel @ directions[:, k]))
        after = residual - torch.outer(y, y)
        assert after.norm() < residual.norm()
        residual = after
    H = torch.from_numpy(_signs(kernel @ directions))
    torch.testing.assert_close(residual, BITS * similar - H @ H.T)
    assert (H @ H.T / BITS - similar).norm() < 0.9 * similar.norm()
    assert refinements > 0


def test_a_refinement_that_is_worse_is_not_kept(monkeypatch):
    kernel, similar = _problem()
    worse = torch.zeros(kernel.shape[1], dtype=torch.float64)  # its bit is 1 everywhere
    monkeypatch.setattr(ksh, "refine", lambda kernel, residual, start, steps: worse)
    directions = ksh.learn_bits(kernel, similar, 1, ksh.KSHSettings())
    start = ksh.first_guess(kernel, similar)
    assert _gain(kernel, similar, start) > _gain(kernel, similar, worse)
    assert torch.equal(directions[:, 0], start)


def test_a_refinement_lowers_the_smooth_cost():
    def cost(a):
        y = 2 / (1 + np.exp(-(kernel @ a).numpy())) - 1
        return -float(y @ residual.numpy() @ y)

    for seed in range(5):
        kernel, similar = _problem(seed)
        residual = BITS * similar
        start = ksh.first_guess(kernel, residual)
        costs = [cost(start)] + [cost(ksh.refine(kernel, residual, start, steps)) for steps in (1, 10, 500)]
        assert costs[1] < costs[0] and costs[3] < costs[0] - 1e-2 * IMAGES
        assert costs[3] <= min(costs) + 0.02 * abs(min(costs))


def _largest(kernel, residual):
    """The largest generalised eigenvalue, and the two matrices."""
    left = (kernel.T @ residual @ kernel).numpy()
    right = (kernel.T @ kernel).numpy() + 1e-6 * np.eye(kernel.shape[1])
    return scipy.linalg.eigh((left + left.T) / 2, right, eigvals_only=True)[-1], left, right


@pytest.mark.parametrize("seed", range(5))
def test_the_first_guess_solves_the_eigenproblem(seed):
    kernel, similar = _problem(seed)
    largest, left, right = _largest(kernel, BITS * similar)
    a = ksh.first_guess(kernel, BITS * similar)
    assert (kernel @ a).square().sum().item() == pytest.approx(IMAGES)
    assert np.linalg.norm(left @ a.numpy() - largest * right @ a.numpy()) < 1e-6 * np.linalg.norm(left @ a.numpy())


def test_the_first_guess_is_right_in_single_precision_when_the_kernel_is_nearly_singular():
    generator = torch.Generator().manual_seed(0)
    features = torch.rand(200, 3, generator=generator)
    kernel = gaussian(features, features[:60], torch.tensor(2.0))
    kernel = kernel - kernel.mean(0)
    similar = 2 * (features[:, :1].ge(0.5) == features[:, :1].ge(0.5).T).float() - 1
    assert torch.linalg.eigvalsh(kernel.T @ kernel)[0] < 1e-6
    largest, left, right = _largest(kernel.double(), similar.double())
    a = ksh.first_guess(kernel, similar).double().numpy()
    assert (a @ left @ a) / (a @ right @ a) > 0.95 * largest


def test_ksh_learns_from_a_limited_number_of_images():
    features, targets = _data()
    method = _fit("ksh", features, targets, bits=4, ksh_images=30, ksh_anchors=10)
    assert method.anchors.shape == (10, FEATURES) and torch.isfinite(method.values(features)).all()


# ------------------------------------------------------------------ SDH


def _watch(monkeypatch, **settings):
    """Fit SDH and keep what each solution of the codes was given and gave."""
    calls, solve = [], sdh.solve_codes

    def watched(B, W, Q, sweeps):
        calls.append((B.numpy(), W.numpy(), Q.numpy(), solve(B, W, Q, sweeps).numpy()))
        return torch.from_numpy(calls[-1][-1])

    monkeypatch.setattr(sdh, "solve_codes", watched)
    features, targets = _data(settings.pop("seed", 0), multilabel=settings.pop("multilabel", False))
    method = _fit("sdh", features, targets, **settings)
    return method, method.kernel(features).double().numpy(), targets.double().numpy(), calls


@pytest.mark.parametrize("multilabel", [False, True])
@pytest.mark.parametrize("nu", [1e-5, 0.01, 1.0])
def test_the_objective_of_sdh_never_rises(monkeypatch, nu, multilabel):
    """||Y - B W||^2 + lam ||W||^2 + nu (||B - F(X)||^2 + .01 ||P||^2); the last is the ridge that P is solved with."""
    method, phi, Y, calls = _watch(monkeypatch, sdh_nu=nu, sdh_lam=0.5, multilabel=multilabel, sdh_anchors=20, sdh_iterations=6)

    def objective(B, W, P):
        fit = ((B - phi @ P) ** 2).sum() + 1e-2 * (P**2).sum()
        return ((Y - B @ W) ** 2).sum() + 0.5 * (W**2).sum() + nu * fit

    def hash_function(B):
        return np.linalg.solve(phi.T @ phi + 1e-2 * np.eye(phi.shape[1]), phi.T @ B)

    assert len(calls) == 6
    P, values = hash_function(calls[0][0]), []
    for before, W, Q, after in calls:
        np.testing.assert_allclose(W, np.linalg.inv(before.T @ before + 0.5 * np.eye(BITS)) @ before.T @ Y, atol=1e-9)
        np.testing.assert_allclose(Q, Y @ W.T + nu * phi @ P, atol=1e-7)
        assert set(np.unique(after)) == {-1.0, 1.0}
        values += [objective(before, W, P), objective(after, W, P), objective(after, W, P := hash_function(after))]
    assert all(after <= before + 1e-8 * abs(before) for before, after in itertools.pairwise(values)), values
    assert values[-1] < 0.9 * values[0]
    np.testing.assert_allclose(method.directions.numpy(), P, rtol=1e-4, atol=1e-4 * np.abs(P).max())


def _objective(B, W, Y, goal, nu):
    return ((Y - B @ W) ** 2).sum() + nu * ((B - goal) ** 2).sum()


def _code_problem(seed):
    rng = np.random.default_rng(seed)
    W, Y, goal = rng.normal(size=(BITS, CLASSES)), np.eye(CLASSES)[rng.integers(CLASSES, size=10)], rng.normal(size=(10, BITS))
    return _signs(rng.normal(size=(10, BITS))), W, Y, goal


@pytest.mark.parametrize("nu", [1e-5, 0.3])
@pytest.mark.parametrize("seed", range(5))
def test_no_flip_of_a_single_bit_lowers_the_objective(seed, nu):
    B, W, Y, goal = _code_problem(seed)
    start = _objective(B, W, Y, goal, nu)
    solved = sdh.solve_codes(*map(torch.from_numpy, (B, W, Y @ W.T + nu * goal)), 100).numpy()
    least = _objective(solved, W, Y, goal, nu)
    assert least < start
    for place in np.ndindex(solved.shape):
        solved[place] *= -1
        assert _objective(solved, W, Y, goal, nu) >= least - 1e-9
        solved[place] *= -1


@pytest.mark.parametrize("seed", range(5))
def test_a_sweep_takes_each_bit_by_itself_to_its_best(seed):
    """Bit by bit, both values are tried and the objective is computed anew."""
    B, W, Y, goal = _code_problem(seed)
    for sweeps in (1, 2):
        solved = sdh.solve_codes(*map(torch.from_numpy, (B, W, Y @ W.T + 0.3 * goal)), sweeps).numpy()
        expected = B.copy()
        for _ in range(sweeps):
            for k in range(BITS):
                for i in range(len(B)):
                    tried = []
                    for bit in (1.0, -1.0):
                        expected[i, k] = bit
                        tried.append(_objective(expected, W, Y, goal, 0.3))
                    expected[i, k] = 1.0 if tried[0] <= tried[1] else -1.0
        assert np.array_equal(solved, expected)


def test_a_bit_that_makes_no_difference_stays_and_the_given_codes_are_not_touched():
    B = torch.tensor([[1.0, -1.0], [-1.0, 1.0]])
    before = B.clone()
    assert torch.equal(sdh.solve_codes(B, torch.zeros(2, 3), torch.zeros(2, 2), 5), B)
    sdh.solve_codes(B, torch.zeros(2, 3), -before, 5)
    assert torch.equal(B, before)


# ------------------------------------------------------------------ HC-SDH


@pytest.mark.parametrize("multilabel", [False, True])
def test_hcsdh_is_ridge_regression_to_the_codewords(multilabel):
    features, targets = _data(multilabel=multilabel)
    method = _fit("hcsdh", features, targets, ridge=0.5)
    book = codebook(CLASSES, BITS).astype(float)
    total = targets.double().numpy() @ book
    X = np.hstack([features.double().numpy(), np.ones((IMAGES, 1))])
    inverse = np.linalg.inv(X.T @ X + 0.5 * (X**2).mean() * np.eye(FEATURES + 1)) @ X.T
    # tied bits may go either way, but by one vector of signs for all images
    vectors = itertools.product([-1.0, 1.0], repeat=BITS) if multilabel else [[0.0] * BITS]
    goals = (np.where(total == 0, signs, np.sign(total)) for signs in vectors)
    assert any(np.allclose(inverse @ goal, method.directions.numpy(), atol=1e-4) for goal in goals)
    assert (total == 0).any() == multilabel


def test_hcsdh_gives_well_separated_classes_their_codewords():
    features, targets = _data(noise=0.05)
    codes = _signs(_fit("hcsdh", features, targets, ridge=1e-3).values(features))
    assert np.array_equal(codes, codebook(CLASSES, BITS)[targets.argmax(1)])


# ------------------------------------------------------------------ code lengths


@pytest.mark.parametrize("bits", [8, 9, 31, 100, 255, 256])
@pytest.mark.parametrize("name", ["lsh", "itq", "sdh", "hcsdh"])
def test_any_code_length(name, bits):
    generator = torch.Generator().manual_seed(0)
    features, targets = torch.randn(30, 256, generator=generator).relu(), torch.eye(CLASSES)[torch.arange(30) % CLASSES]
    values = _fit(name, features, targets, bits=bits, width=256).values(features)
    assert values.shape == (30, bits) and torch.isfinite(values).all()


@pytest.mark.parametrize("bits", [8, 31])
def test_any_code_length_of_ksh(bits):
    features, targets = _data(images=24)
    values = _fit("ksh", features, targets, bits=bits, ksh_refinements=5).values(features)
    assert values.shape == (24, bits) and torch.isfinite(values).all()
