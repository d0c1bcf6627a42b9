from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from .. import files
from ..settings import parse_assignments
from ..hasher import Hasher
from ..runs import Source, train_run
from ..training import workers_here
from . import options, show


def train(
    data: Annotated[
        str,
        typer.Argument(
            help="A folder of class folders, a table (.csv), or a data set's name (cifar10)."
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder for the run: model, log, split, checkpoint.")],
    method: options.Method = "hcdh",
    bits: options.Bits = 64,
    backbone: options.Backbone = "efficientnet_lite0",
    weights: options.Weights = "imagenet",
    frozen: Annotated[
        bool, typer.Option("--frozen", help="Train only the head, on features computed once.")
    ] = False,
    seed: options.Seed = 0,
    protocol: options.Protocol = None,
    validation: Annotated[
        float, typer.Option(help="Share of the training images held out, to choose settings by.")
    ] = 0.0,
    data_root: options.Root = None,
    config: Annotated[
        Path | None, typer.Option(help="TOML file with settings; --set goes over it.")
    ] = None,
    set_: Annotated[
        Optional[list[str]],  # noqa: UP045
        options.changes(
            "Change a setting, for example --set epochs=10; `hadahash settings` shows them"
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the run's last checkpoint.")
    ] = False,
    device: options.Device = "auto",
) -> None:
    """Learn codes from labelled images. On several GPUs: torchrun --nproc-per-node 2 -m hadahash train ...

    Example: hadahash train photos/ --bits 64 --out runs/photos
    """
    settings: dict[str, Any] = {
        **(files.read_toml(config) if config else {}),
        **parse_assignments(set_ or []),
    }
    if frozen:
        settings["frozen"] = True
    hasher = Hasher(
        method, bits=bits, backbone=backbone, seed=seed, weights=weights, device=device, **settings
    )
    source = Source(data, str(data_root) if data_root else None, protocol, validation)
    train_run(hasher, source, out, resume=resume, progress=show.watched(), say=show.say)
    if workers_here().rank > 0:
        return  # the first process speaks for all
    about = files.read_json(out / "run.json")
    if hasher.skipped:
        show.say(f"{len(hasher.skipped)} images could not be read: see {out / 'skipped.csv'}")
    if hasher.outcome:
        show.say(f"trained on {about['train_images']:,} images in {hasher.outcome.seconds:.1f} s")
    if "validation_map" in about:
        show.result(f"validation mAP {about['validation_map']:.4f}")
    show.result(f"saved in {out}; next: hadahash evaluate {out}")
