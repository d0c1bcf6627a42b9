"""Hasher: the front door. Fit on labelled images, encode any images, save, load."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import safetensors
import safetensors.torch
import torch
from numpy.typing import NDArray
from torch import Tensor

from . import files
from ._version import __version__
from .codes import Codes, Skipped
from .config import require, split
from .data.base import ArrayImages, Images, LabelledImages
from .data.decode import name_failures
from .data.images import image_size
from .data.preprocess import AugmentSettings, Preprocess
from .data.sources import Collection, open_source, read_collection
from .encoding import Advance, Encoder, FeatureCache, Outputs, encode_to_file
from .errors import DataError, ImageError, NewerFileError, StorageError, UsageError
from .methods import METHODS, Method, ShallowMethod, Task
from .networks import Backbone, build_backbone
from .training import (
    Checkpoint,
    HashNetwork,
    Log,
    Outcome,
    PixelStore,
    TrainingSet,
    TrainSettings,
    train,
    workers_here,
)

_FORMAT = 1
_CARD = "hasher.json"


@dataclass(frozen=True)
class ModelSettings:
    """What the network is and how images reach it; None means: what suits the backbone and the images."""

    frozen: bool = (
        False  # keep the backbone as it is and train the head on its features, computed once
    )
    partial_weights: bool = False  # a weights file may leave layers out; they start at random
    size: int | None = None  # pixels of the network's input
    encode_size: int | None = (
        None  # the same when encoding: random crops show things larger, so a little more can help
    )
    side: int | None = None  # pixels of the square each image is stored as
    crop: float | None = None  # central part of the square that encoding uses
    fit: Literal["crop", "squash"] = (
        "crop"  # images that are not square: cut the ends off, or squash them
    )
    mirror: bool = False  # encode the average of an image and its mirror image: twice the work, a little better


class Hasher:
    """Learns binary codes for labelled images.

        hasher = Hasher(method="hcdh", bits=64, backbone="efficientnet_lite0", seed=0).fit("photos/train")
        codes = hasher.encode("photos/all")
        hasher.save("run/")

    Further keyword arguments are settings of the training, the augmentation, the model or the method
    (`epochs=20, frozen=True, lam=0.1`); an unknown one is refused when fitting starts.
    """

    network: HashNetwork
    preprocess: Preprocess
    classes: tuple[str, ...]
    multilabel: bool
    skipped: tuple[Skipped, ...]
    outcome: Outcome | None
    weights_sha256: str
    train_images: int

    def __init__(
        self,
        method: str = "hcdh",
        *,
        bits: int = 64,
        backbone: str = "efficientnet_lite0",
        seed: int = 0,
        weights: str = "imagenet",
        device: str = "auto",
        **settings: Any,
    ) -> None:
        self.method, self.bits, self.backbone, self.seed = method, bits, backbone, seed
        self.weights, self.device, self.settings = weights, device, settings

    # ------------------------------------------------------------------ fit

    def fit(
        self,
        data: str | Path | LabelledImages | NDArray[np.uint8],
        labels: NDArray[Any] | None = None,
        *,
        out: str | Path | None = None,
        resume: bool = False,
        progress: bool = False,
        cache: FeatureCache | None = None,
    ) -> Hasher:
        """Learn from a folder of class folders, a table, a LabelledImages, or pixels (n, h, w, 3) with labels (n,) or (n, C).

        With `out`, a log and checkpoints are kept there, and `resume` goes on from the last checkpoint. A `cache` keeps the
        features of a frozen backbone for other hashers that use the same one.
        """
        method_type, train_settings, augmentation, model_settings, method_settings = self._check()
        labelled = read_collection(data, labels)
        _check_labels(labelled)
        self.classes, self.multilabel = labelled.classes, labelled.multilabel
        with _seeded(self.seed):
            backbone = build_backbone(
                self.backbone, weights=self.weights, partial_weights=model_settings.partial_weights
            )
        self.preprocess = choose_preprocess(labelled.images, backbone.size, model_settings)
        self._build(backbone, method_type, method_settings, train_images=len(labelled))
        inputs, kept = self._inputs(labelled, cache)
        _check_enough(len(kept), len(labelled), self.skipped)
        targets = one_hot(labelled.labels[kept], len(self.classes))
        first = workers_here().rank == 0  # of several processes only one writes
        folder = Path(out) if out is not None and first else None
        checkpoint = self._checkpoint(
            folder, resume and first, labelled, train_settings.checkpoint_seconds
        )
        with Log(folder / "log.jsonl" if folder else None, progress=progress and first) as log:
            self._learn(inputs, targets, train_settings, augmentation, log, checkpoint)
        self.weights_sha256 = hashlib.sha256(self._content()).hexdigest()
        return self

    @property
    def fixed_backbone(self) -> bool:
        """Does the backbone stay as it came? Then its features can be computed once and shared."""
        return (
            isinstance(self.network.method, ShallowMethod)
            or split(self.settings, *self._kinds())[2].frozen
        )

    def _inputs(
        self, data: LabelledImages, cache: FeatureCache | None
    ) -> tuple[Tensor, NDArray[np.int64]]:
        """What the method learns from, pixels or features, and the numbers of the images that could be read."""
        if self.fixed_backbone:
            found = self._features(open_source(data), cache or FeatureCache())
            self.skipped = name_failures(found.failed, data.ids)
            return found.values, found.rows
        store = PixelStore.build(data, self.preprocess)
        self.skipped = store.skipped
        return store.pixels, store.kept

    def _learn(
        self,
        inputs: Tensor,
        targets: Tensor,
        settings: TrainSettings,
        augmentation: AugmentSettings,
        log: Log,
        checkpoint: Checkpoint | None,
    ) -> None:
        method, device = self.network.method, self.network.threshold.device
        if isinstance(method, ShallowMethod):
            method.cpu().fit(inputs, targets, torch.Generator().manual_seed(self.seed))
            self.network.to(device)
            self.outcome = None
        else:
            data = TrainingSet(_resident(inputs, device), targets.to(device))
            self.outcome = train(
                self.network,
                data,
                settings,
                augmentation=augmentation,
                preprocess=self.preprocess,
                seed=self.seed,
                log=log,
                checkpoint=checkpoint,
                workers=workers_here(),
            )
        if settings.threshold != "zero":
            self._set_threshold(inputs, settings.threshold)

    @torch.inference_mode()
    def _set_threshold(self, inputs: Tensor, kind: str) -> None:
        if inputs.ndim == 2:
            values = self.network.values(inputs.to(self.network.threshold.device))
        else:
            values = self.encoder().values(ArrayImages(inputs.numpy().transpose(0, 2, 3, 1))).values
        self.network.threshold.copy_(values.mean(0) if kind == "mean" else values.median(0).values)

    def _kinds(self) -> tuple[type[Any], ...]:
        return TrainSettings, AugmentSettings, ModelSettings, METHODS.get(self.method).Settings

    def _check(self) -> tuple[type[Method], TrainSettings, AugmentSettings, ModelSettings, Any]:
        for name, value, least in (("bits", self.bits, 1), ("seed", self.seed, -math.inf)):
            whole = isinstance(value, (int, np.integer)) and value >= least
            require(
                whole,
                f"{name}={value} is not possible: it must be a whole number{', at least 1' if least == 1 else ''}.",
            )
        self.bits, self.seed = (
            int(self.bits),
            int(self.seed),
        )  # numpy's numbers have no place in the card
        self.settings = {
            key: value.item() if isinstance(value, np.generic) else value
            for key, value in self.settings.items()
        }
        choose_device(self.device)
        return METHODS.get(self.method), *split(self.settings, *self._kinds())

    def _build(
        self,
        backbone: Backbone,
        method_type: type[Method],
        method_settings: Any,
        *,
        train_images: int,
        learns: bool = True,
    ) -> None:
        """The network as it is before training; a deep method that has learned needs no room for its training images."""
        self.train_images = train_images
        rows = train_images if learns or issubclass(method_type, ShallowMethod) else 0
        task = Task(
            self.bits, len(self.classes), backbone.features, self.multilabel, rows, self.seed
        )
        with _seeded(self.seed):
            make = method_type.create if learns else method_type
            method = make(task, method_settings)
        device = choose_device(self.device)
        self.network = (
            HashNetwork(backbone, method, self.bits)
            .to(memory_format=torch.channels_last)
            .to(device)
        )
        self.network.eval()

    def _checkpoint(
        self, folder: Path | None, resume: bool, data: LabelledImages, seconds: float
    ) -> Checkpoint | None:
        if folder is None:
            require(not resume, "Resuming needs the folder of the run: give out=... (--out).")
            return None
        settings = {
            key: str(value) for key, value in self.settings.items() if key != "checkpoint_seconds"
        }
        fingerprint = {
            "method": self.method,
            "bits": self.bits,
            "backbone": self.backbone,
            "seed": self.seed,
            "weights": self.weights,
            **settings,
        }
        digest = hashlib.sha256("\0".join(data.ids).encode("utf-8", "surrogateescape"))
        digest.update(np.ascontiguousarray(data.labels).data)
        fingerprint["data"] = digest.hexdigest()[:16]
        checkpoint = Checkpoint(folder / "checkpoint.safetensors", fingerprint, seconds)
        for half_written in folder.glob(
            ".checkpoint.safetensors.*.part"
        ):  # by a process that was killed
            half_written.unlink(missing_ok=True)
        if not resume:
            checkpoint.remove()
        return checkpoint

    # ------------------------------------------------------------------ encode

    def encoder(self) -> Encoder:
        if not hasattr(self, "network"):
            raise UsageError(
                "This Hasher has learned nothing yet: call fit(...) first, or Hasher.load(...) a saved one."
            )
        return Encoder(self.network, self.preprocess)

    def encode(
        self, source: Any, *, advance: Advance | None = None, cache: FeatureCache | None = None
    ) -> Codes:
        """Codes of an image file, a folder (searched recursively), a list of files, pixels (n, h, w, 3), or a LabelledImages.

        Images that cannot be read are in the result's `.skipped`; only when a single file is asked for is that an error.
        """
        images = open_source(source)
        if cache is not None and self.fixed_backbone:
            codes = self.encoder().codes_of(
                self.values(images, advance=advance, cache=cache), images.ids
            )
        else:
            codes = self.encoder().encode(images.images, images.ids, advance)
        if isinstance(source, (str, Path)) and Path(source).is_file() and codes.skipped:
            raise ImageError(source, codes.skipped[0].reason)
        return codes

    def _features(
        self, images: Collection, cache: FeatureCache, advance: Advance | None = None
    ) -> Outputs:
        random = self.weights == "none" or split(self.settings, *self._kinds())[2].partial_weights
        name = f"{self.backbone} {self.weights}" + (f" seed {self.seed}" if random else "")
        return cache.get(self.encoder(), images, name, advance)

    def encode_to_file(
        self,
        source: Any,
        out: str | Path,
        *,
        shard: tuple[int, int] = (1, 1),
        advance: Advance | None = None,
    ) -> Codes:
        """As `encode`, for long jobs: written in parts, so that an interrupted job goes on where it stopped."""
        images, ids = open_source(source)
        return encode_to_file(
            self.encoder(),
            images,
            ids,
            Path(out),
            model=self.weights_sha256,
            shard=shard,
            advance=advance,
        )

    def values(
        self, source: Any, *, advance: Advance | None = None, cache: FeatureCache | None = None
    ) -> Outputs:
        """The real values before sign, of anything that `encode` takes."""
        images = open_source(source)
        if cache is not None and self.fixed_backbone:
            return self.encoder().values_of(self._features(images, cache, advance))
        return self.encoder().values(images.images, advance)

    @torch.inference_mode()
    def relaxed(self, values: Outputs) -> NDArray[np.float16]:
        """Values before sign as the method's loss sees them (HashNet's tanh(beta u), say), to look at their distribution."""
        found = self.network.relaxed(values.values.to(self.network.threshold.device))
        return found.cpu().numpy().astype(np.float16)

    # ------------------------------------------------------------------ save and load

    def save(self, folder: str | Path) -> None:
        """Write the weights and the card `hasher.json` that names them. The old model or the new one is there, never a half."""
        folder = Path(folder)
        content = self._content()
        self.weights_sha256 = hashlib.sha256(content).hexdigest()
        name = f"model-{self.weights_sha256[:12]}.safetensors"
        files.write_bytes(folder / name, content)
        files.write_json(folder / _CARD, self._card(name))
        for old in folder.glob("model-*.safetensors"):
            if old.name != name:
                old.unlink()

    def _content(self) -> bytes:
        """The weights as a safetensors file."""
        tensors = {
            key: value.detach().cpu().contiguous()
            for key, value in self.encoder().network.state_dict().items()
        }
        return safetensors.torch.save(tensors)

    def _card(self, weights_file: str) -> dict[str, Any]:
        return {
            "format": _FORMAT,
            "hadahash": __version__,
            "method": self.method,
            "bits": self.bits,
            "backbone": self.backbone,
            "seed": self.seed,
            "weights": self.weights,
            "settings": self.settings,
            "classes": list(self.classes),
            "multilabel": self.multilabel,
            "train_images": self.train_images,
            "preprocess": dataclasses.asdict(self.preprocess),
            "weights_file": weights_file,
            "weights_sha256": self.weights_sha256,
        }

    @staticmethod
    def load(folder: str | Path, *, device: str = "auto") -> Hasher:
        folder = Path(folder)
        if not (folder / _CARD).exists():
            raise StorageError(
                f"{folder} holds no trained model ({_CARD} is missing). Train one: hadahash train DATA --out {folder}"
            )
        card = files.read_json(folder / _CARD)
        try:
            if card["format"] > _FORMAT:
                raise NewerFileError(
                    f"{folder} was written by hadahash {card.get('hadahash')}. Update with: pip install -U hadahash"
                )
            hasher = Hasher(
                card["method"],
                bits=card["bits"],
                backbone=card["backbone"],
                seed=card["seed"],
                weights=card["weights"],
                device=device,
                **card["settings"],
            )
            hasher.classes, hasher.multilabel = tuple(card["classes"]), card["multilabel"]
            hasher.preprocess, hasher.skipped, hasher.outcome = (
                Preprocess(**card["preprocess"]),
                (),
                None,
            )
            hasher.weights_sha256 = card["weights_sha256"]
            train_images, path = int(card["train_images"]), folder / card["weights_file"]
            content = path.read_bytes()
        except (KeyError, TypeError) as error:
            raise StorageError(
                f"{folder / _CARD} is damaged ({error}). Restore it or train again."
            ) from error
        except OSError as error:
            raise files.storage_error("read", path, error) from error
        hasher._restore(content, path, train_images)
        return hasher

    def _restore(self, content: bytes, path: Path, train_images: int) -> None:
        if hashlib.sha256(content).hexdigest() != self.weights_sha256:
            raise StorageError(
                f"{path} is damaged (its checksum differs from {_CARD}). Restore it or train again."
            )
        method_type, *_, method_settings = self._check()
        with _seeded(self.seed):
            backbone = build_backbone(self.backbone, weights="none")
        self._build(backbone, method_type, method_settings, train_images=train_images, learns=False)
        try:
            tensors = safetensors.torch.load(content)
            for key in {f"method.{name}" for name, _ in self.network.method.named_buffers()} - {
                *self.network.state_dict()
            }:
                tensors.pop(key, None)  # what only training needs; older model files hold it
            tensors = self.network.upgrade_state(tensors)
        except safetensors.SafetensorError as error:
            raise StorageError(
                f"{path} does not hold tensors ({error}). Restore it or train again."
            ) from error
        shapes, wanted = (
            {key: value.shape for key, value in part.items()}
            for part in (tensors, self.network.state_dict())
        )
        wrong = sorted(key for key in {*shapes, *wanted} if shapes.get(key) != wanted.get(key))
        if wrong:
            raise StorageError(
                f"{path} does not fit {_CARD}: {len(wrong)} tensors are missing, unexpected or of another shape "
                f"({', '.join(wrong[:5])}). Restore both or train again."
            )
        self.network.load_state_dict(tensors)


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Layers initialise themselves from torch's global generator: seed it here and put it back afterwards."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def choose_device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UsageError(f"Unknown device '{name}'. Use auto, cpu or cuda.") from None
    require(
        device.type != "cuda" or torch.cuda.is_available(),
        "There is no GPU that torch can use here. Use --device cpu.",
    )
    return device


def choose_preprocess(images: Images, backbone_size: int, settings: ModelSettings) -> Preprocess:
    """Photos larger than the network's input are stored a little larger and cropped; small images are used whole."""
    train_size = settings.size or backbone_size
    size = settings.encode_size or train_size
    wanted = round(size / 0.875)
    side = settings.side or min(wanted, _typical_side(images))
    crop = settings.crop or (0.875 if side >= wanted else 1.0)
    require(size >= 8 and side >= 4, f"size={size}, side={side} is too small for any network.")
    return Preprocess(
        side=side,
        size=size,
        train_size=train_size,
        crop=crop,
        fit=settings.fit,
        mirror=settings.mirror,
    )


