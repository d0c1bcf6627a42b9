"""Draw the figures of docs/ranking.md from a trained run and a folder of photos.

    python bench/ranking_figures.py RUN PHOTOS docs/figures

PHOTOS has one folder per class; RUN was trained with content bits, on other photos. The script
writes

- search-before-after.jpg: one search, ordered by Hamming distance and by kind and content;
- two-part-codes.svg: class bits and content bits of four photos;
- ranking-dial.svg and ranking-dial.json: what the weight of the content changes.

The queries are photos of the collection of which 80 % of width and height are kept.
"""

import json
import sys
from html import escape
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont, ImageOps

import hadahash as hh

SIDE, GAP, SHOWN = 92, 6, 9  # pixels of a picture and between two; results in a row
WEIGHTS = (0, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)
INK, SOFT, ON, OFF, DIFFERENT = "#1d2529", "#5d686e", "#48636e", "#dfe5e6", "#d55e00"
QUERIES = 300


def main() -> None:
    """Encode the photos, measure and draw."""
    run, photos, out = map(Path, sys.argv[1:4])
    model = hh.HashModel.load(run)
    codes = model.encode(photos)
    labels = np.array([name.split("/")[0] for name in codes.ids])
    index = hh.Index.build(codes, labels, ranking=model.ranking)
    rows = np.sort(np.random.default_rng(0).permutation(len(codes))[:QUERIES])
    crops = [crop(Image.open(photos / codes.ids[row]).convert("RGB")) for row in rows]
    queries = model.queries([np.array(each) for each in crops])
    example = choose_example(index, queries, codes.ids[rows])
    name = codes.ids[rows[example]]
    print(f"example: {name}")
    draw_search(index, queries[example], crops[example], name, photos, out)
    draw_codes(index, queries[example], name, out / "two-part-codes.svg")
    measured = measure_dial(index, queries, codes.ids[rows], labels, rows)
    (out / "ranking-dial.json").write_text(json.dumps(measured, indent=1) + "\n")
    draw_dial(measured, out / "ranking-dial.svg")


def crop(image: Image.Image) -> Image.Image:
    """The middle of an image, 80 % of width and height."""
    width, height = (round(0.8 * side) for side in image.size)
    left, top = (image.width - width) // 2, (image.height - height) // 2
    return image.crop((left, top, left + width, top + height))


def choose_example(index: hh.Index, queries: hh.Queries, own: np.ndarray) -> int:
    """A typical query: the first whose ten nearest codes tie and whose own photo is not there."""
    plain = index.search(queries, SHOWN)
    best = index.search(queries, SHOWN, rank="photo")
    for row, name in enumerate(own):
        tied = plain.distances[row, 0] == plain.distances[row, -1]
        if tied and name not in plain.ids[row] and best.ids[row, 0] == name:
            return row
    return 0


# ---- One search ----------------------------------------------------------------------------------


