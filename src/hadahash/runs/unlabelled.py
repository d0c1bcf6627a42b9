"""Fit a model on data without labels: a model folder without a split or an evaluation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ..codes import write_skipped
from ..config import Config
from ..data import LabelledImages
from ..errors import UsageError
from ..fitting import fit_model
from ..model import HashModel
from ..model_files import model_file_names
from .run_dir import RunDir

Info = Callable[[str], object]


def fit_unlabelled(
    config: Config,
    data: LabelledImages,
    out: str | Path,
    *,
    overwrite: bool = False,
    device: str = "auto",
    info: Info = lambda text: None,
) -> HashModel:
    """Fit a method that needs no labels and save the model.

    There are no labels to evaluate with, so no part of the data is held out.

    Args:
        config: The configuration.
        data: Images or embeddings.
        out: Folder of the model.
        overwrite: Replace an existing model in the folder.
        device: "auto", "cpu" or "cuda".
        info: Receives messages for the user.

    Returns:
        The model.

    Raises:
        UsageError: The folder contains a run, or a model.
        DataError: The data cannot be used.
        StorageError: A file cannot be written.
    """
    run, folder = RunDir(out), Path(out)
    if run.state != "new":
        raise UsageError(f"{out} contains a run. Choose another --out.")
    if model_file_names(folder) and not overwrite:
        raise UsageError(f"{out} contains a model. Replace it with --overwrite.")
    with run.locked():
        fitted = fit_model(config, data, device=device, info=info)
        fitted.model.save(folder)
        write_skipped(folder / "skipped.csv", fitted.skipped)
    return fitted.model
