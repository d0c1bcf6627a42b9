"""The numbers behind the figures against slow definitions, and the drawings against what a reader needs of them."""

from __future__ import annotations

import doctest
import subprocess
import sys
from itertools import chain, permutations, product
from math import log2

import numpy as np
import pytest

from hadahash.codes import Codes, pack
from hadahash.evaluation import analysis, plots
from hadahash.evaluation.analysis import Histogram

RNG = np.random.default_rng


def slow_confusion(query_bits, query_classes, database_bits, database_classes, classes, depth):
    """The definition: the mean, over every order of every tie, of the weights of the ranks that each class takes."""
    rows = [[0.0] * classes for _ in range(classes)]
    for code, own in zip(query_bits, query_classes, strict=True):
        distances = [sum(a != b for a, b in zip(code, item, strict=True)) for item in database_bits]
        ties = [
            [i for i, d in enumerate(distances) if d == distance]
            for distance in sorted(set(distances))
        ]
        orders = [list(chain(*order)) for order in product(*(permutations(tie) for tie in ties))]
        for order in orders:
            for rank, item in enumerate(order[:depth], start=1):
                for found in database_classes[item]:
                    for wanted in own:
                        rows[wanted][found] += (
                            1 / log2(1 + rank) / len(database_classes[item]) / len(orders)
                        )
    return [[value / (sum(row) or 1) for value in row] for row in rows]


def members(classes, sets):
    return np.array([[int(c in own) for c in range(classes)] for own in sets])


@pytest.mark.parametrize("seed", range(12))
def test_confusion_is_the_mean_over_all_orders_of_ties(seed):
    rng = RNG(seed)
    bits, classes, depth = int(rng.integers(1, 4)), 4, int(rng.integers(1, 8))
    several = bool(seed % 2)
    sides = []
    for count in (4, 6):
        codes = np.where(rng.random((count, bits)) < 0.5, 1, -1)
        sets = [
            sorted(rng.choice(3, rng.integers(1, 4) if several else 1, replace=False).tolist())
            for _ in range(count)
        ]
        labels = members(classes, sets) if several else np.array([own[0] for own in sets])
        sides.append((codes, sets, Codes(pack(codes), bits), labels))
    (q, q_sets, q_codes, q_labels), (d, d_sets, d_codes, d_labels) = sides
    expected = slow_confusion(q.tolist(), q_sets, d.tolist(), d_sets, classes, depth)
    found = analysis.confusion(q_codes, q_labels, d_codes, d_labels, classes=classes, depth=depth)
    np.testing.assert_allclose(found, expected, atol=1e-12)
    assert not found[3].any(), "a class without queries"


def test_confusion_of_perfect_codes_is_the_identity_and_of_random_ones_flat():
    labels = np.arange(60) % 3
    perfect = Codes(pack(np.eye(3)[labels] - 0.5), 3)
    np.testing.assert_allclose(
        analysis.confusion(perfect, labels, perfect, labels, classes=3, depth=20), np.eye(3)
    )
    same = Codes(pack(np.ones((60, 8))), 8)
    np.testing.assert_allclose(
        analysis.confusion(same, labels, same, labels, classes=3, depth=7), np.full((3, 3), 1 / 3)
    )


def test_histogram_counts_every_value_and_reaches_as_far_as_they_do():
    found = analysis.histogram(np.array([[-3.0, 0.85], [0.95, 0.0]], np.float16), bins=6)
    assert found.edges[0] == -3 and found.edges[-1] == 3 and found.shares.sum() == 1
    assert found.saturated == 0.5 and found.shares.tolist() == [0.25, 0, 0, 0.75, 0, 0]
    assert analysis.histogram([0.5, -0.5], bins=4).edges.tolist() == [-1, -0.5, 0, 0.5, 1]


def test_a_sample_shows_the_largest_classes_and_leaves_room_for_the_others():
    numbers = np.repeat([5, 1, 3, -1], [40, 30, 20, 50])
    rows, shown = analysis.sample(numbers, points=40, classes=2)
    assert (
        shown.tolist() == [1, 5]
        and len(rows) == 40 == len(set(rows.tolist()))
        and (np.diff(rows) > 0).all()
    )
    assert (numbers[rows] == 3).sum() == 20 and (numbers[rows] >= 0).all()
    assert len(analysis.sample(numbers, points=1000).rows) == 90
    first, again, other = (
        analysis.sample(numbers, points=9, seed=seed).rows.tolist() for seed in (0, 0, 1)
    )
    assert first == again != other


def test_tsne_keeps_classes_apart_also_where_codes_are_equal():
    labels = np.arange(60) % 3
    words = np.where(RNG(0).random((3, 32)) < 0.5, 1, -1)
    codes = Codes(pack(words[labels]), 32)
    xy = analysis.tsne(codes)
    centres = np.stack([xy[labels == c].mean(axis=0) for c in range(3)])
    assert (np.linalg.norm(xy[:, None] - centres, axis=2).argmin(axis=1) == labels).all()
    assert len(np.unique(xy.round(3), axis=0)) == 60, "equal codes are not on one point"
    assert np.isfinite(analysis.tsne(Codes(pack(np.ones((3, 8))), 8))).all()


