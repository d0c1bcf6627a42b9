"""Self-contained HTML pages: no script, no outside resource, readable on a phone and on a desk, dark or light."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from .. import files

_SMALL = 48  # pixels: smaller images are shown with their pixels

STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #56606b; --paper: #fff; --tint: #f4f6f8; --line: #d9dee3;
  --good: #0072b2; --bad: #d55e00;
  --c0: #0072b2; --c1: #d55e00; --c2: #008562; --c3: #b0528a; --c4: #9a6b00; --c5: #1b1f24 }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8eaed; --soft: #9aa5b1; --paper: #14171a; --tint: #1c2126; --line: #333a41; --good: #56b4e9; --bad: #e69f00;
    --c0: #56b4e9; --c1: #ff8c42; --c2: #2cc295; --c3: #e39bc5; --c4: #f0c04a; --c5: #e8eaed }
}
* { box-sizing: border-box }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 62rem;
  margin: 0 auto; padding: 1rem 1rem 4rem; overflow-wrap: break-word }
h1 { font-size: 1.6rem; line-height: 1.25; margin: .6rem 0 }
h2 { font-size: 1.3rem; margin: 2.6rem 0 .4rem; padding-top: .9rem; border-top: 1px solid var(--line) }
h3 { font-size: 1.05rem; margin: 2rem 0 .2rem }
h4 { font-size: .9rem; margin: 1.1rem 0 .5rem; color: var(--soft) }
p { color: var(--soft); max-width: 46rem; margin: .5rem 0 }
a { color: var(--good) }
nav { display: flex; flex-wrap: wrap; gap: .2rem 1.1rem; font-size: .9rem }
.scroll { overflow-x: auto; margin: .6rem 0 }
table { border-collapse: collapse; font-size: .92rem; white-space: nowrap }
td, th { padding: .3rem 1.1rem .3rem 0; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top;
  font-variant-numeric: tabular-nums }
th { font-size: .8rem; color: var(--soft); font-weight: 600 }
td:first-child { white-space: normal; min-width: 7rem; position: sticky; left: 0; background: var(--paper) }
details { margin: .8rem 0; border: 1px solid var(--line); border-radius: 8px; padding: 0 .9rem }
summary { cursor: pointer; padding: .5rem 0; font-weight: 600; font-size: .92rem }
.sheet { display: grid; gap: .9rem }
.row { display: flex; gap: .35rem; align-items: flex-start; overflow-x: auto; padding-bottom: .3rem }
figure { margin: 0; flex: none; width: 72px; font-size: .7rem; line-height: 1.3; text-align: center; color: var(--soft);
  overflow-wrap: anywhere }
figure img { width: 66px; height: 66px; object-fit: cover; border: 3px solid var(--line); display: block;
  margin: 0 auto .15rem }
figcaption { white-space: pre-line }
figure img.small { image-rendering: pixelated }
figure.right img { border-color: var(--good) }
figure.wrong img { border-color: var(--bad); border-style: dashed }
figure.query { margin-right: .8rem; font-weight: 600; color: var(--ink) }
.bits { display: block; width: 100%; max-width: 40rem; height: auto }
.cards { display: grid; gap: 1.2rem 2rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 17rem), 1fr));
  margin: .8rem 0 }
.card { min-width: 0; max-width: 24rem }
.card h4 { margin-top: .2rem }
.chart { display: block; width: 100%; max-width: 30rem; height: auto }
.chart text { font-size: 12px; fill: var(--soft) }
.large .chart { max-width: 36rem }
@media (min-width: 40rem) { .large .chart text { font-size: 9.5px } }
.heat { display: block; width: 100%; max-width: 15rem; height: auto; margin: .5rem 0 }
.scale { display: flex; align-items: center; gap: .4rem; max-width: 15rem; font-size: .75rem; color: var(--soft) }
.scale i { flex: 1; height: 6px; border: 1px solid var(--line);
  background: linear-gradient(to right, transparent, var(--good)) }
.swatch { display: inline-block; width: 28px; height: 8px; vertical-align: middle }
.spread { display: block; width: 160px; height: 18px; margin-top: .2rem }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: .2rem 1.4rem; padding: 0; margin: .4rem 0; font-size: .88rem }
.bar { display: block; min-width: 5rem; background: linear-gradient(var(--good), var(--good)) 0 100% / calc(var(--v) * 100%) 3px
  no-repeat, linear-gradient(var(--line), var(--line)) 0 100% / 100% 3px no-repeat; padding-bottom: 4px }
@media (max-width: 40rem) {
  .row { flex-wrap: wrap; gap: .3rem }
  figure { width: 61px }
  figure img { width: 58px; height: 58px }
  figure.query { width: 100%; display: flex; gap: .6rem; align-items: center; text-align: left; font-size: .82rem; margin: 0 }
  figure.query img { margin: 0 }
}
"""


class Markup(str):
    """A piece of HTML, which a table takes as it is; any other text it escapes."""

    __slots__ = ()


