"""Which runtime a model is loaded with."""

from __future__ import annotations

import os

from ..errors import MissingExtraError, unknown
from ..lazy import is_installed

VARIABLE = "HADAHASH_RUNTIME"
PACKAGES = {"torch": ("torch", "train"), "onnx": ("onnxruntime", "onnx")}  # package and extra
RUNTIMES = tuple(PACKAGES)


def requested(runtime: str | None = None) -> str | None:
    """The runtime that was asked for.

    Args:
        runtime: "torch" or "onnx"; None: that of the environment variable HADAHASH_RUNTIME.

    Returns:
        The name; None: the choice is automatic.

    Raises:
        UsageError: The name is unknown.
        MissingExtraError: The runtime is not installed.
    """
    name = runtime or os.environ.get(VARIABLE) or None
    if name in (None, "auto"):
        return None
    if name not in RUNTIMES:
        raise unknown("runtime", str(name), ("auto", *RUNTIMES))
    if not is_installed(PACKAGES[name][0]):
        raise MissingExtraError(*PACKAGES[name])
    return name


def prefers_torch(runtime: str | None, *, weights: bool, graphs: bool) -> bool:
    """Choose the runtime of a model.

    Args:
        runtime: "torch", "onnx", or None for the automatic choice: torch, if it is installed and
            the weights are there.
        weights: Whether the weights are there.
        graphs: Whether the model can be run without torch.

    Returns:
        True for torch, False for onnxruntime.

    Raises:
        UsageError: The name is unknown.
        MissingExtraError: The runtime is not installed.
    """
    name = requested(runtime)
    if name is not None:
        return name == "torch"
    if weights and is_installed("torch"):
        return True
    if not graphs:
        raise MissingExtraError(*PACKAGES["torch"])
    return False
