"""`hadahash encode --engine ray`: codes into a file, parquet parts, an index, or Milvus."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import DataError, UsageError
from . import output

if TYPE_CHECKING:
    from ..codes import Skipped
    from ..data.base import ImageSource
    from ..model import HashModel
    from ..photos import Scan
    from ..ray_encoding import RayOptions

_MILVUS = "milvus:"
_FILES = (".npz", ".parquet")
_SKIPPED = "skipped.csv"


@dataclass(frozen=True)
class Job:
    """What is encoded, where, and where the codes go.

    Attributes:
        run: Folder of the run.
        images: What `hadahash encode` takes as IMAGES.
        out: A .npz or .parquet file; NAME.index, an index; milvus:COLLECTION; or a folder, for
            parquet parts.
        exclude: Patterns of files to leave out.
        options: How the job runs on Ray.
        overwrite: Replace the parquet parts of another job.
    """

    run: Path
    images: str
    out: Path
    exclude: list[str]
    options: RayOptions
    overwrite: bool = False


def encode_job(job: Job, source: ImageSource | None = None) -> None:
    """Encode the images of a job on Ray.

    Args:
        job: The job.
        source: The images; not needed for an index.

    Raises:
        UsageError: The output is of no known kind, or an argument is wrong.
        DataError: None of the images can be read.
    """
    from ..model import HashModel

    model = HashModel.load(job.run, device="cpu")
    if goes_to_index(job.out):
        _into_index(job, model)
    elif source is not None and job.out.suffix in _FILES:
        _into_file(job, model, source)
    elif source is not None and not job.out.suffix:
        _into_folder(job, model, source)
    else:
        raise UsageError(
            f"--out must be a .npz or .parquet file, NAME.index, milvus:COLLECTION, or a folder for"
            f" parquet parts, got {job.out}."
        )


def goes_to_index(out: Path) -> bool:
    """Return whether codes go to an index, on disk or on a Milvus server."""
    return out.suffix == ".index" or str(out).startswith(_MILVUS)


def _parts(job: Job, model: HashModel, source: ImageSource, folder: Path, **how: Any) -> list[Path]:
    from ..ray_encoding import encode_on_ray

    with output.progress("encoding", len(source)) as advance:
        return encode_on_ray(model, source, folder, options=job.options, progress=advance, **how)


def _into_file(job: Job, model: HashModel, source: ImageSource) -> None:
    from ..codes import Codes
    from ..parts import end_job

    folder = job.out.with_name(f"{job.out.name}.parts")
    parts = [Codes.load(path) for path in _parts(job, model, source, folder, overwrite=True)]
    codes = Codes.concatenate(parts) if parts else model.encode(source)
    _report(len(codes), codes.skipped, job.out.with_name(_SKIPPED))
    codes.save(job.out)
    end_job(folder)
    output.result(f"{len(codes):,} codes of {codes.bits} bits in {job.out}")


def _into_folder(job: Job, model: HashModel, source: ImageSource) -> None:
    from ..codes import Codes
    from ..parts import other_files

    count, skipped = 0, list[Any]()
    parts = _parts(job, model, source, job.out, suffix=".parquet", overwrite=job.overwrite)
    for path in parts:
        codes = Codes.load(path)
        count += len(codes)
        skipped += codes.skipped
    _report(count, skipped, job.out / _SKIPPED)
    others = [name for name in other_files(job.out) if name != _SKIPPED]
    if others:
        output.info(f"{job.out} also has {len(others):,} files of no job, such as {others[0]}.")
    output.result(f"{count:,} codes of {model.bits} bits in {len(parts):,} files of {job.out}")


def _into_index(job: Job, model: HashModel) -> None:
    from ..parts import end_job
    from ..photos.received import Receiver
    from ..photos.scan import ScanOptions, scan_source, source_of

    name = str(job.out).removeprefix(_MILVUS)
    folder = job.out if job.out.suffix == ".index" else Path(f"{name}.index")
    pictures = folder.with_name(f"{folder.name}.pictures")
    rules = ScanOptions(exclude=tuple(job.exclude), pictures=pictures)
    scan = scan_source(job.images, rules)
    if not scan.photos:
        raise DataError(f"{job.images} contains no images.")
    receiver = Receiver(_open_index(job, model, folder, scan, name), scan)
    waiting = folder.with_name(f"{folder.name}.parts")
    parts = _parts(job, model, source_of(scan.photos), waiting, overwrite=True)
    count = receiver.receive(parts)
    skipped = receiver.index.catalog.skipped()
    _report(count, skipped, folder / _SKIPPED)
    end_job(waiting)
    output.result(f"{count:,} codes of {model.bits} bits in {folder}")


def _open_index(job: Job, model: HashModel, folder: Path, scan: Scan, name: str) -> Any:
    from ..index.storage.manifest import MANIFEST
    from ..photos import PhotoIndex

    settings: dict[str, Any] = {}
    if str(job.out).startswith(_MILVUS) and not (folder / MANIFEST).exists():
        settings = {"engine": "milvus", "collection": name}
    home = scan.home or Path(job.images)
    return PhotoIndex.open_or_create(folder, model, job.run, home, **settings)


def _report(count: int, skipped: Iterable[Skipped], path: Path) -> None:
    """Write the list of skipped images; without any code, stop."""
    from ..codes import write_skipped

    skipped = list(skipped)
    if skipped and not count:
        first = skipped[0]
        raise DataError(
            f"No image can be read ({len(skipped):,} unreadable). First failure: {first.path}: "
            f"{first.reason.rstrip('.')}. The workers must see the images: use an address or a "
            "shared folder."
        )
    write_skipped(path, skipped)
    if skipped:
        output.info(f"{len(skipped):,} images could not be read: see {path}")
