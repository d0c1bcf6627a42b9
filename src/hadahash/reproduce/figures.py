"""The paper's figures, from `results/` and saved runs.

A figure is made in two steps: `gather` collects its data from results and runs, `draw` makes the
picture. The data are kept beside the picture (fig-pr-cifar10.json beside .png and .svg), so that a
figure can be drawn again without the runs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .. import files
from ..errors import StorageError, unknown
from ..visuals import figures as plots
from .drawings import FIGURES, Data, Drawing, Source
from .names import display_name
from .recipes import Cell

_DIGITS = 5


def list_figures() -> list[str]:
    """The names of all figures."""
    return list(FIGURES)


def draw_figure(
    name: str,
    cells: Sequence[Cell],
    *,
    results: Path,
    runs: Path,
    out: Path,
    info: Callable[[str], object] = lambda text: None,
) -> list[Path]:
    """Draw a figure for each data set of the cells.

    A part that was not run is omitted. If the data of a figure are already in `out` and its runs no
    longer exist, it is drawn from these data.

    Args:
        name: Name of the figure.
        cells: The cells of the recipe `FIGURES[name].recipe`.
        results: Folder of the results.
        runs: Folder of the runs.
        out: Folder of the figures.
        info: Receives messages.

    Returns:
        The files that were written: .json, .png and .svg.

    Raises:
        UsageError: If there is no such figure.
    """
    if name not in FIGURES:
        raise unknown("figure", name, list_figures())
    drawing, paths = FIGURES[name], []
    for dataset in dict.fromkeys(cell.dataset for cell in cells) if drawing.each else [""]:
        own = [cell for cell in cells if dataset in ("", cell.dataset)]
        stem = out / f"{name}-{dataset}".rstrip("-")
        data = _data(
            name,
            drawing,
            dataset,
            Source(own, results, runs, info),
            stem.with_name(f"{stem.name}.json"),
        )
        if data is None:
            info(f"{stem.name}: no result yet. Run: hadahash reproduce {drawing.recipe}")
            continue
        paths += [
            stem.with_name(f"{stem.name}.json"),
            *plots.save(drawing.draw(data), stem, title=data["caption"]),
        ]
        info(f"{stem.name}: drawn")
    return paths


def _data(name: str, drawing: Drawing, dataset: str, source: Source, path: Path) -> Data | None:
    """The current data of a figure; parts whose run no longer exists are taken from the file."""
    series, kept = drawing.gather(source), _kept(path, name)
    if not series and kept is None:
        return None
    if kept is not None and (drawing.from_runs or not series):
        series = kept["series"] | series
    caption = drawing.caption.format(dataset=display_name(dataset))
    data: Data = _rounded(
        {"figure": name, "dataset": dataset, "caption": caption, "series": series}
    )
    files.write_text(path, json.dumps(data, ensure_ascii=False, separators=(",", ":")) + "\n")
    return data


def _kept(path: Path, name: str) -> Data | None:
    if not path.exists():
        return None
    data: Data = files.read_json(path)
    if (
        not isinstance(data, dict)
        or data.get("figure") != name
        or not isinstance(data.get("series"), dict)
    ):
        raise StorageError(
            f"{path} does not contain the data of {name}. Remove it and make it again."
        )
    return data


def _rounded(value: Any) -> Any:
    """The value as JSON, with no more digits than a figure shows."""
    if isinstance(value, dict):
        return {str(key): _rounded(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [_rounded(item) for item in value]
    if isinstance(value, (float, np.floating)):
        return round(float(value), _DIGITS)
    return int(value) if isinstance(value, np.integer) else value
