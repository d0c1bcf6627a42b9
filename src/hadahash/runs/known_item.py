"""Known-item search: alter images of a collection and search them again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..codes import Codes
from ..data.alterations import ALTERATIONS, AlteredImages, check_alterations
from ..data.embeddings import sample_rows
from ..data.sources import ImageSource, as_images
from ..encoding import Progress
from ..evaluation.known_item import KnownItem, search_known_items
from ..model import HashModel
from ..queries import Queries
from ..settings import require
from .rankings import check_content_weight

SAMPLE = 500  # images that are altered, by default
_FEWER = 50  # the same where there is no GPU


def available_ranks(model: HashModel) -> tuple[str, ...]:
    """The rankings that the codes of a model allow.

    Args:
        model: The model.

    Returns:
        "hamming", "class", and "photo" if the model has content bits.
    """
    return ("hamming", "class", "photo") if model.content_bits else ("hamming", "class")


def usual_sample(device: str) -> int:
    """Number of images that the command alters: 500 on a GPU, 50 on a CPU."""
    return SAMPLE if device == "cuda" else _FEWER


def search_copies(
    model: HashModel,
    images: Any,
    database: Codes | None = None,
    *,
    count: int = SAMPLE,
    seed: int = 0,
    alterations: Sequence[str] = tuple(ALTERATIONS),
    ranks: Sequence[str] | None = None,
    weight: float | None = None,
    progress: Progress | None = None,
) -> dict[str, dict[str, KnownItem]]:
    """Alter images of a collection, and search them in the whole collection.

    An altered image goes through the same preprocessing as any image.

    Args:
        model: The model.
        images: The collection: whatever `data.sources.as_images` reads.
        database: Codes of the collection; None: it is encoded.
        count: Number of images that are altered, drawn at random; fewer if there are fewer.
        seed: Seed of the draw.
        alterations: Names of alterations, see `hadahash.data.alterations`.
        ranks: Rankings; None: all that the model allows.
        weight: Weight of the content in "photo"; None: that of the model.
        progress: Called with the number of images of each batch.

    Returns:
        Measures by ranking and alteration.

    Raises:
        UsageError: `count` is not positive, a name is unknown, or the weight belongs to no ranking.
    """
    require(count >= 1, f"count must be >= 1, got {count}.")
    check_alterations(alterations)
    ranks = available_ranks(model) if ranks is None else ranks
    check_content_weight(weight, ranks)
    source = as_images(images)
    database = model.encode(source, progress=progress) if database is None else database
    items = sample_rows(len(database), count, seed)
    chosen = _images_of(source, database, items)
    found: dict[str, dict[str, KnownItem]] = {}
    for name in alterations:
        queries, rows = _copies(model, chosen, items, name, progress)
        for rank in ranks:
            found.setdefault(rank, {})[name] = search_known_items(
                queries,
                rows,
                database,
                rank=rank,
                ranking=model.ranking,
                weight=weight if rank == "photo" else None,
            )
    return found


def _copies(
    model: HashModel,
    chosen: ImageSource,
    items: NDArray[np.int64],
    name: str,
    progress: Progress | None,
) -> tuple[Queries, NDArray[np.int64]]:
    """Altered images as queries, with their rows; a copy that cannot be decoded is left out."""
    numbered = ImageSource(AlteredImages(chosen.images, name), np.arange(len(items)))
    queries = model.queries(numbered, progress=progress)
    return queries, items[queries.ids]


def _images_of(source: ImageSource, database: Codes, items: NDArray[np.int64]) -> ImageSource:
    """The images of some codes."""
    if len(source) == len(database):
        return source.take(items)
    row_of = {name: row for row, name in enumerate(source.ids.tolist())}
    return source.take([row_of[name] for name in database.ids[items].tolist()])
