from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..demo import INDEX, DemoSettings, run_demo
from . import options, output


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the runs and the page.")] = Path("demo"),
    data_root: options.Root = None,
    bits: options.Bits = 64,
    size: Annotated[int, typer.Option(help="Pixels of the network's input.")] = 128,
    seed: options.Seed = 0,
) -> None:
    """Try it all on real images: train, encode, evaluate, and a page to look at. Minutes on a laptop.

    Example: hadahash demo
    """
    page = run_demo(DemoSettings(out, data_root, bits, size, seed), output.info)
    output.result(f"Open this page in a browser: {page.resolve().as_uri()}")
    output.result(f"Or search the images there:  hadahash serve {out / INDEX}")
