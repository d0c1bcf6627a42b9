"""Images to real values: streamed, so memory does not grow with the number of images.

`Encoder` runs a network over images batch by batch. `encode_to_file` does the same for long jobs:
it writes a finished part every few thousand images, so an interrupted job loses at most one part,
and it can take the i-th of n equal shards of the images.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .cached_outputs import cached_outputs, known_vectors, vector_width
from .codes import Codes
from .config import EMBEDDINGS
from .data.base import Images
from .data.contents import content_digest, has_digests
from .data.decode import Decoded, decode, to_skipped
from .data.embeddings import Embeddings
from .data.prefetch import read_ahead
from .data.preprocess import Preprocess
from .data.sources import ImageSource
from .data.spool import allocate
from .errors import DataError, StorageError, UsageError
from .feature_cache import FeatureStore, default_store, group_key
from .outputs import Outputs, fill_outputs, join_outputs, to_codes
from .pace import NetworkTimer, total_time
from .parts import begin_job, end_job
from .runtime.base import Runtime, runtime_of

PART = 8192  # images per part of a long job
_GPU_PIXELS, _MOST = 500 * 224**2, 4096  # of a batch on a GPU
_VERSION = 3  # of decoding; features of images that were decoded otherwise are not reused

Progress = Callable[[int], object]


@dataclass(frozen=True, eq=False)
class Encoder:
    """Runs a network over images.

    Attributes:
        network: A `HashNetwork`, or a network that is a runtime; see `hadahash.runtime`.
        preprocess: How images become its input.
        precision: Precision of the backbone on a GPU, "bf16" or "fp32"; a CPU always uses fp32.
        batch_size: Images per batch; None: see `usual_batch`. Batches that do not fit into the
            memory of the GPU are halved.
        store: Features of image files on disk, which are not computed again; None: no such cache.
        original: Also compute the features of the original backbone, where content bits take them.
            Without them only `features` is possible.
    """

    network: Any
    preprocess: Preprocess
    precision: str = "fp32"
    batch_size: int | None = None
    store: FeatureStore | None = field(default_factory=default_store)
    original: bool = True

    def features(self, images: Images, progress: Progress | None = None) -> Outputs:
        """The backbone's features (n, d) of all images that can be decoded."""
        parts = self._stream(images, progress)
        return fill_outputs(parts, self._no_features(), len(images), allocate)

    def values(
        self, images: Images, progress: Progress | None = None, *, scores: bool = False
    ) -> Outputs:
        """The real values (n, bits) of all images that can be decoded.

        Args:
            images: The images.
            progress: Called with the number of images of each batch.
            scores: Also compute the scores of the classifier.

        Returns:
            The values, with those of the content bits if the network has them.
        """
        parts = (self.head(part, scores=scores) for part in self._stream(images, progress))
        return join_outputs(parts, self.head(self._no_features(), scores=scores))

    def head(self, features: Outputs, *, scores: bool = False) -> Outputs:
        """The real values (n, bits) of images whose features are known.

        Args:
            features: Result of `features`.
            scores: Also compute the scores of the classifier.

        Returns:
            The values, with those of the content bits if the network has them.
        """
        found = self.runtime.head(features.values, features.content, scores=scores)
        return Outputs(found.values, features.rows, features.failed, found.content, found.scores)

    def encode(self, source: ImageSource, progress: Progress | None = None) -> Codes:
        """The codes of all images that can be decoded; the others are in `.skipped`."""
        parts = [self._packed(self.head(self._no_features()))]
        failed: list[tuple[int, str]] = []
        for features in self._stream(source.images, progress):
            parts.append(self._packed(self.head(features)))
            failed += features.failed
        codes = Codes.concatenate(parts)
        return replace(
            codes,
            ids=source.ids[codes.ids],
            skipped=to_skipped(failed, source.ids),
            content_fingerprint=self.runtime.fingerprint,
        )

    @staticmethod
    def _packed(values: Outputs) -> Codes:
        """The codes of some images; their ids are the rows."""
        return to_codes(values, values.rows)

    def _no_features(self) -> Outputs:
        """The features of no image."""
        nothing = np.empty((0, self.runtime.width), np.float32)
        original = nothing if self.runtime.has_original and self.original else None
        return Outputs(nothing, np.empty(0, np.int64), [], original)

    def _stream(self, images: Images, progress: Progress | None) -> Iterator[Outputs]:
        """The features of all images, batch by batch."""
        check_input(self.runtime, images)
        with total_time() as pace:
            for part in self._read(images):
                pace.images += len(part.rows)
                yield part
                if progress is not None:
                    progress(len(part.rows) + len(part.failed))

    def _read(self, images: Images) -> Iterator[Outputs]:
        if isinstance(images, Embeddings):
            return self._given(images)
        if self.store is None or not has_digests(images):
            return self._computed(images)
        return cached_outputs(images, self.store, self._groups, self._computed, self._no_features())

    @cached_property
    def runtime(self) -> Runtime:
        """Runs the network."""
        return runtime_of(self.network, self.preprocess, self.precision)

    @cached_property
    def _groups(self) -> tuple[bytes, ...]:
        """Keys of the features of this network and preprocessing in the cache, its own first."""
        known = (self.runtime.feature_facts(), self.runtime.equal_facts())
        part = [] if self.original else ["own"]
        return tuple(group_key(_VERSION, *facts, *part) for facts in known if facts is not None)

    def _computed(self, images: Images) -> Iterator[Outputs]:
        """The features of images whose features are not known.

        With a GPU three batches are under way: a thread decodes and loads one, the GPU computes the
        features of another, and the caller uses those of the third.
        """
        on_gpu = self.runtime.device == "cuda"
        batch_size = self.batch_size or usual_batch(self.runtime.device, self.preprocess.size)
        parts = decode(images, self.preprocess, batch_size=batch_size)
        loaded = ((part, self.runtime.load(part.pixels)) for part in parts)
        waiting, most = deque[Callable[[], Outputs]](), int(on_gpu)
        for part, pixels in read_ahead(loaded) if on_gpu else loaded:
            waiting.append(self._start(part, pixels))
            if len(waiting) > most:
                yield waiting.popleft()()
        while waiting:
            yield waiting.popleft()()

    def _start(self, part: Decoded, pixels: Any) -> Callable[[], Outputs]:
        """Begin to compute the features of a batch."""
        nothing = self._no_features()._replace(rows=part.rows, failed=part.failed)
        if not len(part.rows):
            return lambda: nothing
        timer = NetworkTimer(len(part.rows))
        finish = self.runtime.start(pixels, original=self.original)

        def outputs() -> Outputs:
            own, original = finish()
            timer.stop()
            return nothing._replace(values=own, content=original)

        return outputs

    def count_unknown(self, images: Images, sample: int = 32) -> int:
        """Estimate how many images have to go through the network.

        Args:
            images: The images.
            sample: How many of them are looked up in the cache.

        Returns:
            Their number: 0 for embeddings, all without a cache.
        """
        if isinstance(images, Embeddings):
            return 0
        if self.store is None or not has_digests(images) or not len(images):
            return len(images)
        rows = np.unique(np.linspace(0, len(images) - 1, sample).astype(np.int64))
        digests = {content_digest(images, int(row)) for row in rows} - {b""}
        width = vector_width(self._no_features())
        known = known_vectors(self.store, self._groups, list(digests), width)
        return round(len(images) * (1 - len(known) / max(len(digests), 1)))

    def _given(self, embeddings: Embeddings) -> Iterator[Outputs]:
        for part in embeddings.batches(self.batch_size):
            yield Outputs(part.vectors, part.rows, part.failed)


