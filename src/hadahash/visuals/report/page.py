"""The sections of the page. Each says in a sentence how to read it; numbers of a group are means over its runs."""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence

import numpy as np

from ...evaluation.analysis import histogram
from ...runs import Evaluated
from ..charts import Line, bit_bars, heat_map, histogram_bars, legend, line_chart, spread, swatch
from ..html import Markup, bar, cards, folded, heading, links, paragraph, sheet, table
from .groups import Comparison, Group, differing, text_of
from .measures import CodeFigures, Measured, class_distances, nearest_classes, saturated
from .neighbours import NEIGHBOURS, Pictures, choose, neighbour_rows

__all__ = ["comparison_sections", "contents", "settings_section"]

_PARTS = {
    "map": "Mean average precision",
    "curves": "Precision and recall",
    "classes": "Classes",
    "bits": "Bits: balance and independence",
    "words": "Distances between classes",
    "values": "Values before sign",
    "queries": "Queries and what they found",
}
_CARDS = 4  # charts of groups that stand open
_FEW, _ENDS = 20, 10  # so many classes are shown whole; of more, so many at both ends
_SHEETS = 8  # groups whose pictures are shown: about 0.6 MB each
_BINS = 40  # of a histogram
_PAIRS = 5  # nearest pairs of classes


def contents(comparisons: Sequence[Comparison]) -> str:
    if len(comparisons) > 1:
        return links(
            [
                ("settings", "Settings"),
                *((f"c{i}", comparison.title) for i, comparison in enumerate(comparisons)),
            ]
        )
    return links(
        [("settings", "Settings"), *((f"c0-{part}", text) for part, text in _PARTS.items())]
    )


def settings_section(comparisons: Sequence[Comparison]) -> str:
    groups = [group for comparison in comparisons for group in comparison.groups]
    several = [group.settings for group in groups]
    changed = (
        differing(several)
        if len(groups) > 1
        else ["dataset", "protocol", "method", "bits", "backbone"]
    )
    rows = [
        (
            _named(number, group),
            *(text_of(group.settings.get(name, "–")) for name in changed),
            ", ".join(map(str, group.seeds)),
        )
        for comparison in comparisons
        for number, group in enumerate(comparison.groups)
    ]
    shared = [
        (name, _agreed(name, groups))
        for name in dict.fromkeys(n for own in several for n in own)
        if name not in changed
    ]
    return "".join(
        [
            heading("Settings", anchor="settings"),
            paragraph(
                "What differs between the runs. Runs that differ in nothing but their seed stand in one row."
            )
            if len(groups) > 1
            else "",
            table(("", *changed, "seeds"), rows),
            folded(
                f"The {len(shared)} settings in which they agree"
                if len(groups) > 1
                else "All other settings",
                table(("setting", "value"), shared),
            ),
            folded("The runs, one by one", _runs_table(groups)),
        ]
    )


def comparison_sections(
    comparison: Comparison, number: int, measured: Measured, pictures: Pictures | str, seed: int
) -> list[str]:
    """All parts of one comparison, each under its heading."""
    about, report = comparison.first.about, comparison.first.report
    parts: dict[str, Callable[[], list[str]]] = {
        "map": lambda: _map(comparison.groups),
        "curves": lambda: _curves(comparison.groups),
        "classes": lambda: _classes(comparison.groups),
        "bits": lambda: _bits(comparison.groups, measured),
        "words": lambda: _words(comparison.groups, measured),
        "values": lambda: _values(comparison.groups),
        "queries": lambda: _queries(comparison.groups, pictures, seed),
    }
    depth = (
        "the whole ranking" if report["depth"] is None else f"the first {report['depth']:,} results"
    )
    sections = [
        heading(comparison.title, anchor=f"c{number}"),
        paragraph(
            f"{about['queries']:,} queries searched in {about['database']:,} images of {len(comparison.first.classes)} "
            f"classes. mAP looks at {depth}."
        ),
    ]
    for part, make in parts.items():
        sections += [heading(_PARTS[part], 3, anchor=f"c{number}-{part}"), *make()]
    return sections


# ------------------------------------------------------------------ the parts


def _map(groups: Sequence[Group]) -> list[str]:
    maps = [run.report["map"] for group in groups for run in group.runs]
    low, high = (
        max(0.0, np.floor(min(maps) * 20 - 0.1) / 20),
        min(1.0, np.ceil(max(maps) * 20 + 0.1) / 20),
    )
    cuts = list(groups[0].runs[0].report["precision_at"])
    rows = [
        (
            _named(number, group),
            group.map_text(),
            Markup(spread([run.report["map"] for run in group.runs], low, high, number)),
            *(
                f"{np.mean([run.report['precision_at'][cut] for run in group.runs]):.4f}"
                for cut in cuts
            ),
        )
        for number, group in enumerate(groups)
    ]
    note = (
        "Mean over seeds ± standard deviation (number of seeds); the exact expectation over the order of images at equal "
        "distance. A dot is a run. Where the number is 1, nothing is known of the spread."
    )
    return [
        paragraph(note),
        table(("", "mAP", f"{low:.2f} to {high:.2f}", *(f"P@{cut}" for cut in cuts)), rows),
    ]


