"""LSH, ITQ and HC-SDH: objectives decrease, and solutions equal slow reference implementations."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.linalg
import torch
from clusters import BITS, CLASSES, FEATURES, IMAGES, clusters, fit_shallow, shallow_method, signs
from toys import one_line

from hadahash import codebook
from hadahash.errors import UsageError
from hadahash.methods.itq import update_rotation

# ------------------------------------------------------------------ LSH


def test_lsh_is_the_signs_of_random_projections_of_centered_features():
    features, targets = clusters()
    method, others = fit_shallow("lsh", features, targets), clusters(1)[0]
    mean, W = features.numpy().mean(0), method.directions.numpy()
    assert W.shape == (FEATURES, BITS)
    np.testing.assert_allclose(
        method.values(others).numpy(), (others.numpy() - mean) @ W, atol=1e-5
    )
    assert np.array_equal(
        signs(method.values(1e3 * (others - method.mean) + method.mean)),
        signs(method.values(others)),
    )


def test_the_projections_of_lsh_are_normal_and_follow_the_seed():
    features, targets = clusters()
    first, again, other = (
        fit_shallow("lsh", features, targets, bits=256, seed=seed) for seed in (1, 1, 2)
    )
    assert torch.equal(first.directions, again.directions) and not torch.equal(
        first.directions, other.directions
    )
    assert first.directions.mean().abs() < 0.1 and first.directions.std().item() == pytest.approx(
        1, abs=0.05
    )


def test_bits_of_lsh_on_features_that_are_not_negative_are_balanced():
    features, targets = clusters(images=400)
    values = fit_shallow("lsh", features + 5, targets, bits=64).values(features + 5)
    assert ((values >= 0).float().mean(0) - 0.5).abs().mean() < 0.1


# ------------------------------------------------------------------ ITQ


def _principal(features, bits):
    """The mean and the first principal directions, by singular values (numpy)."""
    X = features.double().numpy()
    return X.mean(0), np.linalg.svd(X - X.mean(0))[2][:bits].T


@pytest.mark.parametrize("seed", range(5))
def test_the_objective_of_itq_never_increases_and_decreases_in_the_end(seed):
    features, targets = clusters(seed)
    X, errors = features.double().numpy(), []
    for iterations in range(15):
        VR = (X - X.mean(0)) @ fit_shallow(
            "itq", features, targets, itq_iterations=iterations
        ).directions.double().numpy()
        errors.append(np.linalg.norm(signs(VR) - VR))
    assert all(after <= before + 1e-5 for before, after in itertools.pairwise(errors)), errors
    assert errors[-1] < errors[0] - 0.1


def test_an_update_of_itq_is_the_best_rotation():
    generator = torch.Generator().manual_seed(0)
    V = torch.randn(50, BITS, generator=generator, dtype=torch.float64)
    R = torch.linalg.qr(torch.randn(BITS, BITS, generator=generator, dtype=torch.float64)).Q
    for _ in range(20):
        B, rotated = signs(V @ R), update_rotation(V, R)
        np.testing.assert_allclose(
            rotated.numpy(), scipy.linalg.orthogonal_procrustes(V.numpy(), B)[0], atol=1e-9
        )
        torch.testing.assert_close(rotated.T @ rotated, torch.eye(BITS, dtype=torch.float64))
        assert (
            np.linalg.norm(B - (V @ rotated).numpy()) <= np.linalg.norm(B - (V @ R).numpy()) + 1e-9
        )
        R = rotated


@pytest.mark.parametrize("bits", [5, FEATURES])
def test_itq_encodes_by_a_rotation_of_the_principal_directions(bits):
    features, targets = clusters()
    method, others = fit_shallow("itq", features, targets, bits=bits), clusters(1)[0]
    mean, P = _principal(features, bits)
    R = P.T @ method.directions.double().numpy()
    np.testing.assert_allclose(R @ R.T, np.eye(bits), atol=1e-5)
    values = (others.double().numpy() - mean) @ P @ R
    np.testing.assert_allclose(method.values(others).numpy(), values, atol=1e-4)
    assert np.array_equal(signs(method.values(others)), signs(values))


def test_itq_needs_no_more_images_than_it_has():
    features, targets = clusters(images=6)
    method = fit_shallow("itq", features, targets, bits=FEATURES)
    torch.testing.assert_close(
        method.directions.T @ method.directions, torch.eye(FEATURES), rtol=1e-4, atol=1e-5
    )


def test_itq_does_not_look_at_the_labels_or_build_a_matrix_of_images_by_images():
    features, targets = clusters(images=20_000)  # the square would take 3.2 GB
    assert torch.equal(
        fit_shallow("itq", features, targets).directions,
        fit_shallow("itq", features, targets.flip(0)).directions,
    )


@pytest.mark.parametrize("bits", [13, 64, 256])
def test_itq_refuses_more_bits_than_features(bits):
    with pytest.raises(UsageError, match=rf"bits must be <= 12 for itq, .* got {bits}\.") as caught:
        shallow_method("itq", bits=bits)
    one_line(caught.value)


# ------------------------------------------------------------------ HC-SDH


@pytest.mark.parametrize("multilabel", [False, True])
def test_hcsdh_is_ridge_regression_to_the_codewords(multilabel):
    features, targets = clusters(multilabel=multilabel)
    method = fit_shallow("hcsdh", features, targets, ridge=0.5)
    book = codebook(CLASSES, BITS).astype(float)
    labelled = targets.sum(1).numpy() > 0  # the others have no target
    assert labelled.all() != multilabel
    total = (targets.double().numpy() @ book)[labelled]
    X = np.hstack([features.double().numpy(), np.ones((IMAGES, 1))])[labelled]
    inverse = np.linalg.inv(X.T @ X + 0.5 * (X**2).mean() * np.eye(FEATURES + 1)) @ X.T
    # tied bits may go either way, but by one vector of signs for all images
    vectors = itertools.product([-1.0, 1.0], repeat=BITS) if multilabel else [[0.0] * BITS]
    targets_of = (np.where(total == 0, tie, np.sign(total)) for tie in vectors)
    assert any(
        np.allclose(inverse @ codes, method.directions.numpy(), atol=1e-4) for codes in targets_of
    )
    assert (total == 0).any() == multilabel


def test_hcsdh_gives_well_separated_classes_their_codewords():
    features, targets = clusters(noise=0.05)
    codes = signs(fit_shallow("hcsdh", features, targets, ridge=1e-3).values(features))
    assert np.array_equal(codes, codebook(CLASSES, BITS)[targets.argmax(1)])


# ------------------------------------------------------------------ code lengths


@pytest.mark.parametrize("bits", [8, 9, 31, 100, 255, 256])
@pytest.mark.parametrize("name", ["lsh", "itq", "sdh", "hcsdh"])
def test_any_code_length(name, bits):
    generator = torch.Generator().manual_seed(0)
    features, targets = (
        torch.randn(30, 256, generator=generator).relu(),
        torch.eye(CLASSES)[torch.arange(30) % CLASSES],
    )
    values = fit_shallow(name, features, targets, bits=bits, width=256).values(features)
    assert values.shape == (30, bits) and torch.isfinite(values).all()
