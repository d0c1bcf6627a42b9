"""Images to real values: streamed, so memory does not grow with the number of images.

`Encoder` runs a network over images batch by batch. `encode_to_file` does the same for long jobs:
it writes a finished part every few thousand images, so an interrupted job loses at most one part,
and it can take the i-th of n equal shards of the images.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .cached_outputs import cached_outputs, weights_digest
from .codes import Codes
from .data.base import Images
from .data.contents import has_digests
from .data.decode import decode, to_skipped
from .data.embeddings import Embeddings
from .data.preprocess import Preprocess, center_view
from .data.sources import ImageSource
from .errors import DataError, StorageError, UsageError
from .feature_cache import FeatureStore, default_store, group_key
from .files import read_json, write_json
from .networks import EMBEDDINGS, Backbone
from .networks.hash_network import HashNetwork
from .outputs import Outputs, join_outputs, relaxed_values, to_codes

PART = 8192  # images per part of a long job

Progress = Callable[[int], object]


@dataclass(frozen=True, eq=False)
class Encoder:
    """Runs a network over images.

    Attributes:
        network: The network.
        preprocess: How images become its input.
        precision: Precision of the backbone on a GPU, "bf16" or "fp32"; a CPU always uses fp32.
        batch_size: Images per batch; None: 500 on a GPU, 64 on a CPU. Batches that do not fit into
            the memory of the GPU are halved.
        store: Features of image files on disk, which are not computed again; None: no such cache.
    """

    network: HashNetwork
    preprocess: Preprocess
    precision: str = "fp32"
    batch_size: int | None = None
    store: FeatureStore | None = field(default_factory=default_store)

    def features(self, images: Images, progress: Progress | None = None) -> Outputs:
        """The backbone's features (n, d) of all images that can be decoded."""
        return join_outputs(self._stream(images, progress), self._no_features())

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
        network, content, found = self.network, None, None
        with torch.inference_mode():
            own = features.values.to(network.device)
            values = network.values(own) if len(own) else own.new_empty(0, network.bits)
            if network.content is not None:
                original = own if features.content is None else features.content.to(own.device)
                content = network.content.projection.values(original).cpu()
            if scores:
                found = network.class_scores(own)
        return Outputs(
            values.cpu(),
            features.rows,
            features.failed,
            content,
            None if found is None else found.cpu(),
        )

    def encode(self, source: ImageSource, progress: Progress | None = None) -> Codes:
        """The codes of all images that can be decoded; the others are in `.skipped`."""
        parts = [self._packed(self.head(self._no_features()))]
        failed: list[tuple[int, str]] = []
        for features in self._stream(source.images, progress):
            parts.append(self._packed(self.head(features)))
            failed += features.failed
        codes = Codes.concatenate(parts)
        return replace(codes, ids=source.ids[codes.ids], skipped=to_skipped(failed, source.ids))

    @staticmethod
    def _packed(values: Outputs) -> Codes:
        """The codes of some images; their ids are the rows."""
        return to_codes(values, values.rows)

    def _no_features(self) -> Outputs:
        """The features of no image."""
        content = self.network.content
        nothing = torch.empty(0, self.network.backbone.features)
        original = None if content is None or content.backbone is None else nothing
        return Outputs(nothing, np.empty(0, np.int64), [], original)

    def _stream(self, images: Images, progress: Progress | None) -> Iterator[Outputs]:
        """The features of all images, batch by batch."""
        self.network.eval()
        check_input(self.network.backbone, images)
        for part in self._read(images):
            yield part
            if progress is not None:
                progress(len(part.rows) + len(part.failed))

    def _read(self, images: Images) -> Iterator[Outputs]:
        if isinstance(images, Embeddings):
            return self._given(images)
        if self.store is None or not has_digests(images):
            return self._computed(images)
        return cached_outputs(images, self.store, self._group, self._computed, self._no_features())

    @cached_property
    def _group(self) -> bytes:
        """Identifies the features of this network and preprocessing in the cache."""
        content = self.network.content
        backbones = [self.network.backbone, content and content.backbone]
        digests = [None if each is None else weights_digest(each) for each in backbones]
        device = self.network.device.type
        return group_key(1, *digests, self.preprocess, device, device == "cuda" and self.precision)

    def _computed(self, images: Images) -> Iterator[Outputs]:
        batch_size = self.batch_size or (500 if self.network.device.type == "cuda" else 64)
        for part in decode(images, self.preprocess, batch_size=batch_size):
            features = self._no_features()
            if len(part.rows):
                own, original = self._forward(torch.from_numpy(part.pixels))
                features = features._replace(values=own, content=original)
            yield features._replace(rows=part.rows, failed=part.failed)

    def _given(self, embeddings: Embeddings) -> Iterator[Outputs]:
        for part in embeddings.batches(self.batch_size):
            yield Outputs(torch.from_numpy(part.vectors), part.rows, part.failed)

    def _forward(self, pixels: Tensor) -> tuple[Tensor, Tensor | None]:
        """The features of uint8 squares (n, 3, side, side), and those of the original backbone.

        Halves the batch if memory runs out.
        """
        content = self.network.content
        try:
            with torch.inference_mode(), backbone_kernels(self.network.device, self.precision):
                view = center_view(pixels.to(self.network.device), self.preprocess)
                own = self._run(self.network.backbone, view)
                if content is None or content.backbone is None:
                    return own, None
                return own, self._run(content.backbone, view)
        except torch.cuda.OutOfMemoryError:
            if len(pixels) == 1:
                raise
        torch.cuda.empty_cache()
        half = len(pixels) // 2
        parts = [self._forward(pixels[:half]), self._forward(pixels[half:])]
        original = [part[1] for part in parts if part[1] is not None]
        return torch.cat([part[0] for part in parts]), torch.cat(original) if original else None

    def _run(self, backbone: Backbone, view: Tensor) -> Tensor:
        """The features of a batch, averaged with those of its mirror images if so set."""
        features: Tensor = backbone(view)
        if self.preprocess.mirror:
            features = (features + backbone(view.flip(-1))) / 2
        return features.float().cpu()


def network_relaxed(network: HashNetwork, values: Tensor) -> Tensor:
    """The continuous codes of a network in [-1, 1], for real-valued queries.

    Args:
        network: The network.
        values: Its values (n, bits), before the method's activation.

    Returns:
        float32 (n, bits) on the CPU; the signs are those of `values`.
    """
    with torch.inference_mode():
        relaxed = network.relaxed(values.to(network.device)).cpu()
    return relaxed_values(values.cpu(), relaxed, clamp=network.codewords() is not None)


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
        DataError: None of the images can be read; no file is written.
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
    if len(codes) or not codes.skipped:
        codes.save(out)
    shutil.rmtree(folder, ignore_errors=True)
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
