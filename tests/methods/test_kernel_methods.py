"""KSH and SDH: objectives decrease, and each step equals a slow reference implementation."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.linalg
import torch
from clusters import BITS, CLASSES, FEATURES, IMAGES, clusters, fit_shallow, signs, slow_kernel

from hadahash.methods import ksh, sdh
from hadahash.methods.kernels import choose_anchors, gaussian, squared_distances

# ------------------------------------------------------------------ kernels


def test_the_kernel_matches_the_formula():
    features, anchors = clusters(0, images=9)[0], clusters(1, images=5)[0]
    expected, width = slow_kernel(features, anchors)
    assert squared_distances(features, anchors).mean().item() == pytest.approx(width, rel=1e-5)
    np.testing.assert_allclose(
        gaussian(features, anchors, torch.tensor(width)).numpy(), expected, rtol=1e-4
    )


def test_anchors_are_different_training_images():
    features = torch.arange(10.0)[:, None]
    chosen = choose_anchors(features, 6, torch.Generator().manual_seed(0)).flatten().tolist()
    assert len(set(chosen)) == 6 and set(chosen) <= set(range(10))
    assert sorted(
        choose_anchors(features, 99, torch.Generator().manual_seed(0)).flatten().tolist()
    ) == list(range(10))


@pytest.mark.parametrize("name", ["ksh", "sdh"])
def test_kernel_methods_encode_new_images_by_the_formula(name):
    features, targets = clusters()
    method, others = fit_shallow(name, features, targets, bits=4), clusters(1)[0]
    training, width = slow_kernel(features, method.anchors)
    assert method.width.item() == pytest.approx(width, rel=1e-4)
    squares = squared_distances(others.double(), method.anchors.double()).numpy()
    kernel = np.exp(-squares / (2 * width))
    kernel = (
        kernel - training.mean(0)
        if name == "ksh"
        else np.hstack([kernel, np.ones((len(kernel), 1))])
    )
    expected = kernel @ method.directions.double().numpy()
    np.testing.assert_allclose(
        method.values(others).numpy(), expected, atol=1e-3 * np.abs(expected).max()
    )


# ------------------------------------------------------------------ KSH


def _similar(targets):
    rows = targets.tolist()
    shared = [[any(a and b for a, b in zip(y, z, strict=True)) for z in rows] for y in rows]
    return torch.tensor(
        [[1.0 if one else -1.0 for one in row] for row in shared], dtype=torch.float64
    )


def _problem(seed=0, *, multilabel=False, images=IMAGES, anchors=20):
    features, targets = clusters(seed, multilabel=multilabel, images=images)
    kernel = torch.from_numpy(slow_kernel(features, features[:anchors])[0])
    return kernel - kernel.mean(0), targets


def _relaxed_solution(kernel, residual):
    return ksh.Relaxed(kernel, residual).solution()


def _gain(kernel, residual, direction):
    y = signs(kernel @ direction)
    return float(y @ residual.numpy() @ y)


@pytest.mark.parametrize("multilabel", [False, True])
def test_the_residual_multiplies_as_the_whole_matrix_does(multilabel):
    targets = clusters(0, multilabel=multilabel)[1]
    generator = torch.Generator().manual_seed(0)
    residual, whole = ksh.Residual(targets, BITS), BITS * _similar(targets)
    for _ in range(3):
        for shape in ((IMAGES,), (IMAGES, 4)):
            x = torch.randn(*shape, generator=generator, dtype=torch.float64)
            torch.testing.assert_close(residual @ x, whole @ x)
        y = torch.sign(torch.randn(IMAGES, generator=generator))
        residual.remove(y)
        whole = whole - torch.outer(y, y)


@pytest.mark.parametrize("multilabel", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_each_bit_of_ksh_lowers_the_residual_by_the_better_direction(seed, multilabel):
    kernel, targets = _problem(seed, multilabel=multilabel)
    directions = ksh.learn_bits(kernel, ksh.Residual(targets, BITS), BITS, ksh.KSHSettings())
    similar = _similar(targets)
    residual, refinements = BITS * similar, 0
    for k in range(BITS):
        start = _relaxed_solution(kernel, residual)
        gains = [
            _gain(kernel, residual, a) for a in (start, ksh.refine(kernel, residual, start, 500))
        ]
        refinements += gains[1] > gains[0]
        assert _gain(kernel, residual, directions[:, k]) == pytest.approx(max(gains))
        y = torch.from_numpy(signs(kernel @ directions[:, k]))
        after = residual - torch.outer(y, y)
        assert after.norm() < residual.norm()
        residual = after
    H = torch.from_numpy(signs(kernel @ directions))
    torch.testing.assert_close(residual, BITS * similar - H @ H.T)
    assert (H @ H.T / BITS - similar).norm() < 0.9 * similar.norm()
    assert refinements > 0


def test_a_refinement_that_is_worse_is_not_kept(monkeypatch):
    kernel, targets = _problem()
    similar = _similar(targets)
    worse = torch.zeros(kernel.shape[1], dtype=torch.float64)  # its bit is 1 everywhere
    monkeypatch.setattr(ksh, "refine", lambda kernel, residual, start, steps: worse)
    directions = ksh.learn_bits(kernel, ksh.Residual(targets, 1), 1, ksh.KSHSettings())
    start = _relaxed_solution(kernel, similar)
    assert _gain(kernel, similar, start) > _gain(kernel, similar, worse)
    torch.testing.assert_close(directions[:, 0], start)


def _slow_refinement(K, R, start, steps):
    """Nesterov's method on -y^T R y, y = 2 / (1 + exp(-K a)) - 1; the step 1 / beta halves until the quadratic bound holds."""

    def cost(a):
        with np.errstate(over="ignore"):
            y = 2 / (1 + np.exp(-K @ a)) - 1
        return -(y @ R @ y), -K.T @ ((R @ y) * (1 - y**2))

    path, t, beta = [start, start], [0.0, 1.0], 1.0
    for _ in range(steps):
        ahead = path[-1] + (t[-2] - 1) / t[-1] * (path[-1] - path[-2])
        value, slope = cost(ahead)
        while (
            cost(ahead - slope / beta)[0] > value - slope @ slope / beta + slope @ slope / beta / 2
        ):
            beta *= 2
        path.append(ahead - slope / beta)
        t.append((1 + np.sqrt(1 + 4 * t[-1] ** 2)) / 2)
        if abs(cost(path[-1])[0] - cost(path[-2])[0]) / len(K) <= 1e-2:
            break
    return path[-1], cost(start)[0], cost(path[-1])[0]


