"""The command `hadahash train`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from . import options, output


def train(
    context: typer.Context,
    data: Annotated[
        str,
        typer.Argument(help="A folder of class folders, a table (.csv), or a data set (cifar10)."),
    ],
    out: Annotated[Path, typer.Option(help="Run folder to write: model, log, split, checkpoint.")],
    method: options.Method = options.DEFAULT_METHOD,
    bits: options.Bits = 64,
    backbone: options.Backbone = "efficientnet_lite0",
    weights: options.Weights = "imagenet",
    frozen: options.Frozen = False,
    seed: options.Seed = 0,
    split_seed: options.SplitSeed = None,
    protocol: options.Protocol = None,
    validation: options.Validation = 0.0,
    data_root: options.Root = None,
    config: options.ConfigFile = None,
    set_: options.TrainSettings = None,
    plugin: options.Plugins = None,
    resume: options.Resume = False,
    overwrite: options.Overwrite = False,
    device: options.Device = "auto",
) -> None:
    """Train a model that maps labelled images to binary codes.

    On several GPUs: torchrun --nproc-per-node 2 -m hadahash train ...

    Example: hadahash train photos/ --bits 64 --out runs/photos
    """
    from ..building import make_config
    from ..runs import DataSpec, train_run

    configuration = make_config(
        method,
        bits=bits,
        backbone=backbone,
        weights=weights,
        seed=seed,
        split_seed=split_seed,
        plugins=[*(context.obj or []), *(plugin or [])],
        settings=_read_settings(config, set_ or []) | ({"frozen": True} if frozen else {}),
    )
    spec = DataSpec(data, str(data_root) if data_root else None, protocol, validation)
    train_run(
        configuration,
        spec,
        out,
        resume=resume,
        overwrite=overwrite,
        device=device,
        progress=output.is_interactive(),
        info=output.info,
    )
    _report(out)


def _read_settings(config: Path | None, assignments: list[str]) -> dict[str, Any]:
    """Read the settings of --config and --set."""
    from ..files import read_toml
    from ..settings import parse_assignments

    return (read_toml(config) if config else {}) | parse_assignments(assignments)


def _report(out: Path) -> None:
    """Print what was trained, in the first process only."""
    from ..runs import RunDir
    from ..training import current_processes

    if current_processes().rank > 0:
        return
    record = RunDir(out).record()
    if (out / "skipped.csv").exists():
        output.info(f"Some images could not be read: see {out / 'skipped.csv'}")
    if record.get("train_seconds"):
        images, seconds = record["train_images"], record["train_seconds"]
        output.info(f"trained on {images:,} images in {seconds:.1f} s")
    fraction = record.get("validation")
    more = f", and {fraction:.0%} of the training images for validation" if fraction else ""
    output.info(f"held out: {record['queries']:,} images as queries for evaluate{more}")
    if "validation_map" in record:
        output.result(f"validation mAP {record['validation_map']:.4f}")
    output.result(f"saved in {out}; next: hadahash evaluate {out}")
