from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from .. import reproduce as room
from . import options, show


def reproduce(
    name: Annotated[str, typer.Argument(help="What to reproduce: table2.")],
    results: Annotated[Path, typer.Option(help="Folder of the measured cells, one JSON file each.")] = Path("results"),
    runs: Annotated[Path, typer.Option(help="Folder for the runs: models, codes, logs.")] = Path("runs"),
    page: Annotated[Path, typer.Option(help="The page that is written.")] = Path("docs/results.md"),
    data_root: options.Root = None,
    weights: options.Weights = "imagenet",
    only: Annotated[Optional[list[str]], typer.Option(help="Only these methods. May be repeated.")] = None,  # noqa: UP045
    bits: Annotated[Optional[list[int]], typer.Option(help="Only these lengths. May be repeated.")] = None,  # noqa: UP045
    seed: Annotated[Optional[list[int]], typer.Option(help="Only these seeds. May be repeated.")] = None,  # noqa: UP045
    run: Annotated[bool, typer.Option("--run/--no-run", help="Run the missing cells, or only write the page.")] = True,
    jobs: Annotated[int, typer.Option(help="Cells that are run at once, each in a process of its own.")] = 1,
    device: options.Device = "auto",
) -> None:
    """Run the missing cells of one of the paper's tables and write the page of results.

    Example: hadahash reproduce table2 --only hcdh --bits 64
    """
    recipe = room.read_recipe(name)
    wanted = [
        cell
        for cell in recipe.cells
        if cell.method in (only or [cell.method]) and cell.bits in (bits or [cell.bits]) and cell.seed in (seed or [cell.seed])
    ]
    if run:
        roots = {cell.dataset: str(data_root) for cell in wanted} if data_root else {}
        bench = room.Bench(results, runs, roots, weights=weights, device=device, jobs=jobs, say=show.say)
        room.run_recipes([(recipe, wanted)], bench)
    tables = {name: room.read_recipe(name).cells for name in room.recipes()}
    room.write_page(page, tables, results, page.with_name("results-notes.md"))
    show.result(f"written: {page}")
