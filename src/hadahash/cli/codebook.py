from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from ..codebooks import codebook as make_codebook
from ..codebooks import codebook_quality, paper_order
from ..codes import Codes, pack
from . import options, output


def codebook(
    classes: Annotated[int, typer.Option(help="Number of classes: one codeword for each.")],
    bits: options.Bits = 64,
    design: Annotated[
        str, typer.Option(help="far (codewords as far apart as can be had) or paper (Algorithm 1).")
    ] = "far",
    seed: options.Seed = 0,
    out: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            help="Save the codewords, one code a class: a .npz or .parquet file.",
            show_default="codebook-CLASSESxBITS-DESIGN-sSEED.npz in this folder",
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Make a codebook and say how good it is. The order is that of the Hadamard matrix which Algorithm 1 starts from.

    Example: hadahash codebook --classes 100 --bits 32 --out book.npz
    """
    book = make_codebook(classes, bits, design=design, seed=seed)
    figures = {
        "design": design,
        "seed": seed,
        "order": paper_order(classes, bits),
        **codebook_quality(book).to_dict(),
    }
    path = out or Path(f"codebook-{classes}x{bits}-{design}-s{seed}.npz")
    Codes(packed=pack(book), bits=bits).save(path)
    if json:
        output.as_json({**figures, "file": str(path)})
        return
    for name, value in figures.items():
        shown = f"{value:.4g}" if isinstance(value, float) else str(value)
        output.result(f"{name.replace('_', ' '):<32}{shown}")
    output.info(f"saved in {path}")
