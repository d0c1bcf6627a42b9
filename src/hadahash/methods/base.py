"""The interface of a hashing method: a module from features to values whose signs are the code.

A deep method learns by gradient: the training loop minimizes the sum of the named parts of its
`loss`. A shallow method learns from all features in one call of `fit`. Both are found by name in
the registry `METHODS`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from ..registry import Registry

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True)
class Task:
    """The sizes a method is built for.

    Attributes:
        bits: Code length.
        classes: Number of classes, the width of the targets.
        features: Width of the backbone's output.
        multilabel: Whether an image can have any number of labels.
        train_images: Number of training images, for buffers with one row per training image; 0 for
            a deep method that is loaded and will not be trained.
        seed: Seed of everything that `Method.create` draws.
    """

    bits: int
    classes: int
    features: int
    multilabel: bool = False
    train_images: int = 0
    seed: int = 0


@dataclass(frozen=True)
class NoSettings:
    """The settings of a method that has none."""


@dataclass(frozen=True)
class Batch:
    """One training batch.

    Attributes:
        features: Float (n, d), the backbone's output.
        targets: Float (n, classes): one-hot, multi-hot, or a mixture of both after mixup.
        indices: int64 (n,), the positions of the images in the training set.
        unmixed: Float (n, classes), the targets before mixup and CutMix; None: they were not used.
        share: Float (n, 1), how much of each image is the image itself; the rest is the image at
            the mirrored position of the batch. None: 1.
    """

    features: Tensor
    targets: Tensor
    indices: Tensor
    unmixed: Tensor | None = None
    share: Tensor | None = None

    @property
    def labels(self) -> Tensor:
        """Targets (n, classes) of the images before they were mixed: one-hot or multi-hot."""
        return self.targets if self.unmixed is None else self.unmixed

    def mixed(self, values: Tensor) -> Tensor:
        """Mix values of the unmixed images as the images were mixed.

        Args:
            values: (n, ...), for example the target code of each image.

        Returns:
            (n, ...): share * values + (1 - share) * values of the partner.
        """
        if self.share is None:
            return values
        return values * self.share + values.flip(0) * (1 - self.share)


class Method(nn.Module, ABC):
    """Base class of all methods.

    `Method.create(task, settings)` makes a method that can be trained: it searches codebooks and
    draws random projections. The constructor `Method(task, settings)` only allocates parameters and
    buffers of the right shapes; loading a model fills them from its file. Encoding needs nothing
    but `values`.

    State that encoding needs is a parameter or a persistent buffer. State that only training needs
    is a buffer with `persistent=False`: it is part of checkpoints, not of the saved model.

    Args:
        task: The sizes to build for.
        settings: An instance of `Settings`.

    Example:
        >>> from hadahash.methods import METHODS, Task
        >>> kind = METHODS.get("hcdh")
        >>> task = Task(bits=16, classes=10, features=32)
        >>> method = kind.create(task, kind.Settings(lam=0.1))
        >>> method.values(torch.zeros(5, 32)).shape, method.codewords().shape
        (torch.Size([5, 16]), torch.Size([10, 16]))
        >>> empty = kind(task, kind.Settings(lam=0.1))  # no search
        >>> empty.load_state_dict(method.state_dict())
        <All keys matched successfully>
    """

    Settings: ClassVar[type[Any]] = NoSettings
    uses_labels: ClassVar[bool] = True  # False: the code follows the features, not the classes

    def __init__(self, task: Task, settings: Any) -> None:
        super().__init__()
        self.task, self.settings = task, settings

    @classmethod
    def create(cls, task: Task, settings: Any) -> Self:
        """Make a method that is ready to be trained.

        A subclass that searches or draws something calls `super().create(task, settings)` and fills
        its buffers.

        Args:
            task: The sizes to build for, and the seed.
            settings: An instance of `Settings`.

        Returns:
            The method before training. Layers are initialized from torch's global random state.
        """
        return cls(task, settings)

    @abstractmethod
    def values(self, features: Tensor) -> Tensor:
        """Compute the real-valued outputs whose signs are the code.

        Args:
            features: Float (n, d).

        Returns:
            Float (n, bits). A bit is 1 where its value is >= 0.
        """

    def codewords(self) -> Tensor | None:
        """Return the codeword of each class, if the method has them.

        The codes of a class gather around its codeword. An index uses this to route queries.

        Returns:
            Float (classes, bits) of +1 and -1, or None.
        """
        return None

    def relaxed(self, values: Tensor) -> Tensor:
        """Map values to the continuous code that the loss sees, for queries that keep real numbers.

        Args:
            values: Float (n, bits), from `values`.

        Returns:
            Float (n, bits): `values` after the method's activation (such as tanh), or unchanged if
            it has none.
        """
        return values

    def class_scores(self, features: Tensor) -> Tensor | None:
        """Compute the scores of the classes, if the method trains a classifier.

        Args:
            features: Float (n, d).

        Returns:
            Float (n, classes): logits of a softmax, or of sigmoids for multi-label images. None if
            the method has no classifier.
        """
        return None

    def upgrade_state(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Convert the tensors of an older model file to the current names and shapes.

        Args:
            tensors: Tensors by name, as in `state_dict()` of the version that wrote the file.

        Returns:
            Tensors by name, as in the current `state_dict()`. By default they are returned
            unchanged.
        """
        return tensors


class DeepMethod(Method):
    """A method that learns by gradient, together with the backbone or on its features alone.

    `loss` must be free of data-dependent control flow and of `.item()`, because the loop may record
    it as a CUDA graph. It always uses the same parameters. With several processes each of them
    computes it for the whole batch, whose features the processes have joined.
    """

    @abstractmethod
    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """Compute the loss of one batch.

        Args:
            batch: Features, targets and image positions.

        Returns:
            The weighted parts of the loss by name, each a scalar. Training minimizes their sum.
        """

    @property
    def needs_features(self) -> bool:
        """Whether `prepare` must be called before training."""
        return False

    def prepare(self, features: Tensor, targets: Tensor) -> None:
        """Look at the training images before training; called if `needs_features`.

        Args:
            features: Float (n, d) on the CPU, features of a sample of the training images by the
                backbone with its initial weights.
            targets: Float (n, classes) on the CPU: one-hot or multi-hot.
        """

    def before_step(self, step: int, steps: int) -> None:
        """Prepare a training step; for schedules and for updates outside the gradient.

        Args:
            step: Number of the step, from 0.
            steps: Total number of steps.
        """


class ShallowMethod(Method):
    """A method that learns from all features and targets at once, without gradients."""

    @abstractmethod
    def fit(self, features: Tensor, targets: Tensor, generator: torch.Generator) -> None:
        """Learn the hash function.

        Args:
            features: Float (n, d).
            targets: Float (n, classes): one-hot or multi-hot.
            generator: Source of all random choices.
        """


METHODS: Registry[type[Method]] = Registry("method", entry_point_group="hadahash.methods")