POINTS = plots.Points("A", RNG(0).normal(size=(30, 2)), ["cat", "dog"], np.arange(30) % 3 - 1)
CURVES = [
    plots.Curve(method, method, np.linspace(1, 0.1, 9), np.linspace(0, 1, 9))
    for method in plots.LINES
]
VALUES = Histogram(np.linspace(-1, 1, 5), np.array([0.4, 0.1, 0.1, 0.4]), 0.7)
BITS = {16: np.full(16, 0.5), 32: np.linspace(0, 1, 32), 64: np.full(64, 0.5)}
SWEEP = plots.Sweep("D", [0, 0.1, 1], [0.5, 0.6, 0.55], [0, 0.01, 0])
MANY = [str(c) for c in range(50)]
DRAW = {
    "pr": lambda: plots.precision_recall(CURVES, title="T", legend="mAP"),
    "tsne": lambda: plots.scatter([POINTS, POINTS]),
    "distribution": lambda: plots.distribution([("hcdh", "T", VALUES), ("mihash", "T", VALUES)]),
    "confusion": lambda: plots.confusion_matrix(
        np.eye(3) * 0.9 + 0.03, list("abc"), title="T", xlabel="x"
    ),
    "confusion of many": lambda: plots.confusion_matrix(np.eye(50), MANY, title="T", xlabel="x"),
    "balance": lambda: plots.balance(BITS, title="T"),
    "lambda": lambda: plots.sensitivity([SWEEP], xlabel="λ"),
}


def texts(figure):
    from matplotlib.text import Text

    figure.draw_without_rendering()
    return [text for text in figure.findobj(Text) if text.get_visible() and text.get_text()]


@pytest.mark.parametrize("name", DRAW)
def test_figures_can_be_printed(name):
    figure = DRAW[name]()
    assert {text.get_fontsize() >= 8 for text in texts(figure)} == {True}, (
        "no letter is smaller than 8 points"
    )
    assert figure.get_figwidth() in (plots.COLUMN, plots.PAGE, 4.2, 5.2)
    box = figure.get_tightbbox()
    width, height = figure.get_size_inches()
    assert box.x0 > -0.02 and box.y0 > -0.02 and box.x1 < width + 0.02 and box.y1 < height + 0.02, (
        "nothing is cut off"
    )


def test_saved_figures_are_the_same_bytes_and_svg_has_text(tmp_path):
    for copy in ("a", "b"):
        paths = plots.save(DRAW["lambda"](), tmp_path / copy, title="mAP over λ")
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


def test_the_callers_style_neither_changes_nor_matters(tmp_path):
    import matplotlib

    plain = plots.save(DRAW["lambda"](), tmp_path / "plain", title="")
    with matplotlib.rc_context({"font.size": 3, "lines.linewidth": 9, "axes.grid": False}):
        before = dict(matplotlib.rcParams)
        other = plots.save(DRAW["lambda"](), tmp_path / "other", title="")
        assert dict(matplotlib.rcParams) == before
    assert [path.read_bytes() for path in plain] == [path.read_bytes() for path in other]


def test_all_methods_look_different_and_hcdh_stands_out():
    assert (
        len({(line.colour, str(line.dashes)) for line in plots.LINES.values()})
        == len(plots.LINES)
        == 17
    )
    assert max(plots.LINES, key=lambda method: plots.LINES[method].width) == "hcdh"


def test_curves_show_the_numbers_in_the_order_given():
    curves = [
        plots.Curve("lsh", "first", [0.0, 0.2, 0.1], [0.0, 0.5, 1.0]),
        plots.Curve("new", "second", [0.9, 0.1], [0.3, 1.0]),
    ]
    (axes,) = plots.precision_recall(curves, title="T", legend="mAP").axes
    lines = {line.get_label(): line.get_xydata().tolist() for line in axes.lines}
    assert lines["first"] == [[0.5, 0.2], [1.0, 0.1]], "from the first radius that finds anything"
    assert lines["second"] == [[0.3, 0.9], [1.0, 0.1]]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["first", "second"]


def test_confusion_writes_per_cents_and_leaves_small_ones_blank():
    (axes,) = plots.confusion_matrix(
        [[0.996, 0.004], [0.25, 0.75]], ["a", "b"], title="T", xlabel="x"
    ).axes
    assert [text.get_text() for text in axes.texts] == ["100", "25", "75"]
    many = DRAW["confusion of many"]().axes[0]
    assert not many.texts and len(many.get_xticks()) == 0


def test_zero_stands_left_of_a_logarithmic_axis():
    (axes,) = plots.sensitivity(
        [plots.Sweep("D", [0, 0.01, 0.1, 10], [0.1, 0.4, 0.3, 0.2], [0] * 4)], xlabel="λ"
    ).axes
    places = axes.get_xticks()
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0", ".01", ".1", "10"]
    assert places[0] < places[1] and np.allclose(np.diff(places[1:]), [1, 2])
    ring = next(line for line in axes.lines if line.get_markersize() == 9)
    assert ring.get_xydata().tolist() == [[-2.0, 0.4]]


def test_matplotlib_is_loaded_only_to_draw():
    program = "import sys, hadahash.evaluation.plots as p; print([m for m in ('matplotlib', 'sklearn', 'torch') if m in sys.modules])"
    assert (
        subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True
        ).stdout.strip()
        == "[]"
    )


def test_examples():
    assert doctest.testmod(analysis).failed == 0
