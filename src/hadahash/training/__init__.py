"""Training: one loop, its settings, checkpoints and log."""

from ..data.pixel_store import PixelStore
from ..networks.hash_network import HashNetwork
from .checkpoint import Checkpoint
from .distributed import workers_here
from .log import Log
from .loop import Outcome, TrainingSet, train
from .settings import TrainSettings

__all__ = [
    "Checkpoint",
    "HashNetwork",
    "Log",
    "Outcome",
    "PixelStore",
    "TrainSettings",
    "TrainingSet",
    "train",
    "workers_here",
]