def _typical_side(images: Images) -> int:
    """The median short side of a sample of the images."""
    if isinstance(images, ArrayImages):
        return int(min(images.pixels.shape[1:3]))
    sides = []
    for path in getattr(images, "paths", [])[:: max(1, len(images) // 200)]:
        try:
            sides.append(min(image_size(path)))
        except ImageError:
            continue
    return int(np.median(sides)) if sides else 256


def one_hot(labels: NDArray[Any], classes: int) -> Tensor:
    """Labels (n,) or (n, C) as float targets (n, C)."""
    if labels.ndim == 2:
        return torch.from_numpy(labels).float()
    return torch.nn.functional.one_hot(torch.from_numpy(labels), classes).float()


def _check_labels(data: LabelledImages) -> None:
    count = (
        int(data.labels.sum(0).astype(bool).sum())
        if data.multilabel
        else len(np.unique(data.labels))
    )
    if count < 2:
        raise DataError(
            f"Only {count} class has images: hashing learns to tell classes apart. Give at least 2 classes."
        )


def _check_enough(readable: int, asked: int, skipped: tuple[Skipped, ...]) -> None:
    if readable < 2:
        first = (
            f" The first that could not is {skipped[0].path}: {skipped[0].reason}."
            if skipped
            else ""
        )
        raise DataError(
            f"Only {readable} of {asked:,} images could be read, and training needs at least 2.{first} "
            "Replace such files by whole images, or give another folder or table."
        )


def _resident(inputs: Tensor, device: torch.device) -> Tensor:
    """On the device if it leaves half of its free memory, else where it is."""
    if device.type != "cuda" or inputs.nbytes > torch.cuda.mem_get_info(device)[0] // 2:
        return inputs
    return inputs.to(device)


__all__ = ["Hasher", "ModelSettings"]
