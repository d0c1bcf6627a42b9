"""The command `hadahash evaluate`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Optional

import typer

from ..errors import UsageError
from . import options, output

if TYPE_CHECKING:
    from ..evaluation import Report


def evaluate(
    run: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Argument(help="Folder of a trained run."),
    ] = None,
    queries: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="Code file of the queries, instead of a run."),
    ] = None,
    database: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="Code file of the database, instead of a run."),
    ] = None,
    depth: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="NUMBER|all",
            help="Rank cut-off R of mAP@R, or all. Default: the usual one for the data set.",
        ),
    ] = None,
    data: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="New location of the data, if they were moved after training."),
    ] = None,
    data_root: options.Root = None,
    device: options.Device = "auto",
    json: options.Json = False,
) -> None:
    """Measure retrieval: mAP (exact over ties), precision, recall, bit balance.

    With RUN: encodes the held-out queries and the database, then scores them. With --queries and
    --database: scores two code files; the part of an id before the first / is its label.

    Example: hadahash evaluate runs/photos
    """
    if run is not None and queries is None and database is None:
        report = _of_run(run, data, data_root, depth, device)
    elif run is None and queries is not None and database is not None:
        from ..runs import evaluate_files

        report = evaluate_files(queries, database, depth=_parse_depth(depth))
    else:
        raise UsageError(
            "Give a run, or both --queries and --database. Example: hadahash evaluate runs/photos"
        )
    if json:
        output.as_json(report.to_dict())
        return
    output.result(str(report))
    if run is not None:
        output.info(
            f"next: hadahash report {run}, or search your photos: hadahash index build {run} PHOTOS"
        )


def _of_run(
    run: Path, data: str | None, root: Path | None, depth: str | None, device: str
) -> Report:
    from ..runs import RunDir, evaluate_run

    record = RunDir(run).record()
    total = record["queries"] + record["database"]
    with output.progress("encoding", total) as advance:
        report = evaluate_run(
            run,
            data=data,
            root=str(root) if root else None,
            depth=_parse_depth(depth),
            device=device,
            progress=advance,
        )
    if report.skipped:
        listing = run / "evaluation" / "skipped.csv"
        output.info(f"{report.skipped} of {total:,} images could not be read: see {listing}")
    return report


def _parse_depth(text: str | None) -> int | Literal["all"] | None:
    if text is None or text == "all":
        return text  # type: ignore[return-value]
    if not re.fullmatch("-?[0-9]{1,18}", text):
        raise UsageError(f"--depth must be an integer >= 1 or 'all', got {text}.")
    return int(text)
