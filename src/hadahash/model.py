"""HashModel: a trained model, used for encoding, indexing, serving and export."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from .codes import Codes
from .config import Config, backbone_key
from .data.decode import to_skipped
from .data.preprocess import Preprocess
from .data.sources import as_images
from .encoding import Encoder, Progress, encode_to_file
from .outputs import Outputs, check_single, to_codes, to_queries
from .projections import Projection
from .queries import Queries
from .ranking import Ranking
from .runtime.base import Runtime, bounded_relaxed, runtime_of
from .settings import require
from .shared_features import SharedFeatures

if TYPE_CHECKING:
    import torch

    from .methods import Method

OLD_ID = "id_of_version_0_1"  # key of `info`: the digest of the weights, which was the id


@dataclass(frozen=True, eq=False)
class HashModel:
    """A trained model: immutable, complete, and identified by `id`.

    Attributes:
        network: Backbone, method and threshold: a `HashNetwork` of torch, or an `OnnxNetwork`.
        preprocess: How an image becomes network input.
        classes: Names of the classes it was trained on.
        multilabel: Whether images had several labels.
        config: The configuration that ran.
        info: Facts about the training run: train_images, hardware, images_per_second, train_seconds
            (the training loop), reading_seconds (reading the images, and computing their features
            if the backbone is fixed), fit_seconds (all of it), ...
        precision: Precision of the backbone when encoding on a GPU.
        ranking: How results are ranked by the probability of sharing a class and by content; fitted
            on the training images.
        folder: The folder it was loaded from; None if it was not loaded.

    Example:
        >>> model = HashModel.load("runs/photos")            # doctest: +SKIP
        >>> codes = model.encode("more-photos/")             # doctest: +SKIP
    """

    network: Any
    preprocess: Preprocess
    classes: tuple[str, ...]
    multilabel: bool
    config: Config
    info: Mapping[str, Any] = field(default_factory=dict)
    precision: str = "fp32"
    ranking: Ranking = None  # type: ignore[assignment]
    folder: Path | None = None

    def __post_init__(self) -> None:
        if self.ranking is None:  # a model of an earlier version
            object.__setattr__(self, "ranking", self._default_ranking())

    def _default_ranking(self) -> Ranking:
        # The numbers of a multi-label ranking have no default: without them, the ranking falls back
        # to real-valued queries.
        words = None if self.multilabel else self.codewords()
        return Ranking(words, self.classes, self.multilabel, content_fingerprint=self.fingerprint)

    def __repr__(self) -> str:
        config = self.config
        return (
            f"HashModel({config.method!r}, bits={config.bits}, backbone={config.backbone!r}, "
            f"classes={len(self.classes)}, id={self.id[:12]!r})"
        )

    @property
    def bits(self) -> int:
        """Code length."""
        return self.config.bits

    @property
    def content_bits(self) -> int:
        """Number of content bits; 0: codes have one part."""
        return self.config.content_bits

    @cached_property
    def fingerprint(self) -> str | None:
        """Identifies the projection to content bits; None without content bits."""
        return self.runtime.fingerprint

    @property
    def content_projection(self) -> Projection | None:
        """The projection to content bits; None without content bits, or if no file has it."""
        return self.runtime.projection

    @property
    def method(self) -> Method:
        """The trained hashing method (torch only)."""
        return cast("Method", self.network.method)

    @property
    def device(self) -> torch.device:
        """The device that holds the weights (torch only); see `runtime` for its kind."""
        return cast("torch.device", self.network.device)

    @cached_property
    def runtime(self) -> Runtime:
        """Runs the network: `.name` is "torch" or "onnx", `.device` is "cpu" or "cuda"."""
        return runtime_of(self.network, self.preprocess, self.precision)

    @cached_property
    def weights(self) -> bytes:
        """All weights as the content of a safetensors file (torch only)."""
        import safetensors.torch

        state = self.network.state_dict()
        return safetensors.torch.save({k: v.detach().cpu().contiguous() for k, v in state.items()})

    @cached_property
    def weights_sha256(self) -> str:
        """sha256 of `weights`."""
        known = getattr(self.network, "weights_sha256", None)
        return known or hashlib.sha256(self.weights).hexdigest()

    @cached_property
    def id(self) -> str:
        """Digest of what determines a code: weights, threshold, preprocessing and precision."""
        facts = {
            "weights": self.weights_sha256,
            "preprocess": asdict(self.preprocess),
            "bits": self.bits,
            "precision": self.precision,
        }
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()

    def made(self, recorded: str | None) -> bool:
        """Whether codes recorded under this id were made by this model.

        Args:
            recorded: The id stored with the codes; version 0.1 stored the digest of the weights.

        Returns:
            True if this model made them, or if no id was recorded.
        """
        return recorded in (None, self.id, self.weights_sha256, self.info.get(OLD_ID))

    def codewords(self) -> NDArray[np.int8] | None:
        """The codewords of the classes.

        Returns:
            int8 (C, bits) of -1 and +1, in the order of `classes`; None if the method has none.
        """
        return self.runtime.codewords()

    def prefix(self, bits: int) -> HashModel:
        """Shorten the codes. A codebook of the design "nested" is made for it.

        Args:
            bits: Number of class bits to keep, the first ones. Content bits stay.

        Returns:
            A model that shares all weights. It cannot be saved.

        Raises:
            UsageError: There are not so many bits.
        """
        require(1 <= bits <= self.bits, f"bits must be >= 1 and <= {self.bits}, got {bits}.")
        network, config = self.network.prefix(bits), replace(self.config, bits=bits)
        return replace(self, network=network, config=config, ranking=self.ranking.prefix(bits))

    def encoder(self, batch_size: int | None = None) -> Encoder:
        """The encoder that runs this model.

        Args:
            batch_size: Images per batch; None: see `hadahash.encoding.usual_batch`.

        Returns:
            The encoder.
        """
        return Encoder(self.runtime, self.preprocess, self.precision, batch_size)

    def encode(
        self,
        source: Any,
        *,
        batch_size: int | None = None,
        progress: Progress | None = None,
        cache: SharedFeatures | None = None,
    ) -> Codes:
        """Encode images.

        Args:
            source: An image file, folder, table, data set name, list of files, PIL image, bytes,
                array or tensor; see `hadahash.data.sources.as_images`.
            batch_size: Images per batch.
            progress: Called with the number of images of each batch.
            cache: Features that several models with one backbone share.

        Returns:
            The codes. Images that cannot be read are in `.skipped`.

        Raises:
            ImageError: `source` is a single file that cannot be read.
        """
        images = as_images(source)
        if cache is not None:
            values = self.values(images, batch_size=batch_size, progress=progress, cache=cache)
            codes = self.to_codes(values, images.ids)
        else:
            codes = self.encoder(batch_size).encode(images, progress)
        check_single(source, codes.skipped, len(images))
        return codes

    def queries(
        self,
        source: Any,
        *,
        batch_size: int | None = None,
        progress: Progress | None = None,
        cache: SharedFeatures | None = None,
    ) -> Queries:
        """Compute real-valued queries, which rank better than codes.

        Args:
            source: As for `encode`.
            batch_size: Images per batch.
            progress: Called with the number of images of each batch.
            cache: Features that several models with one backbone share.

        Returns:
            The queries; `.codes()` are those of `encode`. Images that cannot be read are in
            `.skipped`.

        Raises:
            ImageError: `source` is a single file that cannot be read.
        """
        images = as_images(source)
        values = self.values(
            images, batch_size=batch_size, progress=progress, cache=cache, scores=True
        )
        queries = self.to_queries(values, images.ids)
        check_single(source, queries.skipped, len(images))
        return queries

    def values(
        self,
        source: Any,
        *,
        batch_size: int | None = None,
        progress: Progress | None = None,
        cache: SharedFeatures | None = None,
        scores: bool = False,
    ) -> Outputs:
        """Compute the real values before binarization.

        Args:
            source: As for `encode`.
            batch_size: Images per batch.
            progress: Called with the number of images of each batch.
            cache: Features that several models with one backbone share.
            scores: Also compute the scores of the method's classifier.

        Returns:
            Values (n, bits) of the images that can be read, their indices, and the failures; with
            values of the content bits if the model has them.
        """
        images, encoder = as_images(source), self.encoder(batch_size)
        if cache is None or not (self.fixed_backbone or self.runtime.has_original):
            return encoder.values(images.images, progress, scores=scores)
        fixed = backbone_key(self.config) if self.fixed_backbone else None
        return encoder.head(cache.get(encoder, images, fixed, progress), scores=scores)

    def to_codes(self, values: Outputs, ids: NDArray[Any]) -> Codes:
        """Binarize known values.

        Args:
            values: Result of `values`.
            ids: Ids of all images, also of those that could not be read.

        Returns:
            The codes; images without values are in `.skipped`.
        """
        own, skipped = ids[values.rows], to_skipped(values.failed, ids)
        return to_codes(values, own, skipped, self.fingerprint)

    def to_queries(self, values: Outputs, ids: NDArray[Any]) -> Queries:
        """Make real-valued queries of known values.

        Args:
            values: Result of `values`.
            ids: Ids of all images, also of those that could not be read.

        Returns:
            The queries; images without values are in `.skipped`.
        """
        relaxed = bounded_relaxed(self.runtime, values.values)
        own, skipped = ids[values.rows], to_skipped(values.failed, ids)
        facts: Any = {"softmax": not self.multilabel, "fingerprint": self.fingerprint}
        return to_queries(values, relaxed, own, skipped, **facts)

    def encode_to_file(
        self,
        source: Any,
        out: str | Path,
        *,
        shard: tuple[int, int] = (1, 1),
        batch_size: int | None = None,
        progress: Progress | None = None,
    ) -> Codes:
        """Encode as `encode` does, into a file, resuming an interrupted job of the same images.

        Args:
            source: As in `encode`.
            out: The code file, .npz or .parquet.
            shard: (i, n): encode the i-th of n shards.
            batch_size: Images per batch.
            progress: Called with the number of images of each batch.

        Returns:
            The codes, as written.

        Raises:
            DataError: None of the images can be read; no file is written.
            StorageError: A file cannot be written.
        """
        return encode_to_file(
            self.encoder(batch_size),
            as_images(source),
            Path(out),
            model_id=self.id,
            shard=shard,
            progress=progress,
        )

    @property
    def fixed_backbone(self) -> bool:
        """Whether the backbone has its initial weights, so its features can be shared."""
        if self.runtime.name == "onnx":
            return bool(self.network.fixed_backbone)
        from .building import has_fixed_backbone

        return has_fixed_backbone(self.config, self.method)

    def save(self, folder: str | Path) -> None:
        """Write model.json and the weights (safetensors) into a folder, atomically.

        An earlier model in the folder is replaced. Other files are not touched.

        Args:
            folder: The folder; it is created if it does not exist.

        Raises:
            StorageError: A file cannot be written.
            UsageError: The model was shortened with `prefix`.
        """
        from .loading import save_model

        save_model(self, Path(folder))

    @staticmethod
    def load(folder: str | Path, *, device: str = "auto", runtime: str | None = None) -> HashModel:
        """Load a saved model. No codebook is searched.

        Args:
            folder: The folder that `save`, `hadahash train` or `hadahash export` wrote.
            device: "auto", "cpu" or "cuda".
            runtime: "torch", or "onnx" for an exported model; by default HADAHASH_RUNTIME, else
                onnx if the model was exported, onnxruntime is installed and no GPU is used.

        Returns:
            The model.

        Raises:
            StorageError: There is no model, its files are damaged, or its plugin cannot be loaded.
            MissingExtraError: The package of the runtime is not installed.
        """
        from .loading import load_model

        return load_model(Path(folder), device, runtime)

    @staticmethod
    def pretrained(name: str = "lite0", *, device: str = "auto") -> HashModel:
        """Load a ready-made model; see `hadahash.pretrained.load_pretrained`."""
        from .pretrained import load_pretrained

        return load_pretrained(name, device=device)