def _curves(groups: Sequence[Group]) -> list[str]:
    lines = []
    for group in groups:
        curves = [run.report["precision_recall"] for run in group.runs]
        recall, precision = (
            np.mean([curve[name] for curve in curves], axis=0) for name in ("recall", "precision")
        )
        notes = [
            f"radius {r}: precision {p:.3f}, recall {c:.3f}"
            for r, (p, c) in enumerate(zip(precision, recall, strict=True))
        ]
        lines.append(Line(group.name, recall, precision, notes))
    note = (
        "All images within a Hamming radius, which grows along each curve from 0. A query that finds nothing within the radius "
        "counts as precision 0, which bends curves down at their left end."
    )
    chart = f"<div class=large>{line_chart(lines, x='recall', y='precision')}</div>"
    return [paragraph(note), legend([group.name for group in groups]), chart]


def _classes(groups: Sequence[Group]) -> list[str]:
    names = groups[0].runs[0].classes
    columns = [_class_means(group) for group in groups]
    present = sorted({number for column in columns for number in column})
    present.sort(
        key=lambda number: float(
            np.mean([column[number] for column in columns if number in column])
        )
    )
    rows = [
        (names[number], *(bar(column[number]) if number in column else "–" for column in columns))
        for number in present
    ]
    head = (
        "class",
        *(Markup(html.escape(group.name).replace(", ", ",<br>")) for group in groups),
    )  # narrow, so bars are alike
    note = "The mean average precision of each class's queries, the hardest class first."
    if len(rows) <= _FEW:
        return [paragraph(note), table(head, rows)]
    return [
        paragraph(note),
        heading(f"The {_ENDS} hardest", 4),
        table(head, rows[:_ENDS]),
        heading(f"The {_ENDS} easiest", 4),
        table(head, rows[-_ENDS:]),
        folded(f"All {len(rows)} classes", table(head, rows)),
    ]


def _bits(groups: Sequence[Group], measured: Measured) -> list[str]:
    rows = []
    for number, group in enumerate(groups):
        shares = [np.array(run.report["bit_balance"]) for run in group.runs]
        pairs = [measured[run.folder].pairs for run in group.runs]
        rows.append(
            (
                _named(number, group),
                f"{np.mean([np.abs(own - 0.5).mean() for own in shares]):.3f}",
                f"{np.mean([np.abs(own - 0.5).max() for own in shares]):.3f}",
                f"{np.mean([np.isin(own, (0, 1)).sum() for own in shares]):g}",
                f"{np.mean([own.mean() for own in pairs]):.3f}",
                f"{np.mean([own.max() for own in pairs]):.3f}",
            )
        )
    head = ("", "mean distance from ½", "largest", "constant bits", "mean |correlation|", "largest")
    note = (
        "Over the codes of the database. A bit tells most when it is +1 for half of the images, and two bits tell most when "
        "they are not correlated. Bars: the share of +1 of each bit. Squares: |correlation| of every two bits, from none "
        "(blank) to 1 (full colour), the diagonal left out."
    )
    return [
        paragraph(note),
        table(head, rows),
        _charts(groups, lambda run: _bit_card(run, measured[run.folder])),
    ]


def _bit_card(run: Evaluated, figures: CodeFigures) -> str:
    off = figures.correlation - np.diag(np.diagonal(figures.correlation))
    label = (
        f"|correlation| of bits: mean {figures.pairs.mean():.3f}, largest {figures.pairs.max():.3f}"
    )
    return bit_bars(run.report["bit_balance"]) + heat_map(off, label)


def _words(groups: Sequence[Group], measured: Measured) -> list[str]:
    rows: list[tuple[object, ...]] = []
    for number, group in enumerate(groups):
        own = [measured[run.folder] for run in group.runs]
        seen, books = [each.observed for each in own], [each.book for each in own]
        rows.append(
            (
                _named(number, group),
                _mean([each.minimum_distance for each in seen if each]),
                _mean([each.mean_distance for each in seen if each]),
                _mean([each.duplicates for each in seen if each]),
                _mean([each.minimum_distance for each in books if each]),
                _mean([each.met * len(each.present) for each in own if each.met is not None]),
            )
        )
    head = [
        "",
        "smallest distance",
        "mean distance",
        "shared codes",
        "smallest in the codebook",
        "classes at their codeword",
    ]
    if all(row[-1] == "–" for row in rows):  # no model with a codebook is there
        head, rows = head[:-2], [row[:-2] for row in rows]
    note = (
        "A class's code is the majority of each bit over its images in the database. Classes whose codes are close are taken "
        "for one another. Squares: closeness of every two classes, full colour for the same code, half for codes that "
        "differ in half of their bits, the diagonal left out."
    )
    return [
        paragraph(note),
        table(head, rows),
        _charts(groups, lambda run: _word_card(run, measured[run.folder])),
    ]


