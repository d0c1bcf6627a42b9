"""Export models for onnxruntime where it pays, once: into the folder of the model.

Nothing depends on it: where a model cannot be exported, torch runs it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from .config import EMBEDDINGS
from .errors import HadaHashError
from .lazy import is_installed
from .light import is_exported
from .model_files import FORMAT, read_model
from .ready_models import is_ready
from .runtime.choice import suits_onnx

if TYPE_CHECKING:
    from .data.base import Images
    from .model import HashModel

LEAST_IMAGES = 300  # an export takes as long as the time that onnxruntime saves on so many
_EXPORTER = "onnx"  # the package that torch exports with

Info = Callable[[str], object]


def can_export(run: Path, device: str) -> bool:
    """Whether onnxruntime could run this model if it was exported now.

    Args:
        run: The folder of the model.
        device: "auto", "cpu" or "cuda".

    Returns:
        True if it was not exported, and everything that is needed is installed.
    """
    if not _can_export_to(device):
        return False
    try:
        stored = read_model(run)
    except HadaHashError:
        return False  # reported when it is loaded
    return stored.format == FORMAT and stored.weights.exists() and not is_exported(stored)


def export_once(run: Path, device: str, info: Info) -> bool:
    """Export a model that was not exported, so that onnxruntime runs it instead of torch.

    Args:
        run: The folder of the model.
        device: "auto", "cpu" or "cuda".
        info: Receives a line on what is done, and one on what prevents it.

    Returns:
        Whether it was exported now.
    """
    if not can_export(run, device):
        return False
    if not os.access(run, os.W_OK):
        info(f"{run} cannot be written, so the model is not exported and runs with torch.")
        return False
    info(f"Exporting the model in {run} for onnxruntime. This is done once.")
    problem = export_model(run)
    if problem is not None:
        info(f"The model cannot be exported, and runs with torch: {problem}")
    return problem is None


def export_ready(device: str, info: Info) -> None:
    """Export the ready-made model, which encodes photos without labels, if it was not exported.

    Args:
        device: "auto", "cpu" or "cuda".
        info: Receives a line on what is done, and one on what prevents it.
    """
    if is_ready() or not _can_export_to(device):
        return
    info("Exporting the ready-made model for onnxruntime. This is done once.")
    problem = export_model("lite0")
    if problem is not None:
        info(f"The ready-made model cannot be exported, and runs with torch: {problem}")


def export_model(run: str | Path) -> str | None:
    """Export a model into its own folder, in another process, so that this one is without torch.

    Args:
        run: The folder of the model, or the name of the ready-made one.

    Returns:
        None, or why it could not be exported.
    """
    command = [sys.executable, "-m", "hadahash", "export", str(run), "--onnx"]
    try:
        done = subprocess.run(  # noqa: S603 - this program, and a folder
            command, capture_output=True, text=True, errors="replace"
        )
    except OSError as error:
        return str(error)
    if done.returncode == 0:
        return None
    lines = done.stderr.strip().splitlines()
    return lines[-1] if lines else f"exit code {done.returncode}"


def _can_export_to(device: str) -> bool:
    """Whether an export is of use on a device, and everything that is needed is installed."""
    return suits_onnx(device) and is_installed("torch") and is_installed(_EXPORTER)


def for_long_job(
    model: HashModel, images: Images, *, device: str, info: Info, more: int = 0
) -> HashModel:
    """The model that encodes many images: exported first, if that pays.

    Args:
        model: The model, as it was loaded.
        images: What it is to encode.
        device: "auto", "cpu" or "cuda".
        info: Receives messages for the user.
        more: Number of further images, which are not in the feature cache.

    Returns:
        The model, run by onnxruntime if it was exported.
    """
    runtime = model.runtime
    if model.folder is None or runtime.backbone == EMBEDDINGS:
        return model
    if (runtime.name, runtime.device) != ("torch", "cpu"):
        return model
    if len(images) + more < LEAST_IMAGES or not can_export(model.folder, device):
        return model
    if model.encoder().count_unknown(images) + more < LEAST_IMAGES:
        return model
    if not export_once(model.folder, device, info):
        return model
    try:
        exported = model.load(model.folder, device=device)
    except HadaHashError as error:
        info(f"The exported model cannot be used, and runs with torch: {error}")
        return model
    return exported.prefix(model.bits) if model.bits < exported.bits else exported
