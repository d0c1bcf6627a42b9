"""The sections of docs/performance.md about decoding and indexing photos."""

from __future__ import annotations

from page_text import Result, paragraph, ratio_of, with_quartiles


def decode(result: Result) -> list[str]:
    """Time of decoding and equal bits, in full and reduced."""
    model = result["model"]
    lines = [
        "## Decoding large photos",
        "",
        *paragraph(
            "A JPEG is decoded at 1/2, 1/4 or 1/8 of its size while its short side stays at least",
            "2.75 times the side of the model's square, and at least 512 pixels;",
            "`squares.enough_for` decides. The few pixels that are left are averaged without",
            "rounding in between (`native.resize`). Indexing, training and searches decode alike;",
            "pictures that are only shown are decoded at twice their side. A JPEG with a side",
            "below 1,024 pixels, any other format, and pixels in memory are not reduced: their",
            "codes are",
            "those of earlier versions to the bit. The id of a model does not change; an index of",
            "large photos that an earlier version made stays valid within the bits below.",
        ),
        *paragraph(
            f"Milliseconds to decode one file and resize it to {result['side']} pixels, on one",
            "core; *full* and *reduced* take turns. Equal bits: the fraction of the",
            f"{model['bits']} class bits and {model['content_bits']} content bits that are those",
            "of the full decode",
            f"({model['method']}, {model['backbone']}, {model['size']} pixels). The",
            "photos are small photos, enlarged and with noise, since a set of large photos was not",
            "available; a collage is 8 x 8 photos.",
        ),
        "| JPEGs | photos | MB | full, ms | reduced, ms | full / reduced | equal class bits "
        "| equal content bits | all | worst photo |",
        "|" + "---|" * 10,
    ]
    for case in result["cases"]:
        quartiles, equal = case["milliseconds_quartiles"], case["equal_bits"]["reduced"]
        cells = [
            case["case"],
            str(case["photos"]),
            f"{case['megabytes']:.1f}",
            *(
                with_quartiles(case["milliseconds"][way], quartiles[way], 0)
                for way in ("full", "reduced")
            ),
            ratio_of(case, "full / reduced", 1),
            *(
                f"{equal[name]:.2%}" if name in equal else ""
                for name in ("class", "content", "all", "worst")
            ),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return [*lines, "", *by_reduction(result)]


def by_reduction(result: Result) -> list[str]:
    """The choice of the factor: equal bits and time of each reduction."""
    lines = [
        *paragraph(
            "Why 2.75 times the side: each reduction on the first photos of each case. *Side*:",
            "short side after the reduction as a multiple of the side of the square.",
        ),
        "| JPEGs | reduction | side | ms | equal bits |",
        "|---|---|---|---|---|",
    ]
    for case in result["cases"]:
        for way in ("1/2", "1/4", "1/8"):
            low, high = case["times_the_side"][way]
            lines.append(
                f"| {case['case']} | {way} | {low:.1f} to {high:.1f} "
                f"| {case['milliseconds'][way]:.0f} | {case['equal_bits'][way]['all']:.2%} |"
            )
    return lines


def overlap(result: Result) -> list[str]:
    """`index build` beside the network alone, and what bounds it."""
    model, alone = result["model"], result.get("network_alone")
    lines = [
        "## Indexing photos",
        "",
        *paragraph(
            f"`hadahash index build` with {result['runtime']}, {model['backbone']} at",
            f"{model['size']} pixels. *Busy*: the fraction of the time in which a batch is in the",
            "network. It does not mean that the network is as fast as alone: the decoders use the",
            "same cores. The photos of 12 megapixels are",
            f"{result.get('distinct', 12)} photos, enlarged, in {result.get('copies', 64)} copies",
            "each. Version 0.1 indexes the same files with a network of the same size, but with",
            "random weights and without content bits.",
        ),
    ]
    if alone is not None:
        lines += paragraph(
            f"The network alone encodes {alone['images_per_second']:,.0f} images/s and takes",
            f"{alone['cpu_ms']:.1f} ms of processor time for each. *At most*: all of",
            f"{result['cores']} cores, at the processor time of decoding and of the network alone.",
        )
    lines += [
        "| JPEGs | photos | images/s | of the network alone | decoding, ms of processor time "
        "| at most, images/s | busy | version 0.1, images/s |",
        "|" + "---|" * 8,
    ]
    for case in result["cases"]:
        ratio = "" if alone is None else f"{share_of_network(result, case):.0f} %"
        cells = [f"{case['images_per_second']:,.0f}", ratio]
        for name, form in (("decode_cpu_ms", "{:.1f}"), ("most_per_second", "{:,.0f}")):
            cells.append(form.format(case[name]) if name in case else "")
        cells.append(f"{100 * case['network_busy']:.0f} %")
        cells.append(f"{case['before']['images_per_second']:,.0f}" if "before" in case else "")
        lines.append(f"| {case['case']} | {case['photos']:,} | {' | '.join(cells)} |")
    return lines


def share_of_network(result: Result, case: Result) -> float:
    """Images per second of a build in percent of those of the network alone."""
    alone = result["network_alone"]["images_per_second"]
    return float(100 * case["images_per_second"] / alone)
