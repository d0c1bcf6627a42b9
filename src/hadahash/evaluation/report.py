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

_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #5b6570; --paper: #fff; --line: #d9dee3;
  --good: #0072b2; --bad: #d55e00 }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8eaed; --soft: #9aa5b1; --paper: #14171a; --line: #333a41; --good: #56b4e9; --bad: #e69f00 }
}
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 62rem;
  margin: 0 auto; padding: 1rem }
h1 { font-size: 1.6rem }
h2 { font-size: 1.2rem; margin-top: 2.2rem }
p { color: var(--soft) }
table { border-collapse: collapse; margin: .6rem 0 }
td, th { padding: .25rem .9rem .25rem 0; border-bottom: 1px solid var(--line); text-align: left;
  font-variant-numeric: tabular-nums }
.sheet { display: grid; gap: .7rem }
.row { display: flex; gap: .35rem; align-items: flex-start; overflow-x: auto; padding-bottom: .3rem }
figure { margin: 0; flex: none; width: 72px; font-size: .7rem; text-align: center; color: var(--soft) }
figure img { width: 66px; height: 66px; object-fit: cover; border: 3px solid var(--line); image-rendering: pixelated;
  display: block }
figure.right img { border-color: var(--good) }
figure.wrong img { border-color: var(--bad); border-style: dashed }
figure.query { margin-right: .8rem; font-weight: 600; color: var(--ink) }
.bits { display: block; width: 100%; max-width: 40rem; height: auto }
"""


@dataclass(frozen=True, eq=False)
class Shown:
    """An image on a sheet: its pixels and a line under it; `right` is None for a query."""

    pixels: NDArray[np.uint8]  # (h, w, 3)
    caption: str
    right: bool | None = None


def write_page(path: str | Path, title: str, sections: Sequence[str]) -> None:
    """Write the sections, pieces of HTML made by the functions below, as one page."""
    text = (
        f"<!doctype html>\n<html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width, initial-scale=1'>"
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style>\n<h1>{html.escape(title)}</h1>\n" + "\n".join(sections)
    )
    files.write_text(path, text + "\n</html>\n")


def heading(text: str) -> str:
    return f"<h2>{html.escape(text)}</h2>"


def paragraph(text: str) -> str:
    return f"<p>{html.escape(text)}</p>"


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    top = "".join(f"<th scope=col>{html.escape(cell)}" for cell in head)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(str(cell))}" for cell in row) for row in rows)
    return f"<table><tr>{top}{body}</table>"


def sheet(rows: Sequence[Sequence[Shown]]) -> str:
    """Rows of images: a query first, then what was found; right ones framed solid, wrong ones dashed."""
    return "<div class=sheet>" + "".join(f"<div class=row>{''.join(map(_figure, row))}</div>" for row in rows) + "</div>"


def bit_picture(book: NDArray[np.int8], names: Sequence[str]) -> str:
    """A codebook (classes, bits) of +-1 as a picture: a row for each class, dark squares for +1."""
    cell, label = 8, 90
    height, width = len(book) * cell, book.shape[1] * cell + label
    squares = "".join(f"M{label + c * cell} {r * cell}h{cell - 1}v{cell - 1}h-{cell - 1}z" for r, c in np.argwhere(book > 0))
    texts = "".join(
        f"<text x=0 y={(r + 1) * cell - 1} font-size=8 fill=currentColor>{html.escape(name)}</text>"
        for r, name in enumerate(names)
    )
    return (
        f"<svg class=bits viewBox='0 0 {width} {height}' role=img aria-label='codewords'>"
        f"<path d='{squares}' fill=currentColor />{texts}</svg>"
    )


def data_uri(pixels: NDArray[np.uint8]) -> str:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


def _figure(shown: Shown) -> str:
    kind = "query" if shown.right is None else ("right" if shown.right else "wrong")
    text = html.escape(shown.caption)
    return f"<figure class={kind}><img src='{data_uri(shown.pixels)}' alt='{kind}: {text}'>{text}</figure>"
