"""Images to real values: streamed, so memory does not grow with the number of images.

`Encoder` runs a network over images batch by batch. `encode_to_file` does the same for long jobs:
it writes a finished part every few thousand images, so an interrupted job loses at most one part,
and it can take the i-th of n equal shards of the images.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .codes import Codes, pack
from .data.base import Images
from .data.decode import decode, to_skipped
from .data.embeddings import Embeddings
from .data.preprocess import Preprocess, center_view
from .data.sources import ImageSource
from .errors import StorageError, UsageError
from .files import read_json, write_json
from .networks import EMBEDDINGS, Backbone
from .networks.hash_network import HashNetwork

PART = 8192  # images per part of a long job

Progress = Callable[[int], object]


class Outputs(NamedTuple):
    """Real-valued outputs, one row per image that could be decoded.

    Attributes:
        values: float32 (n, width), on the CPU.
        rows: The indices of those images.
        failed: Index and reason of the images that could not be decoded.
    """

    values: Tensor
    rows: NDArray[np.int64]
    failed: list[tuple[int, str]]


@dataclass(frozen=True, eq=False)
class Encoder:
    """Runs a network over images.

    Attributes:
        network: The network.
        preprocess: How images become its input.
        precision: Precision of the backbone on a GPU, "bf16" or "fp32"; a CPU always uses fp32.
        batch_size: Images per batch; None: 500 on a GPU, 64 on a CPU. Batches that do not fit into
            the memory of the GPU are halved.
    """

    network: HashNetwork
    preprocess: Preprocess
    precision: str = "fp32"
    batch_size: int | None = None

    def features(self, images: Images, progress: Progress | None = None) -> Outputs:
        """The backbone's features (n, d) of all images that can be decoded."""
        return _join(self._stream(images, progress), self.network.backbone.features)

    def values(self, images: Images, progress: Progress | None = None) -> Outputs:
        """The real values (n, bits) of all images that can be decoded."""
        parts = (self.head(features) for features in self._stream(images, progress))
        return _join(parts, self.network.bits)

    def head(self, features: Outputs) -> Outputs:
        """The real values (n, bits) of images whose features are known."""
        if not len(features.rows):
            return features._replace(values=torch.empty(0, self.network.bits))
        with torch.inference_mode():
            values = self.network.values(features.values.to(self.network.device)).cpu()
        return features._replace(values=values)

    def encode(self, source: ImageSource, progress: Progress | None = None) -> Codes:
        """The codes of all images that can be decoded; the others are in `.skipped`."""
        bits = self.network.bits
        rows, packed = [np.empty(0, np.int64)], [np.empty((0, -(-bits // 8)), np.uint8)]
        failed: list[tuple[int, str]] = []
        for features in self._stream(source.images, progress):
            rows.append(features.rows)
            packed.append(pack(self.head(features).values.numpy()))
            failed += features.failed
        ids = source.ids[np.concatenate(rows)]
        return Codes(np.concatenate(packed), bits, ids, to_skipped(failed, source.ids))

    def _stream(self, images: Images, progress: Progress | None) -> Iterator[Outputs]:
        """The features of all images, batch by batch."""
        self.network.eval()
        check_input(self.network.backbone, images)
        read = self._given(images) if isinstance(images, Embeddings) else self._computed(images)
        for part in read:
            yield part
            if progress is not None:
                progress(len(part.rows) + len(part.failed))

    def _computed(self, images: Images) -> Iterator[Outputs]:
        batch_size = self.batch_size or (500 if self.network.device.type == "cuda" else 64)
        for part in decode(images, self.preprocess, batch_size=batch_size):
            features = torch.empty(0, self.network.backbone.features)
            if len(part.rows):
                features = self._forward(torch.from_numpy(part.pixels)).float().cpu()
            yield Outputs(features, part.rows, part.failed)

    def _given(self, embeddings: Embeddings) -> Iterator[Outputs]:
        for part in embeddings.batches(self.batch_size):
            yield Outputs(torch.from_numpy(part.vectors), part.rows, part.failed)

    def _forward(self, pixels: Tensor) -> Tensor:
        """The features of uint8 squares (n, 3, side, side); halves the batch if memory runs out."""
        try:
            with torch.inference_mode(), backbone_kernels(self.network.device, self.precision):
                view = center_view(pixels.to(self.network.device), self.preprocess)
                features: Tensor = self.network.backbone(view)
                if self.preprocess.mirror:
                    features = (features + self.network.backbone(view.flip(-1))) / 2
                return features
        except torch.cuda.OutOfMemoryError:
            if len(pixels) == 1:
                raise
        torch.cuda.empty_cache()
        half = len(pixels) // 2
        return torch.cat([self._forward(pixels[:half]), self._forward(pixels[half:])])


def check_input(backbone: Backbone, images: Images) -> None:
    """Refuse images for a model on embeddings, embeddings for a network, and another width.

    Args:
        backbone: The backbone of the model.
        images: What it is to encode.

    Raises:
        UsageError: The model does not take them.
    """
    expected = backbone.features if backbone.name == EMBEDDINGS else None
    got = images.width if isinstance(images, Embeddings) else None
    if expected == got:
        return
    text = [
        "images" if each is None else f"embeddings of {each:,} floats" for each in (expected, got)
    ]
    raise UsageError(f"This model takes {text[0]}, got {text[1]}.")


class FeatureCache:
    """Features of a fixed backbone, kept in memory so that several heads can share them."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, Preprocess, str], Outputs] = {}

    def get(
        self,
        encoder: Encoder,
        source: ImageSource,
        backbone: str,
        progress: Progress | None = None,
    ) -> Outputs:
        """The features of these images, computed on the first call.

        Args:
            encoder: Computes the features.
            source: The images.
            backbone: Identifies the network and its weights.
            progress: Called with the number of images of each batch.

        Returns:
            The features.
        """
        key = (f"{backbone} {encoder.precision}", encoder.preprocess, source.fingerprint())
        if key not in self._kept:
            self._kept[key] = encoder.features(source.images, progress)
        elif progress is not None:
            progress(len(source.images))
        return self._kept[key]


def _join(parts: Iterable[Outputs], width: int) -> Outputs:
    nothing = Outputs(torch.empty(0, width), np.empty(0, np.int64), [])
    values, rows, failed = zip(nothing, *parts, strict=True)
    return Outputs(
        torch.cat(values), np.concatenate(rows), [row for part in failed for row in part]
    )


@contextmanager
def backbone_kernels(device: torch.device, precision: str) -> Iterator[None]:
    """Autocast to bfloat16 and the fastest convolutions on a GPU; nothing on a CPU."""
    on_gpu = device.type == "cuda"
    with (
        torch.autocast(device.type, torch.bfloat16, enabled=on_gpu and precision == "bf16"),
        torch.backends.cudnn.flags(enabled=True, benchmark=on_gpu),
    ):
        yield


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
    and times of the files, or the pixels). Finished parts of another job are discarded.

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
        StorageError: A file cannot be written.
    """
    rows = shard_rows(len(source), shard)
    images = source if shard == (1, 1) else source.take(rows)
    folder = out.with_name(f"{out.name}.parts")
    job = {"model": model_id, "shard": list(shard), "part": part, "source": images.fingerprint()}
    _resume_or_reset(folder, job)
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
    codes.save(out)
    shutil.rmtree(folder, ignore_errors=True)
    return codes


def _load_part(path: Path) -> Codes | None:
    """A finished part; None if there is none, or it is damaged."""
    try:
        return Codes.load(path) if path.exists() else None
    except StorageError:
        return None


def _resume_or_reset(folder: Path, job: dict[str, Any]) -> None:
    """Keep the finished parts of the same job; remove those of another one."""
    path = folder / "job.json"
    try:
        same = path.exists() and read_json(path) == json.loads(json.dumps(job))
    except StorageError:  # damaged
        same = False
    if folder.exists() and not same:
        shutil.rmtree(folder)
    write_json(path, job)
