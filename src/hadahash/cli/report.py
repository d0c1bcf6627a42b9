from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..visuals import report as room
from . import options, output


def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs that have been evaluated.")],
    out: Annotated[Path, typer.Option(help="The page that is written.")] = Path("report.html"),
    data_root: options.Root = None,
    json: options.Json = False,
) -> None:
    """Compare evaluated runs on one page that opens offline: mAP with spread, curves, classes, bits, queries with neighbours.

    Example: hadahash report runs/hcdh runs/lsh --out report.html
    """
    figures = room.write_report(runs, out, root=data_root)
    if json:
        output.as_json(figures)
        return
    for comparison in figures["comparisons"]:
        output.result(f"{comparison['dataset']}, protocol {comparison['protocol']}")
        for group in comparison["groups"]:
            spread = f" ± {group['map']['sd']:.4f}" if group["map"]["n"] > 1 else ""
            output.result(
                f"  mAP {group['map']['mean']:.4f}{spread} ({group['map']['n']})  {group['name']}"
            )
    output.result(f"Open this page in a browser: {out.resolve().as_uri()}")
