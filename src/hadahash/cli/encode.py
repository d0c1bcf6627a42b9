from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..data.sources import as_images
from ..encoding import parse_shard, shard_rows
from ..hasher import Hasher
from . import options, show


def encode(
    run: Annotated[Path, typer.Argument(help="Folder of a trained run.")],
    images: Annotated[
        Path,
        typer.Argument(help="An image, or a folder that is searched with all its sub-folders."),
    ],
    out: Annotated[Path, typer.Option(help="Where the codes go: a .npz or .parquet file.")] = Path(
        "codes.npz"
    ),
    shard: Annotated[
        str, typer.Option(help="Encode only the i-th of n equal parts, for example 1/4.")
    ] = "1/1",
    device: options.Device = "auto",
) -> None:
    """Turn images into codes. An interrupted job goes on where it stopped; unreadable images are listed in skipped.csv.

    Example: hadahash encode runs/photos photos/ --out photos.npz
    """
    part = parse_shard(shard)
    hasher = Hasher.load(run, device=device)
    source = as_images(images)
    with show.progress("encoding", len(shard_rows(len(source.images), part))) as advance:
        codes = hasher.encode_to_file(source, out, shard=part, advance=advance)
    if codes.skipped:
        listing = (
            out.with_name(f"{out.stem}-skipped.csv")
            if shard != "1/1"
            else out.with_name("skipped.csv")
        )
        codes.save_skipped(listing)
        show.say(f"{len(codes.skipped):,} images could not be read: see {listing}")
    show.result(f"{len(codes):,} codes of {codes.bits} bits in {out}")