def usual_batch(device: str, size: int) -> int:
    """The usual number of images per batch.

    A GPU takes as many pixels as 500 images of 224 pixels have: the kernels of a batch take 7 ms
    to launch, and smaller images would be computed in less.

    Args:
        device: "cpu" or "cuda".
        size: Input size in pixels.

    Returns:
        The batch size.

    Example:
        >>> usual_batch("cuda", 224), usual_batch("cuda", 128), usual_batch("cpu", 224)
        (500, 1531, 64)
    """
    return min(_MOST, max(1, _GPU_PIXELS // size**2)) if device == "cuda" else 64


def check_input(runtime: Runtime, images: Images) -> None:
    """Refuse images for a model on embeddings, embeddings for a network, and another width.

    Args:
        runtime: Runs the model.
        images: What it is to encode.

    Raises:
        UsageError: The model does not take them.
    """
    expected = runtime.width if runtime.backbone == EMBEDDINGS else None
    got = images.width if isinstance(images, Embeddings) else None
    if expected == got:
        return
    text = [
        "images" if each is None else f"embeddings of {each:,} floats" for each in (expected, got)
    ]
    raise UsageError(f"This model takes {text[0]}, got {text[1]}.")


def parse_shard(text: str) -> tuple[int, int]:
    """Parse the argument of --shard.

    Raises:
        UsageError: It is not i/n with 1 <= i <= n.

    >>> parse_shard("2/4")
    (2, 4)
    """
    try:
        number, count = (int(part) for part in text.split("/"))
    except ValueError:
        raise UsageError(f"--shard must be i/n, for example 1/4, got {text}.") from None
    if not 1 <= number <= count:
        raise UsageError(f"--shard i/n needs 1 <= i <= n, got {text}.")
    return number, count


def shard_rows(count: int, shard: tuple[int, int] = (1, 1)) -> NDArray[np.int64]:
    """The indices of the images in a shard: contiguous, so concatenated shards keep the order."""
    size, longer = divmod(count, shard[1])  # the first shards hold one image more
    start, end = (size * number + min(number, longer) for number in (shard[0] - 1, shard[0]))
    return np.arange(start, end, dtype=np.int64)


def encode_to_file(
    encoder: Encoder,
    source: ImageSource,
    out: Path,
    *,
    model_id: str,
    shard: tuple[int, int] = (1, 1),
    part: int = PART,
    progress: Progress | None = None,
) -> Codes:
    """Encode (a shard of) the images into a file, in parts that survive an interruption.

    The job is identified by the model, the shard and the fingerprint of the images (names, sizes
    and times of the files, or the pixels). The parts are in a folder beside the file, where those
    of another job are discarded.

    Args:
        encoder: The encoder.
        source: The images.
        out: The code file to write.
        model_id: Identifies the model.
        shard: (i, n): the i-th of n shards.
        part: Images per part.
        progress: Called with the number of images of each batch.

    Returns:
        The codes, as written.

    Raises:
        UsageError: The folder of the parts has files that are not of a job.
        DataError: None of the images can be read; no file is written.
        StorageError: A file cannot be written.
    """
    rows = shard_rows(len(source), shard)
    images = source if shard == (1, 1) else source.take(rows)
    folder = out.with_name(f"{out.name}.parts")
    job = {"model": model_id, "shard": list(shard), "part": part, "source": images.fingerprint()}
    begin_job(folder, job)
    done = []
    for number, start in enumerate(range(0, len(rows), part)):
        path = folder / f"{number:06d}.npz"
        chunk = images.take(np.arange(start, min(start + part, len(rows))))
        codes = _load_part(path)
        if codes is None:
            codes = encoder.encode(chunk, progress)
            codes.save(path)
        elif progress is not None:
            progress(len(chunk))
        done.append(codes)
    codes = Codes.concatenate(done) if done else encoder.encode(images)
    if len(codes) or not codes.skipped:
        codes.save(out)
    end_job(folder)
    _check_some(codes)
    return codes


def _check_some(codes: Codes) -> None:
    if codes.skipped and not len(codes):
        first = codes.skipped[0]
        raise DataError(
            f"No image can be read ({len(codes.skipped):,} unreadable), so nothing was written. "
            f"First failure: {first.path}: {first.reason.rstrip('.')}."
        )


def _load_part(path: Path) -> Codes | None:
    """A finished part; None if there is none, or it is damaged."""
    try:
        return Codes.load(path) if path.exists() else None
    except StorageError:
        return None
