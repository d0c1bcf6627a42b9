"""Draw the figures of docs/ranking.md from an index of photos.

    python bench/ranking_figures.py photos.index docs/figures
    python bench/ranking_figures.py photos.index docs/figures --dial

The photos of the index have labels, content bits, and were not used for training. The script writes

- search-before-after.jpg: one search, ordered by Hamming distance and by kind and content;
- two-part-codes.svg: class bits and content bits of four photos;
- with --dial, which loads the model: ranking-dial.svg and ranking-dial.json, what the weight of the
  content changes. The queries are photos of the index of which 80 % of width and height are kept.
"""

import argparse
import json
from html import escape
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont, ImageOps

import hadahash as hh
from hadahash.photos import load_model_of

SIDE, GAP, SHOWN = 92, 6, 9  # pixels of a picture and between two; results in a row
WEIGHTS = (0, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)
INK, SOFT, ON, OFF, DIFFERENT = "#1d2529", "#5d686e", "#48636e", "#dfe5e6", "#d55e00"


def main() -> None:
    """Search, measure and draw."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("index", type=Path, help="index of photos")
    parser.add_argument("out", type=Path, help="folder of the figures")
    parser.add_argument("--dial", action="store_true", help="also measure the weights")
    parser.add_argument("--queries", type=int, default=300, help="altered photos for --dial")
    parser.add_argument("--example", help="id of the query of the first figure")
    options = parser.parse_args()
    index = hh.Index.open(options.index)
    example = options.example or choose_example(index)
    print(f"example: {example}")
    draw_search(index, example, options.out / "search-before-after.jpg")
    draw_codes(index, choose_example(index), options.out / "two-part-codes.svg")
    if options.dial:
        measured = measure_dial(index, options.index, options.queries)
        text_of = json.dumps(measured, indent=1)
        (options.out / "ranking-dial.json").write_text(f"{text_of}\n")
        draw_dial(measured, options.out / "ranking-dial.svg")


def crop(image: Image.Image) -> Image.Image:
    """The middle of an image, 80 % of width and height."""
    width, height = (round(0.8 * side) for side in image.size)
    left, top = (image.width - width) // 2, (image.height - height) // 2
    return image.crop((left, top, left + width, top + height))


def choose_example(index: hh.Index) -> str:
    """A typical photo: of those whose nearest codes all tie, the one with the median gain."""
    codes = index.codes()
    gains = {}
    for name in codes.ids:
        before, after = (results(index, name, rank) for rank in ("hamming", "photo"))
        if before[0].distance == before[-1].distance:
            far, near = (sum(hit.content_distance for hit in hits) for hits in (before, after))
            gains[name] = far - near
    ordered = sorted(gains, key=lambda name: (gains[name], name))
    return ordered[len(ordered) // 2]


def results(index: hh.Index, name: str, rank: str, k: int = SHOWN) -> list:
    """The most similar other photos."""
    (hits,) = index.neighbors(index.codes([name]), k + 1, rank=rank)
    return [hit for hit in hits if hit.id != name][:k]


# ---- One search ----------------------------------------------------------------------------------


def draw_search(index: hh.Index, name: str, path: Path) -> None:
    """The query and two rows of results."""
    titles = {
        "hamming": "before: ordered by Hamming distance",
        "photo": "after: ordered by kind and content",
    }
    font = ImageFont.load_default(15)
    left, high = SIDE + 4 * GAP, SIDE + 30
    sheet = Image.new("RGB", (left + SHOWN * (SIDE + GAP), 2 * high), "white")
    pen = ImageDraw.Draw(sheet)
    (item,) = index.get([name])
    sheet.paste(fit(Image.open(item.path).convert("RGB")), (GAP, high - SIDE // 2))
    pen.text((GAP, high - SIDE // 2 - 22), "query", INK, font)
    for row, (rank, title) in enumerate(titles.items()):
        pen.text((left, row * high + 6), title, INK, font)
        for column, hit in enumerate(results(index, name, rank)):
            place = (left + column * (SIDE + GAP), row * high + 27)
            sheet.paste(fit(Image.open(hit.path).convert("RGB")), place)
    sheet.save(path, quality=82, optimize=True)


def fit(image: Image.Image) -> Image.Image:
    """A square picture."""
    return ImageOps.fit(image, (SIDE, SIDE), Image.Resampling.LANCZOS)


# ---- Class bits and content bits -----------------------------------------------------------------


def draw_codes(index: hh.Index, name: str, path: Path) -> None:
    """The code of a photo, and of three others with the bits that differ from it."""
    (own,) = index.get([name])
    kind = own.labels[0]
    found = results(index, name, "photo", len(index))
    plain = results(index, name, "hamming", len(index))
    same = next(hit for hit in plain if hit.labels[0] == kind and hit.id != found[0].id)
    other = next(hit for hit in plain if hit.labels[0] != kind)
    rows = {
        f"a {kind}": index.codes([name]),
        "the most similar photo": index.codes([found[0].id]),
        f"the first {kind} by Hamming distance": index.codes([same.id]),
        f"the first of another class ({other.labels[0]})": index.codes([other.id]),
    }
    first, step, high = index.codes([name]), 5, 44
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


def measure_dial(index: hh.Index, folder: Path, count: int) -> dict:
    """How often the photo itself is first, and how many of the next ten have its class."""
    model = load_model_of(index, folder)
    codes = index.codes()
    rows = np.sort(np.random.default_rng(0).permutation(len(codes))[:count])
    own = codes.ids[rows]
    items = {item.id: item for item in index.get(codes.ids)}
    crops = [crop(Image.open(items[name].path).convert("RGB")) for name in own]
    queries = model.queries([np.array(each) for each in crops])
    found = []
    ways = [("hamming", None), ("class", None), *(("photo", weight) for weight in WEIGHTS)]
    for rank, weight in ways:
        ids = index.search(queries, 11, rank=rank, weight=weight).ids
        others = [
            (name, each)
            for name, row in zip(own, ids, strict=True)
            for each in [each for each in row if each != name][:10]
        ]
        right = [items[name].labels == items[each].labels for name, each in others]
        ten = [name in row[:10] for name, row in zip(own, ids, strict=True)]
        found.append(
            {
                "rank": rank,
                "weight": weight,
                "first": round(float(np.mean(ids[:, 0] == own)), 4),
                "among_ten": round(float(np.mean(ten)), 4),
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
        x, y = points[-1]
        lines.append(text(x, y + 36, title, color, anchor="end"))
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
