"""An index of embeddings: encoded in one pass, with the model that made the codes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..codes import Codes, write_skipped
from ..errors import DataError, UsageError
from ..index import Index
from ..index.storage.manifest import MANIFEST
from .ready import BITS, MODEL

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..data.base import ImageSource
    from ..model import HashModel

Progress = Callable[[int], object]


def fit_vector_model(source: ImageSource, *, device: str = "auto") -> HashModel:
    """Fit ITQ on embeddings, without labels.

    Codes have 128 bits, or the largest multiple of 8 for narrower embeddings.

    Args:
        source: The embeddings.
        device: "auto", "cpu" or "cuda".

    Returns:
        The model.

    Raises:
        DataError: There are fewer than two usable rows.
        UsageError: The embeddings have fewer than 8 features.
    """
    from ..ready_models import fit_embeddings, without_torch

    width = getattr(source.images, "width", BITS)
    bits = max(8, min(BITS, width // 8 * 8))
    if without_torch():
        return fit_embeddings(source, bits=bits)
    from ..building import make_config
    from ..data.sources import without_labels
    from ..fitting import fit_model

    config = make_config("itq", bits=bits, device=device)
    return fit_model(config, without_labels(source), device=device).model


def build_vector_index(
    out: str | Path,
    source: ImageSource,
    *,
    run: str | Path | None = None,
    labels: Any = None,
    engine: str = "exact",
    device: str = "auto",
    progress: Progress | None = None,
    **options: Any,
) -> Index:
    """Encode embeddings into an index and save it.

    Args:
        out: Folder of the index. An index of embeddings there is replaced.
        source: The embeddings, see `hadahash.data.sources.open_embeddings`.
        run: Folder of a model on embeddings; None: ITQ is fitted on the embeddings, and its model
            saved in the index.
        labels: One label per row, or None.
        engine: A name of `list_engines()`.
        device: "auto", "cpu" or "cuda".
        progress: Called with the number of rows of each batch.
        **options: Options of the engine.

    Returns:
        The index. Rows that contain NaN are listed in skipped.csv.

    Raises:
        UsageError: The folder contains another kind of index, or the model takes other data.
        DataError: The labels do not match, or no row can be encoded.
    """
    from ..model import HashModel

    out = Path(out)
    _check_free(out)
    if run is None:
        model = fit_vector_model(source, device=device)
    else:
        model = HashModel.load(run, device=device)
    codes = model.encode(source, progress=progress)
    index = Index.build(
        codes,
        _labels_of(codes, source, labels),
        engine=engine,
        model=model,
        **options,
    )
    index.meta |= {
        "model": model.id,
        "run": MODEL if run is None else str(Path(run).resolve()),
        "embeddings": model.runtime.width,
    }
    index.save(out)
    if run is None:
        model.save(out / MODEL)
    write_skipped(out / "skipped.csv", codes.skipped)
    return index


def _check_free(out: Path) -> None:
    if (out / MANIFEST).exists() and "embeddings" not in Index.open(out).meta:
        raise UsageError(f"{out} is an index of photos. Choose another --out.")


def _labels_of(codes: Codes, source: ImageSource, labels: Any) -> NDArray[Any] | None:
    """The labels of the rows that have a code."""
    if labels is None:
        return None
    array = np.asarray(labels)
    if len(array) != len(source):
        raise DataError(f"{len(source):,} embeddings need as many labels, got {len(array):,}.")
    skipped = {row.path for row in codes.skipped}
    return array[[str(each) not in skipped for each in source.ids]] if skipped else array
