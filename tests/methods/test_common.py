"""Pieces that several methods share."""

from __future__ import annotations

import numpy as np
import torch

from hadahash.codes import binarize
from hadahash.methods.codewords import has_label, majority
from hadahash.methods.common import random_signs, share_a_label, sign


def test_signs_are_the_bits_of_codes():
    values = torch.tensor([-1e-30, -0.0, 0.0, 1e-30, -3.0, 7.0, -np.inf, np.inf])
    assert (sign(values).numpy() > 0).tolist() == binarize(values.numpy()).tolist()
    assert sign(values.double()).dtype == torch.float64


def test_the_majority_of_codewords_and_its_ties():
    codewords = torch.tensor([[1.0, 1, -1], [1, -1, -1], [-1, 1, 1]])
    targets = torch.tensor([[1.0, 0, 0], [1, 1, 0], [1, 1, 1], [0, 0, 0]])
    tie_break = torch.tensor([-1.0, -1, 1])
    expected = [[1, 1, -1], [1, -1, -1], [1, 1, -1], [-1, -1, 1]]
    assert majority(targets, codewords, tie_break).tolist() == expected
    assert has_label(targets).flatten().tolist() == [1, 1, 1, 0]


def test_images_share_a_label_or_not():
    left, right = torch.tensor([[1.0, 0, 1], [0, 0, 0]]), torch.tensor([[0.0, 0, 1], [0, 1, 0]])
    assert share_a_label(left, right).tolist() == [[1, 0], [0, 0]]


def test_random_signs_follow_their_seed_and_leave_the_global_state():
    state = torch.get_rng_state()
    assert torch.equal(random_signs(4, 6, seed=1), random_signs(4, 6, seed=1))
    assert not torch.equal(random_signs(4, 6, seed=1), random_signs(4, 6, seed=2))
    assert torch.equal(torch.get_rng_state(), state)
