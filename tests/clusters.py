"""Helpers for tests of shallow methods: clustered features, and a slow kernel."""

from __future__ import annotations

import math

import numpy as np
import torch

from hadahash.methods import METHODS, Task
from hadahash.settings import from_mapping

IMAGES, FEATURES, CLASSES, BITS = 60, 12, 4, 8


def clusters(seed=0, *, multilabel=False, images=IMAGES, noise=0.7):
    """Non-negative features around one mean per class, and targets."""
    generator = torch.Generator().manual_seed(seed)
    means = torch.randn(CLASSES, FEATURES, generator=generator)
    if multilabel:
        targets = (torch.rand(images, CLASSES, generator=generator) < 0.4).float()
    else:
        targets = torch.eye(CLASSES)[torch.randint(CLASSES, (images,), generator=generator)]
    return (
        targets @ means + noise * torch.randn(images, FEATURES, generator=generator)
    ).relu(), targets


def shallow_method(name, *, bits=BITS, width=FEATURES, images=IMAGES, **settings):
    method_type = METHODS.get(name)
    task = Task(bits, CLASSES, width, train_images=images)
    return method_type.create(task, from_mapping(method_type.Settings, settings))


def fit_shallow(name, features, targets, *, seed=0, **arguments):
    method = shallow_method(name, images=len(features), **arguments)
    method.fit(features, targets, torch.Generator().manual_seed(seed))
    return method


def signs(values):
    return np.where(np.asarray(values) >= 0, 1.0, -1.0)


def slow_kernel(features, anchors):
    """exp(-||x - a||^2 / (2 s)) with s the mean of the squared distances, as a loop."""
    squares = [
        [sum((p - q) ** 2 for p, q in zip(x, a, strict=True)) for a in anchors.tolist()]
        for x in features.tolist()
    ]
    width = sum(map(sum, squares)) / (len(squares) * len(squares[0]))
    return np.array([[math.exp(-s / (2 * width)) for s in row] for row in squares]), width