def draw_search(
    index: hh.Index, query: hh.Queries, image: Image.Image, own: str, photos: Path, out: Path
) -> None:
    """The query and two rows of results."""
    orders = {
        "Before: ordered by Hamming distance": index.search(query, SHOWN).ids[0],
        "After: ordered by kind and content": index.search(query, SHOWN, rank="photo").ids[0],
    }
    font = ImageFont.load_default(15)
    left, high = SIDE + 4 * GAP, SIDE + 30
    sheet = Image.new("RGB", (left + SHOWN * (SIDE + GAP), 2 * high), "white")
    pen = ImageDraw.Draw(sheet)
    sheet.paste(fit(image), (GAP, high - SIDE // 2))
    pen.text((GAP, high - SIDE // 2 - 22), "query", INK, font)
    for row, (title, names) in enumerate(orders.items()):
        pen.text((left, row * high + 6), title, INK, font)
        for column, name in enumerate(names):
            place = (left + column * (SIDE + GAP), row * high + 27)
            sheet.paste(fit(Image.open(photos / name).convert("RGB")), place)
            if name == own:
                box = (place[0], place[1], place[0] + SIDE - 1, place[1] + SIDE - 1)
                pen.rectangle(box, outline=DIFFERENT, width=4)
    sheet.save(out / "search-before-after.jpg", quality=82, optimize=True)


def fit(image: Image.Image) -> Image.Image:
    """A square picture."""
    return ImageOps.fit(image, (SIDE, SIDE), Image.Resampling.LANCZOS)


# ---- Class bits and content bits -----------------------------------------------------------------


def draw_codes(index: hh.Index, query: hh.Queries, own: str, path: Path) -> None:
    """The code of the query, and of three photos with the bits that differ from it."""
    kind = own.split("/")[0]
    ranked = index.search(query, len(index), rank="photo").ids[0].tolist()
    same = next(name for name in ranked[20:] if name.split("/")[0] == kind)
    other = next(name for name in ranked[60:] if name.split("/")[0] != kind)
    rows = {
        f"query: a part of a {kind} photo": query.codes(),
        "the photo itself": index.codes([own]),
        f"another {kind}": index.codes([same]),
        f"a {other.split('/')[0]}": index.codes([other]),
    }
    first, step, high = query.codes(), 5, 44
    width = 2 + step * (first.bits + first.content_bits) + 24
    lines = [svg_open(width, high * len(rows) + 24)]
    gap = step * first.bits + 20
    lines += [text(0, 14, f"{first.bits} class bits"), text(gap, 14, "content bits")]
    for number, (title, codes) in enumerate(rows.items()):
        top = 30 + high * number
        parts = (
            (0, codes.signs()[0], first.signs()[0]),
            (gap, codes.content_codes().signs()[0], first.content_codes().signs()[0]),
        )
        counts = [int((mine != theirs).sum()) for _, mine, theirs in parts]
        about = (
            "" if number == 0 else f": {counts[0]} class bits and {counts[1]} content bits differ"
        )
        lines.append(text(0, top + 8, title + about, INK))
        for left, mine, theirs in parts:
            for at, (bit, asked) in enumerate(zip(mine, theirs, strict=True)):
                color = DIFFERENT if bit != asked else ON if bit > 0 else OFF
                lines.append(
                    f'<rect x="{left + step * at}" y="{top + 14}" width="{step - 1}" height="14" '
                    f'fill="{color}"/>'
                )
    path.write_text("\n".join([*lines, "</svg>", ""]))


# ---- The dial ------------------------------------------------------------------------------------


def measure_dial(
    index: hh.Index, queries: hh.Queries, own: np.ndarray, labels: np.ndarray, rows: np.ndarray
) -> dict:
    """How often the photo itself is first, and how many of the next ten have its class."""
    found = []
    label_of = dict(zip(index.codes().ids, labels, strict=True))
    ways = [("hamming", None), ("class", None), *(("photo", weight) for weight in WEIGHTS)]
    for rank, weight in ways:
        ids = index.search(queries, 11, rank=rank, weight=weight).ids
        first = np.mean(ids[:, 0] == own)
        ten = np.mean([name in row[:10] for name, row in zip(own, ids, strict=True)])
        others = [[each for each in row if each != name][:10] for name, row in zip(own, ids)]
        right = [label_of[each] == labels[at] for at, row in zip(rows, others) for each in row]
        found.append(
            {
                "rank": rank,
                "weight": weight,
                "first": round(float(first), 4),
                "among_ten": round(float(ten), 4),
                "same_class": round(float(np.mean(right)), 4),
            }
        )
    return {
        "photos": len(index),
        "queries": len(own),
        "class_bits": index.bits,
        "content_bits": index.content_bits,
        "rankings": found,
    }


def draw_dial(measured: dict, path: Path) -> None:
    """Both measures over the weight, on a logarithmic scale."""
    rows = [row for row in measured["rankings"] if row["rank"] == "photo" and row["weight"]]
    width, high, left, top = 560, 260, 44, 16
    scale = np.log(WEIGHTS[-1] / WEIGHTS[1])

    def place(weight: float, value: float) -> tuple[float, float]:
        across = np.log(weight / WEIGHTS[1]) / scale
        return round(left + across * (width - left - 16), 1), round(top + (1 - value) * high, 1)

    lines = [svg_open(width, high + 62)]
    for value in (0, 0.25, 0.5, 0.75, 1):
        y = place(1, value)[1]
        lines.append(f'<path d="M{left} {y}H{width - 16}" stroke="{OFF}"/>')
        lines.append(text(left - 8, y + 4, f"{value:.0%}", anchor="end"))
    for weight in (0.05, 0.2, 1, 5, 20, 100):
        x = place(weight, 0)[0]
        lines.append(text(x, high + top + 18, f"{weight:g}", anchor="middle"))
    lines.append(text(left, high + 54, "same kind", INK))
    lines.append(text(width / 2, high + 54, "weight of the content", anchor="middle"))
    lines.append(text(width - 16, high + 54, "same photo", INK, anchor="end"))
    for name, title, color in (
        ("first", "the photo itself comes first", DIFFERENT),
        ("same_class", "the next ten have its class", "#0072b2"),
    ):
        points = [place(row["weight"], row[name]) for row in rows]
        path_text = "M" + "L".join(f"{x} {y}" for x, y in points)
        lines.append(f'<path d="{path_text}" fill="none" stroke="{color}" stroke-width="2.5"/>')
        x, y = points[len(points) // 2 - 1]
        lines.append(text(x, y + (18 if name == "first" else -10), title, color, anchor="middle"))
    path.write_text("\n".join([*lines, "</svg>", ""]))


def svg_open(width: float, height: float) -> str:
    """The beginning of a drawing on white paper."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'font-family="system-ui, sans-serif" font-size="13"><rect width="{width}" '
        f'height="{height}" fill="#fff"/>'
    )


def text(x: float, y: float, words: str, color: str = SOFT, anchor: str = "start") -> str:
    """A line of text."""
    return f'<text x="{x}" y="{y}" fill="{color}" text-anchor="{anchor}">{escape(words)}</text>'


if __name__ == "__main__":
    main()
