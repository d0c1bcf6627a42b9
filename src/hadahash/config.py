"""The configuration of a training run: nested frozen dataclasses.

`Config.resolve` turns the requested configuration into the one that ran, and that is what a model
stores. `hadahash settings` shows every setting with its help text, default and range.
"""

from __future__ import annotations

import dataclasses
import json
import numbers
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from .errors import unknown
from .settings import Checked, fields_of, from_mapping, parse_into, require, setting

MOST_CONTENT_BITS = 512
EMBEDDINGS = "embeddings"  # name of the backbone of models on given vectors


@dataclass(frozen=True)
class TrainConfig(Checked):
    """Settings of the training loop."""

    epochs: int = setting(
        30,
        "Number of passes over the training images; images that do not fill a batch are left out.",
        ge=1,
    )
    batch_size: int = setting(128, "Images per step, of all processes together.", ge=1)
    lr: float = setting(0.1, "Learning rate of the head.", gt=0)
    backbone_lr: float = setting(
        0.2,
        "Learning rate of the backbone, as a multiple of lr; 0 is the same as frozen.",
        ge=0,
    )
    schedule: Literal["onecycle", "paper"] = setting(
        "onecycle",
        "Learning rate schedule: linear warm-up and cosine decay, or halved every 50 epochs.",
    )
    warmup: float = setting(0.15, "Fraction of the steps used for warm-up (onecycle).", ge=0, le=1)
    momentum: float = setting(0.9, "Nesterov momentum of SGD.", ge=0, lt=1)
    weight_decay: float = setting(5e-4, "Weight decay; not applied to biases and norms.", ge=0)
    clip_grad: float = setting(
        0.0, "Maximum norm of the gradient of a step; 0 turns clipping off.", ge=0
    )
    sampler: Literal["random", "balanced"] = setting(
        "random", "Images of a batch: a random order, or as many of each of some classes."
    )
    classes_per_batch: int = setting(
        32, "Classes in a batch (balanced); at most as many as there are.", ge=1
    )
    ema: float = setting(
        0.998,
        "Decay of the moving average of the weights that is kept; 0 turns it off.",
        ge=0,
        lt=1,
    )
    precision: Literal["auto", "bf16", "fp32"] = setting(
        "auto",
        "Precision of the backbone; auto: bf16 on a GPU, fp32 on a CPU. The head is always fp32.",
    )
    compile: bool = setting(
        False,
        "Compile the backbone on a GPU: one more minute to start the first time, then about 1.4 "
        "times as fast. Ignored with several processes.",
    )
    deterministic: bool = setting(
        False, "Use deterministic GPU kernels without compilation: slower, repeatable to the bit."
    )
    frozen: bool = setting(
        False,
        "Keep the backbone fixed and train the head on its features, computed once; "
        "where there is no GPU, pretrained backbones are kept fixed unless this is set.",
    )
    threshold: Literal["zero", "mean", "median"] = setting(
        "zero",
        "Threshold of a bit: 0, or the mean or median of its values over the training images.",
    )
    checkpoint_seconds: float = setting(
        60.0, "Minimum time between two checkpoints; one is also written on Ctrl-C.", ge=0
    )

    @property
    def fixed_backbone(self) -> bool:
        """Whether only the head is trained, on features without augmentation."""
        return self.frozen or self.backbone_lr == 0


@dataclass(frozen=True)
class AugmentConfig(Checked):
    """Random augmentation of training images; the defaults suit a few thousand images."""

    crop_area: float = setting(
        0.5, "Minimum area of random crops, as a fraction of the image.", gt=0, le=1
    )
    crop_aspect: float = setting(4 / 3, "Maximum aspect ratio of random crops.", ge=1)
    crop_shift: float = setting(
        1.0,
        "Maximum shift of a crop from the center, as a fraction of the available margin.",
        ge=0,
        le=1,
    )
    flip: float = setting(0.5, "Probability of a horizontal flip.", ge=0, le=1)
    jitter: float = setting(
        0.5, "Maximum relative change of brightness, contrast and saturation.", ge=0, lt=1
    )
    mixup: float = setting(0.0, "Beta parameter of mixup; 0 turns it off.", ge=0)
    cutmix: float = setting(
        0.0,
        "Beta parameter of CutMix; 0 turns it off. With mixup too, half of the images get each.",
        ge=0,
    )
    mix_share: float = setting(
        1.0, "Fraction of the images that mixup and CutMix change.", ge=0, le=1
    )


