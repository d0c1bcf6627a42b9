"""The command `hadahash encode`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from . import options, output

if TYPE_CHECKING:
    from ..codes import Codes


def encode(
    run: Annotated[Path, typer.Argument(help="Folder of a trained run.")],
    images: Annotated[
        Path,
        typer.Argument(help="An image, a folder (searched recursively), or a table."),
    ],
    out: Annotated[
        Path,
        typer.Option(
            help="Code file to write: .npz or .parquet.",
            parser=options.named_path,
            metavar="PATH",
        ),
    ] = Path("codes.npz"),
    shard: Annotated[
        str, typer.Option(help="Encode only the i-th of n equal parts, for example 1/4.")
    ] = "1/1",
    batch_size: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="Images per batch.", min=1),
    ] = None,
    device: options.Device = "auto",
) -> None:
    """Turn images into codes.

    Run the same command again to resume an interrupted job; unreadable images are listed in
    skipped.csv.

    Example: hadahash encode runs/photos photos/ --out photos.npz
    """
    from ..codes import write_skipped
    from ..data.sources import as_images
    from ..encoding import parse_shard, shard_rows
    from ..model import HashModel

    part = parse_shard(shard)
    model = HashModel.load(run, device=device)
    source = as_images(images)
    with output.progress("encoding", len(shard_rows(len(source.images), part))) as advance:
        codes = model.encode_to_file(
            source, out, shard=part, batch_size=batch_size, progress=advance
        )
    name = "skipped.csv" if shard == "1/1" else f"{out.stem}-skipped.csv"
    write_skipped(out.with_name(name), codes.skipped)
    if codes.skipped:
        count = len(codes.skipped)
        output.info(f"{count:,} images could not be read: see {out.with_name(name)}")
    output.result(f"{len(codes):,} codes of {_length(codes)} in {out}")


def _length(codes: Codes) -> str:
    """The length of codes, in words."""
    more = f" and {codes.content_bits} content bits" if codes.content_bits else ""
    return f"{codes.bits} bits{more}"
