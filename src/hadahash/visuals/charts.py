"""Charts as inline SVG: arrays in, markup out.

A chart is drawn 360 units wide, the width of a phone, so that its text is readable there, and
scales with its container. Colors are CSS variables (templates/palette.css), so charts follow dark
and light mode. Series that differ in color also differ in dashes. The description of a shape is in
its <title>, which browsers show on hover.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import numpy as np
from markupsafe import Markup
from numpy.typing import ArrayLike, NDArray

from .thumbnails import data_uri

COLORS = 6  # --c0 to --c5 in palette.css
_DASHES = ("none", "7 3", "2 2.5", "9 3 2 3", "4 2", "1 3")
_WIDTH = 360
_LEFT, _RIGHT, _TOP, _BOTTOM = 42, 12, 8, 34  # margins of a chart with axes
_LEVELS = 15  # shades of a heat map above 0


@dataclass(frozen=True, eq=False)
class Series:
    """One curve of a line chart.

    Attributes:
        name: Shown in the legend and on hover.
        x: float (n,), 0 to 1.
        y: float (n,), 0 to 1.
        notes: Text shown on hover, one per point.
    """

    name: str
    x: NDArray[np.float64]
    y: NDArray[np.float64]
    notes: Sequence[str]


def line_chart(lines: Sequence[Series], *, x: str, y: str) -> Markup:
    """Curves in the unit square.

    Args:
        lines: The curves.
        x: Title of the x axis.
        y: Title of the y axis.

    Returns:
        An <svg> element.

    Example:
        >>> line = Series("a <b>", np.array([0, 1.0]), np.array([1.0, 0.5]), ["first", "last"])
        >>> chart = line_chart([line], x="recall", y="precision")
        >>> "a &lt;b&gt;: first" in chart, "M42 8L348 137" in chart
        (True, True)
    """
    height = 300
    across, up = _WIDTH - _LEFT - _RIGHT, height - _TOP - _BOTTOM
    body = [*_square_axes(x, y, height)]
    for number, line in enumerate(lines):
        points = np.stack([_LEFT + line.x * across, _TOP + (1 - line.y) * up], axis=1).tolist()
        path = "M" + "L".join(f"{_short(px)} {_short(py)}" for px, py in points)
        body.append(_node("path", d=path, fill="none", stroke_width=1.8, **_stroke(number)))
        notes = zip(points, line.notes, strict=True)
        body += [_dot(px, py, 2.2, number, f"{line.name}: {note}") for (px, py), note in notes]
    return _svg(body, height, f"{y} over {x}: " + ", ".join(line.name for line in lines))


def swatch(number: int) -> Markup:
    """A short piece of the line of a series, for legends and tables.

    Args:
        number: Position of the series in its chart.

    Returns:
        An <svg> element.
    """
    line = _node("path", d="M0 4h28", stroke_width=3, **_stroke(number))
    return _markup(_node("svg", line, class_="swatch", viewBox="0 0 28 8", aria_hidden="true"))


def dot_strip(values: ArrayLike, low: float, high: float, number: int = 0) -> Markup:
    """One dot per value on a line; a tick at the mean and a bar of one standard deviation.

    Args:
        values: The values.
        low: Value at the left end.
        high: Value at the right end.
        number: Position of the series, for its color.

    Returns:
        An <svg> element.
    """
    points = np.asarray(values, float)
    width, middle = 160, 9

    def position(value: float) -> float:
        return 6 + (width - 12) * (value - low) / (high - low)

    color = f"var(--c{number % COLORS})"
    body = [_node("path", d=f"M2 {middle}H{width - 2}", stroke="var(--line)")]
    if len(points) > 1:
        mean, deviation = float(points.mean()), float(points.std(ddof=1))
        ends = [min(max(position(mean + side * deviation), 2), width - 2) for side in (-1, 1)]
        bar = f"M{_short(ends[0])} {middle}H{_short(ends[1])}"
        body.append(_node("path", d=bar, stroke=color, stroke_width=3, stroke_opacity=0.45))
        tick = f"M{_short(position(mean))} 2v14"
        body.append(_node("path", d=tick, stroke=color, stroke_width=2))
    for value in points.tolist():
        dot = {"cx": position(value), "cy": middle, "r": 3, "fill": color}
        body.append(_node("circle", _title(f"{value:.4f}"), **dot))
    label = ", ".join(f"{value:.4f}" for value in points.tolist())
    view = f"0 0 {width} 18"
    return _markup(_node("svg", *body, class_="strip", viewBox=view, role="img", aria_label=label))


def bit_bars(fractions: ArrayLike) -> Markup:
    """The fraction of +1 of each bit, as bars up or down from one half.

    Args:
        fractions: (bits,) in [0, 1].

    Returns:
        An <svg> element.

    Example:
        >>> bit_bars([0.5, 0.75]).count("<rect")
        2
    """
    values = np.asarray(fractions, float)
    height, bottom = 116, 98
    across, up = _WIDTH - _LEFT - _RIGHT, bottom - _TOP
    width = across / len(values)
    body = [
        each
        for fraction in (0.0, 0.5, 1.0)
        for each in _row_line(f"{fraction:.1f}", _TOP + (1 - fraction) * up)
    ]
    for bit, value in enumerate(values.tolist()):
        top, tall = _TOP + (1 - max(value, 0.5)) * up, max(abs(value - 0.5) * up, 0.8)
        note = f"bit {bit}: {value:.3f}"
        body.append(_rect(_LEFT + (bit + 0.1) * width, top, 0.8 * width, tall, note))
    body.append(_text(_LEFT, height - 3, "bit 0"))
    body.append(_text(_WIDTH - _RIGHT, height - 3, f"bit {len(values) - 1}", anchor="end"))
    low, high = values.min(), values.max()
    label = f"fraction of +1 of each of {len(values)} bits, from {low:.3f} to {high:.3f}"
    return _svg(body, height, label)


def histogram_bars(edges: NDArray[np.float64], fractions: NDArray[np.float64]) -> Markup:
    """A histogram.

    Args:
        edges: (bins + 1,), edges of the bins.
        fractions: (bins,), fraction of the values in each bin.

    Returns:
        An <svg> element.
    """
    height, bottom = 130, 112
    low, high, most = float(edges[0]), float(edges[-1]), max(float(fractions.max()), 1e-9)
    across, up = _WIDTH - _LEFT - _RIGHT, bottom - _TOP
    width = across / len(fractions)
    body = [*_row_line("0", bottom), *_row_line(f"{most:.0%}", _TOP)]
    for number, value in enumerate(fractions.tolist()):
        tall = up * value / most
        note = f"{edges[number]:.2f} to {edges[number + 1]:.2f}: {value:.1%}"
        body.append(_rect(_LEFT + number * width + 0.5, bottom - tall, width - 1, tall, note))
    for at, anchor in ((low, "start"), ((low + high) / 2, "middle"), (high, "end")):
        position = _LEFT + across * (at - low) / (high - low)
        body.append(_text(position, height - 3, f"{at:.3g}", anchor=anchor))
    return _svg(body, height, f"distribution of outputs from {low:.3g} to {high:.3g}")


def heat_map(matrix: ArrayLike, label: str) -> Markup:
    """A square of shades, transparent for 0 and full color for 1.

    The shades are a gray picture that masks a color of the page, so that the map follows dark and
    light mode.

    Args:
        matrix: (n, n) in [0, 1].
        label: Alternative text.

    Returns:
        An <svg> element.
    """
    values = np.rint(np.clip(np.asarray(matrix, float), 0, 1) * _LEVELS) * (255 / _LEVELS)
    shades = data_uri(values.astype(np.uint8))
    name = "m" + hashlib.sha256(shades.encode()).hexdigest()[:12]
    side = 200
    square = {"x": 0.5, "y": 0.5, "width": side, "height": side}
    pixelated = "image-rendering:pixelated"
    image = _node("image", href=shades, preserveAspectRatio="none", style=pixelated, **square)
    body = [
        _node("mask", image, id=name),
        _node("rect", fill="var(--accent)", mask=f"url(#{name})", **square),
        _node("rect", fill="none", stroke="var(--line)", **square),
        _title(label),
    ]
    view = f"0 0 {side + 1} {side + 1}"
    return _markup(_node("svg", *body, class_="heat", viewBox=view, role="img", aria_label=label))


def bit_strip(codeword: ArrayLike) -> Markup:
    """A codeword as a row of squares, filled for +1.

    Args:
        codeword: (bits,) of +1 and -1.

    Returns:
        An <svg> element.

    Example:
        >>> bit_strip([1, -1, 1]).count("M")
        2
    """
    bits = np.asarray(codeword)
    path = "".join(f"M{column} 0h.85v1h-.85z" for column in np.flatnonzero(bits > 0))
    squares = _node("path", d=path, fill="currentColor")
    text = "".join("1" if bit > 0 else "0" for bit in bits.tolist())
    view = {"viewBox": f"0 0 {len(bits)} 1", "preserveAspectRatio": "none"}
    return _markup(_node("svg", squares, class_="bits", role="img", aria_label=text, **view))


def _square_axes(x: str, y: str, height: int) -> Iterator[Element]:
    across, up = _WIDTH - _LEFT - _RIGHT, height - _TOP - _BOTTOM
    for tick in (0.0, 0.2, 0.4, 0.6, 0.8, 1.0):
        yield from _row_line(f"{tick:.1f}", _TOP + (1 - tick) * up)
        yield _text(_LEFT + tick * across, height - _BOTTOM + 14, f"{tick:.1f}", anchor="middle")
    yield _text(_LEFT + across / 2, height - 4, x, anchor="middle")
    middle = _TOP + up / 2
    title = _text(9, middle, y, anchor="middle")
    yield _node("g", title, transform=f"rotate(-90 9 {_short(middle)})")


def _row_line(label: str, y: float) -> Iterator[Element]:
    """A horizontal grid line with its value on the left."""
    yield _node("path", d=f"M{_LEFT} {_short(y)}H{_WIDTH - _RIGHT}", stroke="var(--line)")
    yield _text(_LEFT - 5, y + 3.5, label, anchor="end")


def _rect(x: float, y: float, width: float, height: float, note: str) -> Element:
    box = {"x": x, "y": y, "width": width, "height": height}
    return _node("rect", _title(note), fill="var(--accent)", **box)


def _dot(x: float, y: float, radius: float, number: int, note: str) -> Element:
    color = f"var(--c{number % COLORS})"
    return _node("circle", _title(note), cx=x, cy=y, r=radius, fill=color)


def _text(x: float, y: float, text: str, *, anchor: str = "start") -> Element:
    node = _node("text", x=x, y=y, text_anchor=anchor)
    node.text = text
    return node


def _title(text: str) -> Element:
    node = _node("title")
    node.text = text
    return node


def _stroke(number: int) -> dict[str, str]:
    """Color and dashes of a series: no two of the first 36 share both."""
    dash = _DASHES[(number + number // COLORS) % len(_DASHES)]
    return {"stroke": f"var(--c{number % COLORS})", "stroke_dasharray": dash}


def _svg(body: Sequence[Element], height: int, label: str) -> Markup:
    view = f"0 0 {_WIDTH} {height}"
    return _markup(_node("svg", *body, class_="chart", viewBox=view, role="img", aria_label=label))


def _node(tag: str, *children: Element, **attributes: Any) -> Element:
    """An element; `stroke_width=2` becomes stroke-width="2", and `class_` becomes class."""
    names = {name: name.rstrip("_").replace("_", "-") for name in attributes}
    node = Element(tag, {names[name]: _short(value) for name, value in attributes.items()})
    node.extend(children)
    return node


def _markup(node: Element) -> Markup:
    # ElementTree escapes every attribute and text.
    return Markup(ElementTree.tostring(node, encoding="unicode"))  # noqa: S704


def _short(value: object) -> str:
    """Format a number with at most one decimal, to keep pages small; text is unchanged."""
    if isinstance(value, str):
        return value
    if isinstance(value, float) and abs(value) < 1:
        return f"{value:.2g}"
    return f"{float(value):.1f}".removesuffix(".0")  # type: ignore[arg-type]
