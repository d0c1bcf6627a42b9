"""`hadahash codebook`: generate a codebook and measure its quality."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Optional

import typer

from ..codebooks import codebook as make_codebook
from ..codebooks import codebook_quality, paper_order, prefix_quality
from ..codes import Codes, pack
from . import options, output

_DESIGNS = (
    "Codebook design: far (maximizes the minimum Hamming distance), nested (the same at every "
    "multiple of 8 bits), paper (Algorithm 1 of HCDH), csq or random."
)


def codebook(
    classes: Annotated[int, typer.Option(help="Number of classes, each with one codeword.")],
    bits: options.Bits = 64,
    design: Annotated[str, typer.Option(help=_DESIGNS)] = "far",
    seed: options.Seed = 0,
    out: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            help="File for the codewords, one code per class: .npz or .parquet.",
            show_default="codebook-CLASSESxBITS-DESIGN-sSEED.npz in the current folder",
        ),
    ] = None,
    prefixes: Annotated[
        bool, typer.Option("--prefixes", help="Also measure the first 8, 16, 24, ... bits.")
    ] = False,
    json: options.Json = False,
) -> None:
    """Generate a codebook and measure its quality.

    "order" is the order of the Hadamard matrix of Algorithm 1.

    Example: hadahash codebook --classes 100 --bits 32 --out codebook.npz
    """
    codewords = make_codebook(classes, bits, design=design, seed=seed)
    measures = {
        "design": design,
        "seed": seed,
        "order": paper_order(classes, bits),
        **codebook_quality(codewords).to_dict(),
    }
    path = out or Path(f"codebook-{classes}x{bits}-{design}-s{seed}.npz")
    Codes(packed=pack(codewords), bits=bits).save(path)
    parts = prefix_quality(codewords, seed=seed) if prefixes else []
    if json:
        listed = {"prefixes": [asdict(part) for part in parts]} if prefixes else {}
        output.as_json({**measures, **listed, "file": str(path)})
        return
    for name, value in measures.items():
        shown = f"{value:.4g}" if isinstance(value, float) else str(value)
        output.result(f"{name.replace('_', ' '):<32}{shown}")
    for part in parts:
        output.result(
            f"{f'first {part.bits} bits':<32}minimum distance {part.minimum_distance}, mean "
            f"{part.mean_distance:.4g}; far {part.far_distance}, bound {part.distance_bound}"
        )
    output.info(f"Saved in {path}")
