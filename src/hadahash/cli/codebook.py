"""`hadahash codebook`: generate a codebook and measure its quality."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from ..codebooks import codebook as make_codebook
from ..codebooks import codebook_quality, paper_order
from ..codes import Codes, pack
from . import options, output

_DESIGNS = (
    "Codebook design: far (maximizes the minimum Hamming distance), paper (Algorithm 1 of HCDH), "
    "csq or random."
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
    if json:
        output.as_json({**measures, "file": str(path)})
        return
    for name, value in measures.items():
        shown = f"{value:.4g}" if isinstance(value, float) else str(value)
        output.result(f"{name.replace('_', ' '):<32}{shown}")
    output.info(f"Saved in {path}")
