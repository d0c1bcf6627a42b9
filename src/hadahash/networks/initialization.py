"""Building networks whose weights come from a file, without drawing random ones first."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from torch.overrides import TorchFunctionMode

_DRAWS = {"bernoulli_", "erfinv_", "exponential_", "normal_", "random_", "uniform_"}


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