@pytest.mark.parametrize("steps", [1, 3, 500])
def test_a_refinement_is_accelerated_descent(steps):
    for seed in range(5):
        kernel, targets = _problem(seed)
        similar = _similar(targets)
        start = _relaxed_solution(kernel, BITS * similar)
        expected, before, after = _slow_refinement(
            kernel.numpy(), BITS * similar.numpy(), start.numpy(), steps
        )
        np.testing.assert_allclose(
            ksh.refine(kernel, BITS * similar, start, steps).numpy(), expected, rtol=1e-6, atol=1e-6
        )
        assert after < before


def _largest(kernel, residual):
    """The largest generalized eigenvalue, and the two matrices."""
    left = (kernel.T @ residual @ kernel).numpy()
    right = (kernel.T @ kernel).numpy() + 1e-6 * np.eye(kernel.shape[1])
    return scipy.linalg.eigh((left + left.T) / 2, right, eigvals_only=True)[-1], left, right


@pytest.mark.parametrize("seed", range(5))
def test_the_relaxed_solution_solves_the_eigenproblem(seed):
    kernel, targets = _problem(seed)
    similar = _similar(targets)
    largest, left, right = _largest(kernel, BITS * similar)
    a = _relaxed_solution(kernel, BITS * similar)
    assert (kernel @ a).square().sum().item() == pytest.approx(IMAGES)
    assert np.linalg.norm(left @ a.numpy() - largest * right @ a.numpy()) < 1e-6 * np.linalg.norm(
        left @ a.numpy()
    )


