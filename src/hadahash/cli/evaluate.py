"""The command `hadahash evaluate`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Optional

import typer

from ..errors import UsageError, unknown
from . import options, output

if TYPE_CHECKING:
    from ..evaluation import Report

_RANKS = ("hamming", "class", "photo", "all")

QueryFile = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(help="Code file of the queries, instead of a run."),
]
DatabaseFile = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(help="Code file of the database, instead of a run."),
]
LabelTable = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(
        "--labels",
        help="Table (path, labels) with the labels of each id in the code files. Default: the part "
        "of an id before the first /.",
    ),
]
Depth = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        metavar="NUMBER|all",
        help="Rank cut-off R of mAP@R, or all. Default: the usual one for the data set.",
    ),
]
Rank = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        metavar="hamming|class|photo|all",
        help="Rankings to measure. Default: Hamming distance in full, the others in a table.",
    ),
]
KnownItems = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option(
        metavar="NUMBER",
        min=0,
        help="Database images that are altered (cropped, resized, ...) and searched again; 0: "
        "none. Default: 500 on a GPU, 50 on a CPU.",
    ),
]
Data = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(help="New location of the data, if they were moved after training."),
]


def evaluate(
    run: options.TrainedRun = None,
    queries: QueryFile = None,
    database: DatabaseFile = None,
    labels: LabelTable = None,
    depth: Depth = None,
    rank: Rank = None,
    weight: options.Weight = None,
    known_item: KnownItems = None,
    data: Data = None,
    data_root: options.Root = None,
    device: options.Device = "auto",
    json: options.Json = False,
) -> None:
    """Measure retrieval: mAP (exact over ties), precision, recall, bit balance.

    With RUN: encodes the held-out queries and the database, then scores them, and searches altered
    copies of database images. With --queries and --database: scores two code files by Hamming
    distance, and with --rank photo also by their content bits.

    Example: hadahash evaluate runs/photos
    """
    if rank is not None and rank not in _RANKS:
        raise unknown("ranking", rank, _RANKS)
    if weight is not None and rank in ("hamming", "class"):
        raise UsageError(f"--weight is for --rank photo, got --rank {rank}.")
    if run is not None and queries is None and database is None and labels is None:
        report = _of_run(run, data, data_root, depth, device, rank, weight, known_item)
    elif run is None and queries is not None and database is not None:
        _check_for_files(rank, weight, known_item)
        from ..runs import evaluate_files

        ranks = () if rank in (None, "hamming") else (rank,)
        report = evaluate_files(
            queries,
            database,
            labels=labels,
            depth=_parse_depth(depth),
            ranks=ranks,
            weight=weight,
        )
    else:
        raise UsageError(
            "Give a run, or both --queries and --database. Example: hadahash evaluate runs/photos"
        )
    if json:
        output.as_json(report.to_dict())
        return
    _show(report, rank)
    if run is not None:
        output.info(
            f"next: hadahash report {run}, or search your photos: hadahash index build {run} PHOTOS"
        )


def _show(report: Report, rank: str | None) -> None:
    """The headline is always Hamming distance, unless one other ranking is asked for."""
    others = report.rankings
    if rank in others:
        output.result(str(others[rank]))
    else:
        output.result(str(report))
    if rank == "all":
        for other in others.values():
            output.result(f"\n{other}")
    if others or report.known_item:
        output.result(f"\n{report.table()}")
    if report.known_item:
        first = next(iter(next(iter(report.known_item.values())).values()))
        output.result(
            f"copy: {first.queries} database images, altered in {_alterations(report)} ways and "
            "searched; expected over ties. Of each way, first / in ten:"
        )
        output.result(f"\n{report.copies_table()}")


def _alterations(report: Report) -> int:
    return sum(name != "none" for name in next(iter(report.known_item.values())))


def _check_for_files(rank: str | None, weight: float | None, known_item: int | None) -> None:
    if rank not in (None, "hamming", "photo") or known_item:
        raise UsageError(
            "Code files are ranked by Hamming distance only, or by photo if they have content "
            "bits. Give a run for other rankings and --known-item."
        )
    if weight is not None and rank != "photo":
        raise UsageError("--weight for code files needs --rank photo.")


def _of_run(
    run: Path,
    data: str | None,
    root: Path | None,
    depth: str | None,
    device: str,
    rank: str | None,
    weight: float | None,
    known_item: int | None,
) -> Report:
    from ..data.alterations import ALTERATIONS
    from ..light_export import for_long_job
    from ..runs import RunDir, evaluate_run, open_run_data, usual_sample

    folder = RunDir(run)
    record = folder.record()
    model = folder.model(record, device=device)
    total = record["queries"] + record["database"]
    count = usual_sample(model.runtime.device) if known_item is None else known_item
    copies = min(count, record["database"]) * len(ALTERATIONS)
    dataset = open_run_data(folder, record, data=data, root=str(root) if root else None)
    model = for_long_job(model, dataset.images, device=device, info=output.info, more=copies)
    with output.progress("encoding", total + copies) as advance:
        report = evaluate_run(
            run,
            data=data,
            depth=_parse_depth(depth),
            model=model,
            dataset=dataset,
            progress=advance,
            ranks=None if rank in (None, "all") else [rank],
            weight=weight,
            known_items=count,
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
