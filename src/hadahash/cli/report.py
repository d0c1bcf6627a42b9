"""The command `hadahash report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from . import options, output


def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders of evaluated runs.")],
    out: Annotated[Path, typer.Option(help="HTML file to write.")] = Path("report.html"),
    data: Annotated[
        Path | None,
        typer.Option(help="New location of the images, if they were moved after training."),
    ] = None,
    data_root: options.Root = None,
    json: options.Json = False,
) -> None:
    """Compare evaluated runs on one page that opens offline.

    The page shows mAP over seeds, precision-recall curves, classes, bits, and queries with their
    nearest images.

    Example: hadahash report runs/hcdh runs/lsh --out report.html
    """
    from ..visuals.report import write_report

    numbers = write_report(runs, out, data=data, root=data_root)
    if json:
        output.as_json(numbers)
        return
    for comparison in numbers["comparisons"]:
        output.result(f"{comparison['dataset']}, protocol {comparison['protocol']}")
        for group in comparison["groups"]:
            score = group["map"]
            deviation = f" ± {score['sd']:.4f}" if score["n"] > 1 else ""
            output.result(f"  mAP {score['mean']:.4f}{deviation} ({score['n']})  {group['name']}")
    output.result(f"Open this page in a browser: {out.resolve().as_uri()}")
