"""Encode images on the machines of a Ray cluster, or in several processes of this one.

The images are cut into pieces. Workers (`ActorPoolStrategy`) load the model once, and encode one
piece after the other; this process writes the codes of each piece to a file of its own. A piece
whose worker dies is repeated by another one. If it fails again and again, it is cut into smaller
pieces, until the image that kills the workers is alone: it is skipped with a reason. An
interrupted job continues with the pieces that have no file yet.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .codes import Codes, Skipped
from .data.base import FileImages, ImageSource
from .errors import DataError, HadaHashError, MissingExtraError, StorageError, UsageError
from .parts import begin_job, is_same_job
from .photos.models import no_codes

if TYPE_CHECKING:
    from .model import HashModel

PIECE = 512  # images; a multiple of the batch, so that the codes are those of one process
_SMALLER = (PIECE, 16, 1)  # sizes of the pieces, after a worker died
_RETRIES = 3  # of a piece whose worker dies, before it is cut
_CONNECT_SECONDS = 10.0  # for the first connection to a cluster
_NAME = re.compile(r"part-(\d+)-(\d+)\.(npz|parquet)")

Progress = Callable[[int], object]


class Piece(NamedTuple):
    """Images that one worker encodes at once: those of the rows start to stop - 1."""

    start: int
    stop: int


@dataclass(frozen=True)
class RayOptions:
    """How a job runs on Ray.

    Attributes:
        address: Address of a cluster; None: that of RAY_ADDRESS, or else processes of this machine.
        workers: Number of workers; None: one per GPU, or one per core if there is no GPU.
        device: "auto", "cpu" or "cuda".
        batch_size: Images per batch.
    """

    address: str | None = None
    workers: int | None = None
    device: str = "auto"
    batch_size: int | None = None


def encode_on_ray(
    model: HashModel,
    source: ImageSource,
    folder: str | Path,
    *,
    options: RayOptions | None = None,
    suffix: str = ".npz",
    overwrite: bool = False,
    progress: Progress | None = None,
) -> list[Path]:
    """Encode images into files of codes, one for each piece.

    Args:
        model: The model.
        source: The images. The workers must be able to read them: a shared folder or an address.
        folder: Where the files are written. Those of the same job are kept.
        options: Where the job runs.
        suffix: ".npz" or ".parquet".
        overwrite: Whether to replace the files of another job, once Ray is reached.
        progress: Called with the number of images of each finished piece.

    Returns:
        The files, in the order of the images. Images without a code are in `.skipped` of each.

    Raises:
        MissingExtraError: Ray is not installed.
        UsageError: The folder has another job, or files of no job. The cluster cannot be reached,
            or has too few processors.
        DataError: The images cannot be read at all.
        StorageError: A file cannot be written.
    """
    folder, options = Path(folder), options or RayOptions()
    source = replace(source, images=_absolute(source.images))
    job = {"model": model.id, "ray": True, "source": source.fingerprint()}
    report = progress or (lambda count: None)
    same = is_same_job(folder, job, overwrite=overwrite)
    done = _finished(folder, suffix) if same else set[Piece]()
    report(sum(piece.stop - piece.start for piece in done))
    missing = _missing(done, len(source), PIECE)
    with _cluster(options) if missing else nullcontext():
        begin_job(folder, job)
        if missing:
            _encode_missing(model, source, folder, done, options, suffix, report)
    return [_path(folder, piece, suffix) for piece in sorted(done)]


def _encode_missing(
    model: HashModel,
    source: ImageSource,
    folder: Path,
    done: set[Piece],
    options: RayOptions,
    suffix: str,
    report: Progress,
) -> None:
    """Encode what has no file yet, in smaller and smaller pieces."""
    for size in _SMALLER:
        pieces = _missing(done, len(source), size)
        for piece, codes in _run(model, source, pieces, options) if pieces else ():
            codes.save(_path(folder, piece, suffix))
            done.add(piece)
            report(piece.stop - piece.start)
    for piece in _missing(done, len(source), 1):
        name = str(source.ids[piece.start])
        reason = Skipped(name, "the worker that read it died")
        codes = replace(no_codes(model), ids=source.ids[:0], skipped=(reason,))
        codes.save(_path(folder, piece, suffix))
        done.add(piece)
        report(1)


def _run(
    model: HashModel, source: ImageSource, pieces: list[Piece], options: RayOptions
) -> Iterator[tuple[Piece, Codes]]:
    """The codes of pieces as they are finished; pieces whose worker died are left out."""
    import pyarrow as pa

    ray = _ray()
    starts, stops = zip(*pieces, strict=True)
    table = pa.table({"start": starts, "stop": stops})
    blocks = [table.slice(row, 1).combine_chunks() for row in range(len(table))]
    found = ray.data.from_arrow(blocks).map_batches(
        _Worker,
        batch_size=1,
        batch_format="numpy",
        compute=ray.data.ActorPoolStrategy(size=_count_workers(options, len(pieces))),
        fn_constructor_kwargs={
            "model": ray.put(_model_files(model)),
            "source": ray.put(source),
            "device": "cuda" if _uses_gpus(options) else "cpu",
            "batch_size": options.batch_size,
            "attempts": ray.remote(num_cpus=0)(_Attempts).remote(1 + _RETRIES),
        },
        **({"num_gpus": 1} if _uses_gpus(options) else {"num_cpus": 1}),
    )
    try:
        for batch in found.iter_batches(batch_size=1, batch_format="numpy"):
            (result,) = batch["result"]
            if isinstance(result, HadaHashError):
                raise result
            if isinstance(result, Codes):  # Ray makes a number of a column of None
                yield Piece(int(batch["start"][0]), int(batch["stop"][0])), result
    except ray.exceptions.RayError as error:
        if not _is_death(error):
            raise DataError(f"A worker failed: {_last_line(error)}.") from error


class _Attempts:
    """Counts how often pieces were begun, in a process of its own: it survives the workers."""

    def __init__(self, allowed: int) -> None:
        self._allowed, self._begun = allowed, Counter[int]()

    def begin(self, start: int) -> bool:
        """Return whether a piece may be tried once more."""
        self._begun[start] += 1
        return self._begun[start] <= self._allowed


class _Worker:
    """Encodes pieces, in a process of Ray."""

    def __init__(
        self, model: Any, source: Any, device: str, batch_size: int | None, attempts: Any
    ) -> None:
        from .model import HashModel

        with tempfile.TemporaryDirectory(prefix="hadahash-") as folder:
            for name, content in _ray().get(model).items():
                (Path(folder) / name).write_bytes(content)
            self._model = HashModel.load(folder, device=device)
            if self._model.runtime.name == "onnx":
                self._model.network.open()  # before the folder is removed
        self._source: ImageSource = _ray().get(source)
        self._batch_size, self._attempts = batch_size, attempts

    def _encode(self, start: int, stop: int) -> Codes | HadaHashError | None:
        """The codes of a piece; None if workers died of it too often."""
        if not _ray().get(self._attempts.begin.remote(start)):
            return None
        source = self._source.take(np.arange(start, stop))
        try:
            return self._model.encoder(self._batch_size).encode(source)
        except HadaHashError as error:  # would be the same in any other worker
            return error

    def __call__(self, batch: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        results = np.empty(len(batch["start"]), object)
        for row, (start, stop) in enumerate(zip(batch["start"], batch["stop"], strict=True)):
            results[row] = self._encode(int(start), int(stop))
        return {**batch, "result": results}


class _cluster:  # noqa: N801 (a context)
    """Connects to a cluster, or starts workers on this machine; leaves a running one alone."""

    def __init__(self, options: RayOptions) -> None:
        self._ray, self._options = _ray(), options
        self._own = not self._ray.is_initialized()
        self._terminate = signal.getsignal(signal.SIGTERM)  # Ray installs a handler of its own

    def __enter__(self) -> None:
        if self._own:
            self._start()
        context = self._ray.data.DataContext.get_current()
        context.enable_progress_bars = False
        logging.getLogger("ray.data").setLevel(logging.ERROR)

    def _start(self) -> None:
        address = self._options.address or os.environ.get("RAY_ADDRESS")
        _check_reachable(address)
        local = {"num_cpus": self._options.workers, "include_dashboard": False}
        try:
            self._ray.init(
                address=address,
                log_to_driver=False,
                logging_level=logging.ERROR,
                **({} if address else local),
            )
        except Exception as error:
            raise _not_reached(address, error) from error

    def __exit__(self, *error: object) -> None:
        if self._own:
            self._ray.shutdown()
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, self._terminate)


def _check_reachable(address: str | None) -> None:
    """Refuse host:port where nothing answers: Ray itself tries for minutes and prints each time."""
    host, _, port = (address or "").rpartition("://")[2].rpartition(":")
    if not host or not port.isdecimal():  # such as "auto"
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise _not_reached(address, error) from error


def _not_reached(address: str | None, error: BaseException) -> UsageError:
    return UsageError(
        f"Cannot reach Ray at {address or 'this machine'}: {_last_line(error)}. "
        "Check the address, or leave it out."
    )


def _ray() -> Any:
    """The package, which sends nothing to anyone."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # deaths of workers are expected
    try:
        import pyarrow  # noqa: F401
        import ray.data
        import ray.exceptions
    except ImportError:
        raise MissingExtraError("ray", "ray") from None
    return ray


