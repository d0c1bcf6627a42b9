"""Figures are printable, deterministic and show the numbers they were given."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from hadahash.evaluation.analysis import Histogram
from hadahash.visuals import figures

RNG = np.random.default_rng

POINTS = figures.Points("A", RNG(0).normal(size=(30, 2)), ["cat", "dog"], np.arange(30) % 3 - 1)
CURVES = [
    figures.Curve(method, method, np.linspace(1, 0.1, 9), np.linspace(0, 1, 9))
    for method in figures.LINE_STYLES
]
VALUES = Histogram(np.linspace(-1, 1, 5), np.array([0.4, 0.1, 0.1, 0.4]), 0.7)
BITS = {16: np.full(16, 0.5), 32: np.linspace(0, 1, 32), 64: np.full(64, 0.5)}
SWEEP = figures.Sweep("D", [0, 0.1, 1], [0.5, 0.6, 0.55], [0, 0.01, 0])
MANY = [str(c) for c in range(50)]
DRAW = {
    "pr": lambda: figures.precision_recall(CURVES, title="T", legend="mAP"),
    "tsne": lambda: figures.scatter([POINTS, POINTS]),
    "distribution": lambda: figures.distribution([("hcdh", "T", VALUES), ("mihash", "T", VALUES)]),
    "confusion": lambda: figures.confusion_matrix(
        np.eye(3) * 0.9 + 0.03, list("abc"), title="T", xlabel="x"
    ),
    "confusion of many": lambda: figures.confusion_matrix(np.eye(50), MANY, title="T", xlabel="x"),
    "balance": lambda: figures.balance(BITS, title="T"),
    "lambda": lambda: figures.sensitivity([SWEEP], xlabel="λ"),
}


def texts(figure):
    from matplotlib.text import Text

    figure.draw_without_rendering()
    return [text for text in figure.findobj(Text) if text.get_visible() and text.get_text()]


@pytest.mark.parametrize("name", DRAW)
def test_figures_are_printable(name):
    figure = DRAW[name]()
    assert {text.get_fontsize() >= 8 for text in texts(figure)} == {True}, (
        "no letter is smaller than 8 points"
    )
    assert figure.get_figwidth() in (figures.COLUMN, figures.PAGE, 4.2, 5.2)
    box = figure.get_tightbbox()
    width, height = figure.get_size_inches()
    assert box.x0 > -0.02 and box.y0 > -0.02 and box.x1 < width + 0.02 and box.y1 < height + 0.02, (
        "nothing is cut off"
    )


def test_saved_figures_are_deterministic_and_svg_has_text(tmp_path):
    for copy in ("a", "b"):
        paths = figures.save(DRAW["lambda"](), tmp_path / copy, title="mAP over λ")
        assert [path.suffix for path in paths] == [".png", ".svg"]
    for kind in ("png", "svg"):
        assert (tmp_path / f"a.{kind}").read_bytes() == (tmp_path / f"b.{kind}").read_bytes()
    svg = (tmp_path / "a.svg").read_text()
    assert (
        "<text" in svg
        and ">mAP</text>" in svg
        and "<title>mAP over λ</title>" in svg
        and "date" not in svg
    )


def test_style_is_independent_of_the_caller(tmp_path):
    import matplotlib

    plain = figures.save(DRAW["lambda"](), tmp_path / "plain", title="")
    with matplotlib.rc_context({"font.size": 3, "lines.linewidth": 9, "axes.grid": False}):
        before = dict(matplotlib.rcParams)
        other = figures.save(DRAW["lambda"](), tmp_path / "other", title="")
        assert dict(matplotlib.rcParams) == before
    assert [path.read_bytes() for path in plain] == [path.read_bytes() for path in other]


def test_methods_have_distinct_styles_and_hcdh_is_bold():
    assert (
        len({(line.color, str(line.dashes)) for line in figures.LINE_STYLES.values()})
        == len(figures.LINE_STYLES)
        == 18
    )
    assert max(figures.LINE_STYLES, key=lambda method: figures.LINE_STYLES[method].width) == "hcdh"


def test_curves_keep_their_numbers_and_order():
    curves = [
        figures.Curve("lsh", "first", [0.0, 0.2, 0.1], [0.0, 0.5, 1.0]),
        figures.Curve("new", "second", [0.9, 0.1], [0.3, 1.0]),
    ]
    (axes,) = figures.precision_recall(curves, title="T", legend="mAP").axes
    lines = {line.get_label(): line.get_xydata().tolist() for line in axes.lines}
    assert lines["first"] == [[0.5, 0.2], [1.0, 0.1]], "from the first radius that finds anything"
    assert lines["second"] == [[0.3, 0.9], [1.0, 0.1]]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["first", "second"]


def test_confusion_matrix_shows_percentages_except_small_ones():
    (axes,) = figures.confusion_matrix(
        [[0.996, 0.004], [0.25, 0.75]], ["a", "b"], title="T", xlabel="x"
    ).axes
    assert [text.get_text() for text in axes.texts] == ["100", "25", "75"]
    many = DRAW["confusion of many"]().axes[0]
    assert not many.texts and len(many.get_xticks()) == 0


def test_zero_is_left_of_the_logarithmic_axis():
    (axes,) = figures.sensitivity(
        [figures.Sweep("D", [0, 0.01, 0.1, 10], [0.1, 0.4, 0.3, 0.2], [0] * 4)], xlabel="λ"
    ).axes
    places = axes.get_xticks()
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0", ".01", ".1", "10"]
    assert places[0] < places[1] and np.allclose(np.diff(places[1:]), [1, 2])
    ring = next(line for line in axes.lines if line.get_markersize() == 9)
    assert ring.get_xydata().tolist() == [[-2.0, 0.4]]


def test_matplotlib_is_imported_only_to_draw():
    program = "import sys, hadahash.visuals.figures as p; print([m for m in ('matplotlib', 'sklearn', 'torch') if m in sys.modules])"
    assert (
        subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True
        ).stdout.strip()
        == "[]"
    )
