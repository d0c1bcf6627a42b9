"""onnxruntime for the service: it encodes one image in half the time, and starts without torch."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

from ...errors import HadaHashError
from ...lazy import is_installed
from ...light import has_graphs
from ...model_files import FORMAT, StoredModel, read_model
from ...runtime.choice import requested
from ...runtime.files import read_facts

_EXPORTER = "onnx"  # the package that torch exports with


def runtime_for(run: Path, device: str) -> str | None:
    """Choose what runs the model of the service.

    Args:
        run: The folder of the model.
        device: "auto", "cpu" or "cuda".

    Returns:
        "onnx", if the model was exported and no GPU is used; None: as everywhere else.
    """
    stored = _stored(run, device)
    return "onnx" if stored is not None and _is_exported(stored) else None


def can_export(run: Path, device: str) -> bool:
    """Whether the service could run this model with onnxruntime if it was exported now.

    Args:
        run: The folder of the model.
        device: "auto", "cpu" or "cuda".

    Returns:
        True if it was not exported, and everything that is needed is installed.
    """
    stored = _stored(run, device)
    if stored is None or stored.format < FORMAT or _is_exported(stored):
        return False
    installed = is_installed("torch") and is_installed(_EXPORTER)
    return installed and stored.weights.exists() and os.access(run, os.W_OK)


def export_model(run: Path) -> str | None:
    """Export a model into its own folder, in another process, so that this one is without torch.

    Args:
        run: The folder of the model.

    Returns:
        None, or why it could not be exported.
    """
    command = [sys.executable, "-m", "hadahash", "export", str(run), "--onnx"]
    done = subprocess.run(  # noqa: S603 - this program, and a folder
        command, capture_output=True, text=True, errors="replace"
    )
    if done.returncode == 0:
        return None
    lines = done.stderr.strip().splitlines()
    return lines[-1] if lines else f"exit code {done.returncode}"


def has_gpu() -> bool:
    """Whether the driver of a GPU finds one. torch, which takes seconds to import, is not asked."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        count = ctypes.c_int(0)
        found = driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0
    except (OSError, AttributeError):
        return False
    return found and count.value > 0


def _stored(run: Path, device: str) -> StoredModel | None:
    """The model, if onnxruntime may run it; None if it cannot be read, or torch is asked for."""
    if requested() is not None or not is_installed("onnxruntime"):
        return None
    if device != "cpu" and (device != "auto" or has_gpu()):
        return None
    try:
        return read_model(run)
    except HadaHashError:
        return None  # reported when it is loaded


def _is_exported(stored: StoredModel) -> bool:
    """Whether the graphs in the folder are those of this model."""
    try:
        facts = read_facts(stored.path.parent)
        if facts is None:
            return has_graphs(stored)  # a projection of embeddings needs none
    except HadaHashError:
        return False
    return stored.format == FORMAT and facts.model_id == stored.manifest.get("id")
