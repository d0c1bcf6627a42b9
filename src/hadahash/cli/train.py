"""The command `hadahash train`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ..errors import DataError, UsageError
from . import options, output

if TYPE_CHECKING:
    from ..config import Config
    from ..data import LabelledImages
    from ..runs import DataSpec

_NO_GPU = (
    "No GPU: the backbone stays fixed and only the head is trained. "
    "--no-frozen trains the backbone too, which takes much longer."
)


def train(
    context: typer.Context,
    out: options.RunFolder,
    data: options.TrainingData = None,
    embeddings: options.Embeddings = None,
    labels: options.EmbeddingLabels = None,
    array: options.Array = None,
    ids: options.Ids = None,
    method: options.Method = options.DEFAULT_METHOD,
    bits: options.Bits = 64,
    content_bits: options.ContentBits = None,
    backbone: options.Backbone = "efficientnet_lite0",
    weights: options.Weights = "imagenet",
    frozen: options.Frozen = None,
    seed: options.Seed = 0,
    split_seed: options.SplitSeed = None,
    protocol: options.Protocol = None,
    validation: options.Validation = 0.0,
    exclude: options.Exclude = None,
    data_root: options.Root = None,
    config: options.ConfigFile = None,
    set_: options.TrainSettings = None,
    plugin: options.Plugins = None,
    resume: options.Resume = False,
    overwrite: options.Overwrite = False,
    device: options.Device = "auto",
) -> None:
    """Train a model that maps labelled images, or embeddings, to binary codes.

    itq and lsh need no labels: with --method itq, photos/ may be any folder. On several GPUs:
    torchrun --nproc-per-node 2 -m hadahash train ...

    Example: hadahash train photos/ --bits 64 --out runs/photos
    """
    from ..building import make_config

    if (data is None) == (embeddings is None):
        raise UsageError("Give either DATA or --embeddings FILE.")
    settings = _read_settings(config, set_ or [], frozen)
    configuration = make_config(
        method,
        bits=bits,
        backbone=backbone,
        weights=weights,
        seed=seed,
        split_seed=split_seed,
        plugins=[*(context.obj or []), *(plugin or [])],
        content_bits=content_bits,
        device=device,
        settings=settings,
    )
    more = {"protocol": protocol, "validation": validation, "labels": labels, "array": array}
    spec = _data_spec(str(data or embeddings), data_root, exclude, **more)
    dataset = _embeddings(spec, ids) if embeddings else _photos(spec, configuration)
    notes = _notes(configuration, settings) if embeddings is None else []
    handling: dict[str, Any] = {"resume": resume, "overwrite": overwrite, "device": device}
    _fit(configuration, spec, dataset, out, notes, **handling)


def _data_spec(data: str, root: Path | None, exclude: list[str] | None, **more: Any) -> DataSpec:
    """Where the data are, and how they are split."""
    from ..runs import DataSpec

    return DataSpec(data, str(root) if root else None, exclude=tuple(exclude or ()), **more)


def _notes(config: Config, settings: dict[str, Any]) -> list[str]:
    """What was chosen because there is no GPU."""
    frozen = bool(config.train and config.train.frozen)
    return [_NO_GPU] if frozen and "frozen" not in settings else []


def _embeddings(spec: DataSpec, ids: str | None) -> LabelledImages:
    """The data of --embeddings."""
    from ..data.sources import read_embeddings

    return read_embeddings(spec.data, spec.labels, array=spec.array, ids=ids)


def _photos(spec: DataSpec, config: Config) -> LabelledImages | None:
    """A folder without class folders, for a method without labels; None for other data."""
    from ..data.folder import read_images
    from ..data.remote import is_stored, open_stored
    from ..data.sources import without_labels
    from ..methods import METHODS

    if METHODS.get(config.method).uses_labels:
        return None
    if not (Path(spec.data).is_dir() or is_stored(spec.data)):
        return None
    try:
        spec.open()
    except DataError:  # no class folders
        read = open_stored if is_stored(spec.data) else read_images
        return without_labels(read(spec.data, exclude=spec.exclude))
    return None


def _fit(
    config: Config,
    spec: DataSpec,
    data: LabelledImages | None,
    out: Path,
    notes: list[str],
    *,
    resume: bool,
    overwrite: bool,
    device: str,
) -> None:
    """Train on labelled data; fit a method that needs no labels on other data."""
    from ..runs import train_run

    if data is not None and not data.classes:
        _fit_unlabelled(config, spec, data, out, overwrite=overwrite, device=device)
        return
    train_run(
        config,
        spec,
        out,
        resume=resume,
        overwrite=overwrite,
        device=device,
        progress=True,
        dataset=data,
        info=partial(_info, notes),
    )
    _report(out)


def _fit_unlabelled(
    config: Config,
    spec: DataSpec,
    data: LabelledImages,
    out: Path,
    *,
    overwrite: bool,
    device: str,
) -> None:
    from ..methods import METHODS
    from ..runs import fit_unlabelled

    if METHODS.get(config.method).uses_labels:
        raise UsageError(f"{config.method} needs --labels. The methods itq and lsh need none.")
    model = fit_unlabelled(config, data, out, overwrite=overwrite, device=device, info=output.info)
    if (out / "skipped.csv").exists():
        output.info(f"Some rows or images could not be read: see {out / 'skipped.csv'}")
    output.info(f"fitted on {model.info['train_images']:,} of {len(data):,}")
    output.result(f"saved in {out}; next: hadahash index build {out} {spec.data}")


def _info(notes: list[str], text: str) -> None:
    """Print a message; after the first one, which shows that the data are there, the notes."""
    output.info(text)
    while notes:
        output.info(notes.pop(0))


def _read_settings(
    config: Path | None, assignments: list[str], frozen: bool | None
) -> dict[str, Any]:
    """Read the settings of --config, --set and --frozen."""
    from ..files import read_toml
    from ..settings import parse_assignments

    settings = (read_toml(config) if config else {}) | parse_assignments(assignments)
    return settings if frozen is None else settings | {"frozen": frozen}


def _report(out: Path) -> None:
    """Print what was trained, in the first process only."""
    from ..runs import RunDir
    from ..training import current_processes

    if current_processes().rank > 0:
        return
    record = RunDir(out).record()
    if (out / "skipped.csv").exists():
        output.info(f"Some images could not be read: see {out / 'skipped.csv'}")
    _report_time(record)
    fraction = record.get("validation")
    more = f", and {fraction:.0%} of the training images for validation" if fraction else ""
    output.info(f"held out: {record['queries']:,} images as queries for evaluate{more}")
    if "validation_map" in record:
        output.result(f"validation mAP {record['validation_map']:.4f}")
    output.result(f"saved in {out}; next: hadahash evaluate {out}")


def _report_time(record: dict[str, Any]) -> None:
    """Print how long training took, and how much of it went into reading the images."""
    seconds, reading = record.get("fit_seconds"), record.get("reading_seconds")
    if seconds is None or reading is None:  # a run of an earlier version
        return
    fixed = record["epochs"] is None or record["settings"].get("frozen")
    use = "computing their features" if fixed else "reading them"
    images = record["train_images"]
    output.info(f"trained on {images:,} images in {seconds:.1f} s ({reading:.1f} s {use})")
