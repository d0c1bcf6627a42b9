"""hadahash reproduce: tables, figures, plans, and checks of stored results."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Optional

import typer

from .. import reproduce as targets
from ..encoding import parse_shard
from ..errors import HadaHashError, UsageError
from ..reproduce.check import check_cell
from ..reproduce.collected import Collected
from ..reproduce.plans import PLANS, read_plan, take_shard
from ..reproduce.recipe_trials import STAGES, read_trials
from ..reproduce.runner import run_plan, select
from ..reproduce.tuning import NAMES as TUNING
from ..reproduce.tuning import load_choices
from . import options, output

Names = Annotated[
    list[str] | None,
    typer.Argument(
        help=f"{', '.join(targets.list_targets())}, or all; a plan: {', '.join(PLANS)} or a "
        "JSON file; check CELL ...: train stored cells again and compare."
    ),
]
Results = Annotated[Path, typer.Option(help="Folder of the results.")]
Runs = Annotated[Path, typer.Option(help="Folder of the runs: models, codes, logs.")]
Docs = Annotated[Path, typer.Option(help="Folder of results.md, tables/ and figures/.")]
DataRoot = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option(
        help="Folder with the files of a data set. May be repeated.", metavar="NAME=FOLDER"
    ),
]
Datasets = Annotated[list[str] | None, typer.Option(help="Only these data sets. May be repeated.")]
Methods = Annotated[list[str] | None, typer.Option(help="Only these methods. May be repeated.")]
Lengths = Annotated[
    list[int] | None, typer.Option(help="Only these code lengths. May be repeated.")
]
Seeds = Annotated[list[int] | None, typer.Option(help="Only these seeds. May be repeated.")]
Run = Annotated[
    bool, typer.Option("--run/--no-run", help="Run missing cells, or only write documents.")
]
Smoke = Annotated[bool, typer.Option("--smoke", help="Run a tiny version in ./smoke.")]
Jobs = Annotated[int, typer.Option(help="Cells that run at the same time.")]
Cells = Annotated[
    list[str] | None,
    typer.Option(help="Only these cells of a plan, DATASET/NAME. May be repeated."),
]
Seconds = Annotated[
    float | None, typer.Option(help="Start no cell of a plan that would end after this time.")
]
Shard = Annotated[str, typer.Option(help="Run the i-th of n shards of a plan.", metavar="I/N")]
Revision = Annotated[
    str | None, typer.Option(help="Commit of the source code, for machines without git.")
]


def reproduce(
    names: Names = None,
    results: Results = Path("results"),
    runs: Runs = Path("runs"),
    docs: Docs = Path("docs"),
    data_root: DataRoot = None,
    weights: options.Weights = "imagenet",
    dataset: Datasets = None,
    only: Methods = None,
    bits: Lengths = None,
    seed: Seeds = None,
    run: Run = True,
    smoke: Smoke = False,
    jobs: Jobs = 1,
    cell: Cells = None,
    seconds: Seconds = None,
    shard: Shard = "1/1",
    revision: Revision = None,
    device: options.Device = "auto",
) -> None:
    """Run missing cells of the paper's tables, write tables, draw figures, or check results.

    Examples: hadahash reproduce table1 --dataset cifar10 --only hcdh --bits 64

    hadahash reproduce check cifar10/hcdh-64-efficientnet_lite0-s0-128px
    """
    if not names and not smoke:
        raise UsageError(
            f"Missing argument: {', '.join(targets.list_targets())}, or all. "
            "Example: hadahash reproduce table1"
        )
    roots = _roots(data_root or [])
    context = targets.RunContext(results, runs, roots, weights, device, jobs, output.info)
    if names and names[0] == "check":
        _check(names[1:], context)
        return
    if smoke:
        context, docs = targets.in_folder(Path("smoke"), context)
    is_selected = _filter(dataset, only, bits, seed)
    plans = [name for name in names or [] if name in PLANS or name.endswith(".json")]
    for name in plans:
        if run:
            _run_plan(name, context, cell or [], is_selected, seconds, shard, revision)
        if name in TUNING:
            _show_choices(name, context.results, dataset, only)
        if name in STAGES:
            for line in read_trials(context.results).summary():
                output.result(line)
    rest = [name for name in names or [] if name not in plans]
    if rest or not plans:
        paths = targets.run_all(
            rest or ["all"], context, docs, run=run, smoke=smoke, is_selected=is_selected
        )
        for path in paths:
            output.result(f"written: {path}")


def _check(names: list[str], context: targets.RunContext) -> None:
    if not names:
        raise UsageError("check needs the name of a cell: DATASET/NAME.")
    checks = [check_cell(name, context) for name in names]
    for found in checks:
        output.result(str(found))
    failed = sum(not found.passed for found in checks)
    if failed:
        raise HadaHashError(f"{failed} of {len(checks)} cells differ from their stored results.")


def _run_plan(
    name: str,
    context: targets.RunContext,
    names: list[str],
    is_selected: Callable[[targets.Cell], bool],
    seconds: float | None,
    shard: str,
    revision: str | None,
) -> None:
    """Run a plan, and then the cells that its own results add to it."""
    suffix = "" if shard == "1/1" else f"-{shard.replace('/', 'of')}"
    deadline = None if seconds is None else time.monotonic() + seconds
    seen: dict[targets.Cell, None] = {}
    total = 0
    while True:
        plan = read_plan(name, context.results)
        cells = take_shard(select(plan.cells, names, is_selected), parse_shard(shard))
        collected = Collected(context.results / plan.name, suffix)
        left = None if deadline is None else deadline - time.monotonic()
        fresh = [cell for cell in cells if cell not in seen]
        count = run_plan(fresh, context, collected, seconds=left, revision=revision)
        seen |= dict.fromkeys(fresh)
        total += count
        if not count:
            break
    for text in plan.notes:
        output.info(text)
    output.result(f"{total} cells run, {len(collected.missing(cells))} missing")


def _show_choices(
    name: str, results: Path, datasets: list[str] | None, methods: list[str] | None
) -> None:
    """Show the best point of each method, and the grids that must be extended."""
    for choice in load_choices(results, name):
        in_dataset = not datasets or choice.dataset in datasets
        if in_dataset and (not methods or choice.method in methods):
            output.result(str(choice))


def _filter(
    dataset: list[str] | None,
    only: list[str] | None,
    bits: list[int] | None,
    seed: list[int] | None,
) -> Callable[[targets.Cell], bool]:
    def is_selected(cell: targets.Cell) -> bool:
        rules = ((dataset, cell.dataset), (only, cell.method), (bits, cell.bits), (seed, cell.seed))
        return all(not allowed or value in allowed for allowed, value in rules)

    return is_selected


def _roots(pairs: list[str]) -> dict[str, str]:
    if not all("=" in pair for pair in pairs):
        raise UsageError(
            "--data-root must be NAME=FOLDER, for example --data-root cifar10=data/cifar10."
        )
    return {name: folder for name, _, folder in (pair.partition("=") for pair in pairs)}
