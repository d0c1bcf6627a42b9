"""Training: one loop, its settings, checkpoints and log."""

from .checkpoint import Checkpoint
from .distributed import workers_here
from .log import Log
from .loop import Outcome, TrainingSet, train
from .network import HashNetwork
from .pixels import PixelStore
from .settings import TrainSettings

__all__ = ["Checkpoint", "HashNetwork", "Log", "Outcome", "PixelStore", "TrainSettings", "TrainingSet", "train", "workers_here"]
