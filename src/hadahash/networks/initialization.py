"""Building networks whose weights come from a file, without touching torch's random state."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_FILL = {"bernoulli_", "exponential_", "normal_", "random_", "uniform_"}
_DRAWS = {*_FILL, "erfinv_"}
_OWN = {*_FILL, "cauchy_", "geometric_", "log_normal_"}
_OWN |= {"bernoulli", "multinomial", "normal", "poisson", "rand", "randint", "randn", "randperm"}
_OF_INIT = {"normal_", "orthogonal_", "sparse_", "trunc_normal_", "uniform_"}
_OF_INIT |= {"kaiming_normal_", "kaiming_uniform_", "xavier_normal_", "xavier_uniform_"}
_LIKE = {"rand_like": "uniform_", "randn_like": "normal_"}  # they take no generator


class SkipInitialization(TorchFunctionMode):
    """A context in which modules are built without initializing their parameters.

    Functions of `torch.nn.init` and in-place random draws do nothing, so parameters hold arbitrary
    numbers and torch's random state is left as it was. Buffers that a module computes, such as
    position indices, are correct.

    Example:
        >>> import torch
        >>> state = torch.get_rng_state()
        >>> with SkipInitialization():
        ...     layer = torch.nn.Linear(3, 2)
        >>> torch.equal(torch.get_rng_state(), state)
        True
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Return the tensor as it is for an initialization, the function's result otherwise."""
        kwargs = kwargs or {}
        name, module = getattr(func, "__name__", ""), getattr(func, "__module__", None)
        if module == "torch.nn.init" or name in _DRAWS:
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs)


class OwnRandomness(TorchFunctionMode):
    """A context in which torch draws from a generator of its own instead of the global one.

    It applies to this thread, to the CPU, and to the functions that constructors of modules use:
    `torch.nn.init`, `torch.randn`, `tensor.normal_` and the like. The numbers are those that the
    global generator would give after `torch.manual_seed(seed)`.

    Args:
        seed: Seed of the generator.

    Example:
        >>> state = torch.get_rng_state()
        >>> with OwnRandomness(seed=3):
        ...     drawn = torch.nn.Linear(3, 2).weight
        >>> torch.equal(torch.get_rng_state(), state)
        True
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._generator = torch.Generator().manual_seed(seed)

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Return the function's result, with the generator of this context if it draws numbers."""
        kwargs, name = dict(kwargs or {}), getattr(func, "__name__", "")
        of_init = getattr(func, "__module__", None) == "torch.nn.init"
        if name in _LIKE:
            fill = getattr(torch.empty_like(*args, **kwargs), _LIKE[name])
            return fill(generator=self._generator)
        if name in (_OF_INIT if of_init else _OWN) and kwargs.get("generator") is None:
            kwargs["generator"] = self._generator
        return func(*args, **kwargs)
