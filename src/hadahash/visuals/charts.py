"""Charts as pieces of HTML with inline SVG: arrays in, text out; no script, no outside resource.

A chart is drawn 360 units wide, the width of a phone, so that its words can be read there, and grows with its place. Colours
are CSS variables of the page (`report.STYLE`), so a chart follows dark and light mode; what differs in colour also differs in
the dashes of its line or stands in a place of its own. What a shape means is in its <title>, which browsers show on hovering.
"""

from __future__ import annotations

import hashlib
import html
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .html import data_uri

COLOURS = 6  # --c0 to --c5: after Okabe and Ito, darker on white and lighter on black than theirs where contrast asks for it
_DASHES = ("none", "7 3", "2 2.5", "9 3 2 3", "4 2", "1 3")
_WIDTH = 360
_LEFT, _RIGHT, _TOP, _BOTTOM = 42, 12, 8, 34  # margins of a chart with axes
_LEVELS = 15  # shades of a heat map besides none


@dataclass(frozen=True, eq=False)
class Line:
    """A curve of a chart: its points, and what to say of each."""

    name: str
    x: NDArray[np.float64]  # (n,), 0 to 1
    y: NDArray[np.float64]
    notes: Sequence[str]


def line_chart(lines: Sequence[Line], *, x: str, y: str) -> str:
    """Curves in the unit square, with the names of the axes. The legend is a piece of its own.

    >>> line = Line("a <b>", np.array([0, 1.0]), np.array([1.0, 0.5]), ["first", "last"])
    >>> chart = line_chart([line], x="recall", y="precision")
    >>> "a &lt;b&gt;: first" in chart, "M42 8L348 137" in chart
    (True, True)
    """
    height = 300
    across, up = _WIDTH - _LEFT - _RIGHT, height - _TOP - _BOTTOM
    body = [*_square_axes(x, y, height)]
    for number, line in enumerate(lines):
        places = np.stack([_LEFT + line.x * across, _TOP + (1 - line.y) * up], axis=1)
        path = "L".join(f"{_short(px)} {_short(py)}" for px, py in places)
        body.append(f"<path d='M{path}' fill=none stroke-width=1.8 {_stroke(number)} />")
        notes = zip(places, line.notes, strict=True)
        body += [_dot(px, py, 2.2, number, f"{line.name}: {note}") for (px, py), note in notes]
    return _svg(body, height, f"{y} over {x}: " + ", ".join(line.name for line in lines))


def legend(names: Sequence[str]) -> str:
    """The names of a chart's lines, each with a piece of its line."""
    return (
        "<ul class=legend>"
        + "".join(f"<li>{swatch(i)} {html.escape(name)}" for i, name in enumerate(names))
        + "</ul>"
    )


def swatch(number: int) -> str:
    return f"<svg class=swatch viewBox='0 0 28 8' aria-hidden=true><path d='M0 4h28' stroke-width=3 {_stroke(number)} /></svg>"


def spread(values: ArrayLike, low: float, high: float, number: int = 0) -> str:
    """A strip from `low` to `high` with a dot for each value; a tick at the mean and a bar of one standard deviation."""
    points = np.asarray(values, float)
    width, middle = 160, 9

    def place(value: float) -> float:
        return 6 + (width - 12) * (value - low) / (high - low)

    colour = f"var(--c{number % COLOURS})"
    body = [f"<path d='M2 {middle}H{width - 2}' stroke='var(--line)' />"]
    if len(points) > 1:
        mean, deviation = float(points.mean()), float(points.std(ddof=1))
        ends = [_short(min(max(place(mean + side * deviation), 2), width - 2)) for side in (-1, 1)]
        body.append(
            f"<path d='M{ends[0]} {middle}H{ends[1]}' stroke='{colour}' stroke-width=3 stroke-opacity=.45 />"
        )
        body.append(f"<path d='M{_short(place(mean))} 2v14' stroke='{colour}' stroke-width=2 />")
    body += [
        f"<circle cx={_short(place(v))} cy={middle} r=3 fill='{colour}'>{_title(f'{v:.4f}')}</circle>"
        for v in points.tolist()
    ]
    text = ", ".join(f"{value:.4f}" for value in points.tolist())
    return f"<svg class=spread viewBox='0 0 {width} 18' role=img aria-label='{text}'>{''.join(body)}</svg>"


def bit_bars(shares: ArrayLike) -> str:
    """The share of +1 of each bit, as bars up or down from one half.

    >>> bit_bars([0.5, 0.75]).count("<rect")
    2
    """
    values = np.asarray(shares, float)
    height, bottom = 116, 98
    across, up = _WIDTH - _LEFT - _RIGHT, bottom - _TOP
    wide = across / len(values)
    body = [_row_line(share, _TOP + (1 - share) * up) for share in (0.0, 0.5, 1.0)]
    for bit, share in enumerate(values.tolist()):
        top, tall = _TOP + (1 - max(share, 0.5)) * up, max(abs(share - 0.5) * up, 0.8)
        body.append(
            _rect(_LEFT + (bit + 0.1) * wide, top, 0.8 * wide, tall, f"bit {bit}: {share:.3f}")
        )
    body.append(_text(_LEFT, height - 3, "bit 0"))
    body.append(_text(_WIDTH - _RIGHT, height - 3, f"bit {len(values) - 1}", anchor="end"))
    return _svg(
        body,
        height,
        f"share of +1 of each of {len(values)} bits, from {values.min():.3f} to {values.max():.3f}",
    )


