"""Hasher: the high-level API, a scikit-learn transformer of images or embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .building import DEFAULT_METHOD, make_config
from .codes import Codes, Skipped
from .config import Config
from .data.sources import as_images, as_training
from .encoding import Progress
from .errors import UsageError
from .fitting import fit_model
from .methods import METHODS
from .model import HashModel
from .networks import EMBEDDINGS
from .queries import Queries
from .settings import require
from .shared_features import SharedFeatures


class Hasher:
    """Learns binary codes of images or embeddings.

    The methods "itq" and "lsh" need no labels.

    Args:
        method: Name of the hashing method; see `hadahash.list_methods()`.
        bits: Code length.
        content_bits: Content bits beside the code, a multiple of 8: they tell the photos of a class
            apart. By default 128, or 0 for methods without labels ("itq", "lsh"); 0: none, as in
            the paper.
        backbone: Network: efficientnet_lite0/1/2, alexnet, or any torchvision or timm name. Not
            used for embeddings.
        seed: Random seed of codebook, initialization and order of the images.
        weights: Initial weights: "imagenet", "none", or a .safetensors or .pth file.
        device: "auto", "cpu" or "cuda".
        plugins: Python files or modules that define methods.
        **settings: Settings of training, augmentation, input and method, for example
            `epochs=20, frozen=True, lam=0.1`; see `hadahash settings`. Where there is no GPU,
            `frozen` is true by default for pretrained weights: only the head is trained.

    Attributes:
        model_: The trained `HashModel`, after `fit` or `load`.
        skipped_: Training images that could not be read, after `fit`.
        n_features_in_: Width of the embeddings, after `fit` on embeddings.

    Raises:
        UsageError: An unknown method or setting, or a value out of range.

    Example:
        >>> hasher = Hasher("hcdh", bits=64).fit("photos/train")      # doctest: +SKIP
        >>> codes = hasher.encode("photos/all")                       # doctest: +SKIP
        >>> hasher.save("run/")                                       # doctest: +SKIP

        Embeddings, without labels:

        >>> vectors = np.random.default_rng(0).normal(size=(100, 32))
        >>> hasher = Hasher("itq", bits=16, device="cpu").fit(vectors)
        >>> hasher.encode(vectors).packed.shape, hasher.transform(vectors).shape
        ((100, 2), (100, 16))
    """

    skipped_: tuple[Skipped, ...] = ()

    def __init__(
        self,
        method: str = DEFAULT_METHOD,
        *,
        bits: int = 64,
        content_bits: int | None = None,
        backbone: str = "efficientnet_lite0",
        seed: int = 0,
        weights: str | Path = "imagenet",
        device: str = "auto",
        plugins: Sequence[str | Path] = (),
        **settings: Any,
    ) -> None:
        self.method, self.bits, self.backbone, self.seed = method, bits, backbone, seed
        self.weights, self.device, self.plugins = weights, device, plugins
        self.content_bits = content_bits
        self.settings = settings
        self.config  # noqa: B018 - wrong names and values are reported here, not when fitting

    @property
    def config(self) -> Config:
        """The requested configuration, checked."""
        return make_config(
            self.method,
            bits=self.bits,
            backbone=self.backbone,
            weights=self.weights,
            seed=self.seed,
            plugins=self.plugins,
            content_bits=self.content_bits,
            device=self.device,
            settings=self.settings,
        )

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """All constructor arguments by name, as scikit-learn expects them.

        Args:
            deep: Ignored; there are no nested estimators.

        Returns:
            Names and values as they were given, settings included.
        """
        names = ("method", "bits", "content_bits", "backbone", "seed", "weights")
        given = {name: getattr(self, name) for name in (*names, "device", "plugins")}
        return {**given, **self.settings}

    def set_params(self, **params: Any) -> Hasher:
        """Change constructor arguments. The trained model is kept until the next `fit`.

        Args:
            **params: Constructor arguments or settings by name.

        Returns:
            self

        Raises:
            UsageError: An unknown setting, or a value out of range; nothing is changed then.
        """
        checked = type(self)(**{**self.get_params(), **params})
        vars(self).update(vars(checked))
        return self

    def __repr__(self) -> str:
        changed = ", ".join(f"{key}={value!r}" for key, value in self.settings.items())
        fields = f"{self.method!r}, bits={self.bits}, backbone={self.backbone!r}, seed={self.seed}"
        return f"Hasher({fields}{', ' if changed else ''}{changed})"

    def fit(
        self,
        data: Any,
        labels: Any = None,
        *,
        progress: bool = False,
        cache: SharedFeatures | None = None,
    ) -> Hasher:
        """Learn from images or embeddings. `model_` changes only when training has succeeded.

        Args:
            data: A folder of class folders, a table, a data set name, or images with `labels`; or
                embeddings: floats (n, d), or a .npy, .npz, .parquet or .arrow file. Methods without
                labels also take a folder of photos. Of data with a split only the training part is
                used. How each method centers embeddings: see docs/embeddings.md.
            labels: Labels (n,) or multi-label 0/1 (n, C), where `data` has none and the method
                needs them.
            progress: Show a progress bar on stderr.
            cache: Features that several hashers with one fixed backbone share.

        Returns:
            self

        Raises:
            DataError: The data cannot be used.
            TrainingDivergedError: The loss became NaN or infinite.
        """
        result = fit_model(
            self.config,
            as_training(data, labels, need_labels=METHODS.get(self.method).uses_labels),
            device=self.device,
            progress=progress,
            cache=cache,
        )
        self.skipped_ = result.skipped
        self.model_ = result.model
        if self.model_.config.backbone == EMBEDDINGS:
            self.n_features_in_ = self.model_.network.backbone.features
        return self

    def encode(
        self,
        source: Any,
        *,
        batch_size: int | None = None,
        progress: Progress | None = None,
        cache: SharedFeatures | None = None,
    ) -> Codes:
        """Encode images or embeddings.

        Args:
            source: An image file, folder, table, data set name, list of files, PIL image, bytes,
                array or tensor; or embeddings, for a hasher that was fitted on embeddings.
            batch_size: Images per batch.
            progress: Called with the number of images of each batch.
            cache: Features that several hashers with one fixed backbone share.

        Returns:
            The codes. Images that cannot be read are in `.skipped`.

        Raises:
            UsageError: The hasher is not fitted.
            ImageError: `source` is a single file that cannot be read.
        """
        model = self._fitted()
        return model.encode(source, batch_size=batch_size, progress=progress, cache=cache)

    def queries(self, source: Any) -> Queries:
        """Encode queries with real values, which find better results than codes do.

        Args:
            source: As for `encode`.

        Returns:
            The queries; `Index.search` takes them.

        Raises:
            UsageError: The hasher is not fitted.
        """
        return self._fitted().queries(source)

    def transform(self, source: Any) -> NDArray[np.int8]:
        """Encode to an array, as a step of a scikit-learn pipeline.

        Args:
            source: As for `encode`.

        Returns:
            The bits as -1 and +1, int8 (n, bits), one row per input.

        Raises:
            UsageError: The hasher is not fitted, or an input cannot be read, so that its row would
                be missing.
        """
        model, images = self._fitted(), as_images(source)
        width = getattr(images.images, "width", None)
        expected = getattr(self, "n_features_in_", width)
        require(
            width is None or width == expected,
            f"X has {width} features, but Hasher is expecting {expected} features as input.",
        )
        codes = model.encode(images)
        if codes.skipped:
            path, reason = codes.skipped[0]
            raise UsageError(
                f"{len(codes.skipped):,} inputs have no code, the first is {path} ({reason}). "
                "Remove them, or use encode, which skips and lists them."
            )
        return codes.signs()

    def fit_transform(self, data: Any, y: Any = None) -> NDArray[np.int8]:
        """Fit, then transform the same data.

        Args:
            data: As for `fit`.
            y: The labels, as for `fit`.

        Returns:
            The bits as -1 and +1, int8 (n, bits).
        """
        return self.fit(data, y).transform(data)

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes, after `fit` or `load`."""
        return self._fitted().classes

    def save(self, folder: str | Path) -> None:
        """Save the trained model.

        Args:
            folder: The folder; it is created if it does not exist.

        Raises:
            UsageError: The hasher is not fitted.
            StorageError: A file cannot be written.
        """
        self._fitted().save(folder)

    @staticmethod
    def load(folder: str | Path, *, device: str = "auto") -> Hasher:
        """A hasher with a saved model, which can encode, or be fitted again.

        Args:
            folder: The folder that `save` or `hadahash train` wrote.
            device: "auto", "cpu" or "cuda".

        Returns:
            The hasher, with the settings that the model was trained with.

        Raises:
            StorageError: There is no model, or its files are damaged.
        """
        return Hasher._of(HashModel.load(folder, device=device), device)

    @staticmethod
    def pretrained(name: str = "lite0", *, device: str = "auto") -> Hasher:
        """A hasher with a ready-made model, for collections that are too small to fit one.

        Args:
            name: "lite0": ITQ to 128 bits on features of EfficientNet-Lite0.
            device: "auto", "cpu" or "cuda".

        Returns:
            The hasher, which can encode images.

        Raises:
            UsageError: The name is unknown.
        """
        return Hasher._of(HashModel.pretrained(name, device=device), device)

    @staticmethod
    def _of(model: HashModel, device: str) -> Hasher:
        config = model.config
        hasher = Hasher(
            config.method,
            bits=config.bits,
            backbone=config.backbone,
            seed=config.seed,
            weights=config.weights,
            device=device,
            plugins=config.plugins,
            content_bits=config.content_bits,
            **config.settings(),
        )
        hasher.model_ = model
        return hasher

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import InputTags, Tags, TargetTags, TransformerTags

        return Tags(
            estimator_type="transformer",
            target_tags=TargetTags(required=METHODS.get(self.method).uses_labels),
            transformer_tags=TransformerTags(preserves_dtype=[]),
            input_tags=InputTags(),
        )

    def _fitted(self) -> HashModel:
        if not hasattr(self, "model_"):
            raise UsageError(
                "This Hasher is not fitted: call fit(...), or use Hasher.load or pretrained."
            )
        return self.model_
