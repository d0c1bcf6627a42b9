"""Style of the matplotlib figures: sizes, colors, line styles, and saving.

Widths are those of a printed column or page, and no letter is smaller than 8 points there. Colors
are those of Okabe and Ito, which color-blind readers can tell apart; where they are not enough,
dashes or markers differ too. No window is opened, and matplotlib is imported only when a figure is
drawn.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import files

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMN, PAGE = 3.4, 7.0  # inches
BLACK, ORANGE, SKY, GREEN, BLUE, RED, PINK = (
    "#000000",
    "#e69f00",
    "#56b4e9",
    "#009e73",
    "#0072b2",
    "#d55e00",
    "#cc79a7",
)
_GRAY, PALE, _LINE = "#7f7f7f", "#d4d4d4", "#9a9a9a"
_STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Helvetica", "Arial"],
    "font.size": 8,
    "axes.titlesize": 9,
    "axes.labelsize": 8.5,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": _LINE,
    "axes.linewidth": 0.8,
    "xtick.color": _LINE,
    "ytick.color": _LINE,
    "xtick.labelcolor": BLACK,
    "ytick.labelcolor": BLACK,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#ebebeb",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "lines.linewidth": 1.2,
    "savefig.dpi": 200,
    "svg.fonttype": "none",
    "svg.hashsalt": "hadahash",
}


class LineStyle(NamedTuple):
    """How a method is drawn in every figure.

    Attributes:
        color: Color of the line.
        dashes: Line style of matplotlib.
        width: Line width in points.
    """

    color: str
    dashes: Any = "-"
    width: float = 1.2


_DASH, DOT, _DASHDOT, _LONG = (0, (4, 1.6)), (0, (1, 1.3)), (0, (5, 1.4, 1, 1.4)), (0, (8, 2))
# The method of the paper is bold, its variants share its color, shallow methods are thin and gray.
LINE_STYLES = {
    "hcdh": LineStyle(BLUE, "-", 2.6),
    "hcdh-h": LineStyle(BLUE, _DASH),
    "hcdh-c": LineStyle(BLUE, _DASHDOT),
    "hcdh-2": LineStyle(BLUE, DOT),
    "hcdh-far": LineStyle(BLUE, _LONG),
    "mihash": LineStyle(RED),
    "hashnet": LineStyle(GREEN),
    "dpsh": LineStyle(ORANGE),
    "dsdh": LineStyle(ORANGE, _DASH),
    "ssdh": LineStyle(PINK),
    "csq": LineStyle(BLACK),
    "orthohash": LineStyle(BLACK, _DASH),
    "classify": LineStyle(BLACK, DOT),
    "hcsdh": LineStyle(SKY, _DASH),
    "sdh": LineStyle(_GRAY, "-", 0.9),
    "ksh": LineStyle(_GRAY, _LONG, 0.9),
    "itq": LineStyle(_GRAY, _DASHDOT, 0.9),
    "lsh": LineStyle(_GRAY, DOT, 0.9),
}
# Okabe and Ito give only eight colors, so markers differ too.
MARKERS = [
    (BLUE, "o"),
    (ORANGE, "s"),
    (GREEN, "^"),
    (RED, "D"),
    (PINK, "v"),
    (SKY, "P"),
    (BLACK, "X"),
    ("#5d3a9b", "p"),
    ("#f0c808", "<"),
    ("#8c510a", ">"),
]


@contextmanager
def style() -> Iterator[None]:
    """Apply the style of this module inside the block, independent of the caller's settings.

    Yields:
        Nothing.
    """
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        yield


@style()
def save(figure: Figure, stem: Path, *, title: str) -> list[Path]:
    """Write a figure as PNG (200 dpi) and SVG (text as text). Equal figures give equal bytes.

    Args:
        figure: The figure.
        stem: Path without suffix.
        title: Title in the metadata.

    Returns:
        The two files.

    Raises:
        StorageError: If a file cannot be written.
    """
    paths = [stem.with_name(f"{stem.name}.{kind}") for kind in ("png", "svg")]
    for path in paths:
        kind = path.suffix[1:]
        about = (
            {"Title": title, "Software": None}
            if kind == "png"
            else {"Title": title, "Date": None, "Creator": None}
        )
        with files.replacing(path) as temporary:
            figure.savefig(temporary, format=kind, metadata=about)
    return paths


def make_panels(
    width: float, height: float, *, columns: int = 1, rows: int = 1, sharey: bool = False
) -> tuple[Figure, list[Axes]]:
    """An empty figure with panels.

    Args:
        width: Width in inches.
        height: Height in inches.
        columns: Number of columns.
        rows: Number of rows.
        sharey: Whether panels share the y axis.

    Returns:
        The figure and its panels, row by row.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, list(figure.subplots(rows, columns, sharey=sharey, squeeze=False).flat)
