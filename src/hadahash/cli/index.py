"""`hadahash index`: build, update and inspect an index of photos."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from ..errors import DataError
from . import options, output

if TYPE_CHECKING:
    from ..model import HashModel
    from ..photos import PhotoIndex, Scan, SyncPlan

app = typer.Typer(help="Build, update and inspect an index of photos.", no_args_is_help=True)

Index = Annotated[Path, typer.Argument(help="Folder of an index.")]


@app.command("build")
def build(
    run: Annotated[Path, typer.Argument(help="Folder of a trained run.")],
    folder: Annotated[Path, typer.Argument(help="Folder of photos, searched recursively.")],
    out: Annotated[Path, typer.Option(help="Folder of the index.")] = Path("photos.index"),
    engine: Annotated[
        str | None, typer.Option(help="exact (the default), routed or milvus.")
    ] = None,
    bits: Annotated[
        int | None, typer.Option(help="Keep only the first bits of the codes.", show_default="all")
    ] = None,
    moved: Annotated[
        bool, typer.Option("--moved", help="The photo folder was moved; update the index.")
    ] = False,
    checksum: Annotated[
        bool, typer.Option("--checksum", help="Compare file contents, not size and time.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would change; change nothing.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Continue if most indexed files are missing.")
    ] = False,
    allow_empty: Annotated[
        bool, typer.Option("--allow-empty", help="Continue if the folder has no images.")
    ] = False,
    set_: Annotated[
        Optional[list[str]],  # noqa: UP045
        options.changes("Change an option of the engine, e.g. --set uri=http://host:19530"),
    ] = None,
    device: options.Device = "auto",
) -> None:
    """Encode a folder of photos into an index.

    Run again to sync: adds new and changed files, removes deleted ones; renamed files keep their
    codes. The top-level folder of an image is its label. Unreadable files are listed in skipped.csv
    in the index. With --engine milvus the codes are stored on a server: --set uri=http://host:19530
    --set collection=photos, or HADAHASH_MILVUS_URI and HADAHASH_MILVUS_TOKEN.

    Example: hadahash index build runs/photos photos/ --out photos.index
    """
    from ..model import HashModel
    from ..photos import PhotoIndex, scan_folder, shorten_for
    from ..settings import parse_assignments

    scan = scan_folder(folder)
    _show_notice(scan)
    if not scan.photos and not out.exists() and not allow_empty:
        raise DataError(
            f"{folder} contains no images. To build an empty index, pass --allow-empty."
        )
    model = shorten_for(HashModel.load(run, device=device), out, bits)
    settings = parse_assignments(set_ or [])
    photos = PhotoIndex.open_or_create(
        out, model, run, folder, engine=engine, moved=moved, **settings
    )
    plan = photos.plan(scan, whole=Path(folder).resolve(), checksum=checksum)
    if dry_run:
        _show_plan(photos, plan)
        return
    plan.check_deletions(allow_empty=allow_empty, allow_deletions=yes)
    _apply(photos, plan, model)
    output.info(f"next: hadahash serve {out}, or: hadahash search {out} IMAGE")


@app.command("add")
def add(
    index: Index,
    sources: Annotated[
        list[Path],
        typer.Argument(help="Image files, or folders (searched recursively)."),
    ],
    prefix: Annotated[
        str, typer.Option(help="Prefix of each new id, to avoid conflicts: --prefix old/.")
    ] = "",
    run: options.Run = None,
    device: options.Device = "auto",
) -> None:
    """Add images to an index or update them; nothing is removed.

    Example: hadahash index add photos.index more-photos/ --prefix more/
    """
    from ..photos import PhotoIndex, load_model_of, scan_paths

    photos = PhotoIndex.open(index)
    scan = scan_paths(sources, home=photos.home, prefix=prefix)
    _show_notice(scan)
    if not scan.photos:
        raise DataError(f"No image found in {', '.join(map(str, sources))}.")
    model = load_model_of(photos.index, index, run, device=device)
    _apply(photos, photos.plan(scan), model)


def _show_notice(scan: Scan) -> None:
    if scan.notice:
        output.info(scan.notice)


def _show_plan(photos: PhotoIndex, plan: SyncPlan) -> None:
    for photo in plan.encode:
        output.result(f"encode  {photo.id}")
    for old, photo in plan.renamed.items():
        output.result(f"rename  {old} -> {photo.id}")
    for each in plan.deleted:
        output.result(f"remove  {each}")
    output.info(f"{photos.folder}: {plan} (dry run, nothing was changed)")


def _apply(photos: PhotoIndex, plan: SyncPlan, model: HashModel) -> None:
    from ..photos import SKIPPED

    with output.progress("encoding", len(plan.encode)) as progress:
        summary = photos.apply(plan, model, progress=progress)
    if summary.skipped:
        output.info(f"{summary.skipped:,} images could not be read: see {photos.folder / SKIPPED}")
    output.result(f"{photos.folder}: {summary}")


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
    from ..photos import Catalog

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
        "verified": verify,
    }
    if json:
        output.as_json(facts)
        return
    facts["labels"] = counts_text(facts["labels"])
    facts["verified"] = "yes" if verify else "not checked (--verify)"
    for name, value in facts.items():
        output.result(f"{name:<12}{f'{value:,}' if type(value) is int else value}")


@app.command("duplicates")
def duplicates(
    index: Index,
    radius: Annotated[int, typer.Option(help="Maximum Hamming distance; 0: identical codes.")] = 0,
    json: options.Json = False,
) -> None:
    """Find groups of images with nearly the same code.

    Codes of a supervised method separate classes, so a large radius groups whole classes: start
    with 0.

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