def _word_card(run: Evaluated, figures: CodeFigures) -> str:
    if len(figures.present) < 2:
        return paragraph("Only one class has images in the database.")
    distances = class_distances(figures.majority)
    near = 1 - distances / run.database.bits
    np.fill_diagonal(near, 0)
    names = [run.classes[number] for number in figures.present]
    pairs = nearest_classes(figures.majority, names, _PAIRS)
    rows = [(f"{first} – {second}", distance) for first, second, distance in pairs]
    last = pairs[-1][2]
    more = int((distances[np.triu_indices(len(names), 1)] <= last).sum()) - len(pairs)
    rows += [(f"and {more:,} more", last)] if more else []
    return heat_map(near, f"closeness of the codes of {len(names)} classes") + table(
        ("nearest classes", "bits apart"), rows
    )


def _values(groups: Sequence[Group]) -> list[str]:
    rows = []
    for number, group in enumerate(groups):
        shares = [
            share for share in (saturated(run.values) for run in group.runs) if share is not None
        ]
        rows.append(
            (_named(number, group), f"{np.mean(shares):.1%}" if shares else "– (not bounded)")
        )
    note = (
        "What the sign is taken of, over all queries and bits. The more values stand at -1 and 1, the less the sign throws "
        "away; values near 0 are bits that a small change of the image turns over."
    )
    return [
        paragraph(note),
        table(("", "share beyond ±0.9"), rows),
        _charts(groups, lambda run: histogram_bars(*histogram(run.values, bins=_BINS)[:2])),
    ]


def _queries(groups: Sequence[Group], pictures: Pictures | str, seed: int) -> list[str]:
    if isinstance(pictures, str):
        return [paragraph(f"The images could not be opened, so they are not shown: {pictures}")]
    note = (
        f"A query stands first, with its class and average precision; then the {NEIGHBOURS} nearest images, each with its "
        "class and the bits that differ. ✓ and a solid frame: it shares a class with the query. ✗ and a dashed frame: it does "
        "not. Images at equal distance stand in the order of their names. A grey one is no longer there, or cannot be read."
    )
    shown, left_out = groups[:_SHEETS], len(groups[_SHEETS:])
    pieces = []
    for group in shown:
        run = group.runs[0]
        hard, drawn = choose(run.report["ap"], seed=seed)
        pieces.append(
            heading(f"{_run_title(group)}: the {len(hard)} hardest queries", 4)
            + sheet(neighbour_rows(run, pictures, hard), photos=True)
            + (
                heading(f"{_run_title(group)}: {len(drawn)} others, drawn at random", 4)
                if drawn
                else ""
            )
            + sheet(neighbour_rows(run, pictures, drawn), photos=True)
        )
    rest = [
        folded(f"The same for {_run_title(group)}", piece)
        for group, piece in zip(shown[1:], pieces[1:], strict=True)
    ]
    end = f"Only the pictures of the best {_SHEETS} are shown. For those of the {left_out} others make a report of these alone."
    return [paragraph(note), pieces[0], *rest, *([paragraph(end)] if left_out else [])]


# ------------------------------------------------------------------ what they share


def _charts(groups: Sequence[Group], draw: Callable[[Evaluated], str]) -> str:
    """A chart of each group's first run; those of many groups are folded away."""
    pieces = [(_run_title(group), draw(group.runs[0])) for group in groups]
    rest = pieces[_CARDS:]
    return cards(pieces[:_CARDS]) + (folded(f"{len(rest)} more", cards(rest)) if rest else "")


def _run_title(group: Group) -> str:
    return group.name + (f", seed {group.seeds[0]}" if len(group.runs) > 1 else "")


def _named(number: int, group: Group) -> Markup:
    """A group's name with a piece of its line in the charts."""
    return Markup(f"{swatch(number)} {html.escape(group.name)}")


def _agreed(name: str, groups: Sequence[Group]) -> str:
    """The value of a setting that all groups which have it agree in."""
    having = [group.settings for group in groups if name in group.settings]
    methods = ", ".join(sorted({settings["method"] for settings in having}))
    return text_of(having[0][name]) + ("" if len(having) == len(groups) else f" (only: {methods})")


def _class_means(group: Group) -> dict[int, float]:
    """The AP of each class: the mean over the runs that have queries of it."""
    numbers = sorted({int(number) for run in group.runs for number in run.report["per_class"]})
    stored = [run.report["per_class"] for run in group.runs]
    return {
        number: float(np.mean([own[str(number)] for own in stored if str(number) in own]))
        for number in numbers
    }


def _runs_table(groups: Sequence[Group]) -> str:
    names = (
        "folder",
        "mAP",
        "seed",
        "queries",
        "database",
        "train_images",
        "train_seconds",
        "hardware",
        "date",
        "command",
    )
    runs = [run for group in groups for run in group.runs]
    rows = [
        (
            str(run.folder),
            f"{run.report['map']:.4f}",
            *(_blank(run.about.get(name)) for name in names[2:]),
        )
        for run in runs
    ]
    return table([name.replace("_", " ") for name in names], rows)


def _blank(value: object) -> object:
    return "–" if value is None else value


def _mean(values: Sequence[float]) -> str:
    return f"{np.mean(values):.4g}" if values else "–"
