"""The contract of methods as executable checks, for built-in and user-defined methods.

Each check takes a method class and raises an AssertionError that says what is wrong.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

from ..errors import HadaHashError
from .base import Batch, DeepMethod, Method, ShallowMethod, Task
from .common import sign

Check = Callable[[type[Method]], None]
Function = TypeVar("Function", bound=Callable[..., None])

FEATURES, CLASSES, IMAGES, BITS = 24, 4, 40, 16
_CHECKS: dict[str, Check] = {}


def method_checks() -> dict[str, Check]:
    """Return all checks by name."""
    return dict(_CHECKS)


def _check(function: Function) -> Function:
    _CHECKS[function.__name__.removeprefix("_")] = function
    return function


def expect(condition: object, message: str) -> None:
    """Raise an AssertionError with this message unless the condition holds."""
    if not condition:
        raise AssertionError(message)


# ------------------------------------------------------------------ helpers


def make_method(
    kind: type[Method], *, bits: int = BITS, multilabel: bool = False, seed: int = 0
) -> Method:
    """Create a method with its default settings."""
    task = Task(bits, CLASSES, FEATURES, multilabel, train_images=IMAGES, seed=seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return kind.create(task, kind.Settings())


def make_batch(
    count: int = 16,
    *,
    classes: list[int] | None = None,
    multilabel: bool = False,
    seed: int = 0,
) -> Batch:
    """Draw non-negative features, as a ReLU network gives them, and targets."""
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(count, FEATURES, generator=generator).relu()
    if multilabel:
        targets = (torch.rand(count, CLASSES, generator=generator) < 0.5).float()
    else:
        drawn = torch.randint(CLASSES, (count,), generator=generator)
        targets = torch.eye(CLASSES)[drawn if classes is None else torch.tensor(classes)]
    return Batch(features, targets, torch.randperm(IMAGES, generator=generator)[:count])


def single_label_batches() -> dict[str, Batch]:
    """Return ordinary and degenerate batches with one label per image."""
    usual, eye = make_batch(), torch.eye(CLASSES)
    return {
        "random": usual,
        "one image": make_batch(1),
        "one class": make_batch(16, classes=[2] * 16),
        "each its own class": make_batch(4, classes=[0, 1, 2, 3]),
        "equal features": Batch(torch.ones(2, FEATURES), eye[[0, 1]], torch.tensor([0, 1])),
        "zero features": Batch(torch.zeros(3, FEATURES), eye[[0, 1, 1]], torch.arange(3)),
        "large features": Batch(1e3 * usual.features, usual.targets, usual.indices),
    }


def multi_label_batches() -> dict[str, Batch]:
    """Return ordinary and degenerate multi-label batches."""
    features = make_batch(3).features
    return {
        "random": make_batch(multilabel=True),
        "one image": make_batch(1, multilabel=True),
        "no label": Batch(features, torch.zeros(3, CLASSES), torch.arange(3)),
        "every label": Batch(features, torch.ones(3, CLASSES), torch.arange(3)),
    }


def backward(
    method: DeepMethod, batch: Batch, *, bf16: bool = False
) -> tuple[dict[str, Tensor], Tensor | None]:
    """Run one step as the training loop does; return the parts and the gradient of the features."""
    method.train()
    method.before_step(0, 10)
    features = batch.features.clone().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        parts = method.loss(Batch(features, batch.targets, batch.indices))
    expect(parts and isinstance(parts, dict), "loss must return a dict of at least one named part")
    for part, value in parts.items():
        expect(value.ndim == 0, f"part '{part}' of the loss must be a scalar")
    torch.stack(list(parts.values())).sum().backward()  # type: ignore[no-untyped-call]
    return parts, features.grad


def make_trained(kind: type[Method], *, bits: int = BITS) -> Method:
    """Return a method after three small steps, or after `fit`."""
    method = make_method(kind, bits=bits)
    if isinstance(method, ShallowMethod):
        batch = make_batch(IMAGES)
        method.fit(batch.features, batch.targets, torch.Generator().manual_seed(0))
    elif isinstance(method, DeepMethod):
        optimizer = torch.optim.SGD(method.parameters(), lr=0.01)
        for seed in range(3):
            backward(method, make_batch(seed=seed))
            optimizer.step()
    return method.eval()


def _values(method: Method, features: Tensor) -> Tensor:
    with torch.inference_mode():
        return method.values(features)


def _is_deep(kind: type[Method]) -> bool:
    return issubclass(kind, DeepMethod)


# ------------------------------------------------------------------ every method


@_check
def _class_is_a_deep_or_shallow_method(kind: type[Method]) -> None:
    expect(
        isinstance(kind, type) and issubclass(kind, (DeepMethod, ShallowMethod)),
        f"{kind!r} must be a subclass of DeepMethod or ShallowMethod",
    )


@_check
def _settings_are_a_frozen_dataclass_with_defaults(kind: type[Method]) -> None:
    settings: Any = kind.Settings
    expect(dataclasses.is_dataclass(settings), f"{kind.__name__}.Settings must be a dataclass")
    parameters = getattr(settings, "__dataclass_params__", None)
    expect(parameters and parameters.frozen, f"{kind.__name__}.Settings must be frozen")
    settings()  # every field has a default


# ------------------------------------------------------------------ deep methods


def _expect_finite(kind: type[Method], batches: dict[str, Batch], *, multilabel: bool) -> None:
    for name, batch in batches.items():
        for bf16 in (False, True):
            method = make_method(kind, multilabel=multilabel)
            if not isinstance(method, DeepMethod):
                return
            case = f"in the batch '{name}'" + (" under bfloat16" if bf16 else "")
            parts, gradient = backward(method, batch, bf16=bf16)
            for part, value in parts.items():
                expect(torch.isfinite(value), f"part '{part}' of the loss is {value} {case}")
            gradients = [p.grad for p in method.parameters() if p.grad is not None]
            expect(gradients, f"no parameter has a gradient {case}")
            expect(gradient is not None, f"the features have no gradient {case}")
            finite = all(torch.isfinite(g).all() for g in [*gradients, gradient] if g is not None)
            expect(finite, f"a gradient is not finite {case}")


@_check
def _loss_and_gradients_are_finite(kind: type[Method]) -> None:
    _expect_finite(kind, single_label_batches(), multilabel=False)


@_check
def _multi_label_loss_and_gradients_are_finite(kind: type[Method]) -> None:
    _expect_finite(kind, multi_label_batches(), multilabel=True)


@_check
def _gradient_reaches_the_features(kind: type[Method]) -> None:
    method = make_method(kind)
    if isinstance(method, DeepMethod):
        gradient = backward(method, make_batch())[1]
        moved = gradient is not None and float(gradient.abs().max()) > 0
        expect(moved, "the gradient of the features is 0: the backbone would not learn")


@_check
def _parts_of_the_loss_keep_their_names(kind: type[Method]) -> None:
    method = make_method(kind)
    if isinstance(method, DeepMethod):
        batches = single_label_batches()
        first, second = (backward(method, batches[key])[0] for key in ("random", "one class"))
        expect(first.keys() == second.keys(), f"parts changed from {[*first]} to {[*second]}")


@_check
def _loss_is_deterministic(kind: type[Method]) -> None:
    if _is_deep(kind):
        methods = [make_method(kind), make_method(kind)]
        first, second = (
            backward(method, make_batch())[0]
            for method in methods
            if isinstance(method, DeepMethod)
        )
        same = all(torch.equal(first[key], second[key]) for key in first)
        expect(same, "the loss of the same batch must be the same for the same seed")


# ------------------------------------------------------------------ shallow methods


@_check
def _fit_is_deterministic(kind: type[Method]) -> None:
    if not _is_deep(kind):
        features = make_batch(9).features
        first, second = (_values(make_trained(kind), features) for _ in range(2))
        expect(torch.equal(first, second), "fit must draw only from the generator it is given")


@_check
def _fit_takes_multi_label_targets(kind: type[Method]) -> None:
    method, batch = make_method(kind, multilabel=True), make_batch(IMAGES, multilabel=True)
    if isinstance(method, ShallowMethod):
        method.fit(batch.features, batch.targets, torch.Generator().manual_seed(0))
        finite = torch.isfinite(_values(method.eval(), batch.features)).all()
        expect(finite, "values after fit on multi-label targets must be finite")


# ------------------------------------------------------------------ values and state


@_check
def _values_are_finite_and_of_the_right_shape(kind: type[Method]) -> None:
    method = make_trained(kind)
    for count in (1, 7):
        values = _values(method, make_batch(count).features)
        expect(
            values.shape == (count, BITS),
            f"values of {count} images must have the shape ({count}, {BITS}), got {values.shape}",
        )
        expect(torch.isfinite(values).all(), "values must be finite")


@_check
def _values_do_not_depend_on_the_other_images(kind: type[Method]) -> None:
    method, features = make_trained(kind), make_batch(9).features
    together = _values(method, features)
    alone = torch.cat([_values(method, row[None]) for row in features])
    expect(
        torch.allclose(together, alone, rtol=1e-4, atol=1e-5),
        "the values of an image must not depend on the other images of the batch",
    )


@_check
def _constructor_is_cheap(kind: type[Method]) -> None:
    task = Task(64, 1000, FEATURES, train_images=IMAGES)
    try:
        started = time.process_time()
        kind(task, kind.Settings())
        seconds = time.process_time() - started
    except HadaHashError:  # a method may refuse a code length
        return
    expect(
        seconds < 1,
        f"the constructor took {seconds:.1f} s for 1,000 classes: search in create() instead, "
        "because loading a model calls the constructor",
    )


@_check
def _empty_method_is_filled_by_the_state_dict(kind: type[Method]) -> None:
    method = make_trained(kind)
    empty = kind(Task(BITS, CLASSES, FEATURES, train_images=IMAGES), kind.Settings())
    empty.load_state_dict(empty.upgrade_state(method.state_dict()))
    features = make_batch(9).features
    expect(
        torch.equal(_values(empty.eval(), features), _values(method, features)),
        "a method that is filled from the state_dict must give the same values: keep all state "
        "that encoding needs in parameters and persistent buffers",
    )
    found, expected = empty.codewords(), method.codewords()
    same = found is expected or (
        found is not None and expected is not None and torch.equal(found, expected)
    )
    expect(same, "codewords must be part of the state_dict")


@_check
def _codewords_are_distinct_signs_or_none(kind: type[Method]) -> None:
    codewords = make_method(kind).codewords()
    if codewords is None:
        return
    expect(
        codewords.shape == (CLASSES, BITS),
        f"codewords must have the shape (classes, bits), got {tuple(codewords.shape)}",
    )
    expect((codewords.abs() == 1).all(), "codewords must be +1 and -1")
    expect(len(torch.unique(codewords, dim=0)) == CLASSES, "codewords of two classes must differ")


@_check
def _code_lengths(kind: type[Method]) -> None:
    for bits in (8, 12, 48, 256):
        try:
            method = make_trained(kind, bits=bits)
        except HadaHashError as error:
            text = str(error)
            expect(
                str(bits) in text and "\n" not in text,
                f"a refused code length must be named in one line, got {text!r} for {bits} bits",
            )
            continue
        shape = tuple(_values(method, make_batch(3).features).shape)
        expect(shape == (3, bits), f"values must have the shape (3, {bits}), got {shape}")


@_check
def _classes_are_separated(kind: type[Method]) -> None:
    """On well separated features, codes of one class are nearer to each other than to others."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(IMAGES) % CLASSES
    means = 3 * torch.randn(CLASSES, FEATURES, generator=generator)
    features = (means[labels] + 0.3 * torch.randn(IMAGES, FEATURES, generator=generator)).relu()
    targets, method = torch.eye(CLASSES)[labels], make_method(kind)
    if isinstance(method, ShallowMethod):
        method.fit(features, targets, generator)
    elif isinstance(method, DeepMethod):
        optimizer = torch.optim.Adam(method.parameters(), lr=0.01)
        for step in range(100):
            method.train().before_step(step, 100)
            optimizer.zero_grad()
            parts = method.loss(Batch(features, targets, torch.arange(IMAGES)))
            torch.stack(list(parts.values())).sum().backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    codes = sign(_values(method.eval(), features))
    distances = (codes[:, None] != codes[None]).float().mean(-1)
    same = labels[:, None] == labels[None]
    within, between = float(distances[same].mean()), float(distances[~same].mean())
    expect(
        within < between,
        f"codes of one class differ in {within:.0%} of the bits, of two classes in {between:.0%}",
    )