def test_the_relaxed_solution_is_right_in_single_precision_when_the_kernel_is_nearly_singular():
    generator = torch.Generator().manual_seed(0)
    features = torch.rand(200, 3, generator=generator)
    kernel = gaussian(features, features[:60], torch.tensor(2.0))
    kernel = kernel - kernel.mean(0)
    similar = 2 * (features[:, :1].ge(0.5) == features[:, :1].ge(0.5).T).float() - 1
    assert torch.linalg.eigvalsh(kernel.T @ kernel)[0] < 1e-6
    largest, left, right = _largest(kernel.double(), similar.double())
    a = _relaxed_solution(kernel, similar.double()).double().numpy()
    assert (a @ left @ a) / (a @ right @ a) > 0.95 * largest


@pytest.mark.parametrize("multilabel", [False, True])
def test_ksh_learns_from_the_centered_kernel_and_the_shared_labels(monkeypatch, multilabel):
    given = []
    monkeypatch.setattr(
        ksh,
        "learn_bits",
        lambda kernel, left, bits, _: given.extend([kernel, left]) or kernel[:bits].T,
    )
    features, targets = clusters(multilabel=multilabel)
    method = fit_shallow("ksh", features, targets, ksh_anchors=20)
    kernel = slow_kernel(features, method.anchors)[0]
    kernel, similar = kernel - kernel.mean(0), _similar(targets)
    order = [
        int(np.abs(kernel - row).sum(1).argmin()) for row in given[0].numpy()
    ]  # the images come shuffled
    assert sorted(order) == list(range(IMAGES))
    np.testing.assert_allclose(given[0].numpy(), kernel[order], atol=1e-5)
    assert torch.equal(given[1] @ torch.eye(IMAGES), BITS * similar[order][:, order].float())


def test_ksh_learns_from_a_limited_number_of_images():
    features, targets = clusters()
    method = fit_shallow("ksh", features, targets, bits=4, ksh_images=30, ksh_anchors=10)
    assert method.anchors.shape == (10, FEATURES) and torch.isfinite(method.values(features)).all()


@pytest.mark.parametrize("bits", [8, 31])
def test_any_code_length_of_ksh(bits):
    features, targets = clusters(images=24)
    values = fit_shallow("ksh", features, targets, bits=bits, ksh_refinements=5).values(features)
    assert values.shape == (24, bits) and torch.isfinite(values).all()


# ------------------------------------------------------------------ SDH


def _watch(monkeypatch, **settings):
    """Fit SDH and record arguments and results of each solution of the codes."""
    calls, solve = [], sdh.solve_codes

    def watched(B, W, Q, sweeps):
        calls.append((B.numpy(), W.numpy(), Q.numpy(), solve(B, W, Q, sweeps).numpy()))
        return torch.from_numpy(calls[-1][-1])

    monkeypatch.setattr(sdh, "solve_codes", watched)
    features, targets = clusters(
        settings.pop("seed", 0), multilabel=settings.pop("multilabel", False)
    )
    method = fit_shallow("sdh", features, targets, **settings)
    return method, method.phi(features).double().numpy(), targets.double().numpy(), calls


