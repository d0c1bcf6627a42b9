"""Figures of the paper: arrays in, a matplotlib figure out. Their style is in `figure_style`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ..evaluation.analysis import Histogram
from .figure_style import (
    BLACK,
    BLUE,
    COLUMN,
    DOT,
    GREEN,
    LINE_STYLES,
    MARKERS,
    ORANGE,
    PAGE,
    PALE,
    RED,
    LineStyle,
    make_panels,
    save,
    style,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "COLUMN",
    "LINE_STYLES",
    "PAGE",
    "Curve",
    "Points",
    "Sweep",
    "balance",
    "confusion_matrix",
    "distribution",
    "precision_recall",
    "save",
    "scatter",
    "sensitivity",
]


class Curve(NamedTuple):
    """Precision and recall of one method at growing Hamming radius.

    Attributes:
        method: Name in LINE_STYLES.
        label: Text in the legend.
        precision: (radii,).
        recall: (radii,).
    """

    method: str
    label: str
    precision: ArrayLike
    recall: ArrayLike


@style()
def precision_recall(curves: Sequence[Curve], *, title: str, legend: str) -> Figure:
    """Precision-recall curves, one line per method.

    Args:
        curves: The curves in the order of the legend. A dot marks the smallest radius that finds
            any relevant item.
        title: Title of the figure.
        legend: Title of the legend.

    Returns:
        The figure.
    """
    figure, (axes,) = make_panels(PAGE, 3.9)
    for order, curve in enumerate(reversed(curves)):
        line = LINE_STYLES.get(curve.method, LineStyle(BLACK, "-", 0.9))
        precision, recall = np.asarray(curve.precision), np.asarray(curve.recall)
        first = int(np.argmax(recall > 0))
        options: Any = {"color": line.color, "zorder": 2 + line.width + order / 100}
        axes.plot(
            recall[first:],
            precision[first:],
            ls=line.dashes,
            lw=line.width,
            label=curve.label,
            **options,
        )
        axes.plot(recall[first], precision[first], "o", ms=2.2 + line.width, mew=0, **options)
    handles, labels = axes.get_legend_handles_labels()
    place: Any = {
        "loc": "center left",
        "bbox_to_anchor": (1.01, 0.5),
        "handlelength": 3.2,
        "labelspacing": 0.35,
    }
    axes.legend(handles[::-1], labels[::-1], title=legend, alignment="left", **place)
    axes.set(title=title, xlabel="recall", ylabel="precision", xlim=(0, 1.005), ylim=(0, 1.005))
    return figure


class Points(NamedTuple):
    """Codes projected to a plane.

    Attributes:
        title: Title of the panel.
        xy: (n, 2).
        names: Names of the classes in color, at most ten.
        classes: (n,), index of each point's class in `names`; -1: any other class.
    """

    title: str
    xy: ArrayLike
    names: Sequence[str]
    classes: ArrayLike


@style()
def scatter(panels: Sequence[Points]) -> Figure:
    """Scatter plots side by side, with one color and marker per class.

    Args:
        panels: The projected codes. Points of other classes are pale.

    Returns:
        The figure.
    """
    kinds = dict(
        zip(dict.fromkeys(name for panel in panels for name in panel.names), MARKERS, strict=False)
    )
    figure, row = make_panels(PAGE, 3.95, columns=max(2, len(panels)))
    handles: dict[str, Any] = {}
    for axes, panel in zip(row, panels, strict=False):
        xy, numbers = np.asarray(panel.xy), np.asarray(panel.classes)
        if (numbers < 0).any():
            handles["others"] = _mark(axes, xy[numbers < 0], color=PALE, s=5)
        for number, name in enumerate(panel.names):
            color, mark = kinds[name]
            handles[name] = _mark(
                axes, xy[numbers == number], color=color, marker=mark, s=11 if mark in "oPX" else 9
            )
        axes.set(title=panel.title, xticks=[], yticks=[], aspect="equal", adjustable="datalim")
        axes.grid(visible=False)
        axes.spines[:].set_visible(True)
    for axes in row[len(panels) :]:
        axes.set_axis_off()
    order = [name for name in (*kinds, "others") if name in handles]
    columns = 6 if "others" in handles else 5
    place: Any = {
        "loc": "outside lower center",
        "ncols": columns,
        "markerscale": 1.8,
        "handletextpad": 0.2,
    }
    figure.legend([handles[name] for name in order], order, **place)
    return figure


def _mark(axes: Axes, xy: np.ndarray[Any, Any], **options: Any) -> Any:
    return axes.scatter(xy[:, 0], xy[:, 1], linewidths=0, **options)


@style()
def distribution(panels: Sequence[tuple[str, str, Histogram]]) -> Figure:
    """Histograms of outputs before binarization, side by side on one scale.

    Args:
        panels: (method, title, histogram).

    Returns:
        The figure, with the fraction of outputs beyond +-0.9 in each panel.
    """
    figure, row = make_panels(PAGE, 2.5, columns=len(panels), sharey=True)
    for axes, (method, title, found) in zip(row, panels, strict=True):
        color = LINE_STYLES.get(method, LineStyle(BLACK)).color
        axes.stairs(100 * np.asarray(found.shares), found.edges, fill=True, color=color)
        axes.text(
            0.5,
            0.93,
            f"{100 * found.saturated:.1f} % with |v| > 0.9",
            transform=axes.transAxes,
            ha="center",
            va="top",
        )
        low, high = found.edges[0], found.edges[-1]
        axes.set(
            title=title,
            xlabel="output before binarization",
            xlim=(low, high),
            xticks=np.linspace(low, high, 5),
        )
        axes.xaxis.set_major_formatter("{x:.2g}")
        axes.grid(axis="x", visible=False)
    row[0].set_ylabel("fraction of values (%)")
    return figure


@style()
def confusion_matrix(
    matrix: ArrayLike, classes: Sequence[str], *, title: str, xlabel: str
) -> Figure:
    """A confusion matrix as a heat map.

    Args:
        matrix: (classes, classes); rows sum to 1.
        classes: Names. Up to 40 classes are named on the axes; up to 20 have their percentage in
            each cell.
        title: Title of the figure.
        xlabel: Title of the x axis.

    Returns:
        The figure. The color scale is stretched for small values.
    """
    from matplotlib.colors import PowerNorm

    percentages, count = 100 * np.asarray(matrix), len(classes)
    side = COLUMN if count <= 10 else (5.2 if count <= 20 else 4.2)
    figure, (axes,) = make_panels(side, side * (1.04 if count <= 40 else 0.86))
    picture = axes.imshow(
        percentages, cmap="Blues", norm=PowerNorm(0.5, 0, 100), interpolation="none"
    )
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    axes.set(title=title, xlabel=xlabel, ylabel="class of the query")
    if count <= 40:
        axes.set_xticks(range(count), classes, rotation=90)
        axes.set_yticks(range(count), classes)
    else:
        axes.set(xticks=[], yticks=[])
    if count <= 20:
        _write_percentages(axes, percentages)
    else:
        figure.colorbar(picture, ax=axes, ticks=[0, 5, 20, 50, 100], format="%g %%", shrink=0.9)
    return figure


def _write_percentages(axes: Axes, percentages: np.ndarray[Any, Any]) -> None:
    for (row, column), value in np.ndenumerate(percentages):
        if value >= 0.5:
            axes.text(
                column,
                row,
                f"{value:.0f}",
                ha="center",
                va="center",
                color="white" if value > 35 else BLACK,
            )


@style()
def balance(fractions: Mapping[int, ArrayLike], *, title: str) -> Figure:
    """Fraction of +1 (below) and of -1 (above) of every bit, one panel per code length.

    Args:
        fractions: For each code length, the fraction of +1 of each bit.
        title: Title of the figure.

    Returns:
        The figure.
    """
    rows = -(-len(fractions) // 2)
    figure, grid = make_panels(PAGE, 1.8 * rows + 0.4, columns=2, rows=rows, sharey=True)
    for axes, (bits, given) in zip(grid, sorted(fractions.items()), strict=False):
        plus, edges = 100 * np.asarray(given), np.arange(bits + 1)
        axes.stairs(plus, edges, fill=True, color=BLUE, label="+1")
        axes.stairs(np.full(bits, 100.0), edges, baseline=plus, fill=True, color=ORANGE, label="−1")
        axes.axhline(50, color=BLACK, lw=0.6, ls=DOT)
        low, high = plus.min(), plus.max()
        summary = f"+1 in {plus.mean():.1f} %, single bits {low:.1f} to {high:.1f} %"
        axes.set_title(f"{bits} bits: {summary}", size=8)
        axes.set(
            xlim=(0, bits),
            ylim=(0, 100),
            yticks=[0, 50, 100],
            xticks=np.linspace(0, bits, 5).astype(int),
        )
        axes.grid(visible=False)
    for axes in grid[len(fractions) :]:
        axes.set_axis_off()
    figure.supxlabel("bit", size=8.5)
    figure.supylabel("fraction of codes (%)", size=8.5)
    figure.suptitle(title, size=9, x=0.01, ha="left")
    figure.legend(
        *grid[0].get_legend_handles_labels(), loc="outside upper right", ncols=2, handlelength=1
    )
    return figure


class Sweep(NamedTuple):
    """Values of mAP for one data set over the values of a setting.

    Attributes:
        label: Text in the legend.
        values: Values of the setting.
        mean: Mean of mAP over seeds at each value.
        deviation: Standard deviation over seeds; 0 if there is only one.
    """

    label: str
    values: Sequence[float]
    mean: Sequence[float]
    deviation: Sequence[float]


@style()
def sensitivity(sweeps: Sequence[Sweep], *, xlabel: str) -> Figure:
    """Plot mAP over a setting on a logarithmic axis; a ring marks the best value.

    Args:
        sweeps: One curve per data set.
        xlabel: Title of the x axis.

    Returns:
        The figure. The value 0 is at the left end, beyond a gap.
    """
    figure, (axes,) = make_panels(COLUMN, 2.9)
    above = sorted({value for sweep in sweeps for value in sweep.values if value > 0})
    zero = np.log10(above[0]) - 0.55 if above else 0.0
    for sweep, (color, mark) in zip(
        sweeps, [(BLUE, "o"), (RED, "s"), (GREEN, "^"), *MARKERS], strict=False
    ):
        x = np.array([np.log10(value) if value > 0 else zero for value in sweep.values])
        solid, mean = np.array(sweep.values) > 0, np.array(sweep.mean)
        axes.plot(x, mean, color=color, ls=DOT, marker=mark, ms=4)
        axes.plot(x[solid], mean[solid], color=color, marker=mark, ms=4, label=sweep.label)
        if any(sweep.deviation):
            axes.errorbar(x, mean, sweep.deviation, color=color, fmt="none", capsize=2.5, lw=1)
        axes.plot(x[mean.argmax()], mean.max(), "o", ms=9, mfc="none", mec=color, mew=1)
    axes.set_xticks(
        [zero, *np.log10(above)], ["0", *(f"{value:g}".removeprefix("0") for value in above)]
    )
    axes.set(xlabel=xlabel, ylabel="mAP")
    axes.grid(axis="x", visible=False)
    gap: Any = {
        "transform": axes.get_xaxis_transform(),
        "color": "white",
        "lw": 3,
        "clip_on": False,
        "zorder": 9,
    }
    axes.plot([zero + 0.24, zero + 0.31], [0, 0], **gap)
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), handlelength=2)
    return figure