def _uses_gpus(options: RayOptions) -> bool:
    there = _ray().cluster_resources().get("GPU", 0) >= 1
    if options.device == "cuda" and not there:
        raise UsageError("device is cuda, but the Ray cluster has no GPU. Use --device cpu.")
    return bool(there and options.device != "cpu")


def _count_workers(options: RayOptions, pieces: int) -> int:
    kind = "GPU" if _uses_gpus(options) else "CPU"
    there = int(_ray().cluster_resources().get(kind, 0))
    wanted = options.workers or there
    if not 1 <= wanted <= there:
        raise UsageError(f"workers must be >= 1 and <= {there} ({kind}s of Ray), got {wanted}.")
    return min(wanted, pieces)


def _is_death(error: BaseException) -> bool:
    """Whether a worker died, not its code failed."""
    ray = _ray()
    deaths = (ray.exceptions.ActorDiedError, ray.exceptions.WorkerCrashedError)
    found: BaseException | None = error
    while found is not None:
        if isinstance(found, deaths):
            return True
        found = getattr(found, "cause", None) or found.__cause__
    return isinstance(error, ray.exceptions.RayActorError)


def _last_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[-1] if lines else type(error).__name__).rstrip(".")


def _model_files(model: HashModel) -> dict[str, bytes]:
    """The files of a model, for machines that do not see its folder."""
    with tempfile.TemporaryDirectory(prefix="hadahash-") as folder:
        model.save(folder)
        return {path.name: path.read_bytes() for path in Path(folder).iterdir() if path.is_file()}


