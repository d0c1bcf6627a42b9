"""The page of `hadahash demo`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from ..codebooks import codebook_quality
from ..evaluation import Report
from .charts import bit_strip
from .templating import write_page
from .thumbnails import Thumbnail

_RANKS = {
    "hamming": "Hamming distance of the class bits",
    "class": "probability of sharing a class",
    "photo": "kind and content",
}
_CUTS = (1, 10, 100)  # columns of precision at k


@dataclass(frozen=True, eq=False)
class DemoResult:
    """The contents of the demo page.

    Attributes:
        dataset: Name of the data set.
        description: One line about network, input size and seed.
        reports: Evaluation of each compared method by its title, the best method first.
        rows: For each query: its thumbnail, then those of the most similar images by kind and
            content.
        plain_rows: The same, by the distance of the class bits.
        codebook: int8 (classes, bits) of +-1; None if the method has no codewords.
        classes: Names of the classes.
    """

    dataset: str
    description: str
    reports: Mapping[str, Report]
    rows: Sequence[Sequence[Thumbnail]]
    plain_rows: Sequence[Sequence[Thumbnail]]
    codebook: NDArray[np.int8] | None
    classes: Sequence[str]


def write_demo_page(path: str | Path, result: DemoResult) -> None:
    """Write the demo page.

    Args:
        path: The page to write.
        result: Its contents.

    Raises:
        StorageError: If the page cannot be written.
    """
    first = next(iter(result.reports.values()))
    cuts = [k for k in _CUTS if all(k in report.precision_at for report in result.reports.values())]
    scores = [
        (title, f"{report.map:.4f}", *(f"{report.precision_at[k]:.4f}" for k in cuts))
        for title, report in result.reports.items()
    ]
    chance = ("random ranking", f"{first.chance:.4f}", *(f"{first.prevalence:.4f}" for _ in cuts))
    ranked = [
        (_RANKS[each.rank], f"{each.map:.4f}", *(f"{each.precision_at[k]:.4f}" for k in cuts))
        for each in (first, *first.rankings.values())
    ]
    write_page(
        path,
        "demo.html.j2",
        title="HadaHash demo",
        result=result,
        report=first,
        score_head=("method", "mAP", *(f"P@{k}" for k in cuts)),
        scores=[*scores, chance],
        ranked_head=("order", "mAP", *(f"P@{k}" for k in cuts)),
        ranked=ranked,
        codewords=_codewords(result),
        quality=_quality(result.codebook),
    )


def _codewords(result: DemoResult) -> list[tuple[str, Markup]]:
    """Name and codeword of each class."""
    if result.codebook is None:
        return []
    return list(zip(result.classes, map(bit_strip, result.codebook), strict=True))


def _quality(codebook: NDArray[np.int8] | None) -> list[tuple[str, str]]:
    values = {} if codebook is None else codebook_quality(codebook).to_dict()
    return [(name.replace("_", " "), f"{value:.4g}") for name, value in values.items()]
