"""The command `hadahash demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from . import options, output


def demo(
    out: Annotated[
        Path, typer.Option(help="Output folder for the runs, the index and the page.")
    ] = Path("demo"),
    data_root: options.Root = None,
    bits: options.Bits = 64,
    size: Annotated[int, typer.Option(help="Input size of the network in pixels.")] = 128,
    seed: options.Seed = 0,
) -> None:
    """Train, encode and evaluate on real images, and write a page with the results.

    Takes a few minutes on a laptop.

    Example: hadahash demo
    """
    from ..demo import INDEX, DemoSettings, run_demo

    page = run_demo(DemoSettings(out, data_root, bits, size, seed), output.info)
    output.result(f"Open this page in a browser: {page.resolve().as_uri()}")
    output.result(f"Search the images:           hadahash serve {out / INDEX}")