@dataclass(frozen=True)
class InputConfig(Checked):
    """How images reach the network; None means: derived from the backbone and the images."""

    size: int | None = setting(None, "Input size of the network in pixels, in training.", ge=8)
    encode_size: int | None = setting(
        None, "Input size when encoding; a little larger than in training can help.", ge=8
    )
    side: int | None = setting(
        None, "Side of the square that each image is stored as, in pixels.", ge=4
    )
    crop: float | None = setting(
        None, "Central part of the square that is used when encoding, as a fraction.", gt=0, le=1
    )
    fit: Literal["crop", "squash"] = setting(
        "crop", "Images that are not square: crop or squash them."
    )
    mirror: bool = setting(
        False,
        "Encode the average of an image and its mirror image: twice the work, slightly better.",
    )
    partial_weights: bool = setting(
        False, "Allow a weights file without some layers, which are then initialized at random."
    )


@dataclass(frozen=True)
class Config:
    """The complete configuration of a model.

    Attributes:
        method: Name of the hashing method.
        bits: Code length.
        backbone: Name of the network.
        weights: Initial weights: "imagenet", "none", or the path of a file.
        seed: Random seed of codebook, initialization and order of the images.
        split_seed: Random seed of the split into queries, training images and database; None:
            `seed`.
        plugins: Python files or modules that define methods.
        content_bits: Number of content bits beside the code, a multiple of 8; 0: none, as in the
            paper. In a resolved config: as many as the backbone has features for.
        train: Settings of the training loop; None in a resolved config of a method that is not
            trained by it.
        augment: Augmentation; None in a resolved config where no augmentation was applied.
        input: How images reach the network.
        method_settings: Settings of the method, its own dataclass.
    """

    method: str
    bits: int = 64
    backbone: str = "efficientnet_lite0"
    weights: str = "imagenet"
    seed: int = 0
    split_seed: int | None = None
    plugins: tuple[str, ...] = ()
    content_bits: int = 0
    train: TrainConfig | None = field(default_factory=TrainConfig)
    augment: AugmentConfig | None = field(default_factory=AugmentConfig)
    input: InputConfig = field(default_factory=InputConfig)
    method_settings: Any = None

    def __post_init__(self) -> None:
        for name, minimum in (("bits", 1), ("seed", 0), ("split_seed", 0), ("content_bits", 0)):
            value = getattr(self, name)
            if value is None and name == "split_seed":
                continue
            whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
            require(
                whole and minimum <= value < 2**63,
                f"{name} must be an integer >= {minimum} and < 2**63, got {value!r}.",
            )
            object.__setattr__(self, name, int(value))
        require(
            self.content_bits <= MOST_CONTENT_BITS and self.content_bits % 8 == 0,
            f"content_bits must be a multiple of 8 and <= {MOST_CONTENT_BITS}, "
            f"got {self.content_bits}.",
        )

    @classmethod
    def from_flat(
        cls, settings_type: type[Any], settings: Mapping[str, Any], **fields: Any
    ) -> Config:
        """Build a configuration from one flat mapping of settings.

        Args:
            settings_type: The settings dataclass of the method.
            settings: Settings of training, augmentation, input and method by name; values may be
                text.
            **fields: The other fields: method, bits, backbone, ...

        Returns:
            The configuration.

        Raises:
            UsageError: An unknown setting, or a value of the wrong type or out of range.
        """
        train, augment, image, method = parse_into(
            settings, TrainConfig, AugmentConfig, InputConfig, settings_type
        )
        fields["weights"] = os.fspath(fields.get("weights", "imagenet"))
        return cls(**fields, train=train, augment=augment, input=image, method_settings=method)

    @classmethod
    def from_dict(cls, settings_type: type[Any], values: Mapping[str, Any]) -> Config:
        """The configuration that `to_dict` wrote.

        Raises:
            UsageError: An unknown key, or a value of the wrong type.
        """
        known = {each.name for each in dataclasses.fields(cls)}
        for key in values:
            if key not in known:
                raise unknown("key", key, known)
        groups = {
            "train": TrainConfig,
            "augment": AugmentConfig,
            "input": InputConfig,
            "method_settings": settings_type,
        }
        arguments = dict(values)
        for name, kind in groups.items():
            if arguments.get(name) is not None:
                arguments[name] = from_mapping(kind, arguments[name])
        arguments["plugins"] = tuple(arguments.get("plugins", ()))
        return cls(**arguments)

    @classmethod
    def from_stored(cls, values: Mapping[str, Any]) -> Config:
        """The configuration that `to_dict` wrote, where the method itself is not available.

        Args:
            values: What `to_dict` wrote.

        Returns:
            The configuration. The settings of the method are not checked.

        Raises:
            UsageError: An unknown key, or a value of the wrong type.
        """
        given = values.get("method_settings") or {}
        config = cls.from_dict(object, {**values, "method_settings": None})
        settings = dataclasses.make_dataclass("StoredSettings", sorted(given), frozen=True)
        return replace(config, method_settings=settings(**given))

    def to_dict(self) -> dict[str, Any]:
        """The configuration as nested dictionaries of JSON values."""
        return dataclasses.asdict(self)

    def settings(self) -> dict[str, Any]:
        """All settings of training, augmentation, input and method in one flat dictionary."""
        groups = (self.train, self.augment, self.input, self.method_settings)
        return {
            each.name: getattr(group, each.name)
            for group in groups
            if group is not None
            for each in dataclasses.fields(group)
        }

    def resolve(
        self, *, method_settings: Any, trained: bool, augmented: bool, **facts: Any
    ) -> Config:
        """The configuration that ran.

        Args:
            method_settings: The settings that the method used.
            trained: Whether the training loop ran; shallow methods have no training settings.
            augmented: Whether images were augmented.
            **facts: Effective values of training and input settings, e.g. `precision="bf16"`.

        Returns:
            The resolved configuration.
        """
        train_names = fields_of(TrainConfig)
        changes = {key: value for key, value in facts.items() if key in train_names}
        image = {key: value for key, value in facts.items() if key not in train_names}
        return replace(
            self,
            train=replace(self.train, **changes) if trained and self.train else None,
            augment=self.augment if augmented else None,
            input=replace(self.input, **image),
            method_settings=method_settings,
        )

    def identity(self) -> dict[str, Any]:
        """Everything that affects the result of training, in one flat dictionary of JSON values.

        Two configurations with the same identity train the same model on the same data.
        """
        flat: dict[str, Any] = {}
        for key, value in self.to_dict().items():
            flat |= value if isinstance(value, dict) else {key: value}
        del flat["checkpoint_seconds"]
        if not self.content_bits:  # as before there were any
            del flat["content_bits"]
        return dict(json.loads(json.dumps(flat)))


def backbone_key(config: Config) -> str:
    """Identify a backbone and its initial weights, as a key of feature caches.

    Args:
        config: The configuration.

    Returns:
        Name of the backbone and of its weights; with the seed where it draws weights.
    """
    random = config.weights == "none" or config.input.partial_weights
    return f"{config.backbone} {config.weights}" + (f" seed {config.seed}" if random else "")


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What differs between two flat mappings of JSON values.

    >>> differences({"lr": 0.1, "epochs": 3}, {"lr": 0.2, "epochs": 3})
    ['lr: 0.1 before, 0.2 now']
    """
    changed = sorted(key for key in {*before, *now} if before.get(key) != now.get(key))
    return [f"{key}: {before.get(key)} before, {now.get(key)} now" for key in changed]
