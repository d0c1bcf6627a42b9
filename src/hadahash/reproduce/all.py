"""Reproduce tables and figures by name: run missing cells, write tables, draw figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from ..errors import HadaHashError, unknown
from .cells import RunContext, run_recipes
from .claims import write_claims
from .collected import Collected
from .content_tables import write_content
from .drawings import FIGURES
from .figures import draw_figure, list_figures
from .forms import write_csv
from .leaderboard import write_leaderboard
from .page import write_page
from .plans import CONTENT, EXPERIMENTS, FACTORIALS, PLANS
from .recipe_trials import NAME as RECIPE
from .recipes import Cell, Recipe, list_recipes, read_recipe
from .smoke import shrink
from .tables import write_tables
from .tuning import NAMES, choose, read_tuning
from .tuning_tables import write_tuning


def list_targets() -> list[str]:
    """Names of all tables and figures, tables first."""
    return [*list_recipes(), *list_figures(), "claims"]


def run_all(
    names: Sequence[str],
    context: RunContext,
    docs: Path,
    *,
    run: bool = True,
    smoke: bool = False,
    is_selected: Callable[[Cell], bool] = lambda cell: True,
) -> list[Path]:
    """Run the missing cells of the named tables, write all tables, and draw the named figures.

    Args:
        names: Names of tables and figures; "all" for all of them.
        context: Where and how to run.
        docs: Folder of the documents.
        run: Run missing cells; False: only write documents from existing results.
        smoke: Make a tiny version of everything.
        is_selected: Returns whether to run a cell.

    Returns:
        The files that were written.

    Raises:
        UsageError: If a name is unknown.
        HadaHashError: If cells failed. What could be run is written first.
    """
    for name in names:
        if name not in [*list_targets(), "all"]:
            raise unknown("table, figure or plan", name, [*list_targets(), "all", *PLANS])
    names = list_targets() if "all" in names else names
    known = {
        name: shrink(read_recipe(name)) if smoke else read_recipe(name) for name in list_recipes()
    }
    failure = None
    if run:
        chosen = [known[name] for name in names if name in known]
        try:
            run_recipes(
                [(recipe, list(filter(is_selected, recipe.cells))) for recipe in chosen], context
            )
        except HadaHashError as error:
            failure = error
    written = write_documents(list(known.values()), context.results, docs)
    for name in names:
        if name in FIGURES:
            written += draw_figure(
                name,
                known[FIGURES[name].recipe].cells,
                results=context.results,
                runs=context.runs,
                out=docs / "figures",
                info=context.info,
            )
    if "claims" in names:
        written.append(docs / "claims.md")
        write_claims(written[-1], list(known.values()), context.results, docs / "claims-notes.md")
    if failure:
        raise failure
    return written


def write_documents(known: list[Recipe], results: Path, docs: Path) -> list[Path]:
    """Write results.md, the tables and the leaderboard from existing results.

    Args:
        known: All recipes.
        results: Folder of the results.
        docs: Folder of the documents. `results-notes.md` there is inserted.

    Returns:
        The files that were written.
    """
    page = docs / "results.md"
    write_page(page, known, results, docs / "results-notes.md")
    written = [page]
    for recipe in known:
        written += write_tables(recipe, results, docs / "tables")
    names = (*FACTORIALS, *EXPERIMENTS, RECIPE)
    plans = {name: Collected(results / name).records() for name in names}
    written += write_leaderboard(known, plans, results, docs)
    for name, records in plans.items():
        written += write_csv(records, docs / "tables" / f"{name}.csv")
    for name in NAMES:
        tried = Collected(results / name).records()
        if tried:
            grids = read_tuning(name)
            written += write_tuning(grids, choose(grids, tried), docs)
    for plan in CONTENT:
        written += write_content(Collected(results / plan).records(), docs, plan)
    return written


def in_folder(folder: Path, context: RunContext) -> tuple[RunContext, Path]:
    """Return a context that writes only below a folder, and the folder of its documents.

    Args:
        folder: The folder.
        context: The context to change; its weights become "none".

    Returns:
        The new context and the folder of the documents.
    """
    changed = replace(context, results=folder / "results", runs=folder / "runs", weights="none")
    return changed, folder / "docs"
