"""`hadahash index`: build, update and inspect an index of photos."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from ..errors import DataError, UsageError
from . import options, output
from .upgrade import upgrade

if TYPE_CHECKING:
    from ..model import HashModel
    from ..photos import Build, PhotoIndex, Scan, SyncPlan, SyncSummary

app = typer.Typer(help="Build, update and inspect an index of photos.", no_args_is_help=True)
app.command("upgrade")(upgrade)

Index = Annotated[Path, typer.Argument(help="Folder of an index.")]
Sources = Annotated[
    list[str],
    typer.Argument(
        metavar="[RUN] PHOTOS",
        help="PHOTOS: a folder (searched recursively), a table, a data set name, or a file of"
        " embeddings (.npy, .npz, .parquet, .arrow). RUN: folder of a trained run; without it,"
        " codes are learned from the photos.",
    ),
]
IndexFolder = Annotated[Path, typer.Option(help="Folder of the index.")]
Engine = Annotated[str | None, typer.Option(help="exact (the default), routed or milvus.")]
Bits = Annotated[
    int | None, typer.Option(help="Keep only the first bits of the codes.", show_default="all")
]
EmbeddingLabels = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(help="Labels of embeddings: a text file, a .npy file, or a column."),
]
FollowLinks = Annotated[
    Optional[bool],  # noqa: UP045
    typer.Option(
        "--follow-links/--no-follow-links",
        help="Follow symbolic links to folders and out of the folder.",
        show_default=False,
    ),
]
Moved = Annotated[
    bool, typer.Option("--moved", help="The photo folder was moved; update the index.")
]
Checksum = Annotated[
    bool, typer.Option("--checksum", help="Compare file contents, not size and time.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would change; change nothing.")]
Yes = Annotated[bool, typer.Option("--yes", help="Continue if most indexed files are missing.")]
AllowEmpty = Annotated[
    bool, typer.Option("--allow-empty", help="Continue if the folder has no images.")
]
EngineSettings = Annotated[
    Optional[list[str]],  # noqa: UP045
    options.changes("Change an option of the engine, e.g. --set uri=http://host:19530"),
]


@app.command("build")
def build(
    sources: Sources,
    out: IndexFolder = Path("photos.index"),
    engine: Engine = None,
    bits: Bits = None,
    exclude: options.Exclude = None,
    follow_links: FollowLinks = None,
    moved: Moved = False,
    checksum: Checksum = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    allow_empty: AllowEmpty = False,
    set_: EngineSettings = None,
    data_root: options.Root = None,
    labels: EmbeddingLabels = None,
    array: options.Array = None,
    ids: options.Ids = None,
    device: options.Device = "auto",
) -> None:
    """Encode photos, or embeddings, into an index.

    Run again to sync: adds new and changed files, removes deleted ones; renamed files keep their
    codes. Labels are those of the table, or the top-level folder of each photo. Patterns of
    --exclude and --follow-links are remembered. Unreadable files are listed in skipped.csv in the
    index. With --engine milvus the codes are stored on a server: --set uri=http://host:19530
    --set collection=photos, or HADAHASH_MILVUS_URI and HADAHASH_MILVUS_TOKEN.

    Example: hadahash index build photos/ --out photos.index
    """
    from ..data.embedding_files import is_embedding_file
    from ..photos import Build, BuildOptions
    from ..settings import parse_assignments

    if len(sources) > 2:
        raise UsageError(f"Give [RUN] PHOTOS, got {len(sources)} arguments.")
    if is_embedding_file(sources[-1]):
        changed = parse_assignments(set_ or []) | ({"engine": engine} if engine else {})
        files = {"labels": labels, "array": array, "ids": ids}
        _build_of_embeddings(sources, out, files, device=device, **changed)
        return
    settings = BuildOptions(
        engine=engine,
        bits=bits,
        settings=parse_assignments(set_ or []),
        exclude=exclude,
        follow_links=follow_links,
        data_root=data_root,
        moved=moved,
        checksum=checksum,
        allow_deletions=yes,
        allow_empty=allow_empty,
        device=device,
    )
    run = Path(sources[0]) if len(sources) == 2 else None
    prepared = Build.prepare(sources[-1], out, run=run, options=settings, bar=output.progress)
    _run_build(prepared, sources, out, dry_run)


def _run_build(prepared: Build, sources: list[str], out: Path, dry_run: bool) -> None:
    """Build or update an index, or only show what would change."""
    _show_notice(prepared.scan)
    if dry_run:
        _show_plan(out, prepared.plan())
        return
    from ..pace import measured

    with measured() as pace:
        summary = prepared.apply(bar=output.progress, progress=True, info=output.info)
    output.show_pace(pace)
    _show_summary(out, summary)
    _show_next(out, sources, prepared)


def _build_of_embeddings(
    sources: list[str], out: Path, files: dict[str, str | None], *, device: str, **options: Any
) -> None:
    """Build an index of a file of embeddings."""
    from ..data.embedding_files import open_embeddings, read_values
    from ..photos.vectors import build_vector_index

    path, labels = sources[-1], files["labels"]
    source = open_embeddings(path, array=files["array"], ids=files["ids"])
    with output.progress("encoding", len(source)) as progress:
        index = build_vector_index(
            out,
            source,
            run=sources[0] if len(sources) == 2 else None,
            labels=None if labels is None else read_values(path, labels),
            device=device,
            progress=progress,
            **options,
        )
    if len(index) < len(source):
        output.info(f"{len(source) - len(index):,} rows were skipped: see {out / 'skipped.csv'}")
    output.result(f"{out}: {len(index):,} embeddings, {index.bits} bits each")
    output.info(f"next: hadahash search {out} --vector FILE.npy, or --id ID")


@app.command("add")
def add(
    index: Index,
    sources: Annotated[
        list[str],
        typer.Argument(
            help="Image files, folders (searched recursively), tables, addresses, or archives."
        ),
    ],
    prefix: Annotated[
        str, typer.Option(help="Prefix of each new id, to avoid conflicts: --prefix old/.")
    ] = "",
    exclude: options.Exclude = None,
    follow_links: FollowLinks = None,
    dry_run: DryRun = False,
    run: options.Run = None,
    device: options.Device = "auto",
) -> None:
    """Add images to an index or update them; nothing is removed.

    The index remembers the folders, so that `hadahash serve` shows their photos too.

    Example: hadahash index add photos.index more-photos/ --prefix more/
    """
    from ..photos import PhotoIndex, load_model_of, scan_options, scan_paths

    photos = PhotoIndex.open(index)
    rules = scan_options({}, exclude=exclude, follow_links=follow_links)
    scan = scan_paths(sources, rules, home=photos.home, prefix=prefix)
    _show_notice(scan)
    if not scan.photos:
        raise DataError(f"No image found in {', '.join(map(str, sources))}.")
    plan = photos.plan(scan)
    if dry_run:
        _show_plan(index, plan)
        return
    _apply(photos, plan, load_model_of(photos.index, index, run, device=device), device)


def _show_notice(scan: Scan) -> None:
    if scan.notice:
        output.info(scan.notice)


def _show_plan(index: Path, plan: SyncPlan) -> None:
    for photo in plan.encode:
        output.result(f"encode  {photo.id}")
    for old, photo in plan.renamed.items():
        output.result(f"rename  {old} -> {photo.id}")
    for photo in plan.relabelled:
        output.result(f"relabel {photo.id}: {', '.join(photo.labels) or 'no label'}")
    for each in plan.deleted:
        output.result(f"remove  {each}")
    output.info(f"{index}: {plan} (dry run, nothing was changed)")


def _apply(photos: PhotoIndex, plan: SyncPlan, model: HashModel, device: str) -> None:
    from ..pace import measured
    from ..photos import model_for

    model = model_for(plan, model, device=device, info=output.info)
    with measured() as pace, output.progress("encoding", len(plan.encode)) as progress:
        summary = photos.apply(plan, model, progress=progress)
    output.show_pace(pace)
    _show_summary(photos.folder, summary)


def _show_summary(index: Path, summary: SyncSummary) -> None:
    from ..photos import SKIPPED

    if summary.skipped:
        output.info(f"{summary.skipped:,} images could not be read: see {index / SKIPPED}")
    output.result(f"{index}: {summary}")


def _show_next(index: Path, sources: list[str], built: Build) -> None:
    """Say what can be done with a new index."""
    output.info(f"next: hadahash serve {index}, or: hadahash search {index} IMAGE")
    labels = {label for photo in built.scan.photos for label in photo.labels}
    if built.run is None and len(labels) > 1:
        photos = sources[-1]
        output.info(
            f"If the {len(labels):,} labels are classes, a trained model finds them better: "
            f"hadahash train {photos} --out RUN; hadahash index upgrade {index} --run RUN"
        )


@app.command("remove")
def remove(
    index: Index,
    ids: Annotated[list[str], typer.Argument(help="Ids, as `search` shows them.")],
) -> None:
    """Remove items from an index.

    The next build adds them again if their files are still in the folder.

    Example: hadahash index remove photos.index cat/001.jpg
    """
    from ..index import parse_id
    from ..photos import PhotoIndex

    photos = PhotoIndex.open(index)
    parsed = [parse_id(each, photos.index.id_type) for each in ids]
    photos.index.get(parsed)  # raises if an id is unknown
    removed = photos.remove(parsed)
    output.result(f"{index}: {removed:,} removed, {len(photos.index):,} left")


@app.command("info")
def info(
    index: Index,
    verify: Annotated[
        bool, typer.Option("--verify", help="Also verify the checksums of all stored files.")
    ] = False,
    json: options.Json = False,
) -> None:
    """Show the contents of an index.

    Example: hadahash index info photos.index --verify
    """
    from ..index import Index as AnyIndex
    from ..messages import counts_text
    from ..photos import Catalog, missing_photos
    from ..photos.upgrade import previous_model

    opened = AnyIndex.open(index)
    if verify:
        opened.verify()
    facts: dict[str, Any] = {
        "items": len(opened),
        "bits": opened.bits,
        "engine": opened.engine,
        "ids": None if opened.id_type is None else opened.id_type.__name__,
        "labels": {str(label): count for label, count in opened.label_counts().items()},
        "skipped": Catalog(index).count_skipped(),
        "bytes": sum(path.stat().st_size for path in index.iterdir() if path.is_file()),
        **opened.meta,
        "previous": previous_model(index),
        "verified": verify,
    }
    problem = missing_photos(opened, index)
    if problem is not None:
        output.info(problem)
    if json:
        output.as_json(facts)
        return
    facts["labels"] = counts_text(facts["labels"])
    facts["previous"] = facts["previous"] or "none (no --rollback)"
    facts["verified"] = "yes" if verify else "not checked (--verify)"
    for name, value in facts.items():
        output.result(f"{name:<12}{f'{value:,}' if type(value) is int else value}")


@app.command("export")
def export(
    index: Index,
    to: Annotated[str, typer.Option(help="parquet, faiss or pgvector.")],
    out: Annotated[Path, typer.Option(help="File to write.")],
    table: Annotated[str, typer.Option(help="Name of the table, for pgvector.")] = "photos",
    class_weight: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(
            help="For faiss, if there are content bits: how often the class bits count. "
            "Default: as the model was fitted."
        ),
    ] = None,
) -> None:
    """Write codes, labels and paths for another engine.

    parquet: one row per photo. faiss: an IndexBinaryFlat, and OUT.csv with the id of each row.
    pgvector: a script for psql.

    Example: hadahash index export photos.index --to parquet --out photos.parquet
    """
    from ..exporting import export_index
    from ..index import Index as AnyIndex

    done = export_index(AnyIndex.open(index), to, out, table=table, class_weight=class_weight)
    output.result(f"{done.items:,} codes of {done.bits} bits in {', '.join(map(str, done.files))}")


@app.command("duplicates")
def duplicates(
    index: Index,
    radius: Annotated[int, typer.Option(help="Maximum Hamming distance; 0: identical codes.")] = 0,
    json: options.Json = False,
) -> None:
    """List groups of nearly equal images; `hadahash duplicates` does more.

    Content bits are compared. In an index without them, codes of a supervised method separate
    classes only, and a group may be a whole class.

    Example: hadahash index duplicates photos.index --radius 1
    """
    from ..index import Index as AnyIndex
    from ..index.duplicates import duplicate_groups

    opened = AnyIndex.open(index)
    with output.progress("comparing", len(opened)) as progress:
        groups = duplicate_groups(opened, radius, progress=progress)
    if json:
        output.as_json({"radius": radius, "groups": groups})
        return
    for number, group in enumerate(groups, 1):
        output.result(f"group {number}, {len(group):,} images")
        for each in group:
            output.result(f"  {each}")
    output.info(f"{len(groups):,} groups within {radius} bits")
