from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Optional

import typer

from ..errors import UsageError
from ..runs import evaluate_files, evaluate_run
from . import options, show


def evaluate(
    run: Annotated[Optional[Path], typer.Argument(help="Folder of a trained run.")] = None,  # noqa: UP045
    queries: Annotated[
        Path | None, typer.Option(help="Codes of the queries, instead of a run.")
    ] = None,
    database: Annotated[
        Path | None, typer.Option(help="Codes of the database, instead of a run.")
    ] = None,
    depth: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="NUMBER|all",
            help="mAP looks at so many results, or at all; the data set's own if not given.",
        ),
    ] = None,
    data_root: options.Root = None,
    device: options.Device = "auto",
    json: options.Json = False,
) -> None:
    """Measure retrieval: mAP (exact over ties), precision, recall, bit balance.

    Of a run: encodes its queries and database first. Of two files of codes whose ids are CLASS/NAME, as `encode` gives them
    to a folder of class folders: the class is the label.

    Example: hadahash evaluate runs/photos
    """
    if run is not None and queries is None and database is None:
        root = str(data_root) if data_root else None
        with show.progress("encoding", None) as advance:
            report = evaluate_run(
                run, root=root, depth=_depth(depth), device=device, advance=advance
            )
    elif run is None and queries is not None and database is not None:
        report = evaluate_files(queries, database, depth=_depth(depth))
    else:
        raise UsageError(
            "Give a run, or both --queries and --database. Example: hadahash evaluate runs/photos"
        )
    if json:
        show.as_json(report.to_dict())
    else:
        show.result(str(report))


def _depth(text: str | None) -> int | Literal["all"] | None:
    if text is None or text == "all":
        return text  # type: ignore[return-value]
    if not text.removeprefix("-").isdecimal():
        raise UsageError(f"--depth {text} is not possible: give a whole number from 1 on, or all.")
    return int(text)