def _absolute(images: Any) -> Any:
    """Paths that mean the same in every process."""
    if type(images) is not FileImages:  # others are read as they say
        return images
    return FileImages([path.absolute() for path in images.paths])


def _path(folder: Path, piece: Piece, suffix: str) -> Path:
    return folder / f"part-{piece.start:09d}-{piece.stop:09d}{suffix}"


def _finished(folder: Path, suffix: str) -> set[Piece]:
    """The pieces whose files are intact; damaged files are removed."""
    done = set()
    for path in folder.glob(f"part-*{suffix}"):
        match = _NAME.fullmatch(path.name)
        if match is None:
            continue
        try:
            Codes.load(path)
        except StorageError:
            path.unlink(missing_ok=True)
        else:
            done.add(Piece(int(match[1]), int(match[2])))
    return done


def _missing(done: set[Piece], count: int, size: int) -> list[Piece]:
    """The rows that no finished piece covers, cut at multiples of a size.

    >>> _missing({Piece(4, 8)}, 10, 4)
    [Piece(start=0, stop=4), Piece(start=8, stop=10)]
    """
    gaps, at = [], 0
    for start, stop in [*sorted(done), (count, count)]:
        while at < start:
            end = min(start, at // size * size + size)
            gaps.append(Piece(at, end))
            at = end
        at = max(at, stop)
    return gaps
