from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from .. import reproduce as room
from ..encoding import parse_shard
from ..errors import UsageError
from ..reproduce.plans import PLANS, read_plan, take_shard
from ..reproduce.runner import Collected, run_plan, select
from . import options, show


def reproduce(
    names: Annotated[
        list[str] | None, typer.Argument(help=f"{', '.join(room.everything())}, or all.")
    ] = None,
    results: Annotated[
        Path, typer.Option(help="Folder of the measured cells, one JSON file each.")
    ] = Path("results"),
    runs: Annotated[Path, typer.Option(help="Folder for the runs: models, codes, logs.")] = Path(
        "runs"
    ),
    docs: Annotated[Path, typer.Option(help="Folder for results.md, tables/ and figures/.")] = Path(
        "docs"
    ),
    data_root: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            help="Where a data set's files are: NAME=FOLDER. May be repeated.",
            metavar="NAME=FOLDER",
        ),
    ] = None,
    weights: options.Weights = "imagenet",
    dataset: Annotated[
        list[str] | None, typer.Option(help="Only these data sets. May be repeated.")
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(help="Only these methods. May be repeated.")
    ] = None,
    bits: Annotated[
        list[int] | None, typer.Option(help="Only these lengths. May be repeated.")
    ] = None,
    seed: Annotated[
        list[int] | None, typer.Option(help="Only these seeds. May be repeated.")
    ] = None,
    run: Annotated[
        bool,
        typer.Option("--run/--no-run", help="Run the missing cells, or only write what is there."),
    ] = True,
    smoke: Annotated[
        bool,
        typer.Option("--smoke", help="A tiny version, in ./smoke: all of it in minutes on a CPU."),
    ] = False,
    jobs: Annotated[
        int, typer.Option(help="Cells that are run at once, each in a process of its own.")
    ] = 1,
    cell: Annotated[
        list[str] | None,
        typer.Option(help="Only these cells of a plan: DATASET/NAME. May be repeated."),
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(help="Start no cell of a plan that would end after this time.")
    ] = None,
    shard: Annotated[
        str, typer.Option(help="Run the i-th of n shards of a plan, e.g. 1/2.", metavar="I/N")
    ] = "1/1",
    revision: Annotated[
        str | None, typer.Option(help="Commit of the source code, for machines without git.")
    ] = None,
    device: options.Device = "auto",
) -> None:
    """Run the missing cells of the paper's tables, write them as Markdown, CSV and LaTeX, and draw its figures.

    A plan (factorial, or a JSON file) runs its cells in one process and appends them to RESULTS/PLAN.

    Example: hadahash reproduce table1 --dataset cifar10 --only hcdh --bits 64
    """
    if not names and not smoke:
        raise UsageError(
            f"Say what to reproduce: {', '.join(room.everything())}, or all. Example: hadahash reproduce table1"
        )
    bench = room.Bench(
        results,
        runs,
        _roots(data_root or []),
        weights=weights,
        device=device,
        jobs=jobs,
        say=show.say,
    )
    if smoke:
        bench, docs = room.in_folder(Path("smoke"), bench)

    def wanted(cell: room.Cell) -> bool:
        rules = ((dataset, cell.dataset), (only, cell.method), (bits, cell.bits), (seed, cell.seed))
        return all(not allowed or value in allowed for allowed, value in rules)

    plans = [name for name in names or [] if name in PLANS or name.endswith(".json")]
    for name in plans:
        plan = read_plan(name, results)
        cells = take_shard(select(plan.cells, cell=cell or (), wanted=wanted), parse_shard(shard))
        suffix = "" if shard == "1/1" else f"-{shard.replace('/', 'of')}"
        collected = Collected(results / plan.name, suffix)
        count = run_plan(cells, bench, collected, seconds=seconds, revision=revision)
        show.result(f"{count} cells run, {len(collected.missing(cells))} missing")
    names = [name for name in names or [] if name not in plans]
    if plans and not names:
        return
    for path in room.reproduce(names or ["all"], bench, docs, run=run, smoke=smoke, wanted=wanted):
        show.result(f"written: {path}")


def _roots(pairs: list[str]) -> dict[str, str]:
    if not all("=" in pair for pair in pairs):
        raise UsageError(
            "--data-root takes NAME=FOLDER here, for example --data-root cifar10=data/cifar10."
        )
    return {name: folder for name, _, folder in (pair.partition("=") for pair in pairs)}
