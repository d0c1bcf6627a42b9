"""The model of an index: codes of different models cannot be compared."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..codes import Codes
from ..errors import UsageError
from ..index.checks import check_fingerprint
from ..index.storage.manifest import MANIFEST

if TYPE_CHECKING:
    from ..index import Index
    from ..model import HashModel
    from .plan import SyncPlan

Info = Callable[[str], object]


def load_model_of(
    index: Index,
    folder: str | Path,
    run: str | Path | None = None,
    *,
    device: str = "auto",
) -> HashModel:
    """Load the model that made the codes of an index.

    Args:
        index: The index.
        folder: Its folder, for error messages.
        run: Folder of the run; by default the one that the index recorded.
        device: "auto", "cpu" or "cuda".

    Returns:
        The model.

    Raises:
        UsageError: The run is unknown, was moved, or has a different model.
        StorageError: The run cannot be read.
    """
    from ..model import HashModel

    run_folder = run_of(index, folder, run)
    model = HashModel.load(run_folder, device=device)
    if index.bits < model.bits:
        model = model.prefix(index.bits)
    check_model(index, model, folder)
    return model


def model_for(plan: SyncPlan, model: HashModel, *, device: str, info: Info) -> HashModel:
    """Return what carries out a plan: the model, exported first if many photos are encoded.

    Args:
        plan: The plan.
        model: The model of the index.
        device: "auto", "cpu" or "cuda".
        info: Receives messages for the user.

    Returns:
        The model; see `hadahash.light_export.for_long_job`.
    """
    from ..light_export import LEAST_IMAGES, for_long_job
    from .scan import source_of

    if len(plan.encode) < LEAST_IMAGES:
        return model
    return for_long_job(model, source_of(plan.encode).images, device=device, info=info)


def run_of(index: Index, folder: str | Path, run: str | Path | None = None) -> Path:
    """Return the folder of the model that made the codes of an index.

    Args:
        index: The index.
        folder: Its folder; a model of its own is in it.
        run: Folder of the run; by default the one that the index recorded.

    Returns:
        The folder.

    Raises:
        UsageError: The run is unknown, or was moved.
    """
    if run is not None:
        return Path(run)
    if "run" not in index.meta:
        raise unknown_run(index, folder)
    recorded: Path = Path(folder) / index.meta["run"]
    if not recorded.is_dir():
        raise UsageError(
            f"The run that made {folder} is no longer at {recorded}. Pass --run FOLDER."
        )
    return recorded


def unknown_run(index: Index, folder: str | Path) -> UsageError:
    """Return the error for an index that does not record the run of its model.

    Args:
        index: The index.
        folder: Its folder.

    Returns:
        The error to raise.
    """
    model = index.meta.get("model")
    if model is None:
        return UsageError(
            f"{folder} does not record which model made its codes. Pass it with --run RUN."
        )
    return UsageError(
        f"{folder} does not record the run of its model {str(model)[:12]}. Pass it with --run RUN."
    )


def check_model(index: Index, model: HashModel, folder: str | Path) -> None:
    """Check that a model made the codes of an index.

    Args:
        index: The index.
        model: The model.
        folder: The folder of the index, for error messages.

    Raises:
        UsageError: The codes, or the content bits, were made by a different model.
    """
    recorded = index.meta.get("model")
    if model.bits != index.bits or not model.made(recorded):
        raise UsageError(
            f"{folder} contains {index.bits}-bit codes of the model {str(recorded)[:12]}, got "
            f"{model.bits}-bit codes of {model.id[:12]}: codes of two models cannot be compared. "
            f"Use the run that made it. Change the model with: hadahash index upgrade {folder} "
            "--run RUN"
        )
    if model.content_bits == index.content_bits:
        check_fingerprint(index, model.fingerprint)


def shorten_for(model: HashModel, folder: str | Path, bits: int | None) -> HashModel:
    """Shorten the codes of a model for an index.

    Args:
        model: The model.
        folder: Folder of the index, existing or not.
        bits: Number of bits to keep; None: as many as an existing index has, otherwise all.

    Returns:
        The model, shortened or not.

    Raises:
        UsageError: The model has fewer bits.
    """
    if bits is None and (Path(folder) / MANIFEST).exists():
        from ..index import Index

        bits = min(model.bits, Index.open(folder).bits)
    return model if bits is None else model.prefix(bits)


def no_codes(model: HashModel) -> Codes:
    """Return codes of no image, with the lengths of a model's codes.

    Args:
        model: The model.

    Returns:
        Codes without rows.
    """
    packed, content = (
        np.zeros((0, -(-bits // 8)), np.uint8) for bits in (model.bits, model.content_bits)
    )
    if not model.content_bits:
        return Codes(packed, model.bits)
    return Codes(packed, model.bits, content=content, content_bits=model.content_bits)
