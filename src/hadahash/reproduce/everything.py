"""What can be reproduced by name: tables, which run their missing cells, and figures, which draw what has been run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from ..errors import HadaHashError, unknown
from .cells import Bench, run_recipes
from .claims import write_claims
from .figures import FIGURES, draw_figure, figures
from .recipes import Cell, read_recipe, recipes
from .smoke import shrink
from .tables import write_page, write_tables


def everything() -> list[str]:
    """All names, tables first."""
    return [*recipes(), *figures(), "claims"]


def reproduce(
    names: Sequence[str],
    bench: Bench,
    docs: Path,
    *,
    run: bool = True,
    smoke: bool = False,
    wanted: Callable[[Cell], bool] = lambda cell: True,
) -> list[Path]:
    """Run the missing cells of the named tables that are `wanted` and write all of them, and draw the named figures.

    "all" names everything. `smoke` makes a tiny version of it. The files that were written are returned.
    """
    for name in names:
        if name not in [*everything(), "all"]:
            raise unknown("table or figure", name, [*everything(), "all"])
    names = everything() if "all" in names else names
    known = {name: shrink(read_recipe(name)) if smoke else read_recipe(name) for name in recipes()}
    failure = None
    if run:
        chosen = [known[name] for name in names if name in known]
        try:
            run_recipes(
                [(recipe, [cell for cell in recipe.cells if wanted(cell)]) for recipe in chosen],
                bench,
            )
        except HadaHashError as error:
            failure = error  # what could be run is written first
    page = docs / "results.md"
    write_page(page, list(known.values()), bench.results, docs / "results-notes.md")
    written = [
        page,
        *(
            path
            for recipe in known.values()
            for path in write_tables(recipe, bench.results, docs / "tables")
        ),
    ]
    for name in names:
        if name in FIGURES:
            cells = known[FIGURES[name].recipe].cells
            written += draw_figure(
                name,
                cells,
                results=bench.results,
                runs=bench.runs,
                out=docs / "figures",
                say=bench.say,
            )
    if "claims" in names:
        written.append(docs / "claims.md")
        write_claims(written[-1], list(known.values()), bench.results, docs / "claims-notes.md")
    if failure:
        raise failure
    return written


def in_folder(folder: Path, bench: Bench) -> tuple[Bench, Path]:
    """The same bench with all that it writes in a folder of its own, and the place of the documents in it."""
    return replace(
        bench, results=folder / "results", runs=folder / "runs", weights="none"
    ), folder / "docs"