@pytest.mark.parametrize("multilabel", [False, True])
@pytest.mark.parametrize("nu", [1e-5, 0.01, 1.0])
def test_the_objective_of_sdh_never_increases(monkeypatch, nu, multilabel):
    """||Y - B W||^2 + lam ||W||^2 + nu (||B - F(X)||^2 + .01 ||P||^2); the last is the ridge that P is solved with."""
    method, phi, Y, calls = _watch(
        monkeypatch, sdh_nu=nu, sdh_lam=0.5, multilabel=multilabel, sdh_anchors=20, sdh_iterations=6
    )

    def objective(B, W, P):
        fit = ((B - phi @ P) ** 2).sum() + 1e-2 * (P**2).sum()
        return ((Y - B @ W) ** 2).sum() + 0.5 * (W**2).sum() + nu * fit

    def hash_function(B):
        return np.linalg.solve(phi.T @ phi + 1e-2 * np.eye(phi.shape[1]), phi.T @ B)

    assert len(calls) == 6
    P, values = hash_function(calls[0][0]), []
    for before, W, Q, after in calls:
        np.testing.assert_allclose(
            W, np.linalg.inv(before.T @ before + 0.5 * np.eye(BITS)) @ before.T @ Y, atol=1e-9
        )
        np.testing.assert_allclose(Q, Y @ W.T + nu * phi @ P, atol=1e-7)
        assert set(np.unique(after)) == {-1.0, 1.0}
        values += [
            objective(before, W, P),
            objective(after, W, P),
            objective(after, W, P := hash_function(after)),
        ]
    assert all(
        after <= before + 1e-8 * abs(before) for before, after in itertools.pairwise(values)
    ), values
    assert values[-1] < 0.9 * values[0]
    np.testing.assert_allclose(method.directions.numpy(), P, rtol=1e-4, atol=1e-4 * np.abs(P).max())


def _objective(B, W, Y, outputs, nu):
    return ((Y - B @ W) ** 2).sum() + nu * ((B - outputs) ** 2).sum()


def _code_problem(seed):
    rng = np.random.default_rng(seed)
    W, Y, outputs = (
        rng.normal(size=(BITS, CLASSES)),
        np.eye(CLASSES)[rng.integers(CLASSES, size=10)],
        rng.normal(size=(10, BITS)),
    )
    return signs(rng.normal(size=(10, BITS))), W, Y, outputs


@pytest.mark.parametrize("nu", [1e-5, 0.3])
@pytest.mark.parametrize("seed", range(5))
def test_no_flip_of_a_single_bit_lowers_the_objective(seed, nu):
    B, W, Y, outputs = _code_problem(seed)
    start = _objective(B, W, Y, outputs, nu)
    solved = sdh.solve_codes(*map(torch.from_numpy, (B, W, Y @ W.T + nu * outputs)), 100).numpy()
    least = _objective(solved, W, Y, outputs, nu)
    assert least < start
    for place in np.ndindex(solved.shape):
        solved[place] *= -1
        assert _objective(solved, W, Y, outputs, nu) >= least - 1e-9
        solved[place] *= -1


@pytest.mark.parametrize("seed", range(5))
def test_a_sweep_takes_each_bit_by_itself_to_its_best(seed):
    """Bit by bit, both values are tried and the objective is recomputed."""
    B, W, Y, outputs = _code_problem(seed)
    for sweeps in (1, 2):
        solved = sdh.solve_codes(
            *map(torch.from_numpy, (B, W, Y @ W.T + 0.3 * outputs)), sweeps
        ).numpy()
        expected = B.copy()
        for _ in range(sweeps):
            for k in range(BITS):
                for i in range(len(B)):
                    tried = []
                    for bit in (1.0, -1.0):
                        expected[i, k] = bit
                        tried.append(_objective(expected, W, Y, outputs, 0.3))
                    expected[i, k] = 1.0 if tried[0] <= tried[1] else -1.0
        assert np.array_equal(solved, expected)


def test_a_bit_without_effect_is_kept_and_the_input_is_not_modified():
    B = torch.tensor([[1.0, -1.0], [-1.0, 1.0]])
    before = B.clone()
    assert torch.equal(sdh.solve_codes(B, torch.zeros(2, 3), torch.zeros(2, 2), 5), B)
    sdh.solve_codes(B, torch.zeros(2, 3), -before, 5)
    assert torch.equal(B, before)
