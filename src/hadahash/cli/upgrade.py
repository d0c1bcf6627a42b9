"""`hadahash index upgrade`: change the model of an index that is in use."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from ..errors import UsageError
from . import options, output

NewRun = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option("--run", help="Folder of the run with the new model."),
]
Bits = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option(help="Keep only the first bits of the new codes.", show_default="all"),
]
Rollback = Annotated[
    bool, typer.Option("--rollback", help="Go back to the codes before the last upgrade.")
]
DiscardOld = Annotated[
    bool,
    typer.Option(
        "--discard-old", help="Remove the codes before the last upgrade, and unfinished ones."
    ),
]
DropMissing = Annotated[
    bool,
    typer.Option(
        "--drop-missing", help="Leave out items whose files are missing or cannot be read."
    ),
]
EmbeddingFile = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(
        "--embeddings", help="The embeddings (.npy, .npz, .parquet), for an index of embeddings."
    ),
]


def upgrade(
    index: Annotated[Path, typer.Argument(help="Folder of an index.")],
    run: NewRun = None,
    rollback: Rollback = False,
    discard_old: DiscardOld = False,
    bits: Bits = None,
    drop_missing: DropMissing = False,
    embeddings: EmbeddingFile = None,
    device: options.Device = "auto",
) -> None:
    """Encode the photos of an index with a new model, then switch to the new codes.

    The index can be searched, served and changed all the time: the new codes are made beside the
    old ones, take over what changed in the meantime, and replace them in one step. A running
    service changes to them by itself. The old codes are kept for --rollback until the next upgrade
    or --discard-old. Run it again to continue after an interruption.

    Example: hadahash index upgrade photos.index --run runs/better
    """
    from ..photos import upgrade as upgrading

    if sum((run is not None and not rollback, rollback, discard_old)) != 1:
        raise UsageError("Give one of --run RUN, --rollback and --discard-old.")
    settings = upgrading.UpgradeOptions(
        bits=bits, drop_missing=drop_missing, embeddings=embeddings, device=device
    )
    if discard_old:
        removed = upgrading.discard_old(index, settings)
        output.result(f"{index}: {'old codes removed' if removed else 'no old codes'}")
        return
    if rollback:
        done = upgrading.rollback(
            index, run=run, options=settings, bar=output.progress, info=output.info
        )
    else:
        done = upgrading.upgrade(
            index, run or "", options=settings, bar=output.progress, info=output.info
        )
    output.result(f"{index}: {done}")
    output.info(
        f"The codes before are kept: hadahash index upgrade {index} --rollback, or --discard-old"
    )