def histogram_bars(edges: NDArray[np.float64], shares: NDArray[np.float64]) -> str:
    """A histogram: the bins' edges (bins + 1,) and the share of the values in each (bins,)."""
    height, bottom = 130, 112
    low, high, most = float(edges[0]), float(edges[-1]), max(float(shares.max()), 1e-9)
    across, up = _WIDTH - _LEFT - _RIGHT, bottom - _TOP
    wide = across / len(shares)
    body = [_row_line(0.0, bottom, "0"), _row_line(most, _TOP, f"{most:.0%}")]
    for number, share in enumerate(shares.tolist()):
        place = _LEFT + number * wide + 0.5, bottom - up * share / most, wide - 1, up * share / most
        body.append(_rect(*place, f"{edges[number]:.2f} to {edges[number + 1]:.2f}: {share:.1%}"))
    for at, anchor in ((low, "start"), ((low + high) / 2, "middle"), (high, "end")):
        body.append(
            _text(
                _LEFT + across * (at - low) / (high - low), height - 3, f"{at:.3g}", anchor=anchor
            )
        )
    return _svg(
        body, height, f"distribution of the values before sign from {low:.3g} to {high:.3g}"
    )


def heat_map(matrix: ArrayLike, label: str) -> str:
    """A square of shades, none for 0 and full for 1, with a scale under it.

    The shades are a grey picture that masks the colour of the page's text, so that a map follows dark and light mode.
    """
    values = np.rint(np.clip(np.asarray(matrix, float), 0, 1) * _LEVELS) * (255 / _LEVELS)
    shades = data_uri(values.astype(np.uint8))
    name = "m" + hashlib.sha256(shades.encode()).hexdigest()[:12]
    side = 200
    return (
        f"<svg class=heat viewBox='0 0 {side + 1} {side + 1}' role=img aria-label='{html.escape(label)}'>"
        f"<mask id={name}><image href='{shades}' x=.5 y=.5 width={side} height={side} preserveAspectRatio=none "
        f"style='image-rendering:pixelated' /></mask>"
        f"<rect x=.5 y=.5 width={side} height={side} fill='var(--good)' mask='url(#{name})' />"
        f"<rect x=.5 y=.5 width={side} height={side} fill=none stroke='var(--line)' />{_title(label)}</svg>"
        "<div class=scale aria-hidden=true>0<i></i>1</div>"
    )


def _square_axes(x: str, y: str, height: int) -> Iterator[str]:
    across, up = _WIDTH - _LEFT - _RIGHT, height - _TOP - _BOTTOM
    for tick in (0.0, 0.2, 0.4, 0.6, 0.8, 1.0):
        yield _row_line(tick, _TOP + (1 - tick) * up)
        yield _text(_LEFT + tick * across, height - _BOTTOM + 14, f"{tick:.1f}", anchor="middle")
    yield _text(_LEFT + across / 2, height - 4, x, anchor="middle")
    middle = _TOP + up / 2
    yield f"<g transform='rotate(-90 9 {middle})'>{_text(9, middle, y, anchor='middle')}</g>"


def _row_line(value: float, y: float, text: str | None = None) -> str:
    """A line across the chart with its value to the left."""
    line = f"<path d='M{_LEFT} {_short(y)}H{_WIDTH - _RIGHT}' stroke='var(--line)' />"
    return line + _text(_LEFT - 5, y + 3.5, f"{value:.1f}" if text is None else text, anchor="end")


def _rect(x: float, y: float, width: float, height: float, note: str) -> str:
    place = f"x={_short(x)} y={_short(y)} width={_short(width)} height={_short(height)}"
    return f"<rect {place} fill='var(--good)'>{_title(note)}</rect>"


def _dot(x: float, y: float, radius: float, number: int, note: str) -> str:
    return f"<circle cx={_short(x)} cy={_short(y)} r={radius} fill='var(--c{number % COLOURS})'>{_title(note)}</circle>"


def _text(x: float, y: float, text: str, *, anchor: str = "start") -> str:
    return f"<text x={_short(x)} y={_short(y)} text-anchor={anchor}>{html.escape(text)}</text>"


def _title(text: str) -> str:
    return f"<title>{html.escape(text)}</title>"


def _stroke(number: int) -> str:
    """Colour and dashes of the so-many-th line: no two of the first 36 have both in common."""
    dash = _DASHES[(number + number // COLOURS) % len(_DASHES)]
    return f"stroke='var(--c{number % COLOURS})' stroke-dasharray='{dash}'"


def _svg(body: Sequence[str], height: int, label: str) -> str:
    head = f"<svg class=chart viewBox='0 0 {_WIDTH} {height}' role=img aria-label='{html.escape(label)}'>"
    return head + "".join(body) + "</svg>"


def _short(value: Any) -> str:
    """A number of at most one decimal: pages hold thousands of them."""
    return f"{float(value):.1f}".removesuffix(".0")
