"""Which runtime a model is loaded with."""

from __future__ import annotations

import os
from importlib.util import find_spec

from ..errors import MissingExtraError, unknown

VARIABLE = "HADAHASH_RUNTIME"
RUNTIMES = ("torch", "onnx")
_PACKAGES = {"torch": ("torch", "train"), "onnx": ("onnxruntime", "onnx")}


def is_installed(runtime: str) -> bool:
    """Whether the package of a runtime is installed; it is not imported.

    Args:
        runtime: "torch" or "onnx".

    Returns:
        True if it can be imported.
    """
    try:
        return find_spec(_PACKAGES[runtime][0]) is not None
    except (ImportError, ValueError):  # its import is refused
        return False


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
    if not is_installed(name):
        raise MissingExtraError(*_PACKAGES[name])
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
        raise MissingExtraError(*_PACKAGES["torch"])
    return False
