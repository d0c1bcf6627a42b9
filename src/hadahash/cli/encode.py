"""The command `hadahash encode`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional, cast

import typer

from ..errors import UsageError, unknown
from ..settings import require
from . import options, output

if TYPE_CHECKING:
    from ..codes import Codes
    from ..data.base import ImageSource
    from ..model import HashModel
    from .encode_ray import Job


Images = Annotated[
    Optional[str],  # noqa: UP045
    typer.Argument(
        help="An image, a folder (searched recursively), a table, embeddings, an address "
        "(s3://bucket/photos), a .zip or .tar file, or .parquet files with images."
    ),
]
Method = Annotated[
    str, typer.Option(help="Method to fit on --embeddings if there is no run: itq or lsh.")
]
Bits = Annotated[int, typer.Option(help="Bits of the method that is fitted.")]
Seed = Annotated[int, typer.Option(help="Seed of the method that is fitted.")]
CodeFile = Annotated[
    Path,
    typer.Option(
        help="Code file to write: .npz or .parquet.", parser=options.named_path, metavar="PATH"
    ),
]
Shard = Annotated[str, typer.Option(help="Encode only the i-th of n equal parts, for example 1/4.")]
Engine = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        help="ray: encode on a Ray cluster, or in several processes. --out may then also be "
        "NAME.index, milvus:COLLECTION, or a folder for parquet parts.",
    ),
]
Address = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(help="With --engine ray: address of the cluster. Default: this machine."),
]
Workers = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option(
        help="With --engine ray: number of workers. Default: one per GPU, or one per core.",
        min=1,
    ),
]
Overwrite = Annotated[
    bool,
    typer.Option(
        "--overwrite", help="With --engine ray and a folder: replace the parts of another job."
    ),
]
BatchSize = Annotated[Optional[int], typer.Option(help="Images per batch.", min=1)]  # noqa: UP045


def encode(
    run: options.TrainedRun = None,
    images: Images = None,
    embeddings: options.Embeddings = None,
    method: Method = "itq",
    bits: Bits = 128,
    array: options.Array = None,
    ids: options.Ids = None,
    seed: Seed = 0,
    out: CodeFile = Path("codes.npz"),
    shard: Shard = "1/1",
    exclude: options.Exclude = None,
    engine: Engine = None,
    address: Address = None,
    workers: Workers = None,
    overwrite: Overwrite = False,
    batch_size: BatchSize = None,
    device: options.Device = "auto",
) -> None:
    """Turn images or embeddings into codes.

    Run the same command again to resume an interrupted job; unreadable images are listed in
    skipped.csv. Without a run, --embeddings fits itq on the embeddings first, and saves the model
    beside the codes.

    Example: hadahash encode runs/photos photos/ --out photos.npz
    """
    from ..data.sources import open_embeddings
    from ..encoding import parse_shard
    from ..model import HashModel
    from ..ray_encoding import RayOptions
    from .encode_ray import Job

    part = parse_shard(shard)
    if (images is None) == (embeddings is None) or (run is None and embeddings is None):
        raise UsageError("Give RUN and IMAGES, or --embeddings FILE, with RUN or without.")
    if engine is not None:
        require(shard == "1/1" and embeddings is None, "--engine ray takes images and no --shard.")
        plan = RayOptions(address, workers, device, batch_size)
        job = Job(cast(Path, run), cast(str, images), out, exclude or [], plan, overwrite)
        _on_ray(engine, job)
        return
    require(not overwrite, "--overwrite needs --engine ray: a code file is always replaced.")
    _check_without_ray(out, address, workers)
    if embeddings is not None:
        require(not exclude, "--exclude applies to a folder of images, not to --embeddings.")
        source = open_embeddings(embeddings, array=array, ids=ids)
        model = _model(run, source, out, method, bits=bits, seed=seed, device=device)
    else:
        _check_exclude(cast(str, images), exclude)
        model = HashModel.load(cast(Path, run), device=device)
        source = _images(cast(str, images), exclude)
    codes = _encode(model, source, out, part, batch_size=batch_size, device=device)
    _report(codes, out, "skipped.csv" if shard == "1/1" else f"{out.stem}-skipped.csv")


def _encode(
    model: HashModel,
    source: ImageSource,
    out: Path,
    shard: tuple[int, int],
    *,
    batch_size: int | None,
    device: str,
) -> Codes:
    """Encode a shard of images or embeddings into a file."""
    from ..encoding import shard_rows
    from ..light_export import for_long_job
    from ..pace import measured

    rows = shard_rows(len(source), shard)
    own = source if len(rows) == len(source) else source.take(rows)
    model = for_long_job(model, own.images, device=device, info=output.info)
    with measured() as pace, output.progress("encoding", len(rows)) as advance:
        codes = model.encode_to_file(
            source, out, shard=shard, batch_size=batch_size, progress=advance
        )
    output.show_pace(pace)
    return codes


def _report(codes: Codes, out: Path, name: str) -> None:
    """Write the list of skipped images, and say what was done."""
    from ..codes import write_skipped

    path = out.with_name(name)
    write_skipped(path, codes.skipped)
    if codes.skipped:
        output.info(f"{len(codes.skipped):,} images could not be read: see {path}")
    output.result(f"{len(codes):,} codes of {_length(codes)} in {out}")


def _check_without_ray(out: Path, address: str | None, workers: int | None) -> None:
    """Refuse what only Ray can do, before anything is encoded."""
    require(address is None and workers is None, "--address and --workers need --engine ray.")
    require(
        out.suffix in (".npz", ".parquet"),
        f"Codes are saved as .npz or .parquet, got '{out.name}'. With --engine ray, --out may also "
        "be NAME.index, milvus:COLLECTION, or a folder.",
    )


def _on_ray(engine: str, job: Job) -> None:
    from .encode_ray import encode_job, goes_to_index

    if engine != "ray":
        raise unknown("engine of encode", engine, ("ray",))
    _check_exclude(job.images, job.exclude)
    source = None if goes_to_index(job.out) else _images(job.images, job.exclude)
    encode_job(job, source)


def _check_exclude(given: str, exclude: list[str] | None) -> None:
    """Refuse patterns for what is not a folder, before anything is loaded."""
    from ..data.remote import is_stored

    possible = not exclude or is_stored(given) or Path(given).is_dir()
    require(possible, f"--exclude applies to a folder of images, got {given}.")


def _images(given: str, exclude: list[str] | None) -> ImageSource:
    """The images to encode, without those that a pattern excludes."""
    from ..data.folder import read_images
    from ..data.remote import is_stored, open_stored
    from ..data.sources import as_images

    if not exclude:
        return as_images(given)
    if is_stored(given):
        return open_stored(given, exclude=exclude)
    return read_images(given, exclude=exclude)


def _model(
    run: Path | None,
    source: ImageSource,
    out: Path,
    method: str,
    *,
    bits: int,
    seed: int,
    device: str,
) -> HashModel:
    """The model of a run; without one, a model fitted on the embeddings and saved beside OUT."""
    from ..model import HashModel
    from ..ready_models import fit_embeddings, without_torch

    if run is not None:
        return HashModel.load(run, device=device)
    if method == "itq" and without_torch():
        model = fit_embeddings(source, bits=bits, seed=seed)
    else:
        model = _fit(source, method, bits=bits, seed=seed, device=device)
    folder = out.with_suffix(".model")
    model.save(folder)
    rows = model.info["train_images"]
    output.info(f"fitted {method} on {rows:,} embeddings; the model is in {folder}")
    return model


def _fit(source: ImageSource, method: str, *, bits: int, seed: int, device: str) -> HashModel:
    from ..building import make_config
    from ..data.sources import without_labels
    from ..fitting import fit_model

    config = make_config(method, bits=bits, seed=seed, device=device)
    return fit_model(config, without_labels(source), device=device).model


def _length(codes: Codes) -> str:
    """The length of codes, in words."""
    more = f" and {codes.content_bits} content bits" if codes.content_bits else ""
    return f"{codes.bits} bits{more}"
