from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from ..hasher import Hasher
from ..index import Index as AnyIndex
from ..index.duplicates import duplicate_groups
from ..photos import SKIPPED, PhotoIndex, Plan, check_model, model_of, photos_at, photos_of
from ..settings import parse_assignments
from . import options, output

app = typer.Typer(
    help="Keep the codes of a photo collection in an index, to search in.", no_args_is_help=True
)

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
    """Encode a folder of photos into an index; run it again to follow new, changed and vanished files.

    The class folder of an image is its label. Unreadable files are listed in skipped.csv in the index. With --engine milvus
    the codes go to a server: --set uri=http://host:19530 --set collection=photos, or HADAHASH_MILVUS_URI and _TOKEN.

    Example: hadahash index build runs/photos photos/ --out photos.index
    """
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
        str,
        typer.Option(
            help="Put this before each id, for example old/, so that no two are the same."
        ),
    ] = "",
    run: options.Run = None,
    device: options.Device = "auto",
) -> None:
    """Add images to an index, or bring them up to date; nothing is removed.

    Example: hadahash index add photos.index more-photos/ --prefix more/
    """
    photos = PhotoIndex.open(index)
    hasher = model_of(photos.index, index, run, device=device)
    _apply(photos, photos.plan(photos_at(sources, home=photos.home, prefix=prefix)), hasher)


def _apply(photos: PhotoIndex, plan: Plan, hasher: Hasher) -> None:
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
    """Remove items from an index. A file that is still in the folder comes back with the next build.

    Example: hadahash index remove photos.index cat/001.jpg
    """
    photos = PhotoIndex.open(index)
    photos.index.get(_typed(photos.index, ids))  # all must be there
    output.result(
        f"{index}: {photos.remove(_typed(photos.index, ids)):,} removed, {len(photos.index):,} left"
    )


def _typed(index: AnyIndex, ids: list[str]) -> list[Any]:
    """Ids as the index has them."""
    numbers = index.ids_are is int and all(each.removeprefix("-").isdecimal() for each in ids)
    return [int(each) for each in ids] if numbers else list(ids)


@app.command("info")
def info(
    index: Index,
    verify: Annotated[
        bool,
        typer.Option("--verify", help="Also compare everything that is stored with its checksums."),
    ] = False,
    json: options.Json = False,
) -> None:
    """Say what an index holds.

    Example: hadahash index info photos.index --verify
    """
    opened = AnyIndex.open(index)
    if verify:
        opened.verify()
    kind = opened.ids_are
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
    for name, value in figures.items():
        output.result(f"{name:<12}{f'{value:,}' if type(value) is int else value}")


@app.command("duplicates")
def duplicates(
    index: Index,
    radius: Annotated[
        int, typer.Option(help="Bits in which two images may differ: 0 means the same code.")
    ] = 0,
    json: options.Json = False,
) -> None:
    """Find groups of images whose codes are nearly the same.

    The codes tell classes apart, so a radius that is too large gathers whole classes: begin with 0.

    Example: hadahash index duplicates photos.index --radius 1
    """
    groups = duplicate_groups(AnyIndex.open(index), radius)
    if json:
        output.as_json({"radius": radius, "groups": groups})
        return
    for number, group in enumerate(groups, 1):
        output.result(f"group {number}, {len(group):,} images")
        for each in group:
            output.result(f"  {each}")
    output.info(f"{len(groups):,} groups within {radius} bits")
