"""Which runtime a model is loaded with."""

from __future__ import annotations

import ctypes
import os

from ..errors import MissingExtraError, unknown
from ..lazy import is_installed

VARIABLE = "HADAHASH_RUNTIME"
PACKAGES = {"torch": ("torch", "train"), "onnx": ("onnxruntime", "onnx")}  # package and extra
RUNTIMES = tuple(PACKAGES)


def has_gpu() -> bool:
    """Whether the driver of a GPU finds one. torch, which takes seconds to import, is not asked."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        count = ctypes.c_int(0)
        found = driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0
    except (OSError, AttributeError):
        return False
    return found and count.value > 0


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


def suits_onnx(device: str) -> bool:
    """Whether onnxruntime is the better choice where both runtimes can run a model.

    On a CPU it starts faster and encodes more images per second than torch; see docs/runtime.md.

    Args:
        device: "auto", "cpu" or "cuda".

    Returns:
        True if it is installed, no runtime was asked for, and no GPU is to be used.

    Raises:
        UsageError: The runtime that was asked for is unknown.
        MissingExtraError: It is not installed.
    """
    if requested() is not None or not is_installed("onnxruntime"):
        return False
    return device == "cpu" or (device == "auto" and not has_gpu())


def prefers_torch(runtime: str | None, device: str, *, weights: bool, graphs: bool) -> bool:
    """Choose the runtime of a model.

    Args:
        runtime: "torch", "onnx", or None for the automatic choice: onnxruntime, if the model was
            exported and no GPU is used; otherwise torch, if it is installed and the weights are
            there.
        device: "auto", "cpu" or "cuda".
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
        return not (graphs and suits_onnx(device))
    if not graphs:
        raise MissingExtraError(*PACKAGES["torch"])
    return False
