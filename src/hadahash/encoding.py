"""Images to codes: streamed, so that a million images need no more memory than a few batches, and resumable.

`encode` goes through any images once. `encode_to_file` does the same for long jobs: it writes a finished part every few
thousand images, so an interrupted job loses at most one part, and it can take the i-th of n equal shards of the images.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from . import codes as bits_of
from .codes import Codes
from .data.base import Images
from .data.decode import decode, to_skipped
from .data.preprocess import Preprocess, center
from .data.sources import ImageSource
from .errors import UsageError
from .files import read_json, write_json
from .networks.hash_network import HashNetwork

PART = 8192  # images in a part of a long job

Advance = Callable[[int], object]


class Outputs(NamedTuple):
    """What a network says of images: one row for each image that could be decoded."""

    values: Tensor  # float32 (n, width), on the CPU
    rows: NDArray[np.int64]  # the numbers of those images
    failed: list[tuple[int, str]]  # number and reason of the others


@dataclass(frozen=True, eq=False)
class Encoder:
    """A trained network, ready to look at images."""

    network: HashNetwork
    preprocess: Preprocess

    @property
    def batch(self) -> int:
        return 500 if self.network.threshold.is_cuda else 64

    @property
    def bits(self) -> int:
        return self.network.bits

    def features(self, images: Images, advance: Advance | None = None) -> Outputs:
        """The backbone's features (n, d) of the images that can be decoded."""
        width = self.network.backbone.features
        return _join(self._stream(images, nn.Identity(), width, advance), width)

    def values(self, images: Images, advance: Advance | None = None) -> Outputs:
        """The values before sign (n, bits) of the images that can be decoded."""
        return _join(self._stream(images, self.network.values, self.bits, advance), self.bits)

    def encode(self, images: Images, ids: NDArray[Any], advance: Advance | None = None) -> Codes:
        """The codes of all images that can be decoded; the others are in `.skipped`."""
        parts = [
            (outputs.rows, bits_of.pack(outputs.values.numpy()), outputs.failed)
            for outputs in self._stream(images, self.network.values, self.bits, advance)
        ] or [(np.empty(0, np.int64), np.empty((0, -(-self.bits // 8)), np.uint8), [])]
        rows, packed, failed = zip(*parts, strict=True)
        kept = np.concatenate(rows)
        return Codes(
            np.concatenate(packed),
            self.bits,
            ids[kept],
            to_skipped([row for f in failed for row in f], ids),
        )

    def values_of(self, features: Outputs) -> Outputs:
        """The values before sign of images whose features are at hand."""
        with torch.inference_mode():
            values = self.network.values(features.values.to(self.network.threshold.device)).cpu()
        return features._replace(values=values)

    def codes_of(self, values: Outputs, ids: NDArray[Any]) -> Codes:
        """The codes of images whose values before sign are at hand."""
        packed = bits_of.pack(values.values.numpy())
        return Codes(packed, self.bits, ids[values.rows], to_skipped(values.failed, ids))

    def _stream(
        self, images: Images, head: Callable[[Tensor], Tensor], width: int, advance: Advance | None
    ) -> Iterator[Outputs]:
        """What `head`, a function to `width` columns, makes of the features of all images, batch by batch."""
        self.network.eval()
        device = self.network.threshold.device
        for part in decode(images, self.preprocess, batch=self.batch):
            outputs = torch.empty(0, width)
            if len(part.rows):
                with torch.inference_mode(), fast_kernels(device):
                    view = center(torch.from_numpy(part.pixels).to(device), self.preprocess)
                    features = self.network.backbone(view)
                    if self.preprocess.mirror:
                        features = (features + self.network.backbone(view.flip(-1))) / 2
                    outputs = head(features)
            yield Outputs(outputs.float().cpu(), part.rows, part.failed)
            if advance is not None:
                advance(len(part.rows) + len(part.failed))


class FeatureCache:
    """Features of a frozen backbone, kept in memory so that several heads can share them."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, Preprocess, str], Outputs] = {}

    def get(
        self, encoder: Encoder, source: ImageSource, backbone: str, advance: Advance | None = None
    ) -> Outputs:
        """The features of these images; `backbone` names the network with its weights."""
        key = (backbone, encoder.preprocess, source.fingerprint())
        if key not in self._kept:
            self._kept[key] = encoder.features(source.images, advance)
        elif advance is not None:
            advance(len(source.images))
        return self._kept[key]


def _join(parts: Iterable[Outputs], width: int) -> Outputs:
    nothing = Outputs(torch.empty(0, width), np.empty(0, np.int64), [])
    values, rows, failed = zip(nothing, *parts, strict=True)
    return Outputs(
        torch.cat(values), np.concatenate(rows), [row for part in failed for row in part]
    )


@contextmanager
def fast_kernels(device: torch.device) -> Iterator[None]:
    """On a GPU: bfloat16, and the quickest convolutions for the shapes that occur. On a CPU: nothing."""
    on_gpu = device.type == "cuda"
    with (
        torch.autocast(device.type, torch.bfloat16, enabled=on_gpu),
        torch.backends.cudnn.flags(enabled=True, benchmark=on_gpu),
    ):
        yield


def parse_shard(text: str) -> tuple[int, int]:
    """'2/4' -> (2, 4): the second of four shards."""
    try:
        number, count = (int(part) for part in text.split("/"))
    except ValueError:
        raise UsageError(
            f"--shard {text}: write it as i/n, for example 1/4 for the first of four."
        ) from None
    if not 1 <= number <= count:
        raise UsageError(f"--shard {text}: the first number runs from 1 to {count}.")
    return number, count


def shard_rows(count: int, shard: tuple[int, int] = (1, 1)) -> NDArray[np.int64]:
    """The numbers of the images in this shard: contiguous, so that joined shards are in the order of the whole."""
    rows: NDArray[np.int64] = np.array_split(np.arange(count), shard[1])[shard[0] - 1]
    return rows


def encode_to_file(
    encoder: Encoder,
    images: Images,
    ids: NDArray[Any],
    out: Path,
    *,
    model: str = "",
    shard: tuple[int, int] = (1, 1),
    part: int = PART,
    advance: Advance | None = None,
) -> Codes:
    """Encode (a shard of) the images into `out`, in parts that survive an interruption; `model` names the weights."""
    rows = shard_rows(len(images), shard)
    folder = out.with_name(f"{out.name}.parts")
    _take_up(
        folder, {"model": model, "shard": list(shard), "part": part, "ids": ids_digest(ids[rows])}
    )
    done = []
    for number, start in enumerate(range(0, len(rows), part)):
        path, chunk = folder / f"{number:06d}.npz", rows[start : start + part]
        if path.exists():
            done.append(Codes.load(path))
            if advance is not None:
                advance(len(chunk))
        else:
            done.append(encoder.encode(images.take(chunk), ids[chunk], advance))
            done[-1].save(path)
    codes = Codes.concatenate(done) if done else encoder.encode(images.take(rows), ids[rows])
    codes.save(out)
    shutil.rmtree(folder, ignore_errors=True)
    return codes


def _take_up(folder: Path, job: dict[str, Any]) -> None:
    """Keep the finished parts of the same job; parts of another one are of no use and go."""
    if folder.exists() and not (
        (folder / "job.json").exists() and read_json(folder / "job.json") == job
    ):
        shutil.rmtree(folder)
    write_json(folder / "job.json", job)


def ids_digest(ids: NDArray[Any]) -> str:
    """sha256 of all ids in their order."""
    digest = hashlib.sha256()
    for start in range(0, len(ids), 65536):
        digest.update(
            "\0".join(map(str, ids[start : start + 65536])).encode("utf-8", "surrogateescape")
        )
    return digest.hexdigest()
