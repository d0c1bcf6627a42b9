"""docs/results.md: all tables with their settings, generated from `results/`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .. import files
from . import factorial, plan_tables, recipe_tables, seed_tables
from .collected import Collected
from .forms import FROZEN, describe_database
from .intervals import short
from .names import display_name
from .noise import NOISE
from .plans import FACTORIALS
from .recipe_trials import read_trials
from .recipes import Cell, Recipe, edges
from .tables import TITLES, Table, listed, markdown, tables, title


def setting(cells: Sequence[Cell], results: Path) -> str:
    """Describe data, network and measure of the results in one paragraph.

    Args:
        cells: The cells of a table.
        results: Folder of the results.

    Returns:
        The paragraph.
    """
    found = [
        files.read_json(path)
        for path in dict.fromkeys(cell.path(results) for cell in cells)
        if path.exists()
    ]
    if not found:
        return "No result yet."

    def common(*keys: str) -> str:
        return ", ".join(sorted({str(_at(result, keys)) for result in found} - {"None"})) or "none"

    single_job = [
        result for result in found if result["images_per_second"] and result.get("jobs", 1) == 1
    ]
    rates = sorted(result["images_per_second"] for result in single_job)
    ends = dict.fromkeys(f"{rate:,.0f}" for rate in (rates[0], rates[-1])) if rates else {}
    speed = f"; {' to '.join(ends)} training images per second" if rates else ""
    return (
        f"{found[0]['queries']:,} queries, {found[0]['train_images']:,} training images, "
        f"database of {describe_database(found[0])}; backbone {common('backbone')}, pretrained on "
        "ImageNet, whose classes overlap with those of the data set, trained at "
        f"{common('preprocess', 'train_size')} px, encoding at {common('preprocess', 'size')} px; "
        f"{common('epochs')} epochs, last epoch, codebook {common('settings', 'codebook')}; exact "
        f"expectation over ties, denominator: relevant items {common('denominator')}. "
        f"{common('hardware')}, torch {common('versions', 'torch')}{speed}. "
        f"Dates: {common('date')}."
    )


def choices(recipe: Recipe, dataset: str, results: Path) -> str:
    """Format the settings that each method chose in its trials.

    Args:
        recipe: A recipe with a grid.
        dataset: Name of the data set.
        results: Folder of the results.

    Returns:
        A Markdown table; empty without trials. Values at the edge of a grid are marked.
    """
    rows = []
    for (own, method), trials in recipe.trials.items():
        if own != dataset or recipe.untried(own, method, results):
            continue
        (point, best), *_, (_, worst) = recipe.ranking(dataset, method, results)
        at_edge = edges(recipe.points[own, method], point)
        rows.append(
            f"| {display_name(method)} | {len(trials)} | {listed(point)} | "
            f"{', '.join(at_edge)} | {short(best)} | {short(worst)} |"
        )
    head = (
        "| method | points | chosen | at an edge of the grid | validation mAP | worst point |\n"
        "|---|---|---|---|---|---|\n"
    )
    return head + "\n".join([*rows, *skipped_points(recipe, dataset, results)]) if rows else ""


def skipped_points(recipe: Recipe, dataset: str, results: Path) -> list[str]:
    """List the cells that diverged with the settings their method chose.

    Args:
        recipe: A recipe.
        dataset: Name of the data set.
        results: Folder of the results.

    Returns:
        Lines of Markdown.
    """
    lines = []
    for cell in recipe.cells:
        if (
            cell.dataset != dataset
            or not cell.failed_runs(results)
            or not recipe.ready(cell, results)
        ):
            continue
        failed = [run["settings"] for run in cell.failed_runs(results)]
        points = [point for point, _ in recipe.ranking(dataset, cell.method, results)]
        broken = [listed(point) for point in points if cell.settings | point in failed]
        used = recipe.resolve_settings(cell, results)
        now = [listed(point) for point in points if cell.settings | point == used.settings]
        if broken:
            where = f"{display_name(cell.method)}, {cell.bits} bits, seed {cell.seed}"
            outcome = _outcome(cell, used, results)
            lines.append(f"- {where}: diverged with {'; '.join(broken)}; {outcome} {now[0]}")
    return ["", *lines] if lines else []


def _outcome(cell: Cell, used: Cell, results: Path) -> str:
    if cell.is_degenerate(results):
        return "kept with"
    if used.done(results):
        return "run with"
    return "no point left after" if used.is_diverged(results) else "not yet run with"


def write_page(path: Path, recipes: Sequence[Recipe], results: Path, notes: Path) -> None:
    """Write docs/results.md: the notes, the plans, and all tables with their settings.

    Args:
        path: The file.
        recipes: All recipes.
        results: Folder of the results.
        notes: Text that is inserted.
    """
    parts = [
        "# Results",
        "",
        "This page is generated by `hadahash reproduce` from `results/`; edit",
        "`docs/results-notes.md` instead. The same tables as CSV and LaTeX are in `docs/tables/`.",
        "",
        "An entry reads: mean ± standard deviation over seeds (number of seeds) / the paper's",
        "value, which is for AlexNet. Bold: not distinguishable from the best of the column",
        f"(within twice the rerun noise of a cell: {_twice_the_noise()}).",
        "† marks degenerate training (see *Settings chosen* below the table). Repeat a cell with",
        "`hadahash reproduce check DATASET/NAME`, where NAME is that of its file in `results/`.",
        "",
    ]
    if notes.exists():
        parts += [notes.read_text("utf-8").rstrip(), ""]
    for frozen in (False, True):
        parts += seed_tables.section(seed_tables.load(results, frozen=frozen), frozen=frozen)
    parts += plan_tables.sections(
        {name: Collected(results / name).records() for name in plan_tables.NAMES}
    )
    parts += recipe_tables.section(read_trials(results))
    for name in FACTORIALS:
        frozen = name.endswith(FROZEN)
        parts += factorial.section(Collected(results / name).records(), frozen=frozen)
    order = {name: place for place, name in enumerate(TITLES)}
    for recipe in sorted(recipes, key=lambda recipe: order.get(recipe.name, len(order))):
        parts += [f"## {title(recipe.name)}", "", f"`hadahash reproduce {recipe.name}`", ""]
        parts += [
            text
            for table in tables(recipe.cells, results)
            for text in _section(recipe, table, results)
        ]
    files.write_text(path, "\n".join(parts))


def _twice_the_noise() -> str:
    return ", ".join(f"{short(2 * noise)} on {display_name(name)}" for name, noise in NOISE.items())


def _section(recipe: Recipe, table: Table, results: Path) -> list[str]:
    own = [cell for cell in recipe.cells if cell.dataset == table.dataset]
    parts = [f"### {display_name(table.dataset)}, {table.measure}", "", markdown(table), ""]
    if table.depth in own[0].depths:
        return parts
    parts += [setting(own, results), ""]
    if table.missing:
        parts += [f"Not run: {table.missing} of {len(table.entries)} cells.", ""]
    grid = choices(recipe, table.dataset, results) if recipe.owns_grid else ""
    return parts + (
        [f"<details><summary>Settings chosen</summary>\n\n{grid}\n\n</details>", ""] if grid else []
    )


def _at(value: Any, keys: tuple[str, ...]) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value
