"""`hadahash index`: build, update and inspect an index of photos."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from . import options, output

if TYPE_CHECKING:
    from ..hasher import Hasher
    from ..index import Index as AnyIndex
    from ..photos import PhotoIndex, Plan

app = typer.Typer(help="Build, update and inspect an index of photos.", no_args_is_help=True)

Index = Annotated[Path, typer.Argument(help="Folder of an index.")]


@app.command("build")
def build(
    run: Annotated[Path, typer.Argument(help="Folder of a trained run.")],
    folder: Annotated[
        Path, typer.Argument(help="Folder of photos, searched with all its sub-folders.")
    ],
    out: Annotated[Path, typer.Option(help="Folder of the index.")] = Path("photos.index"),
    engine: Annotated[
        str | None, typer.Option(help="exact (the default), routed or milvus.")
    ] = None,
    set_: Annotated[
        Optional[list[str]],  # noqa: UP045
        options.changes(
            "Change an option of the engine milvus, for example --set uri=http://host:19530"
        ),
    ] = None,
    device: options.Device = "auto",
) -> None:
    """Encode a folder of photos into an index.

    Run again to sync: adds new and changed files, removes deleted ones. The first folder of a path
    is the label of its images. Unreadable files are listed in skipped.csv in the index. With
    --engine milvus the codes go to a server: --set uri=http://host:19530 --set collection=photos,
    or HADAHASH_MILVUS_URI and HADAHASH_MILVUS_TOKEN.

    Example: hadahash index build runs/photos photos/ --out photos.index
    """
    from ..settings import parse_assignments
    from ..hasher import Hasher
    from ..photos import PhotoIndex, photos_of

    found = photos_of(folder)
    hasher = Hasher.load(run, device=device)
    photos = PhotoIndex.open_or_make(
        out, hasher, run, folder, engine=engine, **parse_assignments(set_ or [])
    )
    _apply(photos, photos.plan(found, vanished_from=photos.home), hasher)


@app.command("add")
def add(
    index: Index,
    sources: Annotated[
        list[Path],
        typer.Argument(help="Image files, or folders that are searched with all sub-folders."),
    ],
    prefix: Annotated[
        str, typer.Option(help="Put this before each new id, to avoid conflicts: --prefix old/.")
    ] = "",
    run: options.Run = None,
    device: options.Device = "auto",
) -> None:
    """Add images to an index or update them; nothing is removed.

    Example: hadahash index add photos.index more-photos/ --prefix more/
    """
    from ..photos import PhotoIndex, model_of, photos_at

    photos = PhotoIndex.open(index)
    hasher = model_of(photos.index, index, run, device=device)
    _apply(photos, photos.plan(photos_at(sources, home=photos.home, prefix=prefix)), hasher)


def _apply(photos: PhotoIndex, plan: Plan, hasher: Hasher) -> None:
    from ..photos import SKIPPED, check_model

    check_model(photos.index, hasher, photos.folder)
    with output.progress("encoding", len(plan.encode)) as advance:
        changes = photos.apply(plan, hasher, advance)
    if changes.skipped:
        output.info(f"{changes.skipped:,} images could not be read: see {photos.folder / SKIPPED}")
    output.result(f"{photos.folder}: {changes}")


@app.command("remove")
def remove(
    index: Index,
    ids: Annotated[list[str], typer.Argument(help="Ids, as `search` shows them.")],
) -> None:
    """Remove items from an index. The next build adds files again that are still in the folder.

    Example: hadahash index remove photos.index cat/001.jpg
    """
    from ..photos import PhotoIndex

    photos = PhotoIndex.open(index)
    photos.index.get(_typed(photos.index, ids))  # all must be there
    removed = photos.remove(_typed(photos.index, ids))
    output.result(f"{index}: {removed:,} removed, {len(photos.index):,} left")


def _typed(index: AnyIndex, ids: list[str]) -> list[Any]:
    """Ids as the index has them."""
    numbers = index.id_type is int and all(each.removeprefix("-").isdecimal() for each in ids)
    return [int(each) for each in ids] if numbers else list(ids)


@app.command("info")
def info(
    index: Index,
    verify: Annotated[
        bool, typer.Option("--verify", help="Also compare all stored files with their checksums.")
    ] = False,
    json: options.Json = False,
) -> None:
    """Show what an index holds.

    Example: hadahash index info photos.index --verify
    """
    from ..index import Index as AnyIndex

    opened = AnyIndex.open(index)
    if verify:
        opened.verify()
    kind = opened.id_type
    figures: dict[str, Any] = {
        "items": len(opened),
        "bits": opened.bits,
        "engine": opened.engine,
        "ids": None if kind is None else kind.__name__,
        "bytes": sum(path.stat().st_size for path in index.iterdir() if path.is_file()),
        **opened.meta,
        "verified": verify,
    }
    if json:
        output.as_json(figures)
        return
    figures["verified"] = "yes" if verify else "not checked (--verify)"
    for name, value in figures.items():
        output.result(f"{name:<12}{f'{value:,}' if type(value) is int else value}")


@app.command("duplicates")
def duplicates(
    index: Index,
    radius: Annotated[
        int, typer.Option(help="Largest number of differing bits; 0 means the same code.")
    ] = 0,
    json: options.Json = False,
) -> None:
    """Find groups of images with nearly the same code.

    Codes of a supervised method separate classes, so a large radius gathers whole classes: start
    with 0.

    Example: hadahash index duplicates photos.index --radius 1
    """
    from ..index import Index as AnyIndex
    from ..index.duplicates import duplicate_groups

    groups = duplicate_groups(AnyIndex.open(index), radius)
    if json:
        output.as_json({"radius": radius, "groups": groups})
        return
    for number, group in enumerate(groups, 1):
        output.result(f"group {number}, {len(group):,} images")
        for each in group:
            output.result(f"  {each}")
    output.info(f"{len(groups):,} groups within {radius} bits")