@dataclass(frozen=True, eq=False)
class Shown:
    """An image on a sheet: its pixels and a line or two under it; `right` is None for a query."""

    pixels: NDArray[np.uint8]  # (h, w, 3)
    caption: str
    right: bool | None = None


def write_page(path: str | Path, title: str, sections: Sequence[str]) -> None:
    """Write the sections, pieces of HTML made by the functions below, as one page."""
    text = (
        f"<!doctype html>\n<html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width, initial-scale=1'>"
        f"<title>{html.escape(title)}</title><style>{STYLE}</style>\n<h1>{html.escape(title)}</h1>\n"
        + "\n".join(sections)
    )
    files.write_bytes(
        path, (text + "\n</html>\n").encode("utf-8", "replace")
    )  # names of files need not be Unicode


def heading(text: str, level: int = 2, *, anchor: str = "") -> str:
    place = f" id='{html.escape(anchor)}'" if anchor else ""
    return f"<h{level}{place}>{html.escape(text)}</h{level}>"


def paragraph(text: str) -> str:
    return f"<p>{html.escape(text)}</p>"


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table in a box of its own, which scrolls where the page is too narrow. Cells are text, or Markup."""
    top = "".join(f"<th scope=col>{_cell(cell)}" for cell in head)
    body = "".join("<tr>" + "".join(f"<td>{_cell(cell)}" for cell in row) for row in rows)
    return f"<div class=scroll tabindex=0><table><tr>{top}{body}</table></div>"


def folded(summary: str, *sections: str) -> str:
    """Sections that show when their summary is clicked."""
    return f"<details><summary>{html.escape(summary)}</summary>{''.join(sections)}</details>"


def links(anchors: Sequence[tuple[str, str]]) -> str:
    """A line of links to headings: (anchor, text)."""
    return (
        "<nav>"
        + "".join(f"<a href='#{html.escape(to)}'>{html.escape(text)}</a>" for to, text in anchors)
        + "</nav>"
    )


def cards(pieces: Sequence[tuple[str, str]]) -> str:
    """Pieces of HTML under their titles: as many beside each other as there is room for."""
    return (
        "<div class=cards>"
        + "".join(f"<div class=card>{heading(title, 4)}{piece}</div>" for title, piece in pieces)
        + "</div>"
    )


def bar(share: float) -> Markup:
    """A number from 0 to 1 over a bar of that length."""
    return Markup(f"<span class=bar style='--v:{share:.3f}'>{share:.3f}</span>")


def sheet(rows: Sequence[Sequence[Shown]], *, photos: bool = False) -> str:
    """Rows of images: a query first, then what was found; right ones framed solid, wrong ones dashed.

    `photos` makes them JPEGs, a third of the size.
    """
    figures = ("".join(_figure(shown, photos) for shown in row) for row in rows)
    return (
        "<div class=sheet>" + "".join(f"<div class=row>{row}</div>" for row in figures) + "</div>"
    )


def bit_picture(book: NDArray[np.int8], names: Sequence[str]) -> str:
    """A codebook (classes, bits) of +-1 as a picture: a row for each class, dark squares for +1."""
    cell, label = 8, 90
    height, width = len(book) * cell, book.shape[1] * cell + label
    squares = "".join(
        f"M{label + c * cell} {r * cell}h{cell - 1}v{cell - 1}h-{cell - 1}z"
        for r, c in np.argwhere(book > 0)
    )
    texts = "".join(
        f"<text x=0 y={(r + 1) * cell - 1} font-size=8 fill=currentColor>{html.escape(name)}</text>"
        for r, name in enumerate(names)
    )
    return (
        f"<svg class=bits viewBox='0 0 {width} {height}' role=img aria-label='codewords'>"
        f"<path d='{squares}' fill=currentColor />{texts}</svg>"
    )


def data_uri(pixels: NDArray[np.uint8], *, photo: bool = False) -> str:
    """An image, (h, w, 3) or grey (h, w), as the address of itself: PNG, or JPEG for a photo."""
    buffer = io.BytesIO()
    image = Image.fromarray(pixels)
    if photo:
        image.save(buffer, "JPEG", quality=85, subsampling=0, optimize=True)
    else:
        image.save(buffer, "PNG")
    return (
        f"data:image/{'jpeg' if photo else 'png'};base64,"
        + base64.b64encode(buffer.getvalue()).decode()
    )


def _cell(value: object) -> str:
    return value if isinstance(value, Markup) else html.escape(str(value))


def _figure(shown: Shown, photo: bool) -> str:
    kind = "query" if shown.right is None else ("right" if shown.right else "wrong")
    text, alternative = html.escape(shown.caption), html.escape(shown.caption.replace("\n", ", "))
    small = " class=small" if len(shown.pixels) <= _SMALL else ""
    source = data_uri(shown.pixels, photo=photo)
    return f"<figure class={kind}><img{small} src='{source}' alt='{kind}: {alternative}'><figcaption>{text}</figcaption></figure>"
